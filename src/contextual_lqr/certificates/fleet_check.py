"""What the fleet's own machines say about certificates: how to hedge, how to widen, when to doubt.

A certificate is right if the model is. Two things check that without being asked, on what the
decoder keeps of each machine: the backtest, which scales claims by how such claims fared on
machines left out, and tests of misspecification, whose findings count at what they may cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.backtest import backtest
from contextual_lqr.certificates.backtest_records import Backtest, MachineBacktest
from contextual_lqr.certificates.forecast import Forecast
from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.certificates.model_tests.unmodelled import doubts_of
from contextual_lqr.lqr.stationary import Cost, StationaryCost

WRONGLY = 0.02  # of those that would have been trusted: with more, no machine never seen is


def _realised(one: MachineBacktest) -> float:
    return one.realised_excess


@dataclass(frozen=True, eq=False)
class FleetCheck:
    """A backtest for one task, if machines are kept apart, and what the tests have found."""

    backtest: Backtest | None
    findings: tuple[Finding, ...]

    @property
    def hedge(self) -> float:
        """By how much of its doubt a policy hedges."""
        return 0.0 if self.backtest is None else self.backtest.hedge

    @property
    def refined(self) -> bool:
        """Whether hedged gains of a machine never seen are refined on those seen."""
        return self.backtest is not None and self.backtest.refined

    @property
    def factor(self) -> float:
        """What multiplies a claimed excess."""
        return 1.0 if self.backtest is None else self.backtest.factor

    @property
    def betrayed(self) -> str:
        """Machines that would have been trusted wrongly, in words, if they are more than a few."""
        if self.backtest is None or self.backtest.wrongly <= WRONGLY * self.backtest.trusted:
            return ""
        worst = max((m for m in self.backtest.machines if m.trusted), key=_realised)
        return (
            f"of {self.backtest.trusted} machines that would have been trusted before their first "
            f"run, {self.backtest.wrongly} wrongly, {worst.machine} above all (is its label right?)"
        )

    @property
    def widening(self) -> tuple[float, float]:
        """Logarithms by which the interval reaches at least below and above the prediction."""
        return (-np.inf, -np.inf) if self.backtest is None else self.backtest.widening


def fleet_check(
    decoder: Decoder, cost: Cost, start: Float[Array, " d"], forecast: Forecast | None = None
) -> FleetCheck:
    """The check for this task; computed once, and kept until data come."""
    if decoder.store is None or len(decoder.store) < 2:
        return FleetCheck(None, ())
    parts = (cost.Q, cost.R, start) if cost.N is None else (cost.Q, cost.R, start, cost.N)
    still = cost.constant if isinstance(cost, StationaryCost) else ()
    task = b"".join(part.tobytes() for part in parts) + repr(still).encode()
    for i, values in sorted((forecast or {}).items()):
        task += b"".join(np.array(part, float).tobytes() for part in (i, values))
    kept = decoder.kept
    if ("check", task) not in kept:
        found = backtest(decoder, cost, start, forecast=forecast)
        kept["check", task] = FleetCheck(found, doubts_of(decoder, cost, forecast or ()))
    check: FleetCheck = kept["check", task]
    return check


def without_check(decoder: Decoder) -> str | None:
    """Why nothing checks the certificates of this fleet, if machines are kept apart but none can.

    Backtest and tests need machines whose context stays during an episode.
    """
    if decoder.changing is None or (decoder.store is not None and len(decoder.store) >= 2):
        return None
    return "no two machines were logged whose context stays, so no backtest has checked this"
