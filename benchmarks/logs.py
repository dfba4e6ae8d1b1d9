"""How fast logs are fitted, and in how much memory; writes its section of docs/measured/scale.md.

`python benchmarks/logs.py FOLDER` writes about 0.9 GB of Parquet into the folder first, unless it
is there: one million episodes of 20 states at d = 5, m = 2. `--quick` is a trial run on a tenth of
it that writes no page.

What is measured runs in a process of its own, three times; the clock is that of the work, without
the start of Python. The yardstick is what Polars needs to read the same columns: each file whole,
or in the same batches as `fit`, whichever is quicker.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from pages import write_section
from rich.progress import track

from contextual_lqr.data import FleetDescription, fit
from contextual_lqr.data.sources import BATCH
from contextual_lqr.figures import figure_style
from contextual_lqr.paper.style import save_figure

DOCS = Path(__file__).parent.parent / "docs"
PARTS, EPISODES, STATES, REPEATS = 20, 50_000, 20, 3
THETA = np.eye(5, 7)
THETA[1, 3] = THETA[2, 4] = THETA[3, 5] = THETA[4, 6] = 1
THETA[3, 3] = THETA[4, 4] = 0.7
FLEET = """
[states]
one = ""
px = "m"
py = "m"
vx = "m/s"
vy = "m/s"
[inputs]
fx = "N"
fy = "N"
[contexts]
mass = { unit = "kg", low = 0.1, high = 10.0 }
[context_map]
kind = "block"
C = [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
D = [["1/mass", 0], [0, "1/mass"]]
[task]
horizon = 20
[cost]
Q = { px = 1.0, py = 1.0 }
R = [1.0, 1.0]
[learning]
noise_level = 0.01
"""
COLUMNS = ["episode", "step", "one", "px", "py", "vx", "vy", "fx", "fy", "mass"]


def write_part(path: Path, part: int, machines: int | None = None) -> None:
    """One file of logs: objects of all masses, pushed at random; so many machines in turn."""
    rng = np.random.default_rng(part)
    n, H = EPISODES, STATES
    mass, names = rng.uniform(0.1, 10, n), None
    if machines is not None:
        turn = np.arange(part * n, (part + 1) * n) % machines
        mass = np.random.default_rng(99).uniform(0.1, 10, machines)[turn]
        names = pl.Series("machine", [f"M-{i:05d}" for i in turn])[np.repeat(np.arange(n), H)]
    x, u = np.zeros((H, n, 5)), rng.normal(size=(H, n, 2))
    x[0, :, 0], x[0, :, 1:3] = 1, rng.normal(size=(n, 2))
    for h in range(H - 1):
        x[h + 1] = np.concatenate((x[h], u[h] / mass[:, None]), 1) @ THETA.T
        x[h + 1, :, 1:] += 0.01 * rng.normal(size=(n, 4))
    u[-1] = np.nan
    columns = [np.repeat(np.arange(part * n, (part + 1) * n), H), np.tile(np.arange(H), n)]
    columns += list(x.transpose(1, 0, 2).reshape(-1, 5).T) + list(
        u.transpose(1, 0, 2).reshape(-1, 2).T
    )
    frame = pl.DataFrame(dict(zip(COLUMNS, [*columns, np.repeat(mass, H)], strict=True)))
    if names is not None:
        frame = frame.with_columns(names)
    frame.with_columns(pl.col("fx", "fy").fill_nan(None)).write_parquet(path)


def work(what: str, files: list[str]) -> None:
    """In a process of its own: seconds of clock and processor, peak memory, the error of Θ."""
    started, spent, error = time.perf_counter(), time.process_time(), None
    if what == "read":
        for file in files:
            pl.read_parquet(file, columns=COLUMNS)
    elif what == "read in batches":
        for file in files:
            for _ in pl.scan_parquet(file).select(COLUMNS).collect_batches(chunk_size=BATCH):
                pass
    else:
        fleet = fit(FleetDescription.parse(FLEET), files)
        error = float(np.linalg.norm(fleet.decoder.estimate - THETA))
        assert fleet.decoder.rows == len(files) * EPISODES * (STATES - 1)
    seconds = [time.perf_counter() - started, time.process_time() - spent]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([*seconds, peak, error]))


def measured(what: str, files: list[str]) -> tuple[float, float, float, float | None]:
    """The medians of the seconds, the largest memory."""
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, __file__, "--work", what, *files]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        runs.append(json.loads(said.splitlines()[-1]))
    clock, processor, peaks, errors = zip(*runs, strict=True)
    return float(np.median(clock)), float(np.median(processor)), max(peaks), errors[0]


def main(folder: Path, quick: bool) -> None:
    """Generate, measure, write."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"part{i:02d}.parquet" for i in range(2 if quick else PARTS)]
    for i, path in track(list(enumerate(paths)), "writing logs"):
        if not path.exists():
            write_part(path, i)
    files = [str(path) for path in paths]
    counts = [1, 2] if quick else [1, 2, 5, 10, 20]
    rows = []
    for count in track(counts, "measuring"):
        read = measured("read", files[:count])
        batches = measured("read in batches", files[:count])
        fitted = measured("fit", files[:count])
        rows.append((count * EPISODES, *min(read[:2], batches[:2]), *fitted))
    table = (
        "| episodes | rows | Polars reads: clock, processor [s] | fit: clock, processor [s] | "
        "ratio of clocks | peak memory [MiB] | ‖Θ̂ - Θ‖ |\n" + "|---" * 7 + "|\n"
    )
    for episodes, read_clock, read_spent, clock, spent, peak, error in rows:
        table += (
            f"| {episodes:,} | {episodes * STATES:,} | {read_clock:.2f}, {read_spent:.2f} | "
            f"{clock:.2f}, {spent:.2f} | {clock / read_clock:.1f} | {peak:.0f} | {error:.1e} |\n"
        )
    print(table)
    if quick:
        return
    draw(rows)
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    write_section("scale", "logs", TEXT.format(table=table, machine=machine))


TEXT = """# Fitting logs

Written by `benchmarks/logs.py` ({machine}). Path-following objects, d = 5 states, m = 2 inputs,
episodes of 20 states, every episode with a mass of its own; Parquet as Polars writes it, files of
one million rows. `fit` runs with its defaults: every row is checked; of more than 20 000 machines
the misfit alarm tests none. The yardstick is what Polars needs merely to read the same columns,
each file whole or in batches, whichever is quicker. Medians of three runs, each a process of its
own; the start of Python is not counted. Memory is the peak of the whole process. Where clock and
processor are equal, one core was free; with two, Polars reads with both.

![Seconds and peak memory against the number of episodes](../figures/logs.svg)

{table}"""


def draw(rows: list[tuple[int, float, float, float, float, float, float | None]]) -> None:
    """Time and memory against the number of episodes."""
    episodes = [row[0] for row in rows]
    with figure_style():
        import matplotlib.pyplot as plt

        figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6))
        left.plot(episodes, [row[3] for row in rows], "o-", label="fit")
        left.plot(episodes, [row[1] for row in rows], "s-", label="Polars reads")
        left.plot(episodes, [3 * row[1] for row in rows], "k:", lw=1, label="3 × Polars reads")
        left.set(xlabel="episodes of 20 states", ylabel="time [s]", xscale="log", yscale="log")
        ticks = [0.1, 0.2, 0.5, 1, 2, 5]
        left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        left.minorticks_off()
        left.legend()
        right.plot(episodes, [row[5] for row in rows], "o-", label="fit")
        right.axhline(1024, color="k", ls=":", lw=1, label="1 GiB")
        right.set(xlabel="episodes of 20 states", ylabel="peak memory [MiB]", xscale="log")
        right.set_ylim(0, 1100)
        right.legend(loc="center left")
        save_figure(figure, DOCS / "figures", "logs")


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], sys.argv[3:])
    else:
        main(Path(sys.argv[1]), "--quick" in sys.argv)
