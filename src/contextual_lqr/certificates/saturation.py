"""What the limits of inputs cost: the clipped controller, played on posterior draws.

A controller u = K x that is clipped to limits is no longer linear, and nothing exact is known of
its cost. So runs are played twice on each drawn machine, with the same noise: as they would be
without limits, and clipped. What clipping adds, as a part of what the run costs without limits, is
taken over all runs, and at the 95 % quantile of the draws; the worse of the two counts in the
verdict like any other excess.

How well that is known is harder to see: with few runs a draw, noise makes more difference than
machines do. So two neighbouring draws i, j are played with the same noise, which cancels in

    E (share_i - share_j)² = 2 σ²        σ² is the variance of what clipping adds to the machine
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

RUNS = 4  # of each draw
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
        The standard deviation of `added_cost`: how well the machine is known, and the little that
        so few runs leave open. Infinite where there are fewer than four draws to tell it by.
    """

    runs: float
    steps: float
    added_cost: float
    likely_added_cost: float
    deviation: float = np.inf

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
    shocks = as_noise(drawn, paired_noise(rng, n, steps, d))
    free = rollout(policy, drawn, start, shocks, largest=LARGEST)
    bounds = (limits.low, limits.high)
    held = rollout(policy, drawn, start, shocks, input_bounds=bounds, largest=LARGEST)
    asked = np.einsum("hmd,...hd->...hm", policy.gains, held.states[..., :-1, :])
    clipped = (np.clip(asked, *bounds) != asked).any(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        paid, more = (np.asarray(trajectory_cost(one, cost)) for one in (free, held))
    return compared(paid, more, clipped, quantile)


def paired_noise(
    rng: np.random.Generator, draws: int, steps: int, d: int
) -> Float[Array, "runs n steps d"]:
    """Standard normal numbers for the runs of each draw, the same for 0 and 1, 2 and 3, ..."""
    return np.repeat(rng.standard_normal((RUNS, (draws + 1) // 2, steps, d)), 2, 1)[:, :draws]


def compared(
    paid: Float[Array, "runs n"],
    clipped_cost: Float[Array, "runs n"],
    clipped: Bool[Array, "runs n steps"],
    quantile: float,
) -> Saturation:
    """What runs cost without limits and with them, and which steps are clipped, over n draws.

    Neighbouring draws were played with the same noise.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Draws on which no limit is met add nothing, even if their runs explode.
        added = np.where(clipped.any(-1), clipped_cost - paid, 0.0)
        shares = np.where(clipped.any((0, 2)), added.mean(0) / np.abs(paid).mean(0), 0.0)
        whole = float(added.mean() / np.abs(paid).mean()) if clipped.any() else 0.0
        left = (added.mean(0) - whole * np.abs(paid).mean(0)) / np.abs(paid).mean()
        deviation = _deviation(shares, left)
    shares = np.where(np.isnan(shares), np.inf, shares)
    return Saturation(
        float(clipped.any(-1).mean()),
        float(clipped.mean()),
        np.inf if np.isnan(whole) else whole,
        float(np.quantile(shares, quantile, method="higher")),
        deviation if np.isfinite(deviation) else np.inf,
    )


def _deviation(shares: Float[Array, " n"], left: Float[Array, " n"]) -> float:
    """Of what clipping adds: σ² by pairs, and the variance of its mean, by what that leaves."""
    pairs = len(shares) // 2
    if pairs < 2:
        return np.inf
    apart = np.diff(shares[: 2 * pairs].reshape(pairs, 2))
    beside = left[: 2 * pairs].reshape(pairs, 2).mean(1)
    return float(np.sqrt(np.square(apart).mean() / 2 + beside.var(ddof=1) / pairs))
