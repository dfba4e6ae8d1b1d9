"""The paper's experiments: the best of n decoders drawn uniformly from the confidence set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.confidence import ConstantRadius, RadiusRule
from contextual_lqr.lqr import optimal_cost, solve
from contextual_lqr.problem import LinearSystem
from contextual_lqr.strategies.strategy import Choice, PlansEpisodes, Situation


@dataclass(frozen=True)
class SampledOptimism(PlansEpisodes):
    """Play the sample that promises the lowest cost.

    `play="estimate"` is Algorithm 1 to the letter: the optimistic decoder is found, but the gains
    of the ridge estimate are played. `value_bound` is the paper's c_q: samples with a value matrix
    of larger norm are rejected. If none is left, the estimate itself takes their place.
    """

    samples: int = 100
    radius: float | RadiusRule | None = field(default=ConstantRadius(1e4))
    play: Literal["optimistic", "estimate"] = "optimistic"
    value_bound: float | None = None

    def __post_init__(self) -> None:
        require_bounds(self.radius, self.value_bound)
        require(self.samples >= 1, f"samples must be at least 1, not {self.samples!r}")
        require(
            self.play in ("optimistic", "estimate"),
            f'play must be "optimistic" or "estimate", not {self.play!r}',
        )

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """The best of the samples."""
        plausible = situation.confidence_set(self.radius)
        thetas = plausible.sample(self.samples, rng)
        systems = situation.systems(thetas)
        promised = optimal_cost(systems, situation.cost, situation.start)
        promised = accepted(situation, systems, promised, self.value_bound)
        best = int(np.argmin(promised))
        rejected = int(np.isinf(promised).sum())
        theta = thetas[best] if rejected < self.samples else plausible.estimate
        played = theta if self.play == "optimistic" else plausible.estimate
        solution = solve(situation.systems(played), situation.cost, check=True)
        if theta is plausible.estimate:
            promised[best] = solution.cost(situation.start)
        diagnostics = {"radius": plausible.radius, "rejected": rejected}
        return Choice(solution.policy, theta, float(promised[best]), diagnostics=diagnostics)


def accepted(
    situation: Situation, systems: LinearSystem, costs: Array, value_bound: float | None
) -> Array:
    """The costs, infinite where they cannot be believed or the paper's bound ‖P_h‖ ≤ c_q is broken.

    Of wild models, with values of 1e25, the cost from one start may be lost to rounding; it shows
    when it falls below what any machine must cost.
    """
    costs = np.where(costs < (1 - 1e-9) * situation.floor, np.inf, costs)
    if value_bound is None:
        return costs
    values = solve(systems, situation.cost).value_matrices
    finite = np.isfinite(values).all((-3, -2, -1))
    norms = np.linalg.eigvalsh(np.where(finite[:, None, None, None], values, 0.0))[..., -1]
    return np.where(finite & (norms <= value_bound).all(-1), costs, np.inf)


def require_bounds(radius: float | RadiusRule | None, value_bound: float | None) -> None:
    """Refuse a radius or a bound on ‖P_h‖ that is negative, or no number."""
    require(
        radius is None or callable(radius) or 0 <= radius < np.inf,
        f"radius must be a finite number of at least 0, or a rule, not {radius!r}",
    )
    require(
        value_bound is None or value_bound > 0, f"value_bound must be positive, not {value_bound!r}"
    )
