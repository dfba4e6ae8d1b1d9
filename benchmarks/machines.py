"""What it costs to keep machines apart; writes its section of docs/measured/scale.md.

`python benchmarks/machines.py FOLDER` writes about 0.9 GB of Parquet into the folder first, unless
it is there: one million episodes of 20 states of 10 000 machines in turn, d = 5, m = 2. `--before
PYTHON` times the same work with an older version too, in turns: the Python of an environment in
which it is installed, kernels and all. `--quick` is a trial run on a tenth of the logs that writes
no page.

What is measured runs in a process of its own, with one thread. It is processor time, which other
work on the machine disturbs less than the clock; the least of several runs. The yardstick is what
Polars needs to read the same columns.
"""

import argparse
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

MACHINES, MILLION, REPEATS = 10_000, 1_000_000, 3
COLUMNS = ["episode", "step", "machine", "one", "px", "py", "vx", "vy", "fx", "fy", "mass"]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
START = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
V01 = 3.0  # processor time of version 0.1 over that of Polars, as last measured beside it
Measured = tuple[float, float, list[list[float]] | None]


def work(what: str, fleet: Path, files: list[str]) -> None:
    """In a process of its own: seconds of processor, peak memory in MiB, and Θ."""
    import contextual_lqr as clqr

    try:
        from contextual_lqr.data import FleetDescription, fit
    except ImportError:  # as version 0.1 has them
        from contextual_lqr.logs.description import FleetDescription
        from contextual_lqr.logs.fitting import fit
    clqr.set_threads(1)
    from contextual_lqr.kernels import native  # the compiled kernels, without which it is slow

    assert native is not None
    theta, began = None, time.process_time()
    if what == "read":
        for file in files:
            pl.read_parquet(file, columns=COLUMNS)
    elif what == "million":
        grown()
    else:
        description = FleetDescription.parse(fleet.read_text())
        fitted = fit(description, files, workers=1)
        decoder = getattr(fitted, "fleet", fitted).decoder
        theta = decoder.estimate.tolist()
        if what == "certificates":
            masses = [{"mass": float(m)} for m in np.linspace(0.2, 9, 1000)]
            clqr.certify(decoder, masses[0], description.cost, START)  # what is computed once
            began = time.process_time()
            clqr.certify_many(decoder, masses, description.cost, START)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, peak, theta]))


def grown() -> None:
    """A million machines of one episode each, told in parts."""
    from logs import STATES, THETA

    import contextual_lqr as clqr

    rng, n, H = np.random.default_rng(0), 20_000, STATES
    block = clqr.BlockContext(np.eye(5), [["1/mass", 0], [0, "1/mass"]], bounds={"mass": (0.1, 10)})
    decoder = clqr.Decoder(block, noise_level=0.01)
    for part in range(MILLION // n):
        mass = rng.uniform(0.1, 10, n)
        x, u = np.zeros((H, n, 5)), rng.normal(size=(H - 1, n, 2))
        x[0, :, 0], x[0, :, 1:3] = 1, rng.normal(size=(n, 2))
        for h in range(H - 1):
            x[h + 1] = np.concatenate((x[h], u[h] / mass[:, None]), 1) @ THETA.T
            x[h + 1, :, 1:] += 0.01 * rng.normal(size=(n, 4))
        labels = [f"M-{part * n + i:07d}" for i in range(n)]
        paths = clqr.Trajectory(x.swapaxes(0, 1), u.swapaxes(0, 1))
        decoder.update_many({"mass": mass}, paths, labels)
    assert len(decoder.machine_labels) == MILLION


def measure(what: str, fleet: Path, files: list[str], source: Path | None = None) -> Measured:
    """Once, with this version or an older one."""
    settings = os.environ | ONE_THREAD
    command = [str(source or sys.executable), __file__, "--work", what, str(fleet), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=settings)
    seconds, peak, theta = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak, theta


TEXT = """# Many machines

Written by `benchmarks/machines.py` ({machine}). One million episodes of 20 states, as above, but of
{machines:,} machines in turn, which a column names. What each machine has shown is kept as a factor
of its own, the law and the deviations from it are estimated from these, and the alarm tests every
machine. Version 0.1 pooled all rows and kept no machine apart; its alarm gave up at 2 000 machines.
Processor time, one thread, the least of {repeats} runs, taken in turns; memory is the peak of the
whole process.

| | this version | version 0.1 | times | meant |
|---|---|---|---|---|
{table}
Polars takes {read:.2f} s to read the same columns. The fit takes {ours:.1f} times that; that of
version 0.1 took {theirs:.1f} times. A million machines of one episode each, told to a decoder, take
{million:.0f} MiB (target: 2 048).
"""


def main() -> None:
    """Generate, measure, write."""
    from logs import FLEET, PARTS, THETA, write_part
    from pages import write_section
    from rich.progress import track

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", type=Path, help="the Python of an older version's environment")
    parser.add_argument("--quick", action="store_true", help="a tenth of the logs, no page")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    fleet = options.folder / "fleet.toml"
    fleet.write_text(FLEET)
    paths = [options.folder / f"machines{i:02d}.parquet" for i in range(PARTS)]
    paths = paths[: 2 if options.quick else None]
    for i, path in track(list(enumerate(paths)), "writing logs"):
        if not path.exists():
            write_part(path, i, MACHINES)
    files = [str(path) for path in paths]
    versions = [None, options.before][: 1 + (options.before is not None)]
    runs: dict[tuple[str, Path | None], list[Measured]] = {}
    for _ in track(range(1 if options.quick else REPEATS), "measuring"):
        runs.setdefault(("read", None), []).append(measure("read", fleet, files))
        for what, some in (("fit", files), ("certificates", files[:1])):
            for version in versions:
                found = measure(what, fleet, some, version)
                assert found[2] is not None
                assert np.linalg.norm(np.array(found[2]) - THETA) < 1e-2
                runs.setdefault((what, version), []).append(found)
    best = {
        key: [min(part) for part in list(zip(*some, strict=True))[:2]] for key, some in runs.items()
    }
    read = best["read", None][0]
    ours, memory = best["fit", None]
    lines, theirs = "", V01
    for what, name, meant in (
        ("fit", "fit [s]", "1.5"),
        ("certificates", "1 000 certificates [s]", "2"),
    ):
        before, times = "", ""
        if options.before is not None:
            before = f"{best[what, options.before][0]:.2f}"
            times = f"{best[what, None][0] / best[what, options.before][0]:.1f}"
        lines += f"| {name} | {best[what, None][0]:.2f} | {before} | {times} | {meant} |\n"
    before = "" if options.before is None else f"{best['fit', options.before][1]:.0f}"
    lines += f"| fit, memory [MiB] | {memory:.0f} | {before} | | 1 024 MiB |\n"
    if options.before is not None:
        theirs = best["fit", options.before][0] / read
    million = 0.0 if options.quick else measure("million", fleet, [])[1]
    text = TEXT.format(
        machine=platform.machine(),
        machines=MACHINES,
        repeats=REPEATS,
        table=lines,
        read=read,
        ours=ours / read,
        theirs=theirs,
        million=million,
    )
    print(text)
    if not options.quick:
        write_section("scale", "machines", text)


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    else:
        main()
