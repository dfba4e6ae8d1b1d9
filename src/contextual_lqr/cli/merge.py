"""`contextual-lqr merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from contextual_lqr.cli.options import AsJson, DecoderFile, DecoderOutput, Flag
from contextual_lqr.cli.terminal import answer
from contextual_lqr.data import FittedFleet
from contextual_lqr.errors import InputError
from contextual_lqr.files import locked


def merge(
    first: DecoderFile,
    /,
    *others: DecoderFile,
    output: Annotated[Path, DecoderOutput],
    allow_repeats: Annotated[bool, Flag] = False,
    as_json: AsJson = False,
) -> None:
    """Merge what several sites have learnt, without their logs.

    Parameters
    ----------
    first
        A decoder file.
    others
        More decoder files of the same description.
    output
        The decoder file to write.
    allow_repeats
        Merge even if both have learnt from the same logs, which then count twice.
    """
    if not others:
        raise InputError("merge takes at least two decoder files")
    with locked(output):  # it may be one of those that are read
        whole = FittedFleet.load(first)
        for path in others:
            other = FittedFleet.load(path)
            try:
                whole.merge(other, allow_repeats=allow_repeats)
            except InputError as error:
                raise InputError(f"{path} does not merge with {first}: {error}") from error
        whole.save(output)
    decoder = whole.decoder
    facts = {"written": str(output), "rows": decoder.rows, "episodes": decoder.episodes}
    sentence = f"{output} is written: {decoder.rows:,} rows of {decoder.episodes:,} episodes"
    answer(as_json, facts, sentence)
