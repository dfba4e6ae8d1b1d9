"""Very unstable machines: what the kernels answer, against arithmetic with hundreds of digits.

`python benchmarks/unstable.py [cases] [seed]` prints how many were solved, how many could not be,
and how many costs, values and constants are wrong by more than 1e-6 without a status that says so:
there should be none. 10 000 cases take about ten minutes.
"""

import sys
from collections import Counter
from decimal import Context, Decimal, localcontext
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from numpy.random import Generator, default_rng

from contextual_lqr import kernels

PROMISE = 1e-6


class Case(NamedTuple):
    """A control problem, in the operands of `kernels.recursions`, without their batch axes."""

    A: Array
    B: Array
    Q: Array
    R: Array
    N: Array
    noise: Array
    start: Array
    policy: Array | None = None
    dither: Array | None = None
    covariances: Array | None = None


class Answer(NamedTuple):
    """The cost, and the value matrices and constants of all steps."""

    cost: Array
    values: Array
    constants: Array


def random_case(rng: Generator) -> Case:
    """Any radius to 50, size to 6, horizon to 50; dense, chains or modes; costs of many kinds."""
    d, H = int(rng.integers(1, 7)), int(rng.integers(2, 51))
    m = 1 if rng.random() < 0.5 else int(rng.integers(1, d + 1))
    radius = 10 ** rng.uniform(np.log10(0.5), np.log10(50))
    A, B = rng.normal(size=(d, d)), rng.normal(size=(d, m))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    kind = rng.integers(6)
    if kind == 0:  # a chain: each state drives the one before it
        A = np.diag(np.full(d, radius)) + np.diag(rng.normal(size=d - 1), 1)
        B = np.eye(d)[:, -m:] if rng.random() < 0.5 else B
    elif kind == 1:  # modes of their own
        A = np.diag(radius * rng.uniform(0.2, 1, d) * rng.choice([-1, 1], d))
    stages = random_stages(rng, d, m, H)
    scale = rng.normal(size=(d, d if rng.random() < 0.5 else 1))
    W = scale @ scale.T * 10 ** rng.uniform(-6, 3) * (rng.random() < 0.5)
    x = rng.normal(size=d) if rng.random() < 0.5 else np.eye(d)[0]
    if rng.random() < 0.3:  # other units
        units = 10 ** rng.uniform(-5, 5, d)
        per = np.concatenate((1 / units, np.ones(m)))
        A, B, x = units[:, None] * A / units, units[:, None] * B, units * x
        W, stages = units[:, None] * W * units, per[:, None] * stages * per
    W, stages = (W + W.T) / 2, (stages + stages.swapaxes(1, 2)) / 2
    Q, R, N = stages[:, :d, :d], stages[:-1, d:, d:], stages[:-1, :d, d:]
    case = Case(A, B, Q, R, N, W, x)
    if rng.random() < 0.2:  # uncertain systems
        spread = rng.normal(size=(d, d + m, d + m)) * np.abs(np.hstack((A, B)))[:, None]
        covariances = 10 ** rng.uniform(-12, -1) * spread.swapaxes(1, 2) @ spread
        case = case._replace(covariances=(covariances + covariances.swapaxes(1, 2)) / 2)
    return case


