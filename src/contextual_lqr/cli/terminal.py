"""How the commands speak: sentences, JSON for a script, and one kind of progress bar.

All that is shown goes through `Console` here, and nothing in it moves the cursor or colours the
screen but what we write ourselves: labels and names come from files of other people.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from typing import Any

import rich.console
from rich.markup import escape
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from contextual_lqr.files import finite

_EVERY = 10.0  # seconds between lines, where there is no terminal to draw a bar on
# Controls but tab and new line; what turns the direction of writing or has no width; half letters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The same text with characters that a terminal would obey written out, as \\x1b."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


class Console(rich.console.Console):
    """Rich's, which shows every string, also in the cells of a table, as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string with its markup, its control characters visible, and no emoji for :words:."""
        return super().render_str(visible(text), **options | {"emoji": False})


def say(console: Console, text: str) -> None:
    """A line as it is, whatever brackets it has; whole, if it is not for a terminal."""
    console.print(escape(visible(text)), soft_wrap=not console.is_terminal)


def say_error(sentence: str) -> None:
    """What went wrong, on standard error."""
    console = Console(stderr=True)
    console.print(f"[red]error:[/red] {escape(sentence)}", soft_wrap=not console.is_terminal)


def print_json(facts: Any) -> None:
    """One JSON document on standard output; a number that is not finite is null."""
    text = json.dumps(finite(facts), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def answer(as_json: bool, facts: Any, sentence: str) -> None:
    """What a command found, as JSON or in a line."""
    if as_json:
        print_json(facts)
    else:
        say(Console(), sentence)


def print_text(text: str) -> None:
    """A table as a script reads it; in a terminal, without what the terminal would obey."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def plain_table(*columns: str, left: int = 1) -> Table:
    """A table without lines; all but the first columns are of numbers."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        text = place < left
        table.add_column(escape(name), justify="left" if text else "right", no_wrap=not text)
    return table


def percent(part: float) -> str:
    """A part of something, such as an excess, however large."""
    if not part <= 10:
        return "∞" if math.isinf(part) else "> 1000 %"
    return f"{100 * part:.2g} %" if part < 1 else f"{100 * part:.0f} %"


class Progress:
    """A bar with the time left, on standard error; gone when the work is done.

    Where there is no terminal, a line every ten seconds. Without a unit, the work is a part of 1.
    """

    def __init__(self, doing: str, total: float = 1.0, unit: str = "") -> None:
        self._doing, self._total, self._unit = doing, total, unit
        self._console = Console(stderr=True)
        count = "{task.completed:,.0f} of {task.total:,.0f} " + unit
        self._bar = RichProgress(
            TextColumn(doing),
            BarColumn(bar_width=None),
            TextColumn(count) if unit else TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            expand=True,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        self._done, self._said = 0.0, time.monotonic()
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: float) -> None:
        """So much of the whole is done."""
        self._done = done
        self._bar.update(self._task, completed=done)
        if not self._console.is_terminal and time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            self._console.print(f"{self._doing}: {self._counted()}", soft_wrap=True)

    def advance(self, more: float = 1) -> None:
        """So much more of it is done."""
        self(self._done + more)

    def _counted(self) -> str:
        if not self._unit:
            return f"{self._done / self._total:.0%}"
        return f"{self._done:,.0f} of {self._total:,.0f} {self._unit}"
