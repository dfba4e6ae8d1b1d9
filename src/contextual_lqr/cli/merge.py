"""`contextual-lqr merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from contextual_lqr.cli.findings import say
from contextual_lqr.errors import InputError
from contextual_lqr.logs import FittedFleet


def merge(
    first: Path,
    /,
    *others: Path,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
) -> None:
    """Join what several sites have learnt, without their logs.

    Parameters
    ----------
    first
        A decoder file.
    others
        More decoder files of the same description.
    output
        The decoder file to write.
    """
    if not others:
        raise InputError("merge takes at least two decoder files")
    whole = FittedFleet.load(first)
    for path in others:
        try:
            whole.merge(FittedFleet.load(path))
        except InputError as error:
            raise InputError(f"{path} does not merge with {first}: {error}") from error
    whole.save(output)
    decoder = whole.decoder
    text = f"{output} is written: {decoder.rows:,} rows of {decoder.episodes:,} episodes"
    say(Console(), text)
