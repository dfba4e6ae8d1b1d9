"""The paper's experiments: the best of n decoders drawn uniformly from the confidence set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.confidence import BetaRule, ConstantBeta
from contextual_lqr.checks import read_only, record, require
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem
from contextual_lqr.lqr.solve import solve
from contextual_lqr.planning.problem import Choice, PlanningProblem, PlansEpisodes


@dataclass(frozen=True)
class SampledOptimism(PlansEpisodes):
    """Play the sample that promises the lowest cost.

    Parameters
    ----------
    samples : int
        How many decoders of the confidence set are tried.
    beta : float or rule, optional
        β of that set; 10⁴ as in the paper's experiments, None for the agent's.
    play : "optimistic" or "estimate"
        Whose gains are played. "estimate" is Algorithm 1 to the letter: the optimistic decoder is
        found, but the gains of the ridge estimate are played.
    value_bound : float, optional
        The paper's c_q: samples with a value matrix of larger norm are rejected. If none is left,
        the estimate itself takes their place.
    """

    samples: int = 100
    beta: float | BetaRule | None = field(default=ConstantBeta(1e4))
    play: Literal["optimistic", "estimate"] = "optimistic"
    value_bound: float | None = None

    def __post_init__(self) -> None:
        require_bounds(self.beta, self.value_bound)
        require(self.samples >= 1, f"samples must be at least 1, not {self.samples!r}")
        require(
            self.play in ("optimistic", "estimate"),
            f'play must be "optimistic" or "estimate", not {self.play!r}',
        )

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        """The best of the samples."""
        plausible = problem.confidence_set(self.beta)
        thetas = plausible.sample(self.samples, rng)
        if self.value_bound is not None:
            thetas = thetas[bounded(problem, problem.systems(thetas), self.value_bound)]
        best = best_of(problem, thetas)
        rejected = self.samples - len(thetas) + best.rejected
        diagnostics = {"beta": plausible.beta, "rejected": rejected}
        theta = plausible.estimate if best.which < 0 else thetas[best.which].copy()
        if best.which >= 0 and self.play == "optimistic":
            policy = record(object.__new__(LinearPolicy), gains=read_only(best.gains))
            return Choice(policy, best.cost, theta, diagnostics=diagnostics)
        solution = solve(problem.systems(plausible.estimate), problem.cost, check=True)
        promised = best.cost if best.which >= 0 else float(solution.cost(problem.start))
        return Choice(solution.policy, promised, theta, diagnostics=diagnostics)


def best_of(problem: PlanningProblem, thetas: Array) -> kernels.Best:
    """The decoder of lowest cost among those that can be believed, and its gains."""
    cost, G = problem.cost, np.ascontiguousarray(problem.context_matrix)
    operands = G, cost.Q, cost.R, cost.N, problem.noise, problem.start
    floor = (1 - 1e-9) * problem.floor
    found: kernels.Best = kernels.best_decoder(thetas, *operands, floor, threads=kernels.threads())
    return found


def accepted(
    problem: PlanningProblem, systems: LinearSystem, costs: Array, value_bound: float | None
) -> Array:
    """The costs, infinite where they cannot be believed or the paper's bound ‖P_h‖ ≤ c_q is broken.

    For wild models, with values of 1e25, the cost from one start may be lost to rounding; that
    shows when it falls below what any machine must cost.
    """
    costs = np.where(costs < (1 - 1e-9) * problem.floor, np.inf, costs)
    if value_bound is None:
        return costs
    return np.where(bounded(problem, systems, value_bound), costs, np.inf)


def bounded(problem: PlanningProblem, systems: LinearSystem, value_bound: float) -> Array:
    """Which systems keep the paper's bound ‖P_h‖ ≤ c_q."""
    values = solve(systems, problem.cost).value_matrices
    finite = np.isfinite(values).all((-3, -2, -1))
    norms = np.linalg.eigvalsh(np.where(finite[:, None, None, None], values, 0.0))[..., -1]
    return np.asarray(finite & (norms <= value_bound).all(-1))


def require_bounds(beta: float | BetaRule | None, value_bound: float | None) -> None:
    """Refuse a beta or a bound on ‖P_h‖ that is negative, or no number."""
    require(
        beta is None or callable(beta) or 0 <= beta < np.inf,
        f"beta must be a finite number of at least 0, or a rule, not {beta!r}",
    )
    require(
        value_bound is None or value_bound > 0, f"value_bound must be positive, not {value_bound!r}"
    )
