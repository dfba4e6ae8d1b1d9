"""Independent jobs on the cores of this machine, or on a Dask cluster: here alone it is decided.

Workers are so many processes or threads here, or those of a Dask scheduler, whose address is given,
`tcp://host:8786`, as a `Cluster` if it wants certificates. What is computed does not depend on
which, nor on how many there are.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from typing import TypeVar

from contextual_lqr import kernels
from contextual_lqr.parallel.cluster import (
    FAN,
    Cluster,
    WorkersLostError,
    on_cluster,
    tree_on_cluster,
)

__all__ = ["Cluster", "Workers", "WorkersLostError", "in_parallel", "in_tree"]

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Workers = int | str
Job = TypeVar("Job")
Result = TypeVar("Result")
Kept = TypeVar("Kept")
Sent = TypeVar("Sent")


def in_parallel(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: Workers
) -> Generator[tuple[Job, Result], None, None]:
    """Each job with its result, as they finish; `work` must depend on its job alone.

    Every local worker is a process with one thread, so a result is the same whatever their number.
    Closing the iterator (an exception in the loop, Ctrl-C) stops the workers, or cancels on the
    cluster what is not finished.
    """
    if isinstance(workers, str):
        yield from on_cluster(work, jobs, workers)
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
    workers = min(workers, len(jobs))
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
                "a worker process was killed, perhaps for lack of memory: try fewer --jobs"
            ) from None
        finally:
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                results.close()


def in_tree(
    work: Callable[[Job], tuple[Kept, Sent]],
    merge: Callable[[Iterable[Kept]], Kept],
    jobs: Sequence[Job],
    workers: Workers,
    taken: Callable[[int, Sent], None],
) -> Kept:
    """All jobs' results, merged eight by eight in the order of the jobs: always the same tree.

    `work` returns what is merged, which on a cluster stays there, and what is sent here: `taken`
    gets that with the number of the job, as jobs finish. Local workers are threads of this process:
    work that reads and factors large arrays leaves Python free for others. There, what is merged
    comes one by one, as jobs finish, so that little is held.
    """
    if isinstance(workers, str):
        return tree_on_cluster(work, merge, jobs, workers, taken)
    results = map(work, jobs) if workers == 1 else _in_threads(work, jobs, workers)

    def handed_on(number: int, result: tuple[Kept, Sent]) -> Kept:
        taken(number, result[1])
        return result[0]

    level, size = map(handed_on, count(), results), len(jobs)  # which hold nothing themselves
    while size > 1:
        size = -(-size // FAN)
        level = map(merge, [islice(level, FAN) for _ in range(size)])
    return next(level)


def _in_threads(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[Result]:
    """The results in the order of the jobs, so that the first error is the first of them."""
    workers = max(1, min(workers, len(jobs)))
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
    """A process started in here never hears Ctrl-C, not even before it reaches our code.

    This one hears it afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as of_loky

    for tracker in (resource_tracker, of_loky):  # whose start would end the block
        tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a new process inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; the first one stops the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one(work: Callable[[Job], Result], job: Job) -> tuple[Job, Result]:
    kernels.set_threads(1)
    return job, work(job)
