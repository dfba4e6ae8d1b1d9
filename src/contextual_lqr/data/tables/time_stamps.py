"""Time stamps of a log in seconds: numbers as they are, dates and times from the first of them on.

Numbers that no clock in seconds shows are milliseconds, or less, since 1970: 10¹¹ s are 3000 years.
Differences are what is needed, and a date in seconds since 1970 would leave them seven digits:
nanoseconds are subtracted first.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.errors import InputError

_FORMATS = (
    *("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"),
    *("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"),
    *("%d.%m.%Y %H:%M:%S%.f", "%d.%m.%Y %H:%M", "%H:%M:%S%.f"),
)


_SINCE_1970 = (  # from which number on, the unit, and how many are a second
    (1e17, "nanoseconds", 1e9),
    (1e14, "microseconds", 1e6),
    (1e11, "milliseconds", 1e3),
)


class TimeStamps:
    """Reads the time stamps of one log; what the first of them are like, all are."""

    def __init__(self, log: str, heading: str) -> None:
        self._log, self._heading = log, heading
        self._origin: int | None = None
        self._format: str | None = None  # of text: "" for numbers
        self._scale: float | None = None  # how many units of a number are a second
        self.words = ""  # how numbers are read, if not as seconds

    def seconds(self, times: pl.Series) -> Array:
        """NaN where there is no time."""
        if times.dtype == pl.String:
            times = self._read(times.str.strip_chars().str.replace(",", ".", literal=True))
        if times.dtype == pl.Time:
            times = times.cast(pl.Int64) / 1e9
        if times.dtype == pl.Date:
            times = times.cast(pl.Datetime("ns"))
        if isinstance(times.dtype, pl.Datetime):
            times = times.dt.epoch("ns")
            if self._origin is None and times.null_count() < len(times):
                self._origin = int(times.drop_nulls()[0])
            times = (times - (self._origin or 0)).cast(pl.Float64) / 1e9
        if not (times.dtype.is_numeric() or times.dtype == pl.Null):
            what = f"the column '{self._heading}' must hold time stamps, not {times.dtype}"
            raise InputError(f"{self._log}: {what}")
        scale = self._unit(times) if times.dtype.is_numeric() else 1.0
        return np.asarray((times.cast(pl.Float64) / scale).fill_null(math.nan).to_numpy())

    def _unit(self, numbers: pl.Series) -> float:
        if self._scale is None and numbers.null_count() < len(numbers):
            first, self._scale = float(numbers.drop_nulls()[0]), 1.0
            for least, unit, scale in _SINCE_1970:
                if least <= first < 1e20:
                    self._scale, self.words = scale, f"{unit} since 1970"
                    break
        return self._scale or 1.0

    def _read(self, text: pl.Series) -> pl.Series:
        if self._format is None:
            some = text.drop_nulls().head(100)
            if not len(some):
                return pl.Series(text.name, [None] * len(text), pl.Float64)
            found = (
                one for one in ("", *_FORMATS) if 2 * _parsed(some, one).null_count() < len(some)
            )
            self._format = next(found, None)
            if self._format is None:
                raise InputError(
                    f"{self._log}: '{some[0]}' in the column '{self._heading}' is not a time: "
                    "seconds, or a date and time such as 2026-05-01T12:00:00.010. If date and time "
                    "of day are in two columns, name the latter"
                )
        return _parsed(text, self._format)


def _parsed(text: pl.Series, form: str) -> pl.Series:
    if not form:
        return text.cast(pl.Float64, strict=False)
    if form.startswith("%H"):
        return text.str.to_time(form, strict=False)
    return text.str.to_datetime(form, strict=False, time_unit="ns")
