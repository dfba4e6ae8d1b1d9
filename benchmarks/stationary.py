"""Constant gains: how near they are to SciPy's and to exact ones, and how quick.

`python benchmarks/stationary.py` takes some minutes; `--write` writes its sections of the pages
"Accuracy" and "Speed". 10 000 random systems of 1 to 20 states, stable and unstable, with and
without a cross term, singular A among them, are solved by doubling and by
`scipy.linalg.solve_discrete_are`, from which `dlqr` takes its gain. Where the two differ by more
than 1e-9, both are held against doubling in decimal arithmetic, of 120 digits; so is what one last
digit of A and B changes.
"""

from __future__ import annotations

import argparse
import time
from decimal import Context, Decimal, localcontext

import numpy as np
from numpy import ndarray as Array
from pages import write_section
from scipy.linalg import LinAlgError, solve_discrete_are

import contextual_lqr as clqr

SYSTEMS, FIRST_SEED = 10_000, 900
CHECKED, DIGITS = 1000, 120  # of those that differ, so many are solved with so many digits
RADII = (0.5, 0.95, 1.0, 1.05, 1.3, 2.0, 4.0)
NEAR = 1e-9


def problems(rng: np.random.Generator, n: int, d: int, m: int, radius: float) -> list[Array]:
    """A, B, Q, R, N of n systems of this spectral radius; every fourth A is singular."""
    A = rng.standard_normal((n, d, d))
    if d > 1:
        A[::4, :, 0] = 0
    A *= radius / np.abs(np.linalg.eigvals(A)).max(-1)[:, None, None].clip(1e-12)
    B = rng.standard_normal((n, d, m))
    J = rng.standard_normal((n, d + m, d + m))
    J = J @ J.swapaxes(1, 2) / (d + m)
    N = J[:, :d, d:] * (np.arange(n) % 2)[:, None, None]
    return [A, B, J[:, :d, :d], J[:, d:, d:], N]


def gain(A: Array, B: Array, R: Array, N: Array, P: Array) -> Array:
    """K of P."""
    return -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A + N.T)


def dlqr(A: Array, B: Array, Q: Array, R: Array, N: Array) -> Array | None:
    """SciPy's gain, None where it refuses."""
    try:
        return gain(A, B, R, N, solve_discrete_are(A, B, Q, R, s=N))
    except LinAlgError:
        return None


def exact(A: Array, B: Array, Q: Array, R: Array, N: Array) -> Array:
    """The gain by doubling with 120 digits: H <- H + AᵀH(I + GH)⁻¹A, and so on, to 1e-40."""
    with localcontext(Context(DIGITS, Emin=-999999, Emax=999999)):
        A, B, Q, R, N = (_decimals(M) for M in (A, B, Q, R, N))
        d, identity, small = len(A), _decimals(np.eye(len(A))), Decimal("1e-40")
        toward = _solved(R, np.hstack((N.T, B.T)))
        a, h, g = A - B @ toward[:, :d], Q - N @ toward[:, :d], B @ toward[:, d:]
        for _ in range(60):
            solved = _solved(identity + g @ h, np.hstack((a, g)))
            more = a.T @ h @ solved[:, :d]
            g, a = g + a @ solved[:, d:] @ a.T, a @ solved[:, :d]
            h = h + (more + more.T) / 2
            if np.abs(a).max() < small and np.abs(more).max() < small * np.abs(h).max():
                break
        return -_solved(R + B.T @ h @ B, B.T @ h @ A + N.T)


def _decimals(M: Array) -> Array:
    return np.array([Decimal(float(entry)) for entry in M.flat], object).reshape(M.shape)


def _solved(S: Array, G: Array) -> Array:
    """S⁻¹G by elimination, with pivots."""
    S, G = S.copy(), G.copy()
    for k in range(len(S)):
        p = k + int(np.argmax(np.abs(S[k:, k])))
        S[[k, p]], G[[k, p]] = S[[p, k]], G[[p, k]]
        for i in [i for i in range(len(S)) if i != k]:
            f = S[i, k] / S[k, k]
            S[i], G[i] = S[i] - f * S[k], G[i] - f * G[k]
    return G / np.diagonal(S)[:, None]


def nudged(M: Array, rng: np.random.Generator) -> Array:
    """Each entry one last digit up or down."""
    return np.nextafter(M, np.where(rng.random(M.shape) < 0.5, -np.inf, np.inf))


def off(K: Array, right: Array) -> float:
    """How far a gain is off, relative to its size."""
    found = _decimals(K) if right.dtype == object and K.dtype != object else K
    return float(
        np.linalg.norm((found - right).astype(float)) / np.linalg.norm(right.astype(float))
    )


