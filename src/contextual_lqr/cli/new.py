"""`contextual-lqr new`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from contextual_lqr.checks import require
from contextual_lqr.cli.options import OptionalFile
from contextual_lqr.cli.terminal import Console, say
from contextual_lqr.data import TEMPLATE, describe_table
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write


def new(
    path: Path = Path("fleet.toml"),
    /,
    *,
    log: Annotated[OptionalFile, Parameter(name="--from")] = None,
    contexts: OptionalFile = None,
) -> None:
    """Write a commented description of a fleet, to be changed to yours.

    Parameters
    ----------
    path
        The file to write. It must not exist yet.
    log
        A log to describe: write what its columns seem to be, with guesses marked as such.
    contexts
        With --from: the table of the machines' contexts, if the log does not have them.
    """
    require(contexts is None or log is not None, "--contexts needs --from: give the log too")
    if path.exists():
        raise InputError(f"{path} already exists, and was not changed")
    if log is None:
        atomic_write(path, TEMPLATE.encode())
        say(Console(), f"{path} is written: change it to your fleet")
        return
    known = None if contexts is None else str(contexts)
    text = describe_table(str(log), known, folder=path.parent)
    atomic_write(path, text.encode())
    guesses = sum("# guess" in line for line in text.splitlines())
    say(Console(), f"{path} is written, with {guesses} guesses, marked: check each, then try")
    say(Console(), f"  contextual-lqr check {path} {log}")
