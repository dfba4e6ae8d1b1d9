"""Options and arguments that several commands share."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from contextual_lqr import kernels
from contextual_lqr.checks import require
from contextual_lqr.parallel import Workers

Flag = Parameter(negative="", show_default=False)
"""An option that is either there or not."""

AsJson = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
"""Print JSON, for a script to read."""

Log = str | Path  # comes as a str; that it may be a Path lets Tab complete the names of files


def _file(remedy: str = "") -> Callable[[object, Path | None], None]:
    """Refuse a path that is no file: with a name much like it in its folder, or the remedy."""

    def check(_: object, path: Path | None) -> None:
        if path is None or (path.exists() and not path.is_dir()):
            return
        if path.is_dir():
            raise ValueError(f"{path} is a folder, not a file")
        names = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        alike = difflib.get_close_matches(path.name, names, n=1)
        hint = f"; did you mean {path.with_name(alike[0])}?" if alike else remedy.format(path)
        raise ValueError(f"there is no file {path}{hint}")

    return check


Fitted = Annotated[
    Path, Parameter(validator=_file("; `contextual-lqr fit fleet.toml LOGS -o {}` writes one"))
]
"""A file that `fit` or `merge` wrote."""

Description = Annotated[
    Path, Parameter(validator=_file("; `contextual-lqr new {}` writes one to start from"))
]
"""A fleet's description."""

OptionalFile = Annotated[Path | None, Parameter(validator=_file())]
"""A file that must exist, if it is named."""


def chosen_workers(jobs: int | None, cluster: str | None) -> Workers:
    """Workers here, as many as there are cores unless said otherwise, or a Dask scheduler."""
    if cluster is not None:
        require(jobs is None, "--jobs is for this machine, --cluster for others: give one of them")
        return cluster
    if jobs is None:
        return kernels.cores()
    require(jobs >= 1, f"--jobs must be at least 1, not {jobs}")
    return jobs
