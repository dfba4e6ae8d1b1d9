"""What was found in logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contextual_lqr.errors import InputError

PLACES = 5  # how many are named for each kind of fault


@dataclass
class Report:
    """What was found in the logs."""

    files: int = 0
    rows: int = 0
    transitions: int = 0
    episodes: int = 0
    splits: int = 0
    first_splits: list[str] = field(default_factory=list)
    bad: dict[str, int] = field(default_factory=dict)
    first_bad: dict[str, list[str]] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)  # column -> a file that has it
    context_range: dict[str, tuple[float, float]] = field(default_factory=dict)
    quarantine: str | None = None

    @property
    def bad_rows(self) -> int:
        """How many rows are in the quarantine."""
        return sum(self.bad.values())

    def add(self, later: Report) -> None:
        """Take in what was found in the part of the logs that comes next."""
        for name in ("files", "rows", "transitions", "episodes", "splits"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.first_splits = (self.first_splits + later.first_splits)[:PLACES]
        for reason, count in later.bad.items():
            self.bad[reason] = self.bad.get(reason, 0) + count
            places = self.first_bad.get(reason, []) + later.first_bad[reason]
            self.first_bad[reason] = places[:PLACES]
        self.empty += later.empty
        self.unused = later.unused | self.unused
        self.context_range = joined(self.context_range, later.context_range)

    def require_rows(self) -> None:
        """Refuse logs without any."""
        if not self.rows:
            raise InputError(f"the log is empty: {', '.join(self.empty)} has no rows")


def joined(
    mine: Mapping[str, tuple[float, float]], its: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """The smallest ranges that hold both."""
    if not mine or not its:
        return dict(mine or its)
    return {n: (min(a, its[n][0]), max(b, its[n][1])) for n, (a, b) in mine.items()}
