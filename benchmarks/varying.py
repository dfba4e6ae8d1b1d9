"""What it costs that a system changes from step to step: `TimeVaryingSystem` beside `LinearSystem`.

`python benchmarks/varying.py` takes about a minute; `--write` writes its section of the page
"Speed". The same machines are given both ways, so that both do the same; they take turns, and the
quickest turn of each counts, in processor time. The NumPy kernels are timed alike, with fewer
turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from pages import write_section

import contextual_lqr as clqr
from contextual_lqr.kernels import reference

SIZES = ((2, 1), (5, 2), (10, 3), (20, 5))
BATCHES = (1, 100)
STEPS = 20
MEANT = 1.2
Call = Callable[[], object]


def pairs(d: int, m: int, batch: int) -> dict[str, tuple[Call, Call]]:
    """Each function on the constant system, and on the same as one that may change."""
    rng = np.random.default_rng([d, batch])
    lead = () if batch == 1 else (batch,)
    A = rng.standard_normal((*lead, d, d)) * 0.9 / np.sqrt(d)
    B = rng.standard_normal((*lead, d, m)) / np.sqrt(d)
    noise = 0.01 * np.eye(d)
    every = [np.repeat(M[..., None, :, :], STEPS, -3) for M in (A, B)]
    systems = clqr.LinearSystem(A, B, noise), clqr.TimeVaryingSystem(*every, noise)
    cost = clqr.QuadraticCost([np.eye(d)] * (STEPS + 1), [np.eye(m)] * STEPS)
    start = rng.standard_normal((*lead, d))
    policy = clqr.solve(systems[0], cost).policy
    spread = rng.standard_normal((d, d + m, d + m)) * 0.01
    doubt = clqr.ModelUncertainty(spread @ spread.swapaxes(1, 2))
    calls: dict[str, Callable[[clqr.LinearSystem | clqr.TimeVaryingSystem], object]] = {
        "solve": lambda system: clqr.solve(system, cost),
        "hedging": lambda system: clqr.solve(system, cost, uncertainty=doubt),
        "policy_cost": lambda system: clqr.policy_cost(policy, system, cost, start),
        "gradient": lambda system: clqr.cost_gradient(system, cost, start),
        "simulate": lambda system: clqr.simulate(policy, system, start, np.random.default_rng(0)),
    }
    return {name: _both(call, *systems) for name, call in calls.items()}


def _both(call: Callable[..., object], constant: object, varying: object) -> tuple[Call, Call]:
    return lambda: call(constant), lambda: call(varying)


def ratio(constant: Call, varying: Call, turns: int) -> float:
    """How many times as long the second takes, by the quickest of so many turns of each."""
    best = [np.inf, np.inf]
    began = time.process_time()
    constant()
    count = max(1, min(50, int(2e-3 / (time.process_time() - began))))
    for _ in range(turns):
        for i, call in enumerate((constant, varying)):
            call()
            began = time.process_time()
            for _ in range(count):
                call()
            best[i] = min(best[i], time.process_time() - began)
    return best[1] / best[0]


def table(turns: int) -> list[str]:
    """The rows of one kind of kernels."""
    names = list(pairs(2, 1, 1))
    lines = [f"| d, m, batch | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for d, m in SIZES:
        for batch in BATCHES:
            found = [ratio(*both, turns) for both in pairs(d, m, batch).values()]
            cells = " | ".join(f"{one:.2f}" for one in found)
            lines.append(f"| {d}, {m}, {batch} | {cells} |")
            print(lines[-1], flush=True)
    return lines


def section(turns: int) -> str:
    """Both tables, in Markdown."""
    clqr.set_threads(1)
    compiled = table(turns)
    native = clqr.lqr.solve.kernels.recursions  # type: ignore[attr-defined]
    try:
        clqr.lqr.solve.kernels.recursions = reference.recursions  # type: ignore[attr-defined]
        plain = [row.rsplit("|", 2)[0] + "|" for row in table(max(3, turns // 20))]
    finally:
        clqr.lqr.solve.kernels.recursions = native  # type: ignore[attr-defined]
    return "\n".join([
        "# Systems that change from step to step",
        "",
        "Written by `benchmarks/varying.py`: the same machines as a `TimeVaryingSystem` and as a",
        f"`LinearSystem`, {STEPS} inputs, with noise: how many times as long the first takes, one",
        f"thread, processor time, the quickest of {turns} turns each (meant: at most {MEANT}). The",
        f"gradient of the first is by the A and B of each step, {STEPS} times as many numbers.",
        "",
        *compiled,
        "",
        "The same with the kernels in NumPy (which `simulate` of a batch always is):",
        "",
        *plain,
        "",
    ])  # fmt: skip


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    text = section(options.turns)
    print(text)
    if options.write:
        write_section("speed", "varying", text)


if __name__ == "__main__":
    main()
