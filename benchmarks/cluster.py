"""What a Dask cluster costs and gives; writes its section of docs/measured/scale.md.

`python benchmarks/cluster.py FOLDER` uses the logs of benchmarks/logs.py in the folder, one million
episodes, and writes them if they are not there. A scheduler and workers run on this machine, each
worker a process that may use one core: without that, Polars and what follows it in a worker share
two, and one worker is as quick as two. It wants two idle cores.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from logs import EPISODES, FLEET, PARTS, STATES, THETA, write_part
from pages import write_section
from rich.progress import track

from contextual_lqr.data import FleetDescription, fit
from contextual_lqr.paper.reproduce.config import Config
from contextual_lqr.paper.reproduce.trial import run
from contextual_lqr.parallel import in_parallel

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
SWEEP = Config(paths=("circle",), decays=(0.7,), episodes=100, seeds=80, strategies=("paper",))
TASKS = 1000


def dask(*command: str, core: int | None = None) -> subprocess.Popen[bytes]:
    """A process of the cluster, perhaps with one core alone."""
    one = subprocess.Popen(
        [sys.executable, "-m", "dask", *command],
        env=os.environ | ONE_THREAD,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if core is not None:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(one.pid, {cores[core % len(cores)]})
    return one


def measured(workers: int, logs: list[str]) -> dict[str, float]:
    """Seconds for tasks that do nothing, for a sweep and for a fit; MiB of the largest worker."""
    with tempfile.TemporaryDirectory() as folder:
        about = Path(folder) / "scheduler.json"
        options = ("--port", "0", "--host", "127.0.0.1", "--no-dashboard")
        processes = [dask("scheduler", *options, "--scheduler-file", str(about))]
        try:
            while not about.exists():
                time.sleep(0.1)
            address = json.loads(about.read_text())["address"]
            options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "1GiB")
            processes += [dask("worker", address, *options, core=i) for i in range(workers)]
            return timed(address, workers, processes[1:], logs)
        finally:
            for one in reversed(processes):
                one.kill()
                one.wait()


def timed(address: str, workers: int, them: list, logs: list[str]) -> dict[str, float]:
    """The figures of one cluster."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(workers)
    list(in_parallel(partial(run, SWEEP), SWEEP.trials[:workers], address))  # imports
    seconds = {}
    began = time.perf_counter()
    assert len(list(in_parallel(abs, range(TASKS), address))) == TASKS
    seconds["tasks"] = time.perf_counter() - began
    began = time.perf_counter()
    assert len(list(in_parallel(partial(run, SWEEP), SWEEP.trials, address))) == len(SWEEP.trials)
    seconds["sweep"] = time.perf_counter() - began
    peak = [0.0]

    def look(_: float) -> None:
        peak[0] = max(peak[0], *(psutil.Process(one.pid).memory_info().rss for one in them))

    began = time.perf_counter()
    fleet = fit(FleetDescription.parse(FLEET), logs, workers=address, progress=look)
    seconds["fit"] = time.perf_counter() - began
    assert fleet.decoder.rows == len(logs) * EPISODES * (STATES - 1)
    seconds["error"] = float(np.linalg.norm(fleet.decoder.estimate - THETA))
    # The kernel's own peak, since the worker's start.
    for one in them:
        lines = Path(f"/proc/{one.pid}/status").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        peak[0] = max(peak[0], 1024 * kib)
    return seconds | {"memory": peak[0] / 2**20}


def main(folder: Path) -> None:
    """Generate, measure, write."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"part{i:02d}.parquet" for i in range(PARTS)]
    for i, path in track(list(enumerate(paths)), "writing logs"):
        if not path.exists():
            write_part(path, i)
    logs = [str(path) for path in paths]
    here = {}
    for threads in (1, 2):
        began = time.perf_counter()
        fit(FleetDescription.parse(FLEET), logs, workers=threads)
        here[threads] = time.perf_counter() - began
    found = {count: measured(count, logs) for count in (1, 2)}
    one, two = found[1], found[2]
    table = "| | 1 worker | 2 workers | |\n|---|---|---|---|\n"
    for name, label in (
        ("tasks", f"{TASKS} tasks that do nothing [s]"),
        ("sweep", f"sweep of {len(SWEEP.trials)} trials, {SWEEP.episodes} episodes each [s]"),
        ("fit", "fit of 1 000 000 episodes, 20 000 000 rows [s]"),
    ):
        ratio = one[name] / two[name]
        table += f"| {label} | {one[name]:.2f} | {two[name]:.2f} | {ratio:.2f} times as fast |\n"
    table += f"| peak memory of the largest worker [MiB] | {one['memory']:.0f} | "
    table += f"{two['memory']:.0f} | |\n"
    table += f"| ‖Θ̂ - Θ‖ | {one['error']:.6e} | {two['error']:.6e} | |\n"
    text = TEXT.format(
        machine=f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        table=table,
        overhead=1000 * one["tasks"] / TASKS,
        here=here,
    )
    print(text)
    write_section("scale", "cluster", text)


TEXT = """# A cluster

Written by `benchmarks/cluster.py` ({machine}). Scheduler, workers and the command ran on this one
machine; every worker was a process with one core, one thread, also in Polars, and a limit of 1 GiB.
One run of each; connecting, and checking that versions agree, are counted. Memory is
the peak of the whole worker process, by the kernel.

{table}
A task that does nothing costs {overhead:.1f} ms. A fit of the same logs without a cluster took
{here[1]:.1f} s with one thread and {here[2]:.1f} s with two, Polars reading with both cores.
"""

if __name__ == "__main__":
    main(Path(sys.argv[1]))
