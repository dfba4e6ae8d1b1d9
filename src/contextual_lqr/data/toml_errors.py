"""Where things stand in a TOML file, and all that is wrong with it, collected."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contextual_lqr.errors import FormatError, InputError

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=")
_SYNTAX = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")


class DescriptionError(FormatError):
    """All that is wrong with a fleet's description; `faults` has one sentence each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Faults:
    """Collects what is wrong, with the line on which it stands where that can be found."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._lines = dict(_places(text))
        self._found: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: tuple[str, ...], message: str) -> None:
        """Something is wrong with the key at `place`, such as ("contexts", "mass")."""
        line = 0
        for length in range(len(place), 0, -1):  # an inner key may have no line of its own
            if found := self._lines.get(place[:length]):
                line = found
                break
        where = f"{self.name}:{line}" if line else self.name
        self._found.append((line, f"{where}: {message}"))

    @contextmanager
    def at(self, place: tuple[str, ...], prefix: str = "") -> Iterator[None]:
        """What is refused inside is a fault at `place`, and the reading goes on."""
        try:
            yield
        except InputError as error:
            self.add(place, prefix + str(error))

    def raise_if_any(self) -> None:
        """All of them, in the order of the file, in one error."""
        if self._found:
            unique = dict.fromkeys(message for _, message in sorted(self._found))
            raise DescriptionError(list(unique))


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The content of a TOML file; a slip of the pen is told its line and column."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, at = str(error), ""
        if placed := _SYNTAX.fullmatch(what):
            what, at = placed[1], f":{placed[2]}:{placed[3]}"
        raise DescriptionError([f"{name}{at}: this is not TOML: {what}"]) from None


def _places(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The line of every table and of every key that begins a line."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _split(header[1])
            yield table, number
        elif entry := _ENTRY.match(line):
            yield (*table, *_split(entry[1])), number


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, dotted))
