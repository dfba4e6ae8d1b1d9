"""What is said of a machine's controller, and how it is judged.

    predicted      what it costs if the estimate is right
    interval       [lower, upper] for what it costs in truth, over all plausible Θ and noise:
                   below `lower` no controller can get, above `upper` this one does not
    likely excess  how far above the best possible it is, at the 95 % quantile of posterior draws
    instability    the share of posterior draws on which the closed loop grows
    margins        of a constant gain: what errors of its inputs the loop bears, and its pace
    saturation     how often inputs meet their limits on posterior draws, and what that costs
    extrapolation  how far the machine is from what the logs have seen

and a verdict from the last three. docs/certificate.md derives all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from contextual_lqr.certificates.extrapolation import Extrapolation
from contextual_lqr.certificates.margins import THIN, LoopMargins
from contextual_lqr.certificates.saturation import Saturation
from contextual_lqr.context import Schedule
from contextual_lqr.display import Displayed, context_fact
from contextual_lqr.files import finite
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.lqr.stationary import Policy

Verdict = Literal["trust", "caution", "do not use"]

# At 2 % for the 95 % quantile, an excess above 5 % is rarer than one in a hundred: it is about a
# square of Gaussians.
TRUSTED_EXCESS, REFUSED_EXCESS = 0.02, 0.5
REFUSED_INSTABILITY = 0.05


@dataclass(frozen=True)
class CostBound:
    """One end of the interval: what is certain, and the most extreme that a search found.

    The true extreme over the plausible machines lies between the two; `gap` is the distance between
    them, relative to what was found.
    """

    certified: float
    searched: float

    @property
    def gap(self) -> float:
        """How much too wide the bound may be; infinite if it says nothing."""
        if not np.isfinite(self.certified) or not np.isfinite(self.searched):
            return np.inf
        return abs(self.searched - self.certified) / max(abs(self.searched), 1e-300)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Displayed):
    """A machine's controller, and how good it will be.

    For a `StationaryCost`, costs are averages per step, `margins` says what the loop tolerates, and
    the ends of the interval were found by search: they are not proven.
    """

    context: Any
    policy: Policy
    predicted_cost: float
    lower: CostBound
    upper: CostBound
    likely_excess: float
    instability: float
    extrapolation: Extrapolation
    verdict: Verdict
    reason: str
    margins: LoopMargins | None = None
    saturation: Saturation | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """The controller's true cost lies in here, unless the confidence set is wrong."""
        return self.lower.certified, self.upper.certified

    def _facts(self) -> dict[str, object]:
        interval = "{:.4g} to {:.4g}".format(*self.interval)
        if self.margins is not None:  # of a constant gain nothing is proven
            interval = f"{self.lower.searched:.4g} to {self.upper.searched:.4g}, as searched"
        return {
            **context_fact(self.context),
            "verdict": self.verdict,
            "predicted cost": f"{self.predicted_cost:.4g}",
            "interval": interval,
            "likely excess": f"{self.likely_excess:.2%}",
            "instability": f"{self.instability:.0%}",
            **({} if self.margins is None else {"loop": self.margins}),
            **({} if self.saturation is None else {"limits": self.saturation}),
            "reason": self.reason,
        }

    def as_dict(self) -> dict[str, Any]:
        """All but the controller, for JSON: numbers that are not finite become None."""
        context = self.context
        facts = {
            "verdict": self.verdict,
            "reason": self.reason,
            "predicted_cost": self.predicted_cost,
            "lower_cost": self.lower.certified,
            "lower_searched": self.lower.searched,
            "upper_cost": self.upper.certified,
            "upper_searched": self.upper.searched,
            "likely_excess": self.likely_excess,
            "instability": self.instability,
            "extrapolation_score": self.extrapolation.score,
            "extrapolation": self.extrapolation.place,
            "extrapolation_feature": self.extrapolation.feature,
        }
        if (met := self.saturation) is not None:
            facts |= {"saturated_runs": met.runs, "saturated_steps": met.steps}
            facts |= {"saturation_cost": met.added_cost, "saturation_cost_deviation": met.deviation}
        if (loop := self.margins) is not None:
            low, high = loop.gain
            facts |= {"disk_margin": loop.disk, "phase_margin": loop.phase}
            facts |= {"gain_margin_low": low, "gain_margin_high": high, "half_life": loop.half_life}
        told = context.one_by_one if isinstance(context, Schedule) else context
        return {"context": told, **finite(facts)}


def judge(
    solved: bool, excess: float, unstable: float, place: Extrapolation
) -> tuple[Verdict, str]:
    """The verdict, and why."""
    near = f"likely within {percent(excess)} of the best possible"
    if not solved:
        return "do not use", "the estimate has no optimal controller here"
    if unstable > REFUSED_INSTABILITY:
        return "do not use", f"{place}; the loop grows on {unstable:.0%} of the posterior draws"
    if not excess <= REFUSED_EXCESS:
        return "do not use", f"{place}; it may cost {percent(excess)} more than the best possible"
    if unstable > 0:
        return "caution", f"{place}; the loop grows on {unstable:.1%} of the posterior draws"
    if excess > TRUSTED_EXCESS:
        return "caution", f"{place}; it may cost {percent(excess)} more than the best possible"
    if place.place in ("in a gap of the data", "outside the data"):
        return "caution", f"{place}; {near}, if the features hold there"
    return "trust", f"{place}; {near}"


def lowered(
    judged: tuple[Verdict, str], missed: float, finding: str, beyond: str, note: str = ""
) -> tuple[Verdict, str]:
    """At most caution beyond declared bounds; what the model misses, if much; and a note."""
    verdict, reason = judged
    if verdict != "trust" and not missed <= TRUSTED_EXCESS:
        reason = f"{finding}, which may cost {percent(missed)}; {reason}"
    if beyond and verdict != "do not use":
        return "caution", f"{beyond}; {reason}"
    return verdict, f"{reason}; {note}" if note else reason


def counted(one: Certificate, met: Saturation, beyond: str) -> Certificate:
    """The certificate with what the limits cost; `beyond` says which inputs would exceed them."""
    excess = one.likely_excess + met.excess
    found = replace(one, saturation=met, likely_excess=excess)
    if isinstance(one.policy, LinearPolicy):  # the run that was played is the one that is judged
        ends = (one.upper.certified, one.upper.searched)
        found = replace(
            found,
            predicted_cost=one.predicted_cost * (1 + met.added_cost),
            upper=CostBound(*(end * (1 + met.excess) for end in ends)),
        )
    if not met.runs:
        return found
    if excess <= TRUSTED_EXCESS and one.verdict == "trust":
        return replace(found, reason=f"{one.reason}; {met}")
    verdict: Verdict = "caution" if one.verdict == "trust" else one.verdict
    if not excess <= REFUSED_EXCESS and met.excess > TRUSTED_EXCESS:
        verdict = "do not use"
    reason = "; ".join(filter(None, (beyond, str(met), one.reason)))
    return replace(found, verdict=verdict, reason=reason)


def thin(judged: tuple[Verdict, str], margins: LoopMargins | None) -> tuple[Verdict, str]:
    """No more than caution for a loop that bears next to no error of its inputs."""
    verdict, reason = judged
    if margins is None or margins.disk >= THIN or verdict == "do not use":
        return judged
    return "caution", f"it {margins}; {reason}"


def percent(part: float) -> str:
    """A part of 1, in words."""
    if not np.isfinite(part) or part > 10:
        return "over 1000 %"
    return f"{100 * part:.2g} %" if part < 1 else f"{100 * part:.0f} %"
