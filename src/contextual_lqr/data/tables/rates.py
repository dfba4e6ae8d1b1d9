"""Whether rows of each machine are as far apart as the period says.

A file whose rows are all further apart, or closer, has the wrong period, and is refused. If only
some machines are sampled at another rate, they are named: what they teach belongs to another
period, or they teach nothing, since each of their rows begins after a gap, or is too early. Time
stamps that are rounded to more than a period are no use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.tables.table_report import TimeReport
from contextual_lqr.errors import InputError

Series = tuple[object, Array, Array]  # whose rows these are, their times, their periods
_ENOUGH = 8  # intervals, to tell what is usual
_OFF = 0.1  # of a period, beyond what jitter explains
_UNITS = (  # with their lengths in seconds
    ("milliseconds", 1e-3, "divide them by 1000"),
    ("microseconds", 1e-6, "divide them by 1,000,000"),
    ("days, as Excel counts", 86400.0, "format the column as date and time, then save the table"),
)


class Rates:
    """Looks at each machine of one log once, when there are enough rows of it."""

    def __init__(self, log: str, report: TimeReport, *, resample: bool) -> None:
        self._log, self._report, self._resample = log, report, resample
        self._looked: set[object] = set()

    def look(self, several: Sequence[Series]) -> None:
        """Refuse the period if no machine has it; name those that have not, if some have."""
        refused, some_agree, other = "", bool(self._looked), dict[str, tuple[float, float]]()
        for who, time, period in several:
            known = np.isfinite(time) & np.isfinite(period)
            time, period = time[known], period[known]
            if len(time) <= _ENOUGH or who in self._looked:
                continue
            self._looked.add(who)
            ahead = np.diff(time) / period[1:]
            if _is_rounded(ahead):
                refused = refused or self._rounded(ahead, float(period[1]))
                continue
            usual = float(np.median(ahead))
            error = float(np.median(np.abs(ahead - usual))) / np.sqrt(len(ahead))
            closer = self._resample and usual < 1.5  # it makes rows of the period
            if usual <= 0 or closer or abs(usual - 1) < _OFF + 4 * error:
                some_agree = True
                continue
            apart = usual * float(period[1])
            other[str(who)] = float(f"{apart:.3g}"), float(period[1])
            if 0.5 <= usual < 1.5:
                some_agree = True
            else:
                refused = refused or self._refusal(apart, float(period[1]))
        if refused and not some_agree:
            raise InputError(refused)
        self._report.other_rates |= other

    def _rounded(self, ahead: Array, period: float) -> str:
        step = f"{period * float(np.min(ahead[ahead > 0])):.3g} s"
        return (
            f"{self._log}: several rows in a row have the same time, then it rises by {step}: time "
            f"stamps are rounded, but the period is {period:.3g} s. Export them with all digits, "
            "or number the rows of each episode in a column 'step' and leave time out"
        )

    def _refusal(self, apart: float, period: float) -> str:
        said = f"{self._log}: rows are {apart:.3g} s apart, but the period is {period:.3g} s"
        for unit, length, remedy in _UNITS:
            if abs(apart * length / period - 1) < _OFF:
                return f"{said}. Are times in {unit}? Numbers are read as seconds: {remedy}"
        remedy = ", or say resample = true" if apart < period else ""
        return (
            f"{said}: correct period in [logs]{remedy}; if machines differ in it, see 'Machines of "
            "different rates'"
        )


def _is_rounded(ahead: Array) -> bool:
    """Whether time stands still, and then rises by more than a period."""
    rises = ahead[ahead > 0]
    stays = np.count_nonzero(ahead == 0) > len(ahead) / 4
    return bool(stays and len(rises) and rises.min() >= 1.5)
