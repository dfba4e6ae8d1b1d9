"""What is said about a mistyped command line: one sentence, and a hint."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS = {int: "a whole number", float: "a number"}


def mistake(error: CycloptsError) -> str:
    """The sentence for an error, as `contextual_lqr.errors` would have it."""
    said, hint = _sentence(error)
    if not hint:
        command = " ".join(("contextual-lqr", *(error.command_chain or ())))
        hint = f"see `{command} --help`"
    return f"{said}; {hint}"


def _sentence(error: CycloptsError) -> tuple[str, str]:
    """What is wrong, and what may be meant, if that can be guessed."""
    match error:
        case UnknownCommandError(unused_tokens=[word, *_], app=app):
            names = [name for name in app or () if not name.startswith("-")]
            kind = "option" if word.startswith("-") else "command"
            return f"there is no {kind} {word}", _meant(word, names)
        case UnknownOptionError(token=token):
            word = (token.keyword or token.value).split("=")[0]
            names = [name for one in error.argument_collection for name in one.names]
            return f"there is no option {word}", _meant(word, names)
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return f"{word} is one argument too many", ""
        case MissingArgumentError(keyword=None, argument=one) if one is not None and not one.tokens:
            return f"{_name(one)} is missing", ""
        case MissingArgumentError(keyword=keyword):
            return f"{keyword} needs a value", ""
        case RepeatArgumentError(token=token):
            return f"{token.keyword} is given twice", ""
        case CoercionError(token=token, target_type=kind) if token is not None:
            name = token.keyword or _name(error.argument)
            if kind is bool:
                return f"{name} takes no value", ""
            if isinstance(kind, type) and kind in _KINDS:
                return f"{name} must be {_KINDS[kind]}, not {token.value}", ""
            if choices := getattr(kind, "__args__", ()):  # of a Literal
                listed = ", ".join(choices)
                wrong = f"{name} cannot be {token.value}: there are {listed}"
                return wrong, _meant(token.value, choices)
        case ValidationError(exception_message=said) if said:
            sentence, _, hint = said.partition("; ")
            return sentence, hint
    return str(error).rstrip("."), ""


def _name(argument: Any) -> str:
    return "an argument" if argument is None else str(argument.name)


def _meant(word: str, names: Iterable[str]) -> str:
    longer = [name for name in names if name.startswith(word)]
    alike = longer or difflib.get_close_matches(word, list(names), n=1)
    return f"did you mean {alike[0]}?" if alike else ""
