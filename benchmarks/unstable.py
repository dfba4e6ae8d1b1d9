"""Very unstable machines: what `solve` and `policy_cost` answer, against hundreds of digits.

Every other case is solved, the others have a policy near the optimal one. How many were solved, how
many could not be, and how many costs, values and constants are wrong by more than 1e-6 without a
status that says so: there should be none. `python benchmarks/unstable.py` tries 10 000 cases in
about ten minutes and writes its section of docs/measured/accuracy.md; with the number of cases, and
a seed if you like, it only prints.
"""

import sys
from collections import Counter
from decimal import Context, Decimal, localcontext
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from numpy.random import Generator, default_rng
from pages import write_section

from contextual_lqr import LinearSystem, ModelUncertainty, QuadraticCost, kernels, solve

PROMISE = 1e-6
CASES = 10_000
RADII = (0.5, 1.0, 5.0, 20.0, 50.0)
STATUSES = ("solved", "not positive definite", "not finite", "inaccurate")


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
    """Any radius to 50, size to 10, horizon to 50; dense, chains or modes; costs of many kinds."""
    d = int(rng.integers(7, 11) if rng.random() < 0.1 else rng.integers(1, 7))
    H = int(rng.integers(2, 51))
    m = 1 if rng.random() < 0.5 else int(rng.integers(1, d + 1))
    least, most = (0.5, 50) if rng.random() < 0.5 else (1, 6)  # where digits begin to go
    radius = 10 ** rng.uniform(np.log10(least), np.log10(most))
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
    """What the library says: the status, and the answer if there is one."""
    if case.policy is None:
        hedge = None if case.covariances is None else ModelUncertainty(case.covariances)
        system, cost = LinearSystem(*case[:2], case.noise), QuadraticCost(*case[2:5])
        solution = solve(system, cost, uncertainty=hedge)
        status = int(solution.status)
        answer = (solution.cost(case.start), solution.value_matrices, solution.value_constants)
    else:  # as policy_cost calls it, which keeps the cost alone
        one = [None if M is None else M[None] for M in case]
        options = dict(zip(Case._fields[6:], one[6:], strict=True))
        found = kernels.recursions(*one[:6], **options, batch=1, values=True)
        status = int(found.status[0])
        answer = (found.cost[0], found.values[0], found.constants[0])
    if status != kernels.SOLVED:
        return status, None
    return status, Answer(*(decimals(np.asarray(M)) for M in answer))


class Tally(NamedTuple):
    """Of the cases of some radii: how they ended, and the largest errors of what was solved."""

    count: Counter[str]
    largest: Array  # of cost, values, constants

    def row(self, name: str) -> str:
        """A row of the table."""
        ends = " | ".join(f"{self.count[status]:,}" for status in ("cases", *STATUSES))
        worst = " | ".join(f"{error:.0e}" for error in self.largest)
        return f"| {name} | {ends} | {self.count['wrong']} | {worst} |"


def measure(cases: int, seed: int) -> list[Tally]:
    """A tally for each range of radii, and one of all."""
    tallies = [Tally(Counter(), np.zeros(3)) for _ in RADII]
    for i in range(cases):
        rng = default_rng([seed, i])
        case = random_case(rng)
        if i % 2:
            case = with_policy(case, rng)
        status, answer = solved(case)
        wrong = np.zeros(3) if answer is None else errors(answer, truth(case))
        if wrong.max() > PROMISE:
            print(f"case {i}: wrong by {wrong}", flush=True)
        radius = np.abs(np.linalg.eigvals(case.A)).max()
        place = min(int(np.searchsorted(RADII[1:], radius)), len(RADII) - 2)
        for tally in (tallies[place], tallies[-1]):
            tally.count.update(("cases", STATUSES[status]))
            tally.count["wrong"] += wrong.max() > PROMISE
            np.maximum(tally.largest, wrong, out=tally.largest)
    return tallies


def page(tallies: list[Tally]) -> str:
    """The section, in Markdown."""
    names = [f"{low:g} to {high:g}" for low, high in pairwise(RADII)]
    rows = [tally.row(name) for name, tally in zip((*names, "all"), tallies, strict=True)]
    every = tallies[-1].count
    return f"""# Very unstable machines

Written by `benchmarks/unstable.py`: {every["cases"]:,} random problems of 1 to 10 states, 1 or more
inputs and 2 to 50 steps: dense systems, chains and separate modes; in mixed units; costs of full
and low rank, of one state only, with large last stages; with noise, dither and uncertain systems.
One half is for `solve`, the other for `policy_cost` of policies at or near the optimum. *Radius* is
the spectral radius of A, what one step multiplies a state by. The truth is the same recursion in
decimal arithmetic, with so many digits (160 at least) that half as many give the same to 1e-12.
*Wrong* are those with status `SOLVED` whose cost, value constants or value matrices (entries
relative to √(P_ii P_jj)) are off by more than 1e-6; the largest errors are of all that were solved.

| radius | cases | {" | ".join(STATUSES)} | wrong | largest error: cost | values | constants |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

{every["wrong"]} of {every["solved"]:,} solved problems are wrong by more than 1e-6; \
{every["inaccurate"]:,} could not be computed that precisely, and say `INACCURATE`.
"""


def main() -> None:
    """Try them all, and count."""
    cases, seed = (int(a) for a in (*sys.argv[1:], str(CASES), "0")[:2])
    text = page(measure(cases, seed))
    print(text)
    if len(sys.argv) == 1:
        write_section("accuracy", "unstable", text)


if __name__ == "__main__":
    main()
