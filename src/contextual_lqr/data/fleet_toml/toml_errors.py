"""Everything that is wrong with a TOML file, collected, each fault with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from reprlib import repr as shown  # short, however long or deep a value is
from typing import Any

from contextual_lqr.errors import FormatError, InputError

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=")
_SYNTAX = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")

Place = tuple[str, ...]  # a key and the tables it is in, such as ("contexts", "mass")


class DescriptionError(FormatError):
    """Everything that is wrong with a fleet's description; `faults` has a sentence for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class TomlErrors:
    """Collects what is wrong, with the line it is on where that can be found."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._lines = name, dict(_lines(text))
        self._found: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, message: str) -> None:
        """Something is wrong with the key at `place`."""
        # An inner key may have no line of its own: then it is on that of its table.
        outward = (place[:length] for length in range(len(place), 0, -1))
        line = next((self._lines[one] for one in outward if one in self._lines), 0)
        where = f"{self._name}:{line}" if line else self._name
        self._found.append((line, f"{where}: {message}"))

    def wrong(self, place: Place, what: str, wanted: str, given: object) -> None:
        """What stands at `place` is not what it must be."""
        self.add(place, f"{what} must be {wanted}, not {shown(given)}")

    @contextmanager
    def at(self, place: Place, prefix: str = "") -> Iterator[None]:
        """What is refused inside is a fault at `place`; reading goes on."""
        try:
            yield
        except InputError as error:
            self.add(place, prefix + str(error))

    def raise_if_any(self) -> None:
        """Raise all of them in one error, in the order of the file."""
        if self._found:
            unique = dict.fromkeys(message for _, message in sorted(self._found))
            raise DescriptionError(list(unique))


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The content of a TOML file; a syntax error is reported with its line and column."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise DescriptionError([f"{name}: this is nested too deeply to be read"]) from None
    except ValueError as error:  # also for an integer of thousands of digits
        what, at = str(error).partition(";")[0], ""
        if placed := _SYNTAX.fullmatch(what):
            what, at = placed[1], f":{placed[2]}:{placed[3]}"
        raise DescriptionError([f"{name}{at}: this is not valid TOML: {what}"]) from None


def _lines(text: str) -> Iterator[tuple[Place, int]]:
    """The line of every table, and of every key that begins a line."""
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _split(header[1])
            yield table, number
        elif entry := _ENTRY.match(line):
            yield (*table, *_split(entry[1]))[:2], number  # no fault is told of what is deeper


def _split(dotted: str) -> Place:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, dotted))
