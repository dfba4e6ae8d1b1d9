"""What the limits of inputs cost: the clipped controller, played on posterior draws.

A controller u = K x that is clipped to limits is no longer linear, and nothing exact is known of
its cost. So runs are played twice on each drawn machine, with the same noise: as they would be
without limits, and clipped. What clipping adds, as a part of what the run costs without limits, is
taken over all runs, and at the 95 % quantile of the draws; the worse of the two counts in the
verdict like any other excess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr.certificates.limits import InputLimits
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost
from contextual_lqr.lqr.rollout import as_noise, rollout
from contextual_lqr.lqr.trajectory_cost import trajectory_cost

RUNS = 4  # of each draw, each with noise of its own
LARGEST = 1e100  # a run that explodes is followed no further than this


@dataclass(frozen=True)
class Saturation:
    """How often inputs meet their limits on posterior draws, and what that costs.

    Attributes
    ----------
    runs, steps
        The shares of the runs and of all steps in which an input is clipped.
    added_cost
        What clipping adds to the cost, as a part of it, over all runs.
    likely_added_cost
        The same at the 95 % quantile of the draws.
    deviation
        The standard deviation of `added_cost` over the draws, without what the noise of their few
        runs adds to it, as far as the two can be told apart: how well the machine is known.
    """

    runs: float
    steps: float
    added_cost: float
    likely_added_cost: float
    deviation: float = 0.0

    @property
    def excess(self) -> float:
        """What counts in the verdict: never below 0."""
        return max(self.added_cost, self.likely_added_cost, 0.0)

    def __str__(self) -> str:
        if not self.runs:
            return "no input meets its limit"
        added = f"costs {self.added_cost:.2g} times as much again"
        if self.added_cost < 1e-4:
            added = "adds next to nothing to the cost"
        elif not self.added_cost <= 10:
            added = "costs many times as much"
        elif self.added_cost <= 1:
            added = f"adds {100 * self.added_cost:.2g} % to the cost"
            if np.isfinite(self.deviation) and self.deviation >= 5e-4:
                added += f", give or take {100 * self.deviation:.1g} %"
        often = f"{self.steps:.1%} of the steps, in {self.runs:.0%} of the runs"
        return f"inputs are at their limits in {often}, which {added}"


def saturation(
    policy: LinearPolicy,
    drawn: Dynamics,
    cost: QuadraticCost,
    start: Float[Array, " d"],
    limits: InputLimits,
    quantile: float,
    rng: np.random.Generator,
) -> Saturation:
    """The clipped controller on drawn machines."""
    n, steps, d = len(drawn.A), len(policy.gains), len(start)
    shocks = as_noise(drawn, rng.standard_normal((RUNS, n, steps, d)))
    free = rollout(policy, drawn, start, shocks, largest=LARGEST)
    bounds = (limits.low, limits.high)
    held = rollout(policy, drawn, start, shocks, input_bounds=bounds, largest=LARGEST)
    asked = np.einsum("hmd,...hd->...hm", policy.gains, held.states[..., :-1, :])
    clipped = (np.clip(asked, *bounds) != asked).any(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        paid, more = (np.asarray(trajectory_cost(one, cost)) for one in (free, held))
    return compared(paid, more, clipped, quantile)


def compared(
    paid: Float[Array, "runs n"],
    clipped_cost: Float[Array, "runs n"],
    clipped: Bool[Array, "runs n steps"],
    quantile: float,
) -> Saturation:
    """What runs cost without limits and with them, and which steps are clipped, over n draws."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Draws on which no limit is met add nothing, also if their runs explode.
        added = np.where(clipped.any(-1), clipped_cost - paid, 0.0)
        shares = np.where(clipped.any((0, 2)), added.mean(0) / np.abs(paid).mean(0), 0.0)
        whole = float(added.mean() / np.abs(paid).mean()) if clipped.any() else 0.0
        # Shares differ because machines do, and because each is a ratio of means of few runs.
        left, runs = added - shares * np.abs(paid), len(added)
        by_noise = ((left / np.abs(paid).mean(0)) ** 2).sum(0).mean() / (runs * max(runs - 1, 1))
        # A variance of n draws is itself known to √(2/n) of it: less than that is not told apart.
        least = shares.var() * np.sqrt(2 / shares.size)
        deviation = float(np.sqrt(np.maximum(shares.var() - by_noise, least)))
    shares = np.where(np.isnan(shares), np.inf, shares)
    return Saturation(
        float(clipped.any(-1).mean()),
        float(clipped.mean()),
        np.inf if np.isnan(whole) else whole,
        float(np.quantile(shares, quantile, method="higher")),
        deviation if np.isfinite(deviation) else np.inf,
    )
