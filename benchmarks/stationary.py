"""Constant gains: how near they are to SciPy's, and how quick.

`python benchmarks/stationary.py` takes about a minute; `--write` writes its sections of the pages
"Accuracy" and "Speed". 10 000 random systems of 1 to 20 states, stable and unstable, with and
without a cross term, singular A among them, are solved by doubling and by
`scipy.linalg.solve_discrete_are`, from which `dlqr` takes its gain. Where the two differ by more
than 1e-9, both are held against Newton's method in long double, from either of them.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy import ndarray as Array
from pages import write_section
from scipy.linalg import LinAlgError, solve_discrete_are

import contextual_lqr as clqr

SYSTEMS, FIRST_SEED = 10_000, 900
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


def exact(A: Array, B: Array, Q: Array, R: Array, N: Array, K: Array) -> Array:
    """Newton's method in long double (19 digits) from a stabilising gain."""
    A, B, Q, R, N, K = (np.asarray(M, np.longdouble) for M in (A, B, Q, R, N, K))
    for _ in range(6):
        F, P = A + B @ K, Q + K.T @ R @ K + N @ K + K.T @ N.T
        for _ in range(40):
            P, F = P + F.T @ P @ F, F @ F
        S, G = R + B.T @ P @ B, B.T @ P @ A + N.T
        K = -_solved(S, G)
    return K


def _solved(S: Array, G: Array) -> Array:
    """S⁻¹G by elimination, in the numbers at hand: LAPACK has no long double."""
    S, G = S.copy(), G.copy()
    for k in range(len(S)):
        for i in range(k + 1, len(S)):
            f = S[i, k] / S[k, k]
            S[i] -= f * S[k]
            G[i] -= f * G[k]
    for i in reversed(range(len(S))):
        G[i] = (G[i] - S[i, i + 1 :] @ G[i + 1 :]) / S[i, i]
    return G


def off(K: Array, right: Array) -> float:
    """How far a gain is off, relative to its size."""
    return float(np.linalg.norm((K - right).astype(float)) / np.linalg.norm(right.astype(float)))


def accuracy(total: int) -> str:
    """The comparison with SciPy, as a section."""
    rows, unsolved, refused, count = [], 0, 0, 0
    apart: list[tuple[float, float]] = []
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
                if theirs is None or not found.solved[i]:
                    continue
                ours = found.policy.gain[i]
                differences.append(off(ours, theirs))
                if differences[-1] > NEAR:
                    right = exact(*own, ours)
                    apart.append((off(ours, right), off(theirs, right)))
        some = np.array(differences)
        shares = f"{np.median(some):.1g} | {np.quantile(some, 0.99):.1g} | {some.max():.1g}"
        rows.append(f"| {radius:g} | {len(some)} | {shares} | {int((some > NEAR).sum())} |")
    said = ""
    if apart:
        mine, its = np.array(apart).T
        said = APART.format(
            apart=len(apart),
            ours=mine.max(),
            our_median=np.median(mine),
            theirs=its.max(),
            their_median=np.median(its),
        )
    return (
        HEAD.format(count=count, unsolved=unsolved, refused=refused) + "\n".join(rows) + "\n" + said
    )


HEAD = """
# Constant gains beside SciPy's

Written by `benchmarks/stationary.py`. {count} random systems of 1 to 20 states, a quarter of them
with a singular A, half with a cross term: the gain of `solve` with a `StationaryCost` beside that
of `scipy.linalg.solve_discrete_are`, the difference relative to the gain's norm. Not solved by us
(`INACCURATE` or `NOT_CONVERGED`: modes that grow fast are hardly reached, and 1e-6 is in doubt):
{unsolved}; refused by SciPy: {refused}.

| spectral radius | compared | median | 99 % | largest | over 1e-9 |
|---|---|---|---|---|---|
"""
APART = """
Where the two differ by more than 1e-9, {apart} times, an input hardly reaches a mode that grows,
and sixteen digits do not suffice. Newton's method in long double says who is off there: ours by
{ours:.1g} at most and {our_median:.1g} in the median, SciPy's by {theirs:.1g} and
{their_median:.1g}.
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
    options = parser.parse_args()
    exactness, quickness = accuracy(options.systems), speed()
    print(exactness, quickness, sep="\n")
    if options.write:
        write_section("accuracy", "stationary", exactness)
        write_section("speed", "stationary", quickness)


if __name__ == "__main__":
    main()
