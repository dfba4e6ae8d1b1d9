"""The last line of `fit`'s report: would the certificates of these machines have been right?"""

from __future__ import annotations

from typing import Any, NamedTuple

from contextual_lqr.certificates.backtest_records import Backtest
from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.context import Dynamics
from contextual_lqr.data import FittedFleet

_MOST = 100_000  # machines: their deviations take some six seconds to estimate


class FitBacktest(NamedTuple):
    """A backtest of so many machines, or why there is none."""

    found: Backtest | None
    machines: int
    not_run: str = ""

    def __str__(self) -> str:
        if self.found is None:
            return self.not_run
        tried = len(self.found.machines)
        drawn = "" if tried == self.machines else f" ({tried} drawn from {self.machines:,})"
        return f"backtest: {self.found}{drawn}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        if self.found is None:
            return {"backtest": None, "why_no_backtest": self.not_run}
        numbers = {
            "machines": len(self.found.machines),
            "of": self.machines,
            "trusted": self.found.trusted,
            "wrongly": self.found.wrongly,
            "counted": self.found.counted,
        }
        return {"backtest": numbers, "why_no_backtest": None}


def backtest_fit(fleet: FittedFleet) -> FitBacktest:
    """Leave some hundred of the machines out in turn, if there are two at least, kept apart."""
    store, described = fleet.decoder.store, fleet.description
    n = 0 if store is None else len(store)
    if isinstance(described.context_map, Dynamics):
        return FitBacktest(
            None, n, "no backtest of paths, which takes a while: run `contextual-lqr backtest`"
        )
    if n < 2:
        return FitBacktest(None, n, "no backtest: it takes two machines, to leave one out")
    if n > _MOST:
        why = f"no backtest of {n:,} machines, which takes a while: run `contextual-lqr backtest`"
        return FitBacktest(None, n, why)
    return FitBacktest(fleet_check(fleet.decoder, described.cost, described.start).backtest, n)
