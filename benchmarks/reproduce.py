"""One trial of the paper's experiment, ours against plain NumPy.

Writes a section of docs/measured/speed.md.

`python benchmarks/reproduce.py [rounds]`: one setting, one seed, 100 episodes with 100 candidates
and 100 test masses each. One core each, in turn, in one run.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pages import write_section
from peers import ONE_THREAD

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from contextual_lqr import kernels
from contextual_lqr.paper.reproduce.config import Config, Trial
from contextual_lqr.paper.reproduce.summary import versions
from contextual_lqr.paper.reproduce.trial import bench, learn, run
from numpy_experiment import same_trial

MEANT = 15.0
KERNELS = (
    "recursions", "best_decoder", "sample_ellipsoid", "roll_out", "factor_rows"
)  # fmt: skip


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ours(config: Config, trial: Trial) -> dict[str, object]:
    """Everything a trial needs, the truth's optimal costs included."""
    bench.cache_clear()
    return run(config, trial)


def compiled_share(config: Config, trial: Trial) -> float:
    """The part of a trial that is spent in the compiled kernels."""
    inside = [0.0]

    def clocked(real: Any) -> Any:
        def kernel(*arguments: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            found = real(*arguments, **options)
            inside[0] += time.perf_counter() - begin
            return found

        return kernel

    real = {name: getattr(kernels, name) for name in KERNELS}
    try:
        for name, kernel in real.items():
            setattr(kernels, name, clocked(kernel))
        whole = timed(lambda: ours(config, trial))
    finally:
        for name, kernel in real.items():
            setattr(kernels, name, kernel)
    return inside[0] / whole


def agreement(config: Config, trial: Trial) -> float:
    """The largest relative difference of any measurement of any episode."""
    mine, theirs = run(config, trial), same_trial(config, trial)
    return max(
        float((np.abs(mine[name] - column) / np.abs(column)).max())
        for name, column in theirs.items()
    )


def main() -> None:
    """Measure and write the page."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    kernels.set_threads(1)
    config = Config()
    lines, ratios, shares = [], [], []
    for setting in config.settings[::2]:
        trial = Trial(setting, "paper", 1)
        ours(config, trial)
        # In pairs, so that a busy moment of the machine meets both.
        pairs = [
            (timed(lambda t=trial: ours(config, t)), timed(lambda t=trial: same_trial(config, t)))
            for _ in range(rounds)
        ]
        mine, plain = np.array(pairs).T
        ratio = plain / mine
        ratios.append(float(np.median(ratio)))
        low, high = np.quantile(ratio, [0.25, 0.75])
        shares.append(np.median([compiled_share(config, trial) for _ in range(rounds)]))
        learning = np.median([timed(lambda t=trial: learn(config, t)) for _ in range(rounds)])
        mild = agreement(Config(beta=1.0), trial)
        lines.append(
            f"| {setting.name} | {1e3 * np.median(mine):.0f} ms | {1e3 * learning:.0f} ms | "
            f"{1e3 * np.median(plain):.0f} ms | {np.median(ratio):.1f} | {low:.1f} to {high:.1f} | "
            f"{agreement(config, trial):.0e} | {mild:.0e} |"
        )
        sys.stdout.write(lines[-1] + "\n")
    made = versions()
    page = [
        "# One trial of the paper's experiment",
        "",
        "Written by `benchmarks/reproduce.py`: one trial of the paper's experiment, 100 episodes "
        "with 100",
        "candidates and 100 test masses each, against a plainly written, batched NumPy version "
        "(`tests/support/numpy_experiment.py`)",
        "that draws the same random numbers. One core each, in turn, in one run; medians of "
        f"{rounds} pairs. Ours makes",
        f"the fleet and its optimal costs too; compiling is not counted. Meant: {MEANT:g} times, "
        f"which {'is reached' if min(ratios) >= MEANT else 'is not reached'}.",
        "",
        "| setting | ours | of it learning | NumPy | times quicker | middle half | largest "
        "relative difference of any number | the same with β = 1 |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        f"Of our time {np.mean(shares):.0%} is spent in the compiled kernels; the rest is "
        "drawing random numbers, and the calls of small functions.",
        "",
        "With β = 10⁴ states reach 10¹² and more, and rounding grows with them; with β = 1 the two "
        "agree to rounding.",
        "",
        f"Machine: {os.cpu_count()} cores, kernels {made['kernels']}; Python {made['python']}, "
        f"NumPy {made['numpy']}.",
    ]
    write_section("speed", "trial", "\n".join(page))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
