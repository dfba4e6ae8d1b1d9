"""One large system: `solve` beside the rate at which BLAS multiplies, in one run.

`python benchmarks/large_systems.py` takes half a minute; `--write` writes its section of the page
"Speed". Counted are the multiplications that a backward pass cannot do without, of symmetric
matrices one half. What they would take is by `dgemm` of the same size (100 by 100), and by that of
a size at which it is quickest. All take turns on one thread, in processor time; the quickest turn
counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from pages import write_section

import contextual_lqr as clqr

SIZES = ((50, 10), (100, 20), (100, 5), (150, 30))
STEPS, LARGEST, MEANT = 20, 400, 1.3


def multiplications(d: int, m: int) -> int:
    """Of one step: PB, BᵀPB and BᵀPA, the solve for K, BK, PF, KᵀRK + FᵀPF (one half), RK."""
    solve = m * m * d + m**3 // 6
    return (
        d * d * m
        + d * m * (m + 1) // 2
        + solve
        + 2 * d * d * m
        + d**3
        + m * m * d
        + ((d + m) * d * (d + 1) // 2)
    )


def quickest(calls: list[Callable[[], object]], turns: int) -> list[float]:
    """The least processor time of each, in turns."""
    best = [np.inf] * len(calls)
    for _ in range(turns):
        for i, call in enumerate(calls):
            began = time.process_time()
            call()
            best[i] = min(best[i], time.process_time() - began)
    return best


def row(d: int, m: int, turns: int) -> str:
    """One size, as a row of the table."""
    rng = np.random.default_rng(d)
    A, B = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal((d, m)) / np.sqrt(d)
    system = clqr.LinearSystem(A, B)
    cost = clqr.QuadraticCost([np.eye(d)] * (STEPS + 1), [np.eye(m)] * STEPS)
    X, Y, large = (rng.standard_normal((n, n)) for n in (d, d, LARGEST))
    out, large_out = np.empty((d, d)), np.empty((LARGEST, LARGEST))
    repeats = max(1, round(2e7 / d**3))
    ours, same, most = quickest(
        [
            lambda: clqr.solve(system, cost),
            lambda: [np.matmul(X, Y, out=out) for _ in range(repeats)],
            lambda: np.matmul(large, large, out=large_out),
        ],
        turns,
    )
    count = STEPS * multiplications(d, m)
    at_same, at_most = count * same / (repeats * d**3), count * most / LARGEST**3
    return (
        f"| {d}, {m} | {1e3 * ours:.2f} ms | {1e3 * at_same:.2f} ms | {ours / at_same:.2f} | "
        f"{1e3 * at_most:.2f} ms | {ours / at_most:.2f} |"
    )


def blas() -> str:
    """BLAS as NumPy names it."""
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
    return f"{found['name']} {found['version']}"


def section(turns: int) -> str:
    """The table, in Markdown."""
    clqr.set_threads(1)
    return "\n".join([
        "# Large systems beside BLAS",
        "",
        f"Written by `benchmarks/large_systems.py`: `solve` of one system, {STEPS} steps, beside",
        "what its multiplications (of symmetric matrices one half) would take at the rate of",
        f"NumPy's `dgemm` in the same run, of the same size and of {LARGEST} by {LARGEST}. One",
        f"thread, processor time, the quickest of {turns} turns each. Meant for 100 states: at",
        f"most {MEANT} times as long. Our kernels use AVX2 at most, as this BLAS does here",
        f"({blas()}). Told to use AVX-512 (`OPENBLAS_CORETYPE=SKYLAKEX`),",
        "it is about twice as quick, and we are not.",
        "",
        "| states, inputs | `solve` | at that of the same size | times | at that of "
        f"{LARGEST} | times |",
        "|---|---|---|---|---|---|",
        *(row(d, m, turns) for d, m in SIZES),
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
        write_section("speed", "large", text)


if __name__ == "__main__":
    main()
