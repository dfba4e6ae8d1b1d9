"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import cyclopts

from contextual_lqr import kernels
from contextual_lqr.checks import require
from contextual_lqr.parallel import Workers

AsJson = Annotated[bool, cyclopts.Parameter(name="--json", negative="")]
"""Print JSON, for a script to read."""


def chosen_workers(jobs: int | None, cluster: str | None) -> Workers:
    """Workers here, as many as there are cores unless said otherwise, or a Dask scheduler."""
    if cluster is not None:
        require(jobs is None, "--jobs is for this machine, --cluster for others: give one of them")
        return cluster
    if jobs is None:
        return kernels.cores()
    require(jobs >= 1, f"--jobs must be at least 1, not {jobs}")
    return jobs
