"""The paper's experiments: the best of n decoders drawn uniformly from the confidence set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.checks import read_only, record, require
from contextual_lqr.confidence import ConstantRadius, RadiusRule
from contextual_lqr.lqr import solve
from contextual_lqr.problem import LinearPolicy, LinearSystem
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
        if self.value_bound is not None:
            thetas = thetas[bounded(situation, situation.systems(thetas), self.value_bound)]
        best = best_of(situation, thetas)
        rejected = self.samples - len(thetas) + best.rejected
        diagnostics = {"radius": plausible.radius, "rejected": rejected}
        theta = plausible.estimate if best.which < 0 else thetas[best.which].copy()
        if best.which >= 0 and self.play == "optimistic":
            policy = record(object.__new__(LinearPolicy), gains=read_only(best.gains))
            return Choice(policy, theta, best.cost, diagnostics=diagnostics)
        solution = solve(situation.systems(plausible.estimate), situation.cost, check=True)
        promised = best.cost if best.which >= 0 else float(solution.cost(situation.start))
        return Choice(solution.policy, theta, promised, diagnostics=diagnostics)


def best_of(situation: Situation, thetas: Array) -> kernels.Best:
    """The decoder of lowest cost among those that can be believed, and its gains."""
    cost, G = situation.cost, np.ascontiguousarray(situation.context_matrix)
    operands = G, cost.Q, cost.R, cost.N, situation.noise, situation.start
    floor = (1 - 1e-9) * situation.floor
    found: kernels.Best = kernels.best_decoder(thetas, *operands, floor, threads=kernels.threads())
    return found


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
    return np.where(bounded(situation, systems, value_bound), costs, np.inf)


def bounded(situation: Situation, systems: LinearSystem, value_bound: float) -> Array:
    """Which systems keep the paper's bound ‖P_h‖ ≤ c_q."""
    values = solve(systems, situation.cost).value_matrices
    finite = np.isfinite(values).all((-3, -2, -1))
    norms = np.linalg.eigvalsh(np.where(finite[:, None, None, None], values, 0.0))[..., -1]
    return np.asarray(finite & (norms <= value_bound).all(-1))


def require_bounds(radius: float | RadiusRule | None, value_bound: float | None) -> None:
    """Refuse a radius or a bound on ‖P_h‖ that is negative, or no number."""
    require(
        radius is None or callable(radius) or 0 <= radius < np.inf,
        f"radius must be a finite number of at least 0, or a rule, not {radius!r}",
    )
    require(
        value_bound is None or value_bound > 0, f"value_bound must be positive, not {value_bound!r}"
    )
