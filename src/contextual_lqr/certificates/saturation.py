"""What the limits of inputs cost: the clipped controller, played on posterior draws.

A controller u = K x that is clipped to limits is no longer linear, and nothing exact is known of
its cost. So runs are played twice on each drawn machine, by the same noise: as they would be
without limits, and clipped. What clipping adds, relative to what the controller costs without
limits, is averaged over the draws, and taken at their 95 % quantile for the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.certificates.limits import InputLimits
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost
from contextual_lqr.lqr.rollout import rollout
from contextual_lqr.lqr.trajectory_cost import trajectory_cost

RUNS = 4  # of each draw, each with noise of its own
_LARGEST = 1e100  # a run that explodes is followed no further than this


@dataclass(frozen=True)
class Saturation:
    """How often inputs meet their limits on posterior draws, and what that costs.

    Attributes
    ----------
    runs, steps
        The shares of the runs and of all steps in which an input is clipped.
    added_cost
        What clipping adds to the cost, as a part of it, on average.
    likely_added_cost
        The same at the 95 % quantile of the draws.
    """

    runs: float
    steps: float
    added_cost: float
    likely_added_cost: float

    def __str__(self) -> str:
        if not self.runs:
            return "no input meets its limit"
        added = "many times" if self.added_cost > 10 else f"{self.added_cost:.2g} times"
        if self.added_cost <= 1:
            added = f"{100 * self.added_cost:.2g} % of"
        return (
            f"inputs are at their limits in {self.steps:.1%} of the steps, in {self.runs:.0%} "
            f"of the runs, which adds {added} the cost"
        )


def saturation(
    policy: LinearPolicy,
    drawn: LinearSystem,
    cost: QuadraticCost,
    start: Float[Array, " d"],
    limits: InputLimits,
    paid: Float[Array, " n"],
    quantile: float,
    rng: np.random.Generator,
) -> Saturation:
    """The clipped controller on drawn machines, on which it costs `paid` without limits."""
    if not (np.isfinite(limits.low).any() or np.isfinite(limits.high).any()):
        return Saturation(0.0, 0.0, 0.0, 0.0)
    n, steps, d = len(paid), len(policy.gains), len(start)
    deviations = np.sqrt(np.einsum("nii->ni", drawn.noise))
    shocks = deviations[:, None] * rng.standard_normal((RUNS, n, steps, d))
    bounds = (limits.low, limits.high)
    free = rollout(policy, drawn, start, shocks, largest=_LARGEST)
    held = rollout(policy, drawn, start, shocks, input_bounds=bounds, largest=_LARGEST)
    # Where the run is clipped, the clipped input is its limit, and the other is beyond.
    asked = np.einsum("hmd,...hd->...hm", policy.gains, held.states[..., :-1, :])
    clipped = (asked != held.inputs).any(-1)
    added = np.asarray(trajectory_cost(held, cost)) - np.asarray(trajectory_cost(free, cost))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shares = np.where(clipped.any((0, 2)), added.mean(0) / np.abs(paid), 0.0)
    shares = np.where(np.isnan(shares), np.inf, shares)
    likely = float(np.quantile(shares, quantile, method="higher"))
    return Saturation(
        float(clipped.any(-1).mean()),
        float(clipped.mean()),
        float(shares.mean()),
        max(likely, 0.0),
    )
