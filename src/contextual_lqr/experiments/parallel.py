"""Independent jobs on the cores of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from contextual_lqr import kernels

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[Job, Result]]:
    """Each job with its result, as they finish; `work` must depend on its job alone.

    Every worker is a process with one thread, so a result is the same whatever their number.
    Closing the iterator (an exception in the loop, Ctrl-C) stops the workers.
    """
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            yield _one(work, job)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
        yield from Parallel(return_as="generator_unordered")(
            delayed(_one)(work, job) for job in jobs
        )


def _one(work: Callable[[Job], Result], job: Job) -> tuple[Job, Result]:
    kernels.set_threads(1)
    return job, work(job)
