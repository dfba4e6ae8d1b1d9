"""Sweeps and fits on a Dask cluster: a real scheduler, real workers, and one that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command import COMMAND, run
from contextual_lqr import InputError
from contextual_lqr.data import FittedFleet, FleetDescription, fit, sources
from contextual_lqr.data.learning import Learning
from contextual_lqr.data.transitions import LogReader, Transitions
from contextual_lqr.errors import MissingExtraError
from contextual_lqr.paper.reproduce import trial as trials
from contextual_lqr.paper.reproduce.config import Config
from contextual_lqr.paper.verify.runs import VerifySettings, jobs
from contextual_lqr.paper.verify.runs import run as play
from contextual_lqr.parallel import in_parallel, in_tree
from fleet_logs import CARTS, DESCRIPTION, cart_rows, write, write_minari
from odd_tables import write_text

pytestmark = pytest.mark.slow
MASSES = [0.7, 1.3, 2.0, 3.1, 4.4, 1.7]
SWEEP = Config(paths=("circle",), decays=(0.7,), episodes=2, seeds=8, strategies=("certainty",))
# Read by a Python that starts with it in its path: a worker on which nobody installed us.
LACKING = """
import importlib.metadata as metadata
found = metadata.version
def version(name):
    if name == "contextual-lqr":
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.version = version
"""


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        pytest.importorskip("distributed")
        self.folder, self.workers = folder, list[subprocess.Popen[bytes]]()
        about = folder / "scheduler.json"
        options = ("--port", "0", "--no-dashboard", "--host", "127.0.0.1")
        self.scheduler = self._start("scheduler", *options, *more, "--scheduler-file", str(about))
        while not about.exists() or not (text := about.read_text()).endswith("}"):
            assert self.scheduler.poll() is None  # it may have written half of it
            time.sleep(0.05)
        self.address = json.loads(text)["address"]

    def _start(self, *command: str, **more: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"} | more
        with (self.folder / f"log{len(self.workers)}").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *command],
                env=environment, cwd=self.folder, stdout=log, stderr=log,
            )  # fmt: skip

    def grow(self, count: int, *more: str, wait: bool = True, **environment: str) -> None:
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "1GiB")
        while len(self.workers) < count:
            self.workers.append(self._start("worker", self.address, *options, *more, **environment))
        if wait:
            self.wait(count)

    def wait(self, count: int) -> None:
        from distributed import Client

        began = time.monotonic()
        with Client(self.address, set_as_default=False) as client:
            while len(client.scheduler_info(n_workers=-1)["workers"]) != count:
                assert time.monotonic() < began + 60
                time.sleep(0.05)

    def kill(self) -> None:
        one = self.workers.pop()
        one.send_signal(signal.SIGKILL)
        one.wait()

    def close(self) -> None:
        for one in (*self.workers, self.scheduler):
            one.kill()
            one.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = Cluster(tmp_path_factory.mktemp("cluster"))
    with closing(one):
        one.grow(1)
        yield one


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two files in parts of some 40 rows; episodes of 12 rows go over cuts and over the files."""
    monkeypatch.setattr(sources, "PART", 20)  # of so many rows twice
    frame = cart_rows(MASSES, 5, steps=12, episodes=5).with_columns(note=pl.lit("x"))
    bad = frame.with_columns(
        velocity=pl.when(pl.int_range(pl.len()) % 37 == 20).then(None).otherwise("velocity")
    ).filter(pl.int_range(pl.len()) % 41 != 17)
    (tmp_path / "logs").mkdir()
    pieces = (bad[:157], bad[157:])
    return [write(f, tmp_path / "logs" / f"{i}.parquet") for i, f in enumerate(pieces)]


def bits(done: FittedFleet) -> list[Any]:
    """All that a fit found, to the bit."""
    decoder = done.decoder
    state, arrays = decoder.state()
    report = {k: v for k, v in vars(done.report).items() if k != "quarantine"}
    return [state, {n: a.tobytes() for n, a in arrays.items()}, report, done.alarm]


def sweep(workers: int | str) -> list[tuple[Any, Any]]:
    found = dict(in_parallel(partial(trials.run, SWEEP), SWEEP.trials, workers))
    for columns in found.values():
        columns.pop("seconds")
    assert len(found) == 8
    return [(trial, repr(found[trial])) for trial in SWEEP.trials]


