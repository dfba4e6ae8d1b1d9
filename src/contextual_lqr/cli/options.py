"""Options and arguments that several commands share."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from contextual_lqr import kernels
from contextual_lqr.checks import require
from contextual_lqr.data.tables.table import KINDS
from contextual_lqr.errors import InputError
from contextual_lqr.files import require_regular
from contextual_lqr.parallel import Cluster, Workers

Flag = Parameter(negative="", show_default=False)
"""An option that is either there or not."""

AsJson = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
"""Print JSON, for a script to read."""

Seed = Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))]
"""Of random numbers."""

Count = Annotated[int, Parameter(validator=Number(gte=1, lte=10_000_000))]
"""How many draws, runs or episodes: more would never end."""


def _file(remedy: str = "") -> Callable[[object, Path | None], None]:
    """Refuse a path that is no file: with a name much like it in its folder, or the remedy."""

    def check(_: object, path: Path | None) -> None:
        if path is None:
            return
        if path.exists():
            _readable(path)
            return
        names = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        alike = difflib.get_close_matches(path.name, names, n=1)
        hint = f"; did you mean {path.with_name(alike[0])}?" if alike else remedy.format(path)
        raise ValueError(f"there is no file {path}{hint}")

    return check


def _readable(path: Path) -> None:
    """Refuse what is no file, a FIFO for instance, before it is waited for."""
    try:
        require_regular(path)
    except InputError as error:
        raise ValueError(str(error)) from None


def _decoder(_: object, path: Path | None) -> None:
    """Refuse to write a decoder over what is a log by its name: `-o *.csv` gives the first one."""
    if path is not None and path.suffix.lower() in (".toml", *KINDS):
        raise ValueError(f"{path} cannot be a decoder file: give another, as fleet.decoder")


DecoderOutput = Parameter(name=["--output", "-o"], validator=_decoder)
"""The decoder file to write."""


def _log(_: object, log: str | Path | tuple[str | Path, ...]) -> None:
    """Refuse a log that would be waited for; folders and globs are looked into later."""
    for path in map(Path, log if isinstance(log, tuple) else (log,)):
        if path.exists() and not path.is_dir():
            _readable(path)


# It comes as a str; that it may be a Path lets Tab complete the names of files.
Log = Annotated[str | Path, Parameter(validator=_log)]
"""A log, or a folder or glob of logs."""

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


@Parameter(name="*")
@dataclass(frozen=True)
class Certificates:
    """By what a Dask scheduler at tls://host:8786 knows us, and we it: PEM files.

    What is not given is taken from Dask's own configuration, if that names it.
    """

    tls_ca: OptionalFile = None
    """For a tls:// cluster: the certificates of the authorities."""
    tls_cert: OptionalFile = None
    """For a tls:// cluster: our certificate."""
    tls_key: OptionalFile = None
    """For a tls:// cluster: the key of our certificate."""


def chosen_workers(
    jobs: int | None, cluster: str | None, certificates: Certificates | None = None
) -> Workers:
    """Workers here, as many as there are cores unless said otherwise, or a Dask scheduler."""
    proof = () if certificates is None else vars(certificates).values()
    if cluster is not None:
        require(jobs is None, "--jobs is for this machine, --cluster for others: give one of them")
        return Cluster(cluster, *(None if file is None else str(file) for file in proof))
    require(not any(proof), "certificates are only for --cluster tls://host:8786: none is given")
    if jobs is None:
        return kernels.cores()
    require(jobs >= 1, f"--jobs must be at least 1, not {jobs}")
    return jobs
