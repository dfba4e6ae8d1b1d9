"""What the closed loop of a machine never tried will do: runs on posterior draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.certificates.limits import InputBounds, InputLimits
from contextual_lqr.checks import as_numbers, require
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost
from contextual_lqr.lqr.rollout import rollout
from contextual_lqr.lqr.solve import solve
from contextual_lqr.lqr.stationary import Policy, StationaryPolicy
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy

_LARGEST = 1e150  # a run that explodes is followed no further than this


@dataclass(frozen=True, eq=False)
class ClosedLoopPrediction:
    """The band of states and inputs over runs: low, middle and high, and what the estimate expects.

    Each run has a Θ and a noise level of its own, drawn from the posterior, and its own shocks.
    `saturated` is the share of steps in which an input is at its limit.
    """

    policy: LinearPolicy | TrajectoryPolicy
    states: Float[Array, "3 H d"]
    inputs: Float[Array, "3 steps m"]
    expected_states: Float[Array, "H d"]
    expected_inputs: Float[Array, "steps m"]
    costs: Float[Array, " runs"]
    exploded: int
    saturated: float = 0.0

    @classmethod
    def of(
        cls,
        policy: LinearPolicy | TrajectoryPolicy,
        played: tuple[Array, Array],
        expected: tuple[Array, Array],
        costs: Array,
        band: float,
        largest: float,
        saturated: float,
    ) -> ClosedLoopPrediction:
        """Of states and inputs, `played` and `expected`; a run that reaches `largest` explodes."""
        ends, (states, inputs) = [(1 - band) / 2, 0.5, (1 + band) / 2], played
        return cls(
            policy,
            np.quantile(states, ends, axis=0, method="nearest"),
            np.quantile(inputs, ends, axis=0, method="nearest"),
            *expected,
            costs,
            int((np.abs(states) >= largest).any((1, 2)).sum()),
            saturated,
        )

    def quantity(self, k: int) -> tuple[Float[Array, "3 steps"], Float[Array, " steps"]]:
        """The band, and what is expected, of the k-th of states and inputs."""
        if (j := k - self.states.shape[-1]) < 0:
            return self.states[..., k], self.expected_states[:, k]
        return self.inputs[..., j], self.expected_inputs[:, j]


def require_runs(runs: int, band: float) -> None:
    """Refuse fewer than two runs, and a band that is no share of them."""
    require(runs >= 2, f"runs must be at least 2, not {runs!r}")
    require(0 < band < 1, f"band must be between 0 and 1, not {band!r}")


def predict_closed_loop(
    belief: MachineBelief,
    cost: QuadraticCost,
    start: ArrayLike,
    rng: np.random.Generator,
    *,
    policy: Policy | None = None,
    input_bounds: InputBounds | None = None,
    runs: int = 500,
    band: float = 0.9,
) -> ClosedLoopPrediction:
    """Play a policy, that of the expected machine unless given, on `runs` plausible machines.

    Inputs are clipped to their bounds. The band holds this share of the runs. A run counts as
    exploded when a state passes 10¹⁵⁰; it is held there.
    """
    require_runs(runs, band)
    d = len(belief.mean)
    x = as_numbers("start", start, "(d,)", 1)
    require(x.shape == (d,), f"start must be {d} numbers, one for each state, not {x.shape}")
    if policy is None:
        policy = solve(belief.system, cost, check=True).policy
    if isinstance(policy, StationaryPolicy):
        policy = policy.over(cost.horizon - 1)
    drawn = belief.draw(runs, rng)
    deviations = np.sqrt(np.einsum("nii->ni", drawn.noise))
    shocks = deviations[:, None] * rng.standard_normal((runs, len(policy.gains), d))
    limits = InputLimits(
        (-np.inf, np.inf) if input_bounds is None else input_bounds, cost.R.shape[-1]
    )
    options: dict[str, Any] = {"input_bounds": (limits.low, limits.high), "largest": _LARGEST}
    played = rollout(policy, drawn, x, shocks, **options)
    expected = rollout(policy, belief.system, x, np.zeros(shocks.shape[1:]), **options)
    at_limit = (played.inputs <= limits.low) | (played.inputs >= limits.high)
    return ClosedLoopPrediction.of(
        policy,
        (played.states, played.inputs),
        (expected.states, expected.inputs),
        np.asarray(trajectory_cost(played, cost)),
        band,
        _LARGEST,
        float(at_limit.any(-1).mean()),
    )