def test_one_two_and_four_workers_find_the_same(
    cluster: Cluster, logs: list[str], tmp_path: Path
) -> None:
    here = fit(DESCRIPTION, logs, quarantine=tmp_path / "here.csv")
    assert here.report.bad_rows > 5
    assert here.report.splits > 5
    assert here.alarm is not None
    assert len(sources.cut_in_parts(sources.find_sources(logs), sort=False)) > 8
    played = sweep(1)
    for count in (1, 2, 4):
        cluster.grow(count)
        parts: list[float] = []
        aside = tmp_path / f"{count}.csv"
        there = fit(
            DESCRIPTION, logs, workers=cluster.address, quarantine=aside, progress=parts.append
        )
        assert bits(there) == bits(here)
        assert aside.read_text() == (tmp_path / "here.csv").read_text()
        assert parts == sorted(parts)
        assert parts[-1] == 1
        assert sweep(cluster.address) == played
    # The streaming reader, in one piece, is the reference for what is in the logs.
    reader = LogReader(DESCRIPTION, sources.as_one_part(sources.find_sources(logs)))
    assert sum(map(len, reader.transitions())) == here.decoder.rows
    assert vars(reader.report) | {"quarantine": None} == vars(here.report) | {"quarantine": None}


def test_a_worker_killed_in_the_middle_changes_nothing(cluster: Cluster, logs: list[str]) -> None:
    cluster.grow(4)
    here, played, killed = fit(DESCRIPTION, logs), sweep(1), list[float]()

    def kill(part: float) -> None:
        if part > 0.2 and not killed:
            killed.append(part)
            cluster.kill()

    there = fit(DESCRIPTION, logs, workers=cluster.address, progress=kill)
    assert killed[0] < 0.6
    assert bits(there) == bits(here)
    cluster.wait(3)
    found = {}
    for trial, columns in in_parallel(partial(trials.run, SWEEP), SWEEP.trials, cluster.address):
        if not found:
            cluster.kill()
        columns.pop("seconds")
        found[trial] = repr(columns)
    assert [(trial, found[trial]) for trial in SWEEP.trials] == played
    cluster.wait(2)


