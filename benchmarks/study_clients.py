"""A hundred clients at once: how quickly a study answers, and Optuna's storages beside it.

Every client is a process with a study of its own on one store; it asks, plays nothing, and tells an
episode that was simulated before. Optuna's does the same with its trials: `ask`, two numbers
suggested, `tell`. Its default sampler learns from what was told, as an ask of ours does; the one
that draws at random is the quickest it has, and learns nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contextual_lqr import Agent, LinearPolicy, Study, simulate
from contextual_lqr.fleets import chain, true_system
from contextual_lqr.study.service.server import listening, server

Client = Callable[[str, int, int], Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]]
FLEET = chain(2)
AGENT = Agent(FLEET.context_map, FLEET.cost, FLEET.start, noise_level=FLEET.noise_level)


def ours(url: str, seed: int, count: int) -> Iterator[tuple[Any, Any]]:
    """Ask and tell, as two functions, once for every episode."""
    rng = np.random.default_rng(seed)
    context, machine = FLEET.sample_context(rng), f"M-{seed}"
    system, steps = true_system(FLEET, context), FLEET.cost.horizon - 1
    with Study.open(url) as study:
        yield lambda: None, lambda _: None
        for _ in range(count):
            gains = 0.1 * rng.normal(size=(steps, FLEET.cost.input_size, FLEET.cost.state_size))
            played = simulate(LinearPolicy(gains), system, FLEET.start, rng)
            yield (
                lambda: study.ask(context, machine),
                lambda plan, played=played: study.tell(plan, played),
            )


def optunas(url: str, seed: int, count: int, sampler: str) -> Iterator[tuple[Any, Any]]:
    """The same of trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    storage = (
        optuna.storages.GrpcStorageProxy(host="127.0.0.1", port=int(url.rsplit(":", 1)[1]))
        if url.startswith("grpc")
        else optuna.storages.RDBStorage(url, options, skip_compatibility_check=True)
    )
    samplers = {"default": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    chosen = samplers[sampler](seed=seed)
    study = optuna.load_study(study_name="fleet", storage=storage, sampler=chosen)

    def ask() -> Any:
        trial = study.ask()
        trial.suggest_float("a", -1, 1)
        trial.suggest_float("b", -1, 1)
        return trial

    yield lambda: None, lambda _: None
    for k in range(count):
        yield ask, lambda trial, k=k: study.tell(trial, 1e-3 * seed + k)


def _runs(client: Client, url: str, seed: int, count: int, ready: Any, go: Any, out: Any) -> None:
    times, errors, spent = [], [], 0.0
    for begun, (ask, tell) in enumerate(client(url, seed, count)):
        if not begun:
            ready.release()
            go.wait()
            spent = -time.process_time()
            continue
        try:
            start = time.perf_counter()
            asked = ask()
            between = time.perf_counter()
            tell(asked)
            times.append((between - start, time.perf_counter() - between))
        except Exception as error:
            errors.append(repr(error))
    out.put((times, errors, spent + time.process_time()))


def at_once(client: Client, url: str, clients: int, episodes: int) -> dict[str, Any]:
    """Rates and latencies of so many clients, each with so many episodes."""
    fork = multiprocessing.get_context("fork")
    ready, go, out = fork.Semaphore(0), fork.Event(), fork.Queue()
    workers = [
        fork.Process(target=_runs, args=(client, url, k, episodes, ready, go, out))
        for k in range(clients)
    ]
    for one in workers:
        one.start()
    for _ in workers:
        ready.acquire()
    start = time.perf_counter()
    go.set()
    answers = [out.get() for _ in workers]
    elapsed = time.perf_counter() - start
    for one in workers:
        one.join()
    times = np.array([pair for some, _, _ in answers for pair in some])
    errors = [one for _, some, _ in answers for one in some]
    return {
        "episodes": len(times),
        "errors": errors,
        "rate": len(times) / elapsed,
        "spent": sum(spent for _, _, spent in answers) / len(times),
        "ask": times[:, 0],
        "tell": times[:, 1],
    }


def lost_or_doubled(url: str, expected: int) -> int:
    """How many episodes the study has too few or too many, or learnt too few or too many of."""
    with Study.open(url) as study:
        keys = [one.key for one in study._log.episodes()]
        learnt = study.decoder.episodes
    return abs(len(set(keys)) - expected) + len(keys) - len(set(keys)) + abs(learnt - expected)


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The address of an empty one."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "SQLite":
            yield f"sqlite:///{folder}/fleet.db"
            return
        from postgres import server  # of tests/support

        os.chmod(folder, 0o755)
        with server(Path(folder), connections=250) as url:
            yield url


def _serve(url: str, port: int) -> None:
    with listening("127.0.0.1", port) as socket:
        server({"fleet": Study.open(url)}).run([socket])


def _proxy(url: str, port: int) -> None:
    import optuna

    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    storage = optuna.storages.RDBStorage(url, options, skip_compatibility_check=True)
    optuna.storages.run_grpc_proxy_server(storage, host="127.0.0.1", port=port)


@contextmanager
def served(by: Callable[[str, int], None], url: str, address: str) -> Iterator[str]:
    """The address of a process that serves what is in a store."""
    with listening("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    process = multiprocessing.get_context("fork").Process(target=by, args=(url, port), daemon=True)
    process.start()
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            time.sleep(0.1)
        yield address.format(port)
    finally:
        process.kill()
        process.join()


def compare(kind: str, clients: int, episodes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ours and Optuna's, one after the other, on a store of this kind."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for is_served in (False, True):
        with ExitStack() as ends:
            url = ends.enter_context(database(kind))
            Study.open(url, AGENT).close()
            store = url
            if is_served:
                url = ends.enter_context(served(_serve, url, "http://127.0.0.1:{}/fleet"))
            run = at_once(ours, url, clients, episodes)
            lost = lost_or_doubled(store, clients * episodes)
            yield "ours, served" if is_served else "ours", run | {"lost": lost}
        for sampler in ("default", "random"):
            with ExitStack() as ends:
                url = ends.enter_context(database(kind))
                url = url.replace("postgresql:", "postgresql+psycopg:")
                optuna.create_study(study_name="fleet", storage=url)
                store = url
                if is_served:
                    url = ends.enter_context(served(_proxy, url, "grpc://127.0.0.1:{}"))
                # It slows down with every trial: fewer are kind to it.
                some = max(episodes // 5, 1)
                run = at_once(partial(optunas, sampler=sampler), url, clients, some)
                study = optuna.load_study(study_name="fleet", storage=store)
                lost = abs(len(study.trials) - clients * some)
                by = "gRPC" if is_served else "RDB"
                yield f"Optuna, {by}, {sampler} sampler", run | {"lost": lost}
