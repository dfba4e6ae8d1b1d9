"""Options and arguments that several commands share, with what `--help` says about them."""

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

_JSON = "Print JSON, for a script to read."
AsJson = Annotated[bool, Flag, Parameter(name="--json", help=_JSON)]

Sorted = Annotated[bool, Flag, Parameter(help="Sort each log by episode and step first.")]

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


Output = Parameter(name=["--output", "-o"])
"""The file to write."""

DecoderOutput = Parameter(name=["--output", "-o"], validator=_decoder)
"""The decoder file to write."""


def _log(_: object, log: str | Path | tuple[str | Path, ...]) -> None:
    """Refuse a log that would be waited for; folders and globs are looked into later."""
    for path in map(Path, log if isinstance(log, tuple) else (log,)):
        if path.exists() and not path.is_dir():
            _readable(path)


_LOGS = "Parquet, CSV or Excel files, folders or globs of them, or minari:ID."
# It comes as a str; that it may be a Path lets Tab complete the names of files.
Log = Annotated[str | Path, Parameter(validator=_log, help=_LOGS)]

_FIT = "; `contextual-lqr fit fleet.toml LOGS -o {}` writes one"
DecoderFile = Annotated[Path, Parameter(validator=_file(_FIT))]
Fitted = Annotated[DecoderFile, Parameter(help="What `fit` wrote.")]

_NEW = "; `contextual-lqr new {}` writes one to start from"
_TOML = "The fleet's description, fleet.toml."
Description = Annotated[Path, Parameter(validator=_file(_NEW), help=_TOML)]

File = Annotated[Path, Parameter(validator=_file())]
"""A file that must exist."""

OptionalFile = Annotated[Path | None, Parameter(validator=_file())]
"""The same, if it is named."""

_CONTEXT = "The machine, as name=value; several values with commas, or the option again."
Context = Annotated[list[str] | None, Parameter(negative="", help=_CONTEXT)]

_MACHINE = "The label of a machine in the logs, whose own data count too."
Machine = Annotated[str | None, Parameter(help=_MACHINE)]

_STORE = "The study: a file, or postgresql://user@host/database."
Store = Annotated[str, Parameter(help=_STORE)]


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Where the work is done: here, or on the workers of a Dask scheduler.

    At tls://host:8786 it knows us, and we it, by PEM files; what is not given is taken from Dask's
    own configuration, if that names it.
    """

    jobs: int | None = None
    """How much is done at once; as much as there are cores unless given."""
    cluster: str | None = None
    """Work on this Dask scheduler's workers, tcp://host:8786, instead; they see the same paths."""
    tls_ca: OptionalFile = None
    """For a tls:// cluster: the certificates of the authorities."""
    tls_cert: OptionalFile = None
    """For a tls:// cluster: our certificate."""
    tls_key: OptionalFile = None
    """For a tls:// cluster: the key of our certificate."""

    @property
    def workers(self) -> Workers:
        """Workers here, as many as there are cores unless said otherwise, or a Dask scheduler."""
        proof = (self.tls_ca, self.tls_cert, self.tls_key)
        if self.cluster is not None:
            alone = self.jobs is None
            require(alone, "--jobs is for this machine, --cluster for others: give one of them")
            return Cluster(self.cluster, *(None if file is None else str(file) for file in proof))
        unused = not any(proof)
        require(unused, "certificates are only for --cluster tls://host:8786: none is given")
        if self.jobs is None:
            return kernels.cores()
        require(self.jobs >= 1, f"--jobs must be at least 1, not {self.jobs}")
        return self.jobs


HERE = Where()
"""On all cores of this machine."""
