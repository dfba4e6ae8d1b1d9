"""Independent jobs on the cores of this machine, or on a Dask cluster: here alone it is decided.

Workers are so many processes or threads here, or those of a Dask scheduler, whose address is given,
`tcp://host:8786`. What is computed does not depend on which, nor on how many there are.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from contextual_lqr import kernels
from contextual_lqr.errors import ContextualLQRError, InputError, MissingExtraError

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_PACKAGE = "contextual-lqr"
_FAN = 8  # results that are merged at once
_PATIENCE = 10  # seconds for a scheduler to answer, and for its first worker
Workers = int | str
Job = TypeVar("Job")
Result = TypeVar("Result")
Kept = TypeVar("Kept")
Sent = TypeVar("Sent")


class WorkersLostError(ContextualLQRError, RuntimeError):
    """Workers died, for want of memory perhaps, and the work cannot go on."""


def in_parallel(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: Workers
) -> Generator[tuple[Job, Result], None, None]:
    """Each job with its result, as they finish; `work` must depend on its job alone.

    Every local worker is a process with one thread, so a result is the same whatever their number.
    Closing the iterator (an exception in the loop, Ctrl-C) stops the workers, or cancels on the
    cluster what is not finished.
    """
    if isinstance(workers, str):
        with _connected(workers) as client:
            yield from _finished(client, client.map(partial(_there, work), jobs, pure=False), jobs)
        return
    one_thread = "1" in (os.environ.get(name) for name in _THREADS)
    if not jobs or (workers == 1 and one_thread):
        for job in jobs:
            yield _one(work, job)
        return
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # This process may have more threads in NumPy, which would slow small matrices down: a single
    # worker is a process too. joblib wants two or more, so the second gets nothing to do.
    at_once: int | str = 1 if workers == 1 else "2*n_jobs"
    with parallel_config("loky", n_jobs=max(2, workers), inner_max_num_threads=1):
        run = Parallel(
            return_as="generator_unordered",
            pre_dispatch=at_once,
            batch_size=1,
            initializer=_leave_interrupts,
        )
        with _deaf_children():
            results = run(delayed(_one)(work, job) for job in jobs)
        try:
            for result in results:  # noqa: UP028 - `yield from` closes them with a warning
                yield result
        except TerminatedWorkerError:
            raise WorkersLostError(
                "a worker process was killed, for want of memory perhaps: try fewer --jobs"
            ) from None
        finally:
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                results.close()


def in_tree(
    work: Callable[[Job], tuple[Kept, Sent]],
    merge: Callable[[list[Kept]], Kept],
    jobs: Sequence[Job],
    workers: Workers,
    taken: Callable[[int, Sent], None],
) -> Kept:
    """All jobs' results, merged eight by eight in the order of the jobs: always the same tree.

    `work` returns what is merged, which on a cluster stays there, and what is sent here: `taken`
    gets that with the number of the job, as jobs finish. Local workers are threads of this process:
    work that reads and factors large arrays leaves Python free for others.
    """
    if isinstance(workers, str):
        with _connected(workers) as client:
            return _tree_there(client, work, merge, jobs, taken)
    results = map(work, jobs) if workers == 1 else _in_threads(work, jobs, workers)
    sizes = [len(jobs)]  # how many there are on each level
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // _FAN))
    waiting: dict[tuple[int, int], Kept] = {}
    for place, (kept, sent) in enumerate(results):
        taken(place, sent)
        waiting[0, place] = kept
        for level, size in enumerate(sizes[:-1]):
            first = place - place % _FAN
            group = [(level, i) for i in range(first, min(first + _FAN, size))]
            if not all(one in waiting for one in group):
                break
            place //= _FAN
            waiting[level + 1, place] = merge([waiting.pop(one) for one in group])
    return waiting[len(sizes) - 1, 0]


def _in_threads(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[Result]:
    """The results in the order of the jobs, so that the first error is the first of them."""
    pool, left = ThreadPoolExecutor(workers), iter(jobs)
    try:
        running = deque(pool.submit(work, job) for job in islice(left, 2 * workers))
        while running:
            yield running.popleft().result()
            running.extend(pool.submit(work, job) for job in islice(left, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """A process started in here never hears Ctrl-C, not even before it reaches our code."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a new process inherits
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; the first one stops the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one(work: Callable[[Job], Result], job: Job) -> tuple[Job, Result]:
    kernels.set_threads(1)
    return job, work(job)


