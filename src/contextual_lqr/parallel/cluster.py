"""The workers of a Dask scheduler: what they find, as long as they live.

Dask waits for ever for workers that all died, for one that is frozen, and for a scheduler that is:
here every wait looks at them now and then, and gives up in words.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import urlsplit

from contextual_lqr import kernels
from contextual_lqr.errors import ContextualLQRError, InputError, MissingExtraError

FAN = 8  # results that are merged at once
_PACKAGE = "contextual-lqr"
_PATIENCE = 10  # seconds for a scheduler to answer, and for its first worker
_SILENCE = 7.0  # seconds without a word from a worker, or without any worker, until it is lost
_ANSWER = 4.0  # seconds for a scheduler that has answered before
_LOOK = 1.0  # seconds between two looks at the workers
_LATE = 2.0  # seconds between two looks that count: beyond, it was we who were not there
Job = TypeVar("Job")
Result = TypeVar("Result")
Kept = TypeVar("Kept")
Sent = TypeVar("Sent")


class WorkersLostError(ContextualLQRError, RuntimeError):
    """Workers died, perhaps for lack of memory, and the work cannot go on."""


class Cluster(str):
    """The address of a Dask scheduler, and the PEM files by which a tls:// one knows us."""

    __slots__ = ("ca", "cert", "key")
    ca: str | None
    cert: str | None
    key: str | None

    def __new__(
        cls, address: str, ca: str | None = None, cert: str | None = None, key: str | None = None
    ) -> Cluster:
        """Certificates not given are those of Dask's own configuration, if it has any."""
        cluster = super().__new__(cls, address)
        cluster.ca, cluster.cert, cluster.key = ca, cert, key
        return cluster


def _there(work: Callable[[Job], Result], job: Job) -> Result:
    """On a worker: what is refused there is refused with the worker's name."""
    from distributed import get_worker

    try:
        kernels.set_threads(1)
        return work(job)
    except InputError as error:
        raise InputError(f"on the worker {get_worker().address}: {error}") from None


def on_cluster(
    work: Callable[[Job], Result], jobs: Sequence[Job], address: str
) -> Generator[tuple[Job, Result], None, None]:
    """Each job with its result, as they finish."""
    with _connected(address) as watch:
        yield from _finished(watch, watch.client.map(partial(_there, work), jobs, pure=False), jobs)


def tree_on_cluster(
    work: Callable[[Job], tuple[Kept, Sent]],
    merge: Callable[[Iterable[Kept]], Kept],
    jobs: Sequence[Job],
    address: str,
    taken: Callable[[int, Sent], None],
) -> Kept:
    """All jobs' results, merged where they are."""
    with _connected(address) as watch:
        return _tree(watch, work, merge, jobs, taken)


def _finished(
    watch: _Watch, futures: list[Any], jobs: Sequence[Job]
) -> Generator[tuple[Job, Any], None, None]:
    from distributed import as_completed

    job_of = dict(zip(futures, jobs, strict=True))
    del futures  # a result that was handed on is forgotten, here and on the cluster
    completed = as_completed(list(job_of), loop=watch.client.loop)
    while completed.count():
        watch.until(completed.has_ready)
        future = next(completed)
        result = watch.result(future)  # which Dask computes again if its worker died meanwhile
        yield job_of.pop(future), result


def _tree(
    watch: _Watch,
    work: Callable[[Job], tuple[Kept, Sent]],
    merge: Callable[[Iterable[Kept]], Kept],
    jobs: Sequence[Job],
    taken: Callable[[int, Sent], None],
) -> Kept:
    client = watch.client
    done = client.map(partial(_there, work), jobs, pure=False)
    # What follows a job goes before other jobs: progress shows, and little is held.
    after = {"pure": False, "priority": 1}
    sent = client.map(itemgetter(1), done, **after)
    level = client.map(itemgetter(0), done, **after)
    del done
    while len(level) > 1:
        groups = [level[i : i + FAN] for i in range(0, len(level), FAN)]
        level = client.map(merge, groups, **after)
    for number, found in _finished(watch, sent, range(len(jobs))):
        taken(number, found)
    total: Kept = watch.result(level[0])
    return total


