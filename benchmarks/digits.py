"""What it costs to watch over digits: `solve` and its siblings beside those of version 0.1.

Version 0.1 lost digits on very unstable machines without a word; since then every recursion proves
that it did not. `python benchmarks/digits.py --before PYTHON` times both in turns, PYTHON being
that of an environment in which version 0.1 is installed, kernels and all; it takes about four
minutes. `--write` writes its section of the page "Speed".

Each version has a process of its own. They take turns of a few milliseconds of processor time, and
the quickest turn of each counts. *Kernel* is the compiled recursion alone, *call* the function as
one calls it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SIZES = ((2, 1), (5, 2), (10, 3))
BATCHES = (1, 100)
STEPS, TURNS, SECONDS = 20, 60, 0.004
MEANT = 1.03
NAMES = ("solve", "optimal_cost", "policy_cost, given", "policy_cost, own")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def calls(d: int, m: int, batch: int, some: int) -> dict[str, Callable[[], object]]:
    """What is timed, in either version: machines that lose no digits; so `some` states cost."""
    import contextual_lqr as clqr
    from contextual_lqr import kernels

    rng = np.random.default_rng([d, batch])
    A = rng.standard_normal((batch, d, d)) * 0.9 / np.sqrt(d)
    B = rng.standard_normal((batch, d, m)) / np.sqrt(d)
    stage = np.diag((np.arange(d) < some).astype(float))
    Q, R = np.array([stage] * (STEPS + 1)), np.array([np.eye(m)] * STEPS)
    noise, start = 0.01 * np.eye(d), rng.standard_normal((batch, d))
    cost, system = clqr.QuadraticCost(Q, R), clqr.LinearSystem(A, B, noise)
    own = clqr.solve(system, cost).policy
    given = clqr.LinearPolicy(own.gains[0] * 0.9)
    stages = (A, B, Q[None], R[None], None, noise[None])
    options = {"batch": batch, "threads": 1}

    def kernel(**more: object) -> Callable[[], object]:
        return lambda: kernels.recursions(*stages, **options, **more)

    return {
        "kernel solve": kernel(gains=True, values=True),
        "kernel optimal_cost": kernel(start=start),
        "kernel policy_cost, given": kernel(start=start, policy=given.gains[None]),
        "kernel policy_cost, own": kernel(start=start, policy=own.gains),
        "call solve": lambda: clqr.solve(system, cost),
        "call optimal_cost": lambda: clqr.optimal_cost(system, cost, start),
        "call policy_cost, given": lambda: clqr.policy_cost(given, system, cost, start),
        "call policy_cost, own": lambda: clqr.policy_cost(own, system, cost, start),
    }


def work() -> None:
    """Answer questions: the seconds of one call, in a turn of some milliseconds."""
    import contextual_lqr as clqr
    from contextual_lqr.kernels import native  # the compiled kernels

    assert native is not None
    clqr.set_threads(1)
    made: dict[tuple[int, ...], dict[str, Callable[[], object]]] = {}
    for line in sys.stdin:
        *sizes, name, count = json.loads(line)
        if tuple(sizes) not in made:
            made[tuple(sizes)] = calls(*sizes)
        call = made[tuple(sizes)]
        began = time.process_time()
        for _ in range(count):
            call[name]()
        print((time.process_time() - began) / count, flush=True)


class Version:
    """One of the two, in a process of its own."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD,
        )

    def seconds(self, case: tuple[object, ...], count: int) -> float:
        """Of one call, in a turn of so many."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([*case, count]) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def compare(versions: tuple[Version, Version], case: tuple[object, ...]) -> tuple[float, float]:
    """The quickest turn of each, in microseconds."""
    count = max(1, int(SECONDS / min(one.seconds(case, 3) for one in versions)))
    best = [np.inf, np.inf]
    for _ in range(TURNS):
        for i, one in enumerate(versions):
            best[i] = min(best[i], one.seconds(case, count))
    return 1e6 * best[0], 1e6 * best[1]


TEXT = """# What the watch over digits costs

Written by `benchmarks/digits.py`: {steps} steps, machines that lose no digits. The recursions
prove, step by step, that no digits were lost; those of version 0.1 did not ask. Times of this
version over those of version 0.1, in processor time: both take turns, and the quickest of {turns}
turns of each counts. In brackets the microseconds of this version, for all of a batch. *Given* is
one policy for all machines, *own* one for each; where one state alone costs, Q is singular. At most
{meant} was meant.

{table}
The largest is {worst:.2f}; {above} of {all} are above {meant}.
"""


def main() -> None:
    """Time all cases, print, and write if asked."""
    from pages import write_section
    from rich.progress import track

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, help="the Python of version 0.1")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    versions = Version(sys.executable), Version(options.before)
    table = (
        "| d, m, batch | states that cost | | "
        + " | ".join(NAMES)
        + " |\n"
        + "|---" * (len(NAMES) + 3)
        + "|\n"
    )
    ratios = []
    sizes = [(d, m, batch, some) for d, m in SIZES for batch in BATCHES for some in (d, 1)]
    for d, m, batch, some in track(sizes, "measuring"):
        for what in ("kernel", "call"):
            cells = []
            for name in NAMES:
                ours, theirs = compare(versions, (d, m, batch, some, f"{what} {name}"))
                ratios.append(ours / theirs)
                cells.append(f"{ours / theirs:.2f} ({ours:.3g})")
            table += f"| {d}, {m}, {batch} | {some} | {what} | " + " | ".join(cells) + " |\n"
    above = sum(round(ratio, 2) > MEANT for ratio in ratios)
    text = TEXT.format(
        steps=STEPS,
        turns=TURNS,
        meant=MEANT,
        table=table,
        worst=max(ratios),
        above=above,
        all=len(ratios),
    )
    print(text)
    if options.write:
        write_section("speed", "digits", text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        sys.path.remove(str(Path(__file__).parent))
        work()
    else:
        main()