def test_an_interrupted_fit_leaves_nothing(
    cluster: Cluster, logs: list[str], tmp_path: Path
) -> None:
    def interrupt(part: float) -> None:
        raise KeyboardInterrupt

    for workers in (cluster.address, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            fit(DESCRIPTION, logs, workers=workers, progress=interrupt, quarantine=tmp_path / "q")
        assert [one.name for one in tmp_path.iterdir()] == ["logs"]
    assert tasks_left(cluster) == 0


def tasks_left(cluster: Cluster) -> int:
    """What the scheduler has in mind still; that we are gone, it hears a moment later."""
    from distributed import Client

    with Client(cluster.address, set_as_default=False) as client:
        began = time.monotonic()
        while (
            left := client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        ) and time.monotonic() < began + 20:
            time.sleep(0.05)
    return int(left)


def test_what_cannot_be_done_is_said_in_a_sentence(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write(cart_rows(MASSES), tmp_path / "log.parquet")
    monkeypatch.setattr("contextual_lqr.parallel.cluster._PATIENCE", 1)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        fit(DESCRIPTION, [log], workers="tcp://127.0.0.1:9")
    monkeypatch.setattr("contextual_lqr.parallel.cluster._PATIENCE", 10)
    # A worker with its own file system: the file is gone when it looks for it.
    gone = str(tmp_path / "gone.parquet")
    source = sources.Source(gone, 1, "parquet", gone)
    part = sources.as_one_part([source])
    with pytest.raises(InputError, match=r"on the worker tcp://[\d.:]+: cannot read .*gone"):
        next(in_parallel(Learning(DESCRIPTION).part, [part], cluster.address))
    bad = write(cart_rows(MASSES).with_columns(mass=pl.lit(99.0)), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"on the worker .*row 1: .*--strict"):
        fit(DESCRIPTION, [bad], strict=True, workers=cluster.address)
    with monkeypatch.context() as patch:
        patch.setattr("contextual_lqr.parallel.cluster._release", lambda: "99")
        with pytest.raises(InputError, match=r"the worker tcp://\S+ has contextual-lqr .* but"):
            fit(DESCRIPTION, [log], workers=cluster.address)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "distributed", None)
        with pytest.raises(MissingExtraError, match=r"contextual-lqr\[cluster\]"):
            fit(DESCRIPTION, [log], workers=cluster.address)


def test_a_worker_without_the_package_is_named(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LACKING)
    good = addresses(cluster)
    cluster.grow(len(good) + 1, PYTHONPATH=str(tmp_path))
    (odd,) = addresses(cluster) - good
    log = write(cart_rows(MASSES), tmp_path / "log.parquet")
    with pytest.raises(InputError, match=f"the worker {odd} has no contextual-lqr: install "):
        fit(DESCRIPTION, [log], workers=cluster.address)
    cluster.kill()
    cluster.wait(len(good))


def addresses(cluster: Cluster) -> set[str]:
    from distributed import Client

    with Client(cluster.address, set_as_default=False) as client:
        return set(client.scheduler_info(n_workers=-1)["workers"])


def test_other_logs_sorted_ones_and_verify(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not cut: CSV, what is sorted, Minari; relative paths, which a worker must find."""
    pytest.importorskip("h5py")
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # the workers are in another folder
    monkeypatch.setattr(sources, "PART", 20)  # of so many rows twice
    frame = cart_rows(MASSES)
    mixed = frame.sample(fraction=1, shuffle=True, seed=1)
    write(frame[:100], Path("0.csv"))
    write(frame[100:], Path("1.csv"))
    write(mixed, Path("mixed.parquet"))
    write_minari(frame, "carts/test-v0")
    for logs, sort in ((["*.csv"], False), (["mixed.parquet"], True), (["carts/test-v0"], False)):
        fitted = fit(DESCRIPTION, logs, sort=sort, workers=1)
        assert (fitted.decoder.rows, fitted.decoder.episodes) == (132, 12)
        assert bits(fit(DESCRIPTION, logs, sort=sort, workers=cluster.address)) == bits(fitted)
    # Headings, units and contexts are read where the rows are, from the same paths.
    odd = CARTS + '[columns]\nmass = "Größe"\n[logs]\ncontexts = "machines.csv"\n'
    how = {"separator": ";", "decimal": ",", "encoding": "latin-1", "headings": {"mass": "Größe"}}
    write_text(
        frame.select("machine", "mass").unique(maintain_order=True), Path("machines.csv"), **how
    )
    write_text(frame.drop("mass"), Path("odd.tsv"), **how)
    fleet = FleetDescription.parse(odd, folder=Path())
    here = fit(fleet, ["odd.tsv"], workers=1)
    assert bits(fit(fleet, ["odd.tsv"], workers=cluster.address)) == bits(here)
    assert here.report.tables.formats
    runs = [one for one in jobs(VerifySettings(("circle",), 2, short_episodes=5)) if not one.long]
    played, there = (dict(in_parallel(play, runs, one)) for one in (1, cluster.address))
    assert len(runs) == 2
    assert all(there[one].equals(played[one]) for one in runs)


def test_the_command_and_its_interruption(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(CARTS)
    write(cart_rows(MASSES), tmp_path / "log.parquet")
    at = ("--cluster", cluster.address)
    files = (tmp_path / "fleet.toml", tmp_path / "log.parquet")
    done = run(COMMAND, "fit", *files, "-o", tmp_path / "there", *at)
    assert done.returncode == 0, done.stderr
    assert "132 rows of 12 episodes" in done.stdout
    both = run(COMMAND, "fit", *files, "-o", tmp_path / "no", *at, "--jobs", "2")
    assert (both.returncode, "give one of them" in both.stderr) == (2, True)
    # Ctrl-C in the middle of a sweep: the scheduler forgets what was not done.
    out = tmp_path / "out"
    few = ("--paths", "circle", "--decays", "0.7", "--strategies", "paper", "--seeds", "60")
    command = [COMMAND, "reproduce", *few, "--episodes", "20", "--out", str(out), *at]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(out.glob("rows/*")):
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Finished trials are kept" in said
    assert "Traceback" not in said
    assert tasks_left(cluster) == 0


# -- cuts, without a cluster ---------------------------------------------------------------------

_messy = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 30),
        "batch": st.integers(1, 40),
        "files": st.lists(st.integers(0, 95), max_size=3).map(sorted),
        "dropped": st.sets(st.integers(0, 95), max_size=12),
        "nulls": st.sets(st.integers(0, 95), max_size=12),
        "idle": st.sets(st.integers(0, 95), max_size=6),
        "episodes": st.sets(st.integers(0, 95), max_size=6),
        "masses": st.sets(st.integers(0, 95), max_size=12),
        "doubled": st.sets(st.integers(0, 95), max_size=6),
        "steps": st.sampled_from([3, 8, 32]),
        "csv": st.booleans(),
    }
)


@given(_messy)
@settings(max_examples=15)
def test_however_logs_are_cut_nothing_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory, messy: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    frame = cart_rows([1.0, 2.0, 3.0], steps=messy["steps"], episodes=32 // messy["steps"])
    row = pl.int_range(pl.len())

    def at(which: str) -> Any:
        return pl.when(row.is_in(sorted(messy[which])))

    frame = frame.with_columns(
        velocity=at("nulls").then(None).otherwise("velocity"),
        force=at("idle").then(None).otherwise("force"),
        episode=at("episodes").then(None).otherwise("episode"),
        mass=at("masses").then(4.0).otherwise("mass"),
        step=at("doubled").then(pl.col("step") - 1).otherwise("step"),
    ).filter(~row.is_in(sorted(messy["dropped"])))
    edges = [0, *messy["files"], len(frame)]
    logs = []
    for i, (a, b) in enumerate(pairwise(edges)):
        suffix = "csv" if messy["csv"] and i % 2 else "parquet"
        logs.append(write(frame[a:b], folder / f"{i}.{suffix}"))
    with pytest.MonkeyPatch.context() as patch:
        # All rows in one go.
        reader = LogReader(DESCRIPTION, sources.as_one_part(sources.find_sources(logs)))
        whole = [arrays(batch) for batch in reader.transitions()]
        patch.setattr(sources, "PART", messy["rows"])
        patch.setattr(sources, "BATCH", messy["batch"])
        patch.setattr("contextual_lqr.data.transitions._LOOK_BACK", (2, 5, 1 << 60))
        patch.setattr("contextual_lqr.data.transitions.refuse_interleaved", lambda *_: None)
        cut, reports, earlier = [], [], list[sources.Piece]()
        for part in sources.cut_in_parts(sources.find_sources(logs), sort=False):
            # Parts of a few rows are too short to look back into: here all before are.
            one = LogReader(DESCRIPTION, replace(part, earlier=tuple(earlier)))
            earlier += part.pieces
            cut += [arrays(batch) for batch in one.transitions()]
            reports.append(one.report)
    total = reports[0]
    for one in reports[1:]:
        total.merge(one)
    mine, its = (np.concatenate(some) if some else None for some in (whole, cut))
    assert np.array_equal(mine, its)
    assert counts(total) == counts(reader.report)


def arrays(batch: Transitions) -> Any:
    """All numbers of some transitions, a row each."""
    about, rows, at = batch.description, batch.rows, batch.at
    now = [rows.values[name][at] for name in (*about.context_names, *about.input_names)]
    both = [rows.values[name][at + k] for name in about.state_names for k in (0, 1)]
    return np.stack((*now, *both, rows.step[at], batch.begins), 1)


def counts(report: Any) -> dict[str, Any]:
    """What must not depend on the cuts; which of two words is used for a step out of order does."""
    late = ("its step is there already", "its step is out of order")
    bad = {k: v for k, v in report.bad.items() if k not in late}
    found = {k: v for k, v in vars(report).items() if "bad" not in k and k != "first_splits"}
    return found | bad | {"late": sum(report.bad.get(k, 0) for k in late)}


def test_the_tree_is_the_same_for_any_number_of_threads() -> None:
    jobs = list(range(20))
    told: list[int] = []
    tree = in_tree(_leaf, _joined, jobs, 1, lambda i, sent: told.append(sent))
    assert told == [2 * i for i in jobs]
    assert tree.replace("(", "").replace(")", "").replace(" ", "").split(",") == [
        str(i) for i in jobs
    ]
    assert in_tree(_leaf, _joined, jobs, 2, lambda i, sent: told.append(sent)) == tree
    assert told[20:] == told[:20]
    assert in_tree(_leaf, _joined, jobs, 10**400, lambda *_: None) == tree
    assert in_tree(_leaf, _joined, [5], 1, lambda *_: None) == "5"


def test_a_result_is_merged_before_the_next_job_and_held_no_longer() -> None:
    alive = weakref.WeakSet[set[int]]()
    most = []

    class Kept(set[int]):
        __hash__ = object.__hash__

    def work(job: int) -> tuple[Kept, None]:
        most.append(len(alive))
        alive.add(kept := Kept([job]))
        return kept, None

    def merge(several: Iterable[Kept]) -> Kept:
        alive.add(total := Kept())
        for one in several:
            total |= one
            del one
        return total

    assert in_tree(work, merge, range(70), 1, lambda *_: None) == set(range(70))
    assert max(most) == 3  # what is merged so far, on each of three levels


def _leaf(job: int) -> tuple[str, int]:
    return str(job), 2 * job


def _joined(several: Iterable[str]) -> str:
    return f"({', '.join(several)})"


def test_threads_of_this_machine_fit_the_same(logs: list[str]) -> None:
    assert bits(fit(DESCRIPTION, logs, workers=3)) == bits(fit(DESCRIPTION, logs, workers=1))
