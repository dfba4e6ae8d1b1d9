"""`contextual-lqr new`."""

from __future__ import annotations

from pathlib import Path

from contextual_lqr.cli.terminal import Console, say
from contextual_lqr.data import TEMPLATE
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write


def new(path: Path, /) -> None:
    """Write a commented description of a fleet, to be changed to yours.

    Parameters
    ----------
    path
        The file to write, such as fleet.toml. It must not exist yet.
    """
    if path.exists():
        raise InputError(f"{path} exists already, and is left as it is")
    atomic_write(path, TEMPLATE.encode())
    say(Console(), f"{path} is written: change it to your fleet")