def accuracy(total: int, checked: int) -> str:
    """The comparison with SciPy, as a section."""
    rows, unsolved, refused, count = [], 0, 0, 0
    apart: list[tuple[list[Array], Array, Array]] = []
    each = -(-total // (20 * len(RADII)))
    for radius in RADII:
        differences = []
        for d in range(1, 21):
            rng = np.random.default_rng([FIRST_SEED, d, int(100 * radius)])
            operands = problems(rng, each, d, int(rng.integers(1, max(2, d // 2 + 1))), radius)
            A, B, Q, R, N = operands
            found = clqr.solve(clqr.LinearSystem(A, B), clqr.StationaryCost(Q, R, N))
            for i, own in enumerate(zip(*operands, strict=True)):
                theirs = dlqr(*own)
                count += 1
                unsolved += not found.solved[i]
                refused += theirs is None
                if not found.solved[i]:
                    continue
                ours = found.policy.gain[i]
                if theirs is None:
                    apart.append((list(own), ours, np.full_like(ours, np.nan)))
                    continue
                differences.append(off(ours, theirs))
                if differences[-1] > NEAR:
                    apart.append((list(own), ours, theirs))
        some = np.array(differences)
        shares = f"{np.median(some):.1g} | {np.quantile(some, 0.99):.1g} | {some.max():.1g}"
        rows.append(f"| {radius:g} | {len(some)} | {shares} | {int((some > NEAR).sum())} |")
    said = ""
    if apart:
        chosen = apart[:: -(-len(apart) // checked)]
        found = np.array([_errors(*one) for one in chosen])
        mine, its, nudge = found.T
        said = APART.format(
            apart=len(apart) - refused,
            refused=refused,
            checked=len(chosen),
            ours=mine.max(),
            right=int((mine <= NEAR).sum()),
            theirs=np.nanmax(its),
            their_median=np.nanmedian(its),
            nudge=nudge.max(),
        )
    return (
        HEAD.format(count=count, unsolved=unsolved, refused=refused) + "\n".join(rows) + "\n" + said
    )


def _errors(own: list[Array], ours: Array, theirs: Array) -> tuple[float, float, float]:
    """How far we are off, and SciPy, and how far one last digit of A and B takes the gain."""
    right, rng = exact(*own), np.random.default_rng(0)
    near = exact(nudged(own[0], rng), nudged(own[1], rng), *own[2:])
    return off(ours, right), off(theirs, right), off(near, right)


HEAD = """
# Constant gains beside SciPy's

Written by `benchmarks/stationary.py`. {count} random systems of 1 to 20 states, a quarter of them
with a singular A, half with a cross term: the gain of `solve` with a `StationaryCost` beside that
of `scipy.linalg.solve_discrete_are`, the difference relative to the gain's norm. Not solved by us:
{unsolved}; refused by SciPy: {refused}.

| spectral radius | compared | median | 99 % | largest | over 1e-9 |
|---|---|---|---|---|---|
"""
APART = """
Where the two differ by more than 1e-9, {apart} times, or SciPy refuses, {refused} times, few inputs
hold many modes that grow, and sixteen digits are too few: `solve` takes 32. Against 120 digits,
for {checked} of these, ours are off by {ours:.1g} at most, SciPy's by {theirs:.1g} and
{their_median:.1g} in the median; {right} of ours are right to 1e-9. The problems are
well conditioned: a change in the last digit of A and B moves the gain by {nudge:.1g} at most.
"""


def speed() -> str:
    """Batches beside a loop over SciPy's, as a section."""
    lines = [
        "\n# Constant gains\n",
        "Written by `benchmarks/stationary.py`: 100 systems, one thread, processor time, the best",
        "of five runs of each.\n",
        "| states, inputs | SciPy's `solve_discrete_are`, looped | `solve` | times |",
        "|---|---|---|---|",
    ]
    clqr.set_threads(1)
    for d, m in ((2, 1), (5, 2), (10, 3), (20, 5)):
        A, B, Q, R, _ = problems(np.random.default_rng(1), 100, d, m, 1.1)
        system, cost = clqr.LinearSystem(A, B), clqr.StationaryCost(Q, R)
        ours = min(_timed(lambda: clqr.solve(system, cost)) for _ in range(5))  # noqa: B023
        theirs = min(
            _timed(lambda: [solve_discrete_are(*own) for own in zip(A, B, Q, R, strict=True)])  # noqa: B023
            for _ in range(5)
        )
        lines.append(
            f"| {d}, {m} | {1e3 * theirs:.1f} ms | {1e3 * ours:.2f} ms | {theirs / ours:.0f} |"
        )
    return "\n".join(lines)


def _timed(work: object) -> float:
    began = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - began


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the sections of the pages")
    parser.add_argument("--systems", type=int, default=SYSTEMS)
    parser.add_argument("--checked", type=int, default=CHECKED)
    options = parser.parse_args()
    exactness, quickness = accuracy(options.systems, options.checked), speed()
    print(exactness, quickness, sep="\n")
    if options.write:
        write_section("accuracy", "stationary", exactness)
        write_section("speed", "stationary", quickness)


if __name__ == "__main__":
    main()
