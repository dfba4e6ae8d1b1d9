"""How the commands speak: sentences, JSON for a script, and one kind of progress bar."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from contextual_lqr.files import finite

_EVERY = 10.0  # seconds between lines, where there is no terminal to draw a bar on


def say(console: Console, text: str) -> None:
    """A line as it is, whatever brackets it has; whole, if it is not for a terminal."""
    console.print(escape(text), highlight=False, soft_wrap=not console.is_terminal)


def say_error(sentence: str) -> None:
    """What went wrong, on standard error."""
    console = Console(stderr=True)
    whole = not console.is_terminal
    console.print(f"[red]error:[/red] {escape(sentence)}", highlight=False, soft_wrap=whole)


def print_json(facts: Any) -> None:
    """One JSON document on standard output; a number that is not finite is null."""
    text = json.dumps(finite(facts), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text + "\n")


class Progress:
    """A bar with the time left, on standard error; gone when the work is done.

    Where there is no terminal, a line every ten seconds. Without a unit, the work is a part of 1.
    """

    def __init__(self, doing: str, total: float = 1.0, unit: str = "") -> None:
        self._doing, self._total, self._unit = doing, total, unit
        self._console = Console(stderr=True, highlight=False)
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
