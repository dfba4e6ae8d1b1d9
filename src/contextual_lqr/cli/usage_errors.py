"""What is said about a mistyped command line: Cyclopts' own words, and a hint."""

from __future__ import annotations

import difflib

from cyclopts.exceptions import (
    CycloptsError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)


def mistake(error: CycloptsError) -> str:
    """One sentence for an error."""
    match error:
        case UnknownOptionError(token=token):  # which --output may be meant by --out
            word = (token.keyword or token.value).split("=")[0]
            names = [name for one in error.argument_collection for name in one.names]
            longer = [name for name in names if name.startswith(word)]
            alike = longer or difflib.get_close_matches(word, names, n=1)
            said = f"there is no option {word}" + (f"; did you mean {alike[0]}?" if alike else "")
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            said = f"{word} is one argument too many"
        case ValidationError(exception_message=sentence) if sentence and sentence[0] != "M":
            said = sentence  # ours; Cyclopts' own, "Must be >= 0.", need what stands before them
        case _:
            said = " ".join(str(error).split()).partition(" Available commands")[0]
    said = said.removesuffix(".")
    if "; " in said or "did you mean" in said.lower():
        return said
    command = " ".join(("contextual-lqr", *(error.command_chain or ())))
    return f"{said}; see `{command} --help`"
