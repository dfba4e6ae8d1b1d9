"""What is said when workers die or freeze, a scheduler is killed, or it asks who we are."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from test_cluster import Cluster as Dask

from command import COMMAND
from contextual_lqr import InputError
from contextual_lqr.parallel import Cluster, WorkersLostError, in_parallel, in_tree
from contextual_lqr.parallel import cluster as waiting

pytestmark = pytest.mark.slow


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    with closing(Dask(tmp_path)) as one:
        one.grow(2)
        yield one


class Told:
    """What a watch is told, by a clock of its own; a healthy worker has its say every second."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, crowd: float, starved: bool = False, others: int = 0
    ) -> None:
        self.now, self.silent, self.others = 0.0, False, others
        self.pause = waiting._LOOK + 0.05  # how often `until` looks where nothing keeps it from it
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(waiting, "crowding", lambda: crowd)
        monkeypatch.setattr(waiting, "computes_here", lambda _: starved)
        monkeypatch.setattr(waiting._Watch, "_told", self.told)
        self.watch = waiting._Watch(None, "tcp://here")

    def told(self, _: object) -> dict[str, dict[str, dict[str, float]]]:
        workers = {f"other {i}": {"last_seen": self.now} for i in range(self.others)}
        return {"workers": {"one": {"last_seen": 0.0 if self.silent else self.now}, **workers}}

    def look(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += self.pause
            self.watch._look()


def seconds_until_lost(told: Told) -> float:
    told.look(30)
    told.silent, began = True, told.now
    with pytest.raises(WorkersLostError, match="nothing has been heard from the worker one"):
        told.look(1000)
    return told.now - began


def test_a_silent_worker_is_lost_within_the_ten_seconds_of_the_docs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for crowd in (1.0, 6.0):  # however many processes want each core
        with monkeypatch.context() as patch:
            assert waiting._SILENCE < seconds_until_lost(Told(patch, crowd)) <= 9
    with monkeypatch.context() as patch:  # unless it computes, and all is six times later
        assert 6 * waiting._SILENCE < seconds_until_lost(Told(patch, 6.0, True)) <= 60
    with monkeypatch.context() as patch:  # of so many, Dask wants a word every 11 seconds
        assert 11 < seconds_until_lost(Told(patch, 1.0, others=2000)) <= 20
    with monkeypatch.context() as patch:  # we were stopped for an hour, and the worker was not
        told = Told(patch, 1.0)
        told.look(5)
        told.silent = True
        told.now += 3600
        told.look(3)
        told.silent = False
        told.look(30)


def test_a_crowd_is_counted() -> None:
    assert waiting.crowding() >= 1
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        began = time.monotonic()
        while waiting.crowding() < 3:  # most of them run, or would like to
            assert time.monotonic() < began + 60
            time.sleep(0.05)
    finally:
        for one in hogs:
            one.kill()
            one.wait()


LISTENS = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        {does}
"""


def test_whether_a_worker_of_this_machine_computes_is_seen() -> None:
    busy, idle = (
        subprocess.Popen(
            [sys.executable, "-c", LISTENS.format(does=does)], stdout=subprocess.PIPE, text=True
        )
        for does in ("pass", "time.sleep(60)")
    )
    try:
        ports = [int(one.stdout.readline()) for one in (busy, idle)]  # type: ignore[union-attr]
        at, resting = (f"tcp://127.0.0.1:{port}" for port in ports)
        assert waiting.computes_here(at)
        assert not waiting.computes_here(resting)
        assert not waiting.computes_here(at.replace("127.0.0.1", "192.0.2.1"))
        busy.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        assert not waiting.computes_here(at)
    finally:
        for one in (busy, idle):
            one.kill()
            one.communicate()
    assert not waiting.computes_here(at)


def asleep(seconds: float) -> tuple[list[float], float]:
    time.sleep(seconds)
    return [seconds], seconds


def lost_when(dask: Dask, what: Callable[[], object], tree: bool = False) -> str:
    """What is said when something happens as the first job is done, long before the others are.

    And within the ten seconds of the docs, however crowded this machine is.
    """
    began = time.monotonic()

    def happen(*_: object) -> None:
        nonlocal began
        what()
        began = time.monotonic()

    with pytest.raises(WorkersLostError) as said:  # noqa: PT012
        if tree:
            in_tree(asleep, sum, [0.1, 600.0, 600.0], dask.address, happen)
        for one in in_parallel(time.sleep, [0.1, 600.0, 600.0], dask.address):
            happen(one)
    assert time.monotonic() - began < 10
    return str(said.value)


def test_workers_that_freeze_or_die_are_not_waited_for(
    dask: Dask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_SILENCE", 2.0)
    monkeypatch.setattr(waiting, "crowding", lambda: 20.0)
    frozen = dask.workers[0]
    (name,) = [its for its, pid in pids(dask).items() if pid == frozen.pid]
    silent = f"nothing has been heard from the worker {name} for 2 seconds: is it frozen? Stop it"
    assert lost_when(dask, lambda: frozen.send_signal(signal.SIGSTOP)).startswith(silent)
    # It is frozen still when another command comes along.
    assert lost_when(dask, lambda: None).startswith(silent)

    def all_die() -> None:
        for one in dask.workers:
            one.kill()
            one.wait()
        dask.workers.clear()

    all_die()
    dask.grow(1)
    said = lost_when(dask, all_die)
    assert said == f"all workers of the cluster at {dask.address} are gone"
    dask.grow(1)
    said = lost_when(dask, all_die, tree=True)
    assert said.startswith(("all workers of the cluster at", "workers of the cluster at"))
    assert "gone" in said


def pids(dask: Dask) -> dict[str, int]:
    from distributed import Client

    with Client(dask.address, set_as_default=False) as client:
        return dict(client.run(os.getpid))


def test_a_scheduler_that_is_killed_is_one_sentence(dask: Dask, tmp_path: Path) -> None:
    out = tmp_path / "out"
    few = ("--paths", "circle", "--decays", "0.7", "--strategies", "paper", "--seeds", "60")
    command = [COMMAND, "reproduce", *few, "--episodes", "20", "--out", str(out)]
    running = subprocess.Popen(
        [*command, "--cluster", dask.address], stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob("rows/*")):
        assert running.poll() is None
        time.sleep(0.05)
    dask.scheduler.kill()
    began = time.monotonic()
    _, said = running.communicate(timeout=60)
    assert time.monotonic() - began < 10 * waiting.crowding()  # Python takes its time to end
    assert running.returncode == 1
    assert f"the Dask scheduler at {dask.address} is gone" in " ".join(said.split())
    assert "Traceback" not in said
    assert "distributed" not in said


def test_a_scheduler_that_is_frozen_is_not_waited_for(
    dask: Dask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_ANSWER", 2.0)
    monkeypatch.setattr(waiting, "_PATIENCE", 2.0)
    frozen = partial(dask.scheduler.send_signal, signal.SIGSTOP)
    assert lost_when(dask, frozen) == f"the Dask scheduler at {dask.address} is gone"
    with pytest.raises(InputError, match="no Dask scheduler answers at"):  # it is frozen still
        next(in_parallel(time.sleep, [0.1], dask.address))


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """One certificate for all: it signs itself, and is known to everybody."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    try:
        subprocess.run(
            [*command, *name, "-out", cert, "-keyout", key], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return {"ca": str(cert), "cert": str(cert), "key": str(key)}


def test_a_scheduler_behind_tls(
    tmp_path: Path, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [("--tls-ca-file", "ca"), ("--tls-cert", "cert"), ("--tls-key", "key")]
    proof = tuple(word for option, name in options for word in (option, certificate[name]))
    with closing(Dask(tmp_path, "--protocol", "tls", *proof)) as dask:
        assert dask.address.startswith("tls://")
        dask.grow(1, *proof, wait=False)
        found = dict(in_parallel(abs, [-1, -2], Cluster(dask.address, **certificate)))
        assert found == {-1: 1, -2: 2}
        with pytest.raises(InputError, match=r"tls://\S+ wants certificates: give --tls-ca, --tls"):
            list(in_parallel(abs, [-1], dask.address))
        wrong = certificate | {"key": certificate["cert"]}
        with pytest.raises(InputError, match=r"the certificates for tls://\S+ cannot be used"):
            list(in_parallel(abs, [-1], Cluster(dask.address, **wrong)))
        gone = certificate | {"ca": "none.pem"}
        with pytest.raises(InputError, match=r"the certificates for tls://\S+ cannot be used"):
            list(in_parallel(abs, [-1], Cluster(dask.address, **gone)))
        monkeypatch.setattr(waiting, "_PATIENCE", 1)
        with pytest.raises(InputError, match="no Dask scheduler answers at tcp://"):
            list(in_parallel(abs, [-1], dask.address.replace("tls:", "tcp:")))


def test_ctrl_c_while_workers_start_is_heard_afterwards() -> None:
    """And never by the workers, which are stopped from here."""
    code = (
        "import os, signal, subprocess, sys\n"
        "from contextual_lqr.parallel import _deaf_children\n"
        "heard = []\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "with _deaf_children():\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    assert not heard\n"
        "assert heard\n"
        "child.send_signal(signal.SIGINT)\n"
        "try:\n"
        "    child.wait(1)\n"
        "    sys.exit('the child heard it')\n"
        "except subprocess.TimeoutExpired:\n"
        "    child.kill()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
