"""Kill -9 at random moments: what was told is there, once, and believed to the bit.

Clients ask and tell, each a process that is killed at a random moment; PostgreSQL itself, all its
processes at once, every third time. What a client was answered it writes to a pipe. Then the study
is opened anew, and held against a replay of the log by a plain agent, from the beginning.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from contextual_lqr import Study
from contextual_lqr.study.database import StoreError
from contextual_lqr.study.encoding import context_of, episode_of
from contextual_lqr.study.learner import agent_bytes, agent_from
from contextual_lqr.testing.stores import _agent, _played

CLIENTS = 3


def _client(url: str, seed: int, told: Any) -> None:
    """Ask and tell until the end; a store that is gone for a moment is tried again."""
    rng, k = np.random.default_rng(seed), 0
    study = None
    while True:
        try:
            study = Study.open(url) if study is None else study
            k += 1
            played = _played(int(rng.integers(2**62)))
            plan = study.ask({"mass": 2.0}, machine=f"M-{seed % 7}", key=f"{seed}-{k}")
            for _ in range(20):
                try:
                    number, _new = study.tell(plan, played, key=f"{seed}-{k}")
                    told.send((f"{seed}-{k}", number))
                    break
                except StoreError:
                    time.sleep(0.1)  # told again, and counted once
        except StoreError:
            time.sleep(0.1)


class Server:
    """PostgreSQL, which can be killed with all its processes, and started again."""

    def __init__(self, folder: Path) -> None:
        from postgres import server

        self.folder = folder
        os.chmod(folder, 0o755)
        self._context = server(folder)
        self.url = self._context.__enter__()

    def kill(self) -> None:
        """All of it, at once; then start it, which recovers."""
        from postgres import start

        leader = Path(self.folder, "data", "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        for one in (leader, *children):
            with suppress(ProcessLookupError):
                os.kill(int(one), signal.SIGKILL)
        for _ in range(50):  # until the last of them has gone
            time.sleep(0.2)
            with suppress(subprocess.CalledProcessError):
                return start(self.folder)
        raise SystemExit("PostgreSQL does not start again")

    def stop(self) -> None:
        """At the end."""
        self._context.__exit__(None, None, None)


def survive(url: str, kills: int, server: Server | None, seed: int = 0) -> dict[str, int]:
    """So many kills; what was answered, what the log has, what is lost, doubled or differs."""
    spawn, rng = multiprocessing.get_context("fork"), np.random.default_rng(seed)
    Study.open(url, _agent()).close()
    answered: dict[str, int] = {}
    pipes: dict[Any, Any] = {}
    serial = 1000 * seed
    done = 0
    while done < kills:
        while len(pipes) < CLIENTS:
            serial += 1
            mine, theirs = spawn.Pipe(duplex=False)
            one = spawn.Process(target=_client, args=(url, serial, theirs), daemon=True)
            one.start()
            theirs.close()
            pipes[one] = mine
        _hear(pipes, answered, rng.uniform(0.05, 0.6))
        done += 1
        if server is not None and done % 3 == 0:
            server.kill()
            continue
        victim = list(pipes)[int(rng.integers(len(pipes)))]
        os.kill(victim.pid, signal.SIGKILL)
        _hear({victim: pipes[victim]}, answered, 0.0, rest=True)
        victim.join()
        del pipes[victim]
    for one in pipes:
        os.kill(one.pid, signal.SIGKILL)
    for one, pipe in pipes.items():
        _hear({one: pipe}, answered, 0.0, rest=True)
        one.join()
    return {"kills": done, "answered": len(answered), **judged(url, answered)}


def _hear(pipes: dict[Any, Any], told: dict[str, int], seconds: float, rest: bool = False) -> None:
    until = time.monotonic() + seconds
    while rest or time.monotonic() < until:
        ready = multiprocessing.connection.wait(list(pipes.values()), 0 if rest else 0.05)
        for pipe in ready:
            try:
                key, number = pipe.recv()  # type: ignore[attr-defined]
                told[key] = number
            except (EOFError, OSError):
                return
        if rest and not ready:
            return


def judged(url: str, answered: dict[str, int]) -> dict[str, int]:
    """What is lost or doubled, and whether the belief is that of a replay."""
    with Study.open(url) as study:
        log = list(study._log.episodes())
        study.status()
        numbers = {one.key: one.number for one in log}
        counted = sum(study.status().machines.values())
        replay = agent_from(study._log.snapshot(0)[1], "it", {name: None for name in _OWN})
        for one in log:
            replay.tell(context_of(one.context), episode_of(one.content, "it"), one.machine)
        same = agent_bytes(replay) == agent_bytes(study._learner.agent)
    return {
        "episodes": len(log),
        "lost": sum(numbers.get(key) != number for key, number in answered.items()),
        "doubled": len(log) - len({bytes(one.content) for one in log}),
        "gaps": int([one.number for one in log] != list(range(1, len(log) + 1))),
        "miscounted": abs(counted - len(log)),
        "differs": int(not same),
    }


_OWN = ("context_map", "strategy", "beta", "incumbent")


def run(kind: str, kills: int, seed: int = 0) -> dict[str, int]:
    """On a store of this kind."""
    folder = Path(tempfile.mkdtemp())
    try:
        if kind == "SQLite":
            return survive(f"sqlite:///{folder}/fleet.db", kills, None, seed)
        server = Server(folder)
        try:
            return survive(server.url, kills, server, seed)
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    for store in ("SQLite", "PostgreSQL"):
        print(store, run(store, int(sys.argv[1]) if len(sys.argv) > 1 else 100), flush=True)
