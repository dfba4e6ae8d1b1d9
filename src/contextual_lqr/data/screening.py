"""What can be wrong with rows of a log, what is reported of it, and where bad rows go."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.tables.clock import NOT_RISING, TOO_EARLY
from contextual_lqr.data.tables.table_report import TableReport
from contextual_lqr.errors import InputError
from contextual_lqr.files import open_beside, reporting

if TYPE_CHECKING:
    import polars as pl

    from contextual_lqr.data.histories.history_choice import HistoryChoice

PLACES = 5  # how many are named for each kind of fault

Faults = dict[str, Array]  # reason -> a truth value for each row


# -- which rows are bad ----------------------------------------------------------------------------


def value_faults(
    frame: pl.DataFrame, step: Array, values: Mapping[str, Array], description: FleetDescription
) -> Faults:
    """Rows with values that are missing, unreadable, not finite or out of bounds."""
    faults: Faults = {}
    for role in ("episode", "machine"):
        if role in frame.columns and frame[role].null_count():
            faults[f"'{role}' is missing"] = frame[role].is_null().to_numpy()
    if "time" in frame.columns:
        faults |= _time_faults(frame)
    elif step.dtype.kind == "f":
        finite = np.isfinite(step)
        if not finite.all():
            faults |= _unreadable(frame["step"], step)
        faults["'step' is not a whole number"] = finite & (step != np.floor(step))
    idle: Array | None = None
    for one in description.logged:
        column = values[one.name]
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(column.sum())  # quick; what merely overflows is found finite below
        if not finite:
            wrong = ~np.isfinite(column)
            if one.name in description.input_names:
                idle = _without_inputs(frame, values, description) if idle is None else idle
                wrong &= ~idle
            if wrong.any():
                if one.name in description.context_names:
                    faults |= _without_context(frame[one.name], description)
                found = _unreadable(frame[one.name], column)
                faults |= {reason: rows & wrong for reason, rows in found.items()}
        bounded = np.isfinite(one.low) or np.isfinite(one.high)
        if bounded and not (finite and one.low <= column.min() and column.max() <= one.high):
            # nan compares false: it has been found above
            outside = np.isfinite(column) & ((column < one.low) | (column > one.high))
            faults[f"'{one.name}' is outside its bounds [{one.low:g}, {one.high:g}]"] = outside
    return {reason: rows for reason, rows in faults.items() if rows.any()}


def order_faults(step: Array, same: Array) -> Faults:
    """Rows whose step does not come after all earlier steps of their episode."""
    again, back = (np.zeros(len(step), bool) for _ in range(2))
    run = np.concatenate(([0], np.cumsum(~same)))
    for one in np.unique(run[1:][same & (np.diff(step) <= 0)]):
        rows = np.flatnonzero(run == one)
        steps = step[rows]
        latest = np.maximum.accumulate(steps)
        late = np.concatenate(([False], steps[1:] <= latest[:-1]))
        first = np.zeros(len(steps), bool)
        first[np.unique(steps, return_index=True)[1]] = True
        again[rows] = late & ~first
        back[rows] = late & first
    return {"its step is there already": again, "its step is out of order": back}


def context_faults(columns: Mapping[str, Array], same: Array) -> Faults:
    """Rows whose context, or machine, is not that of the first row of their episode."""
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    lengths = np.diff(np.append(starts, len(same) + 1))
    return {
        f"'{name}' changes inside the episode": column != np.repeat(column[starts], lengths)
        for name, column in columns.items()
    }


def refuse_interleaved(source: str, episode: Array, same: Array) -> None:
    """Episodes that are written in turns would be split at every row."""
    if len(same) < 16 or np.count_nonzero(same) > len(same) / 2:
        return
    runs = episode[np.concatenate(([True], ~same))]
    if len(np.unique(runs)) < len(runs) / 2:
        raise InputError(
            f"{source}: rows of different episodes are mixed; sort the log by episode and step, "
            "or let --sort do it"
        )


def _without_inputs(
    frame: pl.DataFrame, values: Mapping[str, Array], description: FleetDescription
) -> Array:
    """Rows all of whose inputs are missing (not text, not infinite): last states."""
    import polars as pl

    idle = np.ones(len(frame), bool)
    for name in description.input_names:
        idle &= np.isnan(values[name])
        if frame[name].dtype == pl.String and idle.any():
            words = frame[name].str.strip_chars().str.to_lowercase()
            idle &= (words.is_null() | (words == "nan")).fill_null(True).to_numpy()
    return idle


def _time_faults(frame: pl.DataFrame) -> Faults:
    """Rows that have no step, by what their time stamps say."""
    step, missing = frame["step"].fill_null(0).to_numpy(), frame["time"].is_null().to_numpy()
    return {
        "'time' is missing": missing,
        "its time is that of the row before": step == NOT_RISING,
        "its time is less than half a period after that of the row before": step == TOO_EARLY,
        "'time' is no time stamp": frame["step"].is_null().to_numpy() & ~missing,
    }


def _without_context(raw: pl.Series, description: FleetDescription) -> Faults:
    path = description.layout.contexts
    if path is None:
        return {}
    return {f"its machine is not in {os.path.basename(path)}": raw.is_null().to_numpy()}


def _unreadable(raw: pl.Series, column: Array) -> Faults:
    """Why values of a column are not finite: missing, text, or nan and infinities."""
    import polars as pl

    wrong, missing = ~np.isfinite(column), raw.is_null().to_numpy()
    text, comma = (np.zeros(len(column), bool) for _ in range(2))
    if raw.dtype == pl.String:
        words = ["nan", "inf", "+inf", "-inf", "infinity"]
        text = ~raw.str.strip_chars().str.to_lowercase().is_in(words).fill_null(False).to_numpy()
        other = raw.str.strip_chars().str.contains(r"^[+-]?\d*,\d+([eE][+-]?\d+)?$")
        comma = other.fill_null(False).to_numpy()
    return {
        f"'{raw.name}' is missing": wrong & missing,
        f"'{raw.name}' has another decimal mark than the rest of its table": wrong & comma,
        f"'{raw.name}' is not a number": wrong & ~missing & text,
        f"'{raw.name}' is not finite": wrong & ~missing & ~text,
    }


# -- what is reported ------------------------------------------------------------------------------


@dataclass
class LogReport:
    """What was found in logs: counts, the first places of each fault, the range of contexts."""

    files: int = 0
    rows: int = 0
    transitions: int = 0
    episodes: int = 0
    splits: int = 0
    repeated: int = 0  # transitions that were learnt before, and are left out
    short: int = 0  # episodes that are shorter than the history, and teach nothing
    copied: int = 0  # transitions of stretches that are in the logs twice, left out once
    first_copies: list[str] = field(default_factory=list)
    first_splits: list[str] = field(default_factory=list)
    bad: dict[str, int] = field(default_factory=dict)
    first_bad: dict[str, list[str]] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)  # column -> a file that has it
    context_range: dict[str, tuple[float, float]] = field(default_factory=dict)
    quarantine: str | None = None
    tables: TableReport = field(default_factory=TableReport)
    history: HistoryChoice | None = None  # what a sample says of it, if states are made of outputs

    @property
    def bad_rows(self) -> int:
        """How many rows are bad."""
        return sum(self.bad.values())

    @property
    def learnt(self) -> int:
        """How many transitions are neither left out as repeats nor as copies."""
        return self.transitions - self.repeated - self.copied

    def merge(self, later: LogReport) -> None:
        """Take in what was found in the part of the logs that comes next."""
        counts = ("files", "rows", "transitions", "episodes", "splits", "repeated")
        for name in (*counts, "copied", "short"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.first_splits = (self.first_splits + later.first_splits)[:PLACES]
        self.first_copies = (self.first_copies + later.first_copies)[:PLACES]
        for reason, count in later.bad.items():
            self.bad[reason] = self.bad.get(reason, 0) + count
            places = self.first_bad.get(reason, []) + later.first_bad[reason]
            self.first_bad[reason] = places[:PLACES]
        self.empty = self.empty + later.empty
        self.unused = later.unused | self.unused
        self.tables.merge(later.tables)
        self.context_range = joined_ranges(self.context_range, later.context_range)

    def require_rows(self) -> None:
        """Refuse logs without any."""
        if not self.rows:
            raise InputError(f"the log is empty: {', '.join(self.empty)} has no rows")

    def __repr__(self) -> str:
        said = f"{self.rows:,} rows, {self.transitions:,} transitions, {self.episodes:,} episodes"
        return f"<LogReport: {said}, {self.bad_rows:,} bad rows, {self.splits:,} gaps>"


def joined_ranges(
    mine: Mapping[str, tuple[float, float]], its: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """The smallest ranges that hold both."""
    if not mine or not its:
        return dict(mine or its)
    return {n: (min(a, its[n][0]), max(b, its[n][1])) for n, (a, b) in mine.items()}


# -- where bad rows go -----------------------------------------------------------------------------


class BadRows(NamedTuple):
    """Rows as they were read, where they are in which file (counted from 1), and why."""

    frame: pl.DataFrame
    source: str
    numbers: Array
    reason: str


class Quarantine:
    """A CSV file of bad rows, written as they come; it appears, whole, with `close`.

    An older quarantine is never overwritten: the name gets a number.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside: Path | None = None
        self._file: IO[bytes] | None = None
        self._columns: list[str] = []

    def add(self, bad: BadRows) -> None:
        """Write some rows."""
        import polars as pl

        about = {"file": bad.source, "row": pl.Series(bad.numbers), "reason": bad.reason}
        frame = bad.frame.select(
            *(pl.lit(value).cast(pl.String).alias(name) for name, value in about.items()),
            pl.all().cast(pl.String),
        )
        first = self._file is None
        if self._file is None:
            columns = [name for name in frame.columns if name != "machine"]
            self._columns = [*columns, "machine"]  # which not every log has
            self._beside, self._file = open_beside(next(self._names()))
        if "machine" not in frame.columns:
            frame = frame.with_columns(pl.lit(None, pl.String).alias("machine"))
        rows = frame.select(self._columns).write_csv(include_header=first)
        with reporting("write", self._path):
            self._file.write(rows.encode())

    def close(self) -> Path | None:
        """Put the file in its place; returns its name, or None if no row was bad."""
        if self._file is None or self._beside is None:
            return None
        with reporting("write", self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            for place in self._names():
                with suppress(FileExistsError):  # another process may take a name meanwhile
                    place.touch(exist_ok=False)
                    break
            self._file.close()
            self._file = None
            os.replace(self._beside, place)
        return place

    def discard(self) -> None:
        """Leave nothing behind after a failure."""
        if self._beside is not None:
            self._beside.unlink(missing_ok=True)
        if self._file is not None:
            with suppress(OSError):  # what it still held had no room
                self._file.close()
            self._file = None

    def _names(self) -> Iterator[Path]:
        """Names that nobody has."""
        for number in itertools.count(1):
            stem = self._path.stem if number == 1 else f"{self._path.stem}-{number}"
            if not os.path.lexists(place := self._path.with_stem(stem)):
                yield place
