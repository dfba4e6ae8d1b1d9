"""What a history costs when logs are fitted; writes its section of docs/measured/scale.md.

`python benchmarks/history_logs.py FOLDER [EPISODES]` writes logs of one output and one input into
the folder, episodes of 33 steps, unless they are there. They are fitted with `history = 4`: the
state, three past outputs and three past inputs beside the output, is made by us. Beside it, the
same regression with all seven states as columns of the log, and known rows: as many rows, as many
unknowns, and nothing to make. Processes of their own, by turns; minima.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from pages import write_section

from contextual_lqr.data import FleetDescription, fit

STEPS, LAGS, PART, REPEATS = 30, 3, 20_000, 2
TEXT = """
{states}
[inputs]
u = ""
[contexts]
mass = {{ low = 0.5, high = 5.0 }}
[context_map]
kind = "features"
features = ["1", "1/mass"]
[task]
horizon = 20
[cost]
Q = {{ y = 1.0 }}
R = [1.0]
[learning]
noise_level = 0.01
{known}
"""
PAST = [f"y_{i}" for i in range(1, LAGS + 1)] + [f"u_{i}" for i in range(1, LAGS + 1)]
OUTPUTS = TEXT.format(states=f'[outputs]\ny = ""\nhistory = {LAGS + 1}\ndelay = 0', known="")
SHIFTS = "\n".join(
    f'{name}_{i} = "{name if i == 1 else f"{name}_{i - 1}"}"'
    for name in "yu"
    for i in range(1, LAGS + 1)
)
STATES = TEXT.format(
    states="[states]\n" + "\n".join(f'{name} = ""' for name in ["y", *PAST]),
    known=f"[known]\n{SHIFTS}",
)


def write_part(folder: Path, part: int) -> None:
    """Episodes as outputs, and the same with their past in columns."""
    rng, n = np.random.default_rng(part), PART
    mass = rng.uniform(0.5, 5, n)
    T = STEPS + LAGS
    y, u = np.zeros((T, n)), rng.normal(size=(T, n))
    y[0], y[1] = rng.normal(size=(2, n))
    for t in range(1, T - 1):
        y[t + 1] = 1.6 * y[t] - 0.65 * y[t - 1] + 0.1 * u[t] / mass + 0.01 * rng.normal(size=n)

    def column(values: np.ndarray, first: int, last: int) -> np.ndarray:
        return values[first:last].T.ravel()

    def frame(first: int, past: bool) -> pl.DataFrame:
        many = T - first
        columns = {
            "episode": np.repeat(np.arange(part * n, (part + 1) * n), many),
            "step": np.tile(np.arange(many), n),
            "y": column(y, first, T),
            "u": column(u, first, T),
            "mass": np.repeat(mass, many),
        }
        for i in range(1, LAGS + 1) if past else ():
            columns |= {f"{a}_{i}": column(v, first - i, T - i) for a, v in (("y", y), ("u", u))}
        return pl.DataFrame(columns)

    frame(0, past=False).write_parquet(folder / f"history{part:02d}.parquet")
    frame(LAGS, past=True).write_parquet(folder / f"states{part:02d}.parquet")


def work(what: str, files: list[str]) -> None:
    """In a process of its own: seconds of processor and clock, peak memory, Θ's first row."""
    about = FleetDescription.parse(OUTPUTS if what == "history" else STATES)
    clock, spent = time.perf_counter(), time.process_time()
    fleet = fit(about, files, alarm=False, workers=1)
    seconds = [time.process_time() - spent, time.perf_counter() - clock]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    at = fleet.description.state_names.index("y")
    print(json.dumps([*seconds, peak, fleet.decoder.rows, fleet.decoder.estimate[at].tolist()]))


def main(folder: Path, episodes: int) -> None:
    """Generate, measure, write."""
    folder.mkdir(exist_ok=True)
    parts = max(episodes // PART, 1)
    for part in range(parts):
        if not (folder / f"states{part:02d}.parquet").exists():
            write_part(folder, part)
    lines = [
        "| episodes | rows learnt | history: processor [s], memory [MiB] | columns: processor [s], "
        "memory [MiB] | ratio |",
        "|---" * 5 + "|",
    ]
    for count in sorted({1, parts}):
        best: dict[str, list] = {}
        for _ in range(REPEATS):
            for what in ("history", "states"):
                files = [str(folder / f"{what}{part:02d}.parquet") for part in range(count)]
                command = [sys.executable, __file__, "--work", what, *files]
                said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                found = json.loads(said.splitlines()[-1])
                if what not in best or found[0] < best[what][0]:
                    best[what] = found
        one, other = best["history"], best["states"]
        assert one[3] == other[3], (one[3], other[3])
        lines.append(
            f"| {count * PART:,} | {one[3]:,} | {one[0]:.1f}, {one[2]:.0f} | {other[0]:.1f}, "
            f"{other[2]:.0f} | {one[0] / other[0]:.2f} |"
        )
    text = "\n".join(lines)
    print(text)
    write_section("scale", "histories", INTRODUCTION + text)


INTRODUCTION = f"""# Histories

Written by `benchmarks/history_logs.py`: one output and one input, `history = {LAGS + 1}`, episodes
of {STEPS + LAGS} steps; beside it the same regression, with its seven states as columns of the log.
Minima of {REPEATS} runs, by turns.

"""


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], sys.argv[3:])
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