def crowding() -> float:
    """How many others want each core of this machine at the moment, at least 1."""
    try:
        with open("/proc/loadavg") as file:  # 0.20 0.18 0.12 3/80 11206: three can run, we for one
            others = float(file.read().split()[3].split("/")[0]) - 1
    except OSError:
        others = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1.0, others / (os.cpu_count() or 1))


def computes_here(address: str) -> bool:
    """Whether it is that of a process of this machine which uses a core within the next second."""
    import psutil  # which Dask brings along

    try:
        at = urlsplit(address)
        local = {one.address for some in psutil.net_if_addrs().values() for one in some}
        if at.hostname not in local:
            return False
        ports = {one.laddr.port: one.pid for one in psutil.net_connections() if not one.raddr}
        process = psutil.Process(ports[at.port])
        used = process.cpu_times()
        for _ in range(20):
            time.sleep(0.05)
            if process.cpu_times() > used:
                return True
    except (psutil.Error, OSError, LookupError, ValueError):
        pass  # it is gone, or is not ours to look at
    return False


class _Watch:
    """Waits for a cluster's answers as long as its workers live, and no longer.

    Dask waits for ever for workers that all died, or for one that is frozen. One that is starved
    on a crowded machine is late in the same way, as the scheduler may be, but it computes: if it
    does so here, it is waited for longer, as much as the machine is crowded.
    """

    def __init__(self, client: Any, address: str) -> None:
        self.client, self._address = client, address
        self._heard: dict[str, tuple[object, float]] = {}  # of each worker: what it said, and when
        self._looked = time.monotonic()
        self._clock = self._peopled = 0.0  # in seconds that we were there

    def result(self, future: Any) -> Any:
        """What a task returned."""
        return self.answer(lambda: self.client.gather(future))

    def answer(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        """What a call of the client returns, which is made in its own thread."""
        import asyncio

        async def asked() -> Result:
            return await ask()

        waiting = asyncio.run_coroutine_threadsafe(asked(), self.client.loop.asyncio_loop)
        try:
            self.until(waiting.done)
        finally:
            waiting.cancel()
        return waiting.result()

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait for something to come true."""
        pause = 0.001
        while not ready():
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            if time.monotonic() > self._looked + _LOOK:
                self._look()

    def answers(self) -> bool:
        """Whether the scheduler is there."""
        with suppress(OSError, TimeoutError):
            return self.client.status == "running" and bool(self._told(_LOOK))
        return False

    def _told(self, patience: float) -> dict[str, Any]:
        """What the scheduler says about its workers."""
        identity = self.client.scheduler.identity
        told: dict[str, Any] = self.client.sync(identity, n_workers=-1, callback_timeout=patience)
        return told

    def _look(self) -> None:
        """Raise if there are no workers, or one has been silent, for too long."""
        try:
            told = self._told(_ANSWER)
        except TimeoutError:
            if not computes_here(self._address):
                raise
            told = self._told(_ANSWER * crowding())
        before, self._looked = self._looked, time.monotonic()
        self._clock += min(self._looked - before, _LATE)
        now = self._clock
        if told["workers"]:
            self._peopled = now
        elif now > self._peopled + _SILENCE:
            raise WorkersLostError(f"all workers of the cluster at {self._address} are gone")
        heard = {}
        # By its own clock, which need not be as ours; of n workers Dask hears every n/200 s or so.
        silence = _SILENCE + len(told["workers"]) / 200
        for name, its in told["workers"].items():
            said, when = self._heard.get(name, (None, now))
            heard[name] = (its["last_seen"], now if its["last_seen"] != said else when)
            silent = now - heard[name][1]
            if silent > silence and not (silent < silence * crowding() and computes_here(name)):
                raise WorkersLostError(
                    f"nothing has been heard from the worker {name} for {silence:.0f} seconds: "
                    "is it frozen? Stop it, and start again"
                )
        self._heard = heard


@contextmanager
def _connected(address: str) -> Iterator[_Watch]:
    """A client of the scheduler; leaving, for whatever reason, cancels all that is not finished."""
    try:
        from distributed import CancelledError, Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        raise MissingExtraError("distributed", "cluster") from None
    security = _security(address)
    with _dask_is_quiet():
        try:
            _require_answer(address, security)
            client = Client(address, timeout=_PATIENCE, set_as_default=False, security=security)
        except (OSError, ValueError):
            raise InputError(
                f"no Dask scheduler answers at {address}: `dask scheduler` starts one, and says "
                "where"
            ) from None
        watch = _Watch(client, address)
        try:
            _require_same_release(watch, address)
            yield watch
        except KilledWorker as error:
            raise WorkersLostError(
                f"one task after another lost its worker on the cluster at {address}, the last "
                f"{error.last_worker.address}, perhaps for lack of memory"
            ) from None
        except ModuleNotFoundError as error:
            _require_same_release(watch, address)  # a worker that came later: this names it
            raise InputError(
                f"a worker of {address} has no package {error.name}: install contextual-lqr "
                "there, in the same release and with its dependencies"
            ) from None
        except (CancelledError, CommClosedError, TimeoutError):
            if watch.answers():
                raise WorkersLostError(
                    f"workers of the cluster at {address} are gone, and their results with them"
                ) from None
            raise WorkersLostError(f"the Dask scheduler at {address} is gone") from None
        finally:
            with suppress(TimeoutError):  # a scheduler that is frozen
                client.close(timeout=2)


def _security(address: str) -> Any:
    """What proves who we are, for a scheduler that asks for it."""
    from distributed import Security

    names = {"tls_ca_file": "ca", "tls_client_cert": "cert", "tls_client_key": "key"}
    files = {name: getattr(address, short, None) for name, short in names.items()}
    security = Security(**{name: file for name, file in files.items() if file is not None})
    try:
        context = security.get_connection_args("client").get("ssl_context")
    except OSError as error:  # which those of ssl are
        raise InputError(f"the certificates for {address} cannot be used: {error}") from None
    if address.startswith("tls://") and context is None:
        raise InputError(f"{address} wants certificates: give --tls-ca, --tls-cert and --tls-key")
    return security


def _require_answer(address: str, security: Any) -> None:
    """Raise unless the scheduler answers: a client waits for ever for one that is frozen."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from distributed.core import rpc

    async def answer() -> None:
        async with rpc(address, connection_args=security.get_connection_args("client")) as one:
            await asyncio.wait_for(one.identity(n_workers=0), _PATIENCE)

    with ThreadPoolExecutor(1) as thread:  # this one may have a loop of its own
        thread.submit(lambda: asyncio.run(answer())).result()


@contextmanager
def _dask_is_quiet() -> Iterator[None]:
    """What happens to the cluster is said once, by us, and not in tracebacks on the way."""
    known = [logging.getLogger(name) for name in ("asyncio", *logging.root.manager.loggerDict)]
    loud = [
        (one, one.level) for one in known if one.name.startswith(("distrib", "torn", "asyncio"))
    ]
    for logger, _ in loud:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in loud:
            logger.setLevel(level)


def _release() -> str:
    return version(_PACKAGE)


def _require_same_release(watch: _Watch, address: str) -> None:
    client = watch.client
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise InputError(
            f"the Dask scheduler at {address} has no workers: `dask worker {address}` starts one"
        ) from None
    ours = _release()
    found = watch.answer(lambda: client.run(version, _PACKAGE, on_error="return"))
    found = {f"the worker {name}": its for name, its in sorted(found.items())}
    try:  # it reads what tasks are, and must know their names
        found[f"the Dask scheduler at {address}"] = watch.answer(
            lambda: client.run_on_scheduler(version, _PACKAGE)
        )
    except PackageNotFoundError as error:
        found[f"the Dask scheduler at {address}"] = error
    for who, its in found.items():
        if isinstance(its, OSError):
            continue  # it died meanwhile, and will be given nothing
        if isinstance(its, PackageNotFoundError):
            raise InputError(f"{who} has no contextual-lqr: install {ours} there")
        if isinstance(its, BaseException):
            raise InputError(f"{who} cannot say which contextual-lqr it has: {its}")
        if its != ours:
            raise InputError(
                f"{who} has contextual-lqr {its}, but this is {ours}: install one release "
                "everywhere"
            )
