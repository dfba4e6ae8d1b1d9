"""What was found on the way from files to tables: how they are written, what time stamps say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray as Array

_PLACES, _NAMES = 5, 8
_NOTICED = 0.005, 0.05  # jitter, as a part of a period: standard deviation, and largest


@dataclass
class TimeReport:
    """What time stamps say; intervals between rows are in periods."""

    units: dict[str, str] = field(default_factory=dict)  # of numbers that are no seconds: the file
    intervals: int = 0  # between rows that follow one another
    total: float = 0.0  # of their lengths, less 1
    squares: float = 0.0
    largest: float = 0.0
    gaps: int = 0  # which begin an episode, where no column names episodes
    restarts: int = 0  # where time falls back, or starts over
    first_gaps: list[str] = field(default_factory=list)
    # Machines whose rows are not a period apart: how far apart they are, and the period.
    other_rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    rows_read: int = 0  # if they were resampled
    rows_made: int = 0
    not_rising: int = 0  # rows that resampling left out

    @property
    def mean(self) -> float:
        """The mean interval."""
        return 1 + self.total / max(self.intervals, 1)

    @property
    def jitter(self) -> float:
        """The standard deviation of intervals."""
        n = max(self.intervals, 1)
        return math.sqrt(max(self.squares / n - (self.total / n) ** 2, 0.0))

    def add(self, ahead: Array) -> None:
        """Take in intervals between rows that follow one another."""
        off = ahead - 1
        if len(off):
            self.intervals += len(off)
            self.total += float(off.sum())
            self.squares += float(off @ off)
            self.largest = max(self.largest, float(np.abs(off).max()))

    def read_as(self, unit: str, log: str) -> None:
        """Keep in mind what numbers of a log are, if no seconds."""
        if unit:
            self.units.setdefault(unit, log)

    def gap(self, place: str) -> None:
        """Count a gap."""
        self.gaps += 1
        if len(self.first_gaps) < _PLACES:
            self.first_gaps.append(place)

    def merge(self, later: TimeReport) -> None:
        """Take in what was found in the logs that come next."""
        for name in ("intervals", "total", "squares", "gaps", "restarts"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for name in ("rows_read", "rows_made", "not_rising"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.largest = max(self.largest, later.largest)
        self.first_gaps = (self.first_gaps + later.first_gaps)[:_PLACES]
        self.units = later.units | self.units
        self.other_rates = later.other_rates | self.other_rates

    @property
    def _apart(self) -> str:
        mean = f"{self.mean:.3g}"
        return "a period" if mean == "1" else f"{mean} periods"

    def sentences(self) -> list[str]:
        """What a reader must know."""
        said = [f"times of {log} are read as {unit}" for unit, log in self.units.items()]
        for rate in dict.fromkeys(self.other_rates.values()):
            names = [one for one, its in self.other_rates.items() if its == rate]
            said.append(
                f"{_few(names)}: rows are {rate[0]:.3g} s apart, but the period is "
                f"{rate[1]:.3g} s. Where machines differ in it, make the period a context: see "
                "'Machines of different rates' in the guide to tables"
            )
        if self.intervals and (self.jitter > _NOTICED[0] or self.largest > _NOTICED[1]):
            offer = "" if self.rows_made else "; resample = true in [logs] puts rows on the grid"
            said.append(
                f"time stamps are {self._apart} apart, ± {100 * self.jitter:.2g} %, at most "
                f"{100 * self.largest:.2g} % off{offer}"
            )
        if self.gaps:
            said.append(f"{self.gaps:,} gaps in time, the first in {self.first_gaps[0]}")
        if self.restarts:
            times = "once" if self.restarts == 1 else f"{self.restarts:,} times"
            said.append(
                f"time falls back {times}, which splits episodes: clocks were set or started over "
                "(rows that are merely out of order are sorted by --sort)"
            )
        if self.rows_made:
            left = f", {self.not_rising:,} rows left out whose time does not increase"
            said.append(
                f"resampled: {self.rows_made:,} rows on the grid, interpolated between "
                f"{self.rows_read:,} rows of the logs{left if self.not_rising else ''}"
            )
        return said


@dataclass
class TableReport:
    """How tables are written, where that is not plain; contexts of machines; time stamps."""

    formats: dict[str, list[str]] = field(default_factory=dict)  # in words -> the files
    time: TimeReport | None = None
    contexts: str | None = None  # the file of machines' contexts
    unlogged: list[str] = field(default_factory=list)  # machines in it that no log has
    without_context: list[str] = field(default_factory=list)  # machines of logs not in it

    def met(self, machines: list[str], known: Mapping[str, object]) -> None:
        """Machines that a log has; `known` have contexts."""
        there = set(machines)
        if self.unlogged:
            self.unlogged = [one for one in self.unlogged if one not in there]
        odd = [one for one in machines if one not in known]
        self.without_context = list(dict.fromkeys(self.without_context + odd))

    def merge(self, later: TableReport) -> None:
        """Take in what was found in the logs that come next."""
        for words, names in later.formats.items():
            mine = self.formats.get(words, [])
            self.formats[words] = [*mine, *(name for name in names if name not in mine)]
        if later.time is not None:
            time = TimeReport()
            for one in (self.time, later.time):
                if one is not None:
                    time.merge(one)
            self.time = time
        if later.contexts is not None:
            both = set(later.unlogged)
            mine = self.unlogged if self.contexts is not None else later.unlogged
            self.unlogged = [one for one in mine if one in both]
            self.contexts = later.contexts
        self.without_context = list(dict.fromkeys(self.without_context + later.without_context))

    def sentences(self) -> list[str]:
        """What a reader must know, a line each."""
        said = []
        for words, names in self.formats.items():
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            said.append(f"{names[0]}{more} read as: {words}")
        said += [] if self.time is None else self.time.sentences()
        if self.without_context:
            said.append(
                f"not in {self.contexts}, so without a context: {_few(self.without_context)}"
            )
        if self.unlogged:
            said.append(f"in {self.contexts}, but in no log: {_few(self.unlogged)}")
        return said


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return (
        f"{len(names):,} machine{'s' if len(names) > 1 else ''}, {', '.join(names[:_NAMES])}{more}"
    )
