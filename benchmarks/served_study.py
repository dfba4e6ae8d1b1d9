"""Kill -9 of a service and of its clients at random moments: what was acknowledged is in the log.

    python benchmarks/served_study.py [kills] [seed]

Four clients ask and tell through a service, each in a process of its own, and write down what was
acknowledged. The service is killed again and again and begun anew; at one kill of four a client is
killed as well, and another takes its place. In the end

    lost      what was acknowledged and is not in the log as it was told
    doubled   what is in the log more than once
    unasked   what is in the log, and nobody told
    belief    whether it is, to the bit, that of an agent that is told the log from the beginning
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from contextual_lqr import Study, Trajectory
from contextual_lqr.fleets import chain
from contextual_lqr.study.encoding import context_text, episode_bytes, episode_key
from contextual_lqr.study.learner import agent_bytes, agent_from
from contextual_lqr.study.service.server import listening, server

FLEET, CLIENTS = chain(2), 4
fork = multiprocessing.get_context("fork")  # what serves must begin quickly; this process is small


def serve(store: str, port: int) -> None:
    """The service, until it is killed."""
    with listening("127.0.0.1", port) as socket:
        server({"fleet": Study.open(store)}).run([socket])


def told(client: int, number: int) -> tuple[Any, Trajectory]:
    """What a client tells: the same for the same number, whoever asks."""
    rng = np.random.default_rng([client, number])
    context, sizes = FLEET.sample_context(rng), (FLEET.cost.state_size, FLEET.cost.input_size)
    return context, Trajectory(rng.normal(size=(5, sizes[0])), rng.normal(size=(4, sizes[1])))


def key(client: int, number: int) -> str:
    """What that episode is known by."""
    context, played = told(client, number)
    return episode_key(context_text(context), f"M-{client}", episode_bytes(played))


def play(url: str, client: int, folder: Path, stop: Path) -> None:
    """Ask, tell, and write down what was acknowledged, until somebody says so."""
    with Study.open(url, patience=600.0) as study, open(folder / str(client), "wb", 0) as file:
        number = 0
        while not stop.exists():
            context, played = told(client, number)
            plan = study.ask(context, f"M-{client}")
            file.write(b"%d %d\n" % (number, study.tell(plan, played).number))
            number += 1


def campaign(store: str, folder: Path, kills: int, seed: int) -> None:
    """Kill so often."""
    chance = random.Random(seed)
    with listening("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    url, stop = f"http://127.0.0.1:{port}/fleet", folder / "stop"
    begun = 0

    def begin() -> Any:
        nonlocal begun
        one = fork.Process(target=play, args=(url, begun, folder, stop))
        one.start()
        begun += 1
        return one

    clients = [begin() for _ in range(CLIENTS)]
    for _ in range(kills):
        service = fork.Process(target=serve, args=(store, port))
        service.start()
        time.sleep(chance.uniform(0.1, 2.0))
        os.kill(service.pid, signal.SIGKILL)
        service.join()
        if chance.random() < 0.25:
            at = chance.randrange(CLIENTS)
            os.kill(clients[at].pid, signal.SIGKILL)
            clients[at].join()
            clients[at] = begin()
    stop.touch()
    service = fork.Process(target=serve, args=(store, port))
    service.start()
    for one in clients:
        one.join()
    os.kill(service.pid, signal.SIGTERM)
    service.join()


def verdict(store: str, folder: Path) -> bool:
    """Hold the log against what was acknowledged."""
    names = [one for one in folder.iterdir() if one.name.isdecimal()]
    acknowledged: dict[str, int] = {}
    known = set()
    for name in names:
        lines = [line.split() for line in name.read_text().splitlines()]
        acknowledged |= {key(int(name.name), int(n)): int(number) for n, number in lines}
        known |= {key(int(name.name), n) for n in range(len(lines) + 1)}  # one may be on its way
    with Study.open(store) as study:
        log = list(study._log.episodes())
        lost = [k for k, n in acknowledged.items() if n > len(log) or log[n - 1].key != k]
        doubled = len(log) - len({one.key for one in log})
        replayed = agent_from(study._log.snapshot(0)[1], "the first snapshot", study._learner._own)
        for one in study.export():
            played = Trajectory(one["states"], one["inputs"])
            replayed.tell(one["context"], played, one["machine"])
        same = agent_bytes(replayed) == agent_bytes(study._learner.agent)
    unasked = len({one.key for one in log} - known)
    print(f"{len(acknowledged)} acknowledged, {len(log)} in the log, of {len(names)} clients")
    print(f"lost {len(lost)}, doubled {doubled}, unasked {unasked}, belief {same}")
    return same and not (lost or doubled or unasked)


def main(kills: int, seed: int) -> int:
    """Kill so often, and judge."""
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.monotonic()
        store = f"sqlite:///{folder}/fleet.db"
        Study.open(store, FLEET).close()
        with suppress(KeyboardInterrupt):
            campaign(store, folder, kills, seed)
        print(f"{kills} kills of the service in {time.monotonic() - began:.0f} s, seed {seed}")
        return 0 if verdict(store, folder) else 1


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:]]
    sys.exit(main(*(given + [200, 0][len(given) :])))
