"""Independent jobs on the cores of this machine."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from contextual_lqr import kernels

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Job = TypeVar("Job")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Generator[tuple[Job, Result], None, None]:
    """Each job with its result, as they finish; `work` must depend on its job alone.

    Every worker is a process with one thread, so a result is the same whatever their number.
    Closing the iterator (an exception in the loop, Ctrl-C) stops the workers.
    """
    one_thread = "1" in (os.environ.get(name) for name in _THREADS)
    if not jobs or (workers == 1 and one_thread):
        for job in jobs:
            yield _one(work, job)
        return
    from joblib import Parallel, delayed, parallel_config

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
        finally:
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                results.close()


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