def random_stages(rng: Generator, d: int, m: int, H: int) -> Array:
    """[[Q, N], [Nᵀ, R]] of each step: random, unit, of one state only, or of low rank."""
    stages, kind = np.zeros((H, d + m, d + m)), rng.integers(4)
    if kind == 0:
        half = rng.normal(size=(H, d + m, d + m)) / np.sqrt(d)
        stages = half @ half.swapaxes(1, 2)
    elif kind == 1:
        stages[:] = np.eye(d + m)
    elif kind == 2:
        stages[:, 0, 0], stages[:, d:, d:] = 1, np.eye(m) * 10 ** rng.uniform(-6, 6)
    else:
        low = rng.normal(size=(d + m, 1 + d // 2))
        stages[:] = low @ low.T
        stages[:, d:, d:] += np.eye(m)
    if rng.random() < 0.3:  # the end counts most
        stages[-1] *= 10 ** rng.uniform(0, 20)
    return stages * 10 ** (rng.uniform(-8, 12) if rng.random() < 0.3 else 0)


def with_policy(case: Case, rng: Generator) -> Case:
    """The same, for the optimal gains as doubles, or gains near them; with dither or without."""
    gains = np.array(exact(case, 300)[1], float)
    gains *= 1 + rng.choice([0, 1e-9, 1e-6, 1e-2]) * rng.normal(size=gains.shape)
    E = case.R / np.abs(case.R).max() if rng.random() < 0.5 else None
    return case._replace(policy=gains, dither=E)


def decimals(M: Array) -> Array:
    """The same numbers, exactly."""
    return np.array([Decimal(float(entry)) for entry in M.flat], object).reshape(M.shape)


def eliminate(S: Array, G: Array) -> Array:
    """S⁻¹G."""
    S, G, m = S.copy(), G.copy(), len(S)
    for k in range(m):
        for i in [i for i in range(m) if i != k]:
            f = S[i, k] / S[k, k]
            S[i], G[i] = S[i] - f * S[k], G[i] - f * G[k]
    return G / np.diagonal(S)[:, None]


def exact(case: Case, digits: int) -> tuple[Answer, list[Array]]:
    """The answer and the gains with so many digits: each stage's form in (x, u) in full."""
    with localcontext(Context(digits, Emin=-99999, Emax=99999)):
        A, B, Q, R, N, W, x = (decimals(M) for M in case[:7])
        gains, dither, C = (None if M is None else decimals(M) for M in case[7:])
        d = len(A)
        M, identity = np.hstack((A, B)), np.eye(d, dtype=object)
        P, c, found = Q[-1], Decimal(0), []
        values, constants = [P], [c]
        for h in reversed(range(len(R))):
            form = np.block([[Q[h], N[h]], [N[h].T, R[h]]]) + M.T @ P @ M
            if C is not None:
                form = form + (np.diagonal(P)[:, None, None] * C).sum(0)
            K = -eliminate(form[d:, d:], form[d:, :d]) if gains is None else gains[h]
            c = c + (P * W).sum()
            if dither is not None:
                c = c + (form[d:, d:] * dither[h]).sum()
            stack = np.vstack((identity, K))
            P = stack.T @ form @ stack
            values, constants, found = [P, *values], [c, *constants], [K, *found]
        cost = x @ P @ x + c
        return Answer(np.array(cost), np.array(values), np.array(constants)), found


def truth(case: Case) -> Answer:
    """With as many digits as it takes for two of these to agree."""
    digits = 80
    less = exact(case, digits)[0]
    while True:
        digits *= 2
        more = exact(case, digits)[0]
        if errors(less, more).max() < 1e-12:
            return more
        less = more


def errors(found: Answer, right: Answer) -> Array:
    """Of cost, values (entry by entry, relative to √(P_ii P_jj)) and constants, relative."""
    with localcontext(Context(30, Emin=-99999, Emax=99999, traps=[])):
        sizes = np.abs(np.diagonal(right.values, axis1=1, axis2=2))
        scale = np.sqrt(sizes)[:, :, None] * np.sqrt(sizes)[:, None]
        return np.array([
            worst(np.atleast_1d(a - b), np.atleast_1d(np.abs(size)))
            for a, b, size in (
                (found.cost, right.cost, right.cost),
                (found.values, right.values, scale),
                (found.constants, right.constants, right.constants),
            )
        ])  # fmt: skip


def worst(error: Array, size: Array) -> float:
    """The largest relative error; of what is zero, an error only where it is not found so."""
    ratios = [
        float(abs(e) / s) if s else (0.0 if not e else np.inf)
        for e, s in zip(error.flat, size.flat, strict=True)
    ]
    return max(np.nan_to_num(ratios, nan=np.inf))


def solved(case: Case) -> tuple[int, Answer | None]:
    """What the kernels say: the status, and the answer if there is one."""
    one = [None if M is None else M[None] for M in case]
    names = ("start", "policy", "dither", "covariances")
    options = dict(zip(names, one[6:], strict=True))
    found = kernels.recursions(*one[:6], **options, batch=1, gains=True, values=True)
    assert found.values is not None
    assert found.constants is not None
    assert found.cost is not None
    status = int(found.status[0])
    if status != kernels.SOLVED:
        return status, None
    answer = (found.cost, found.values, found.constants)
    return status, Answer(*(decimals(M[0, ...]) for M in answer))


def main() -> None:
    """Try them all, and count."""
    cases, seed = (int(a) for a in (*sys.argv[1:], "10000", "0")[:2])
    statuses = ("solved", "not positive definite", "not finite", "inaccurate")
    count: Counter[str] = Counter()
    largest = np.zeros(3)
    for i in range(cases):
        rng = default_rng([seed, i])
        case = random_case(rng)
        if i % 2:
            case = with_policy(case, rng)
        status, answer = solved(case)
        count[statuses[status]] += 1
        if answer is None:
            continue
        wrong = errors(answer, truth(case))
        largest = np.maximum(largest, wrong)
        for name, error in zip(("cost", "values", "constants"), wrong, strict=True):
            if error > PROMISE:
                count[f"{name} wrong"] += 1
                print(f"case {i}: {name} wrong by {error:.1e}", flush=True)
    print(f"{cases} cases: " + ", ".join(f"{n} {name}" for name, n in count.items()))
    print("largest errors of what was solved: cost {:.1e}, values {:.1e}, constants {:.1e}".format(
        *largest))  # fmt: skip


if __name__ == "__main__":
    main()