# -- on a cluster ----------------------------------------------------------------------------------


def _there(work: Callable[[Job], Result], job: Job) -> Result:
    """On a worker: what is refused there is refused with the worker's name."""
    from distributed import get_worker

    try:
        return _one(work, job)[1]
    except InputError as error:
        raise InputError(f"on the worker {get_worker().address}: {error}") from None


def _finished(
    client: Any, futures: list[Any], jobs: Sequence[Job]
) -> Generator[tuple[Job, Any], None, None]:
    from distributed import as_completed

    job_of = dict(zip(futures, jobs, strict=True))
    del futures  # a result that was handed on is forgotten, here and on the cluster
    for future in as_completed(list(job_of), loop=client.loop):
        result = future.result()  # which Dask computes again if its worker died meanwhile
        yield job_of.pop(future), result


def _tree_there(
    client: Any,
    work: Callable[[Job], tuple[Kept, Sent]],
    merge: Callable[[list[Kept]], Kept],
    jobs: Sequence[Job],
    taken: Callable[[int, Sent], None],
) -> Kept:
    done = client.map(partial(_there, work), jobs, pure=False)
    # What follows a job goes before other jobs: progress shows, and little is held.
    after = {"pure": False, "priority": 1}
    sent = client.map(itemgetter(1), done, **after)
    level = client.map(itemgetter(0), done, **after)
    del done
    while len(level) > 1:
        groups = [level[i : i + _FAN] for i in range(0, len(level), _FAN)]
        level = client.map(merge, groups, **after)
    for number, found in _finished(client, sent, range(len(jobs))):
        taken(number, found)
    total: Kept = level[0].result()
    return total


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of the scheduler; leaving, for whatever reason, cancels all that is not finished."""
    try:
        from distributed import CancelledError, Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        raise MissingExtraError("distributed", "cluster") from None
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError):
        raise InputError(
            f"no Dask scheduler answers at {address}: `dask scheduler` starts one, and says where"
        ) from None
    try:
        _require_same_release(client, address)
        yield client
    except KilledWorker as error:
        raise WorkersLostError(
            f"one task after another lost its worker on the cluster at {address}, the last "
            f"{error.last_worker.address}, for want of memory perhaps"
        ) from None
    except ModuleNotFoundError as error:
        _require_same_release(client, address)  # a worker that came later: this names it
        raise InputError(
            f"a worker of {address} has no package {error.name}: install contextual-lqr there, "
            "of the same release and with all that it needs"
        ) from None
    except (CancelledError, CommClosedError):
        raise WorkersLostError(f"the Dask scheduler at {address} is gone") from None
    finally:
        client.close()


def _release() -> str:
    return version(_PACKAGE)


def _require_same_release(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise InputError(
            f"the Dask scheduler at {address} has no workers: `dask worker {address}` starts one"
        ) from None
    ours = _release()
    found = client.run(version, _PACKAGE, on_error="return")
    found = {f"the worker {name}": its for name, its in sorted(found.items())}
    try:  # it reads what tasks are, and must know their names
        found[f"the Dask scheduler at {address}"] = client.run_on_scheduler(version, _PACKAGE)
    except PackageNotFoundError as error:
        found[f"the Dask scheduler at {address}"] = error
    for who, its in found.items():
        if isinstance(its, PackageNotFoundError):
            raise InputError(f"{who} has no contextual-lqr: install {ours} there")
        if isinstance(its, BaseException):
            raise InputError(f"{who} cannot say which contextual-lqr it has: {its}")
        if its != ours:
            raise InputError(
                f"{who} has contextual-lqr {its}, but here is {ours}: install one release "
                "everywhere"
            )
