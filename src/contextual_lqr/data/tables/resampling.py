"""Rows put on the grid start + k period of every stretch without gaps, by straight lines.

An input that is held from row to row has, over the step from a grid point between two rows, the
mean (1 - w) u + w u', where w is how far the grid point is on the way: the straight line again.
Of an output that wraps, the line is that of the shorter way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.clock import periods, run_labels, series_of, who
from contextual_lqr.data.tables.rates import Rates
from contextual_lqr.data.tables.table_report import TimeReport
from contextual_lqr.data.tables.time_stamps import TimeStamps

_ROUNDING = 1e-6  # of a period: a row so little before a grid point is on it


@dataclass
class _Series:
    """The last row of an episode, or machine, and the grid of its run."""

    last: float = math.nan
    row: Array | None = None
    start: float = 0.0
    step: int = 0
    run: int = -1


class Resampler:
    """Puts the rows of one log on the grid, one frame after the other."""

    def __init__(self, description: FleetDescription, log: str, report: TimeReport) -> None:
        self._about, self._log, self._report = description, log, report
        self._names = [one.name for one in description.logged]
        self._wrapping = [(i, one) for i, one in enumerate(description.logged) if one.wraps]
        self._stamps = TimeStamps(log, description.layout.time or "")
        self._series: dict[object, _Series] = {}
        self._rates = Rates(log, report, resample=True)

    def frames(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The rows of the grid, with `episode` and `step`."""
        for frame in frames:
            time, period = self._stamps.seconds(frame["time"]), periods(frame, self._about)
            self._report.read_as(self._stamps.words, self._log)
            several = list(series_of(frame))
            self._rates.look([(who(key, self._log), time[at], period[at]) for key, at in several])
            made = [self._part(frame[at], key, time[at], period[at]) for key, at in several]
            self._report.rows_read += len(frame)
            if made:
                whole = pl.concat(made)
                self._report.rows_made += len(whole)
                yield whole

    def _part(
        self, frame: pl.DataFrame, key: Sequence[object], time: Array, period: Array
    ) -> pl.DataFrame:
        """Those of one series."""
        from polars import selectors as cs

        series = self._series.setdefault(key, _Series())
        kept = np.isfinite(time) & np.isfinite(period)
        kept[kept] = np.diff(time[kept], prepend=series.last) != 0
        self._report.not_rising += int(np.count_nonzero(~kept))
        frame, time, period = frame.filter(pl.Series(kept)), time[kept], period[kept]
        values = (
            frame.with_columns(cs.string().str.strip_chars())
            .select(pl.col(self._names).cast(pl.Float64, strict=False).fill_null(math.nan))
            .to_numpy()
        )
        named = "episode" in frame.columns
        rows, steps, runs = (
            np.concatenate(some)
            for some in zip(*self._on_grid(time, period, values, series, named), strict=True)
        )
        made = pl.DataFrame({"step": steps} | dict(zip(self._names, rows.T, strict=True)))
        labels = {name: frame[name] for name in ("machine", "episode") if name in frame.columns}
        made = made.with_columns(
            pl.lit(label[0] if len(label) else None).cast(label.dtype).alias(name)
            for name, label in labels.items()
        )
        return made if named else made.with_columns(run_labels(made, runs))

    def _on_grid(
        self, time: Array, period: Array, values: Array, series: _Series, named: bool
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Rows after the last one before these, steps and runs."""
        yield np.empty((0, values.shape[1])), np.empty(0, np.int64), np.empty(0, np.int64)
        if not len(time):
            return
        step = float(period[0])
        if series.row is not None:
            time = np.append(series.last, time)
            values = np.concatenate((series.row[None], values))
        ahead = np.diff(time) / step
        splits = (ahead >= 1.5) | (ahead < 0)  # where time falls back, for whatever reason
        self._report.add(ahead[~splits])
        edges = [0, *(np.flatnonzero(splits) + 1).tolist(), len(time)]
        for first, (a, b) in enumerate(pairwise(edges)):
            if first > 0 or series.row is None:
                if series.run >= 0 and ahead[a - 1] < 0:
                    self._report.restarts += 1
                elif series.run >= 0:
                    self._report.gap(f"{self._log}: {ahead[a - 1]:,.3g} periods without a row")
                # A step is left out where an episode goes on after a gap, which splits it.
                series.step = series.step + 2 if named and series.run >= 0 else 0
                series.start, series.run = float(time[a]) - series.step * step, series.run + 1
                yield values[a : a + 1], np.array([series.step]), np.array([series.run])
            t, v = time[a:b], values[a:b]
            reached = np.floor((t - series.start) / step + _ROUNDING).astype(np.int64)
            reached = np.maximum(reached, series.step)
            new = np.diff(reached)
            before = np.repeat(np.arange(len(new)), new)
            k = np.arange(reached[0] + 1, reached[-1] + 1)
            w = (series.start + k * step - t[before]) / (t[before + 1] - t[before])
            w = np.clip(w, 0, 1)[:, None]
            with np.errstate(invalid="ignore"):  # 0 · ∞ is a bad row, too
                between = v[before] + w * self._moves(v)[before]  # exact where nothing moves
            self._wrap(between)
            yield between, k, np.full(len(k), series.run)
            series.step = int(reached[-1])
        series.last, series.row = float(time[-1]), values[-1]

    def _moves(self, rows: Array) -> Array:
        """How far values move from row to row: what wraps, the short way round."""
        moves = np.diff(rows, axis=0)
        for i, one in self._wrapping:
            assert one.wraps is not None
            moves[:, i] -= one.wraps * np.round(moves[:, i] / one.wraps)
        return moves

    def _wrap(self, rows: Array) -> None:
        """Put what wraps back into its bounds, if it has any."""
        for i, one in self._wrapping:
            if one.wraps is not None and math.isfinite(one.low):
                rows[:, i] -= one.wraps * np.floor((rows[:, i] - one.low) / one.wraps)
