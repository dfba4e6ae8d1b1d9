"""Steps from time stamps.

Rows of one episode (or, without a column of episodes, of one machine) follow one another if they
are about a period apart:

    ahead = (time - time of the row before) / period
    ahead < 0            time falls back: the clock was set, or started over, and nobody knows how
                         long after the row before this one is. A gap of unknown length
    ahead = 0            the row is bad: its time does not rise
    0 < ahead < 1/2      the row is bad: too early
    1/2 <= ahead < 3/2   the next step, whatever the jitter, which is reported
    3/2 <= ahead         a gap: steps are missing

A gap splits an episode. Without a column of episodes a new one begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.rates import Rates
from contextual_lqr.data.tables.table_report import TimeReport
from contextual_lqr.data.tables.time_stamps import TimeStamps

NOT_RISING, TOO_EARLY = -1, -2  # instead of a step


@dataclass
class _Series:
    """Where the rows of one episode, or machine, have come to."""

    last: float = math.nan
    step: int = 0
    run: int = 0


class Clock:
    """Gives the frames of one log their steps, one frame after the other."""

    def __init__(self, description: FleetDescription, log: str, report: TimeReport) -> None:
        self._about, self._log, self._report = description, log, report
        self._stamps = TimeStamps(log, description.layout.time or "")
        self._series: dict[object, _Series] = {}
        self._rates, self._rows = Rates(log, report, resample=False), 0

    def frames(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The same rows, with `episode` and `step`."""
        for frame in frames:
            if len(frame):
                yield self._timed(frame)
                self._rows += len(frame)

    def _timed(self, frame: pl.DataFrame) -> pl.DataFrame:
        time, period = self._stamps.seconds(frame["time"]), periods(frame, self._about)
        self._report.read_as(self._stamps.words, self._log)
        steps, runs = np.full(len(frame), np.nan), np.zeros(len(frame), np.int64)
        named = "episode" in frame.columns
        several = [
            (key, at[np.isfinite(time[at]) & np.isfinite(period[at])])
            for key, at in series_of(frame)
        ]
        self._rates.look([(who(key, self._log), time[at], period[at]) for key, at in several])
        for key, at in several:
            if len(at):
                series = self._series.setdefault(key, _Series())
                steps[at], runs[at] = self._count(time[at], period[at], series, named, at)
        columns = [pl.Series("step", steps).fill_nan(None).cast(pl.Int64)]
        if not named:
            columns.append(run_labels(frame, runs))
        return frame.with_columns(columns)

    def _count(
        self, time: Array, period: Array, series: _Series, named: bool, at: Array
    ) -> tuple[Array, Array]:
        """Steps, and numbers of runs; counts what is odd."""
        ahead = np.diff(time, prepend=series.last) / period
        if math.isnan(series.last):
            ahead[0] = 1.0
            series.step -= 1
        falls, gaps = ahead < 0, ahead >= 1.5
        follows = (ahead >= 0.5) & ~gaps
        self._report.add(ahead[follows])
        self._report.restarts += int(np.count_nonzero(falls))
        forward = np.where(follows | gaps, np.floor(ahead + 0.5), 0)
        steps = series.step + np.cumsum(np.where(falls, 2, forward))  # a step is left out
        runs, begins = np.full(len(time), series.run), falls | gaps
        if not named and begins.any():
            runs += np.cumsum(begins)
            begun = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), -1))
            steps = np.where(begun >= 0, steps - steps[begun], steps)
            self._count_gaps(at[gaps], ahead[gaps])
        series.last, series.step, series.run = float(time[-1]), int(steps[-1]), int(runs[-1])
        early = np.where(ahead == 0, NOT_RISING, TOO_EARLY)
        return np.where((ahead >= 0) & (ahead < 0.5), early, steps), runs

    def _count_gaps(self, rows: Array, ahead: Array) -> None:
        for row, gap in zip(rows.tolist(), ahead.tolist(), strict=True):
            where = f"{self._log}, row {self._rows + row + 1}"
            self._report.gap(f"{where}: {gap:,.3g} periods after the row before")


def who(key: Sequence[object], log: str) -> str:
    """What to call the rows of a series: its machine or, without a label, its episode, or log."""
    return str(key[0]) if key else log


def series_of(frame: pl.DataFrame) -> Iterator[tuple[Sequence[object], Array]]:
    """The rows of each episode, or of each machine where no column names episodes."""
    keys = [name for name in ("machine", "episode") if name in frame.columns]
    if not keys:
        yield (), np.arange(len(frame))
        return
    rows = frame.select(keys).with_row_index("\0row")
    for key, some in rows.group_by(keys, maintain_order=True):
        yield key, some["\0row"].to_numpy().astype(np.int64)


def run_labels(frame: pl.DataFrame, runs: Array) -> pl.Series:
    """What to call the episodes of machines: by the machine, and the number of the run."""
    labels = pl.Series("episode", runs).cast(pl.String)
    if "machine" not in frame.columns:
        return labels
    return (frame["machine"].cast(pl.String) + " #" + labels).alias("episode")


def periods(frame: pl.DataFrame, about: FleetDescription) -> Array:
    """The period of each row: that of all, or what its context says; NaN if that is none."""
    period = about.layout.period
    if not isinstance(period, str):
        assert period is not None  # [logs] time needs it
        return np.full(len(frame), period)
    column = frame[period]
    column = column.str.strip_chars() if column.dtype == pl.String else column
    found = column.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
    return np.where(found > 0, found, np.nan)
