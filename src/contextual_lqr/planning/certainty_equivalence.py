"""Certainty equivalence: play the expected machine as if it were the true one, with dither."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.checks import require
from contextual_lqr.lqr.solve import solve
from contextual_lqr.planning.paths.path_strategies import certain_path
from contextual_lqr.planning.problem import Choice, PlanningProblem, PlansEpisodes


@dataclass(frozen=True)
class CertaintyEquivalence(PlansEpisodes):
    """The estimate's optimal policy, as if it were the truth.

    Parameters
    ----------
    dither : float
        The standard deviation of what is added to every input.
    """

    dither: float = 0.01

    def __post_init__(self) -> None:
        require(0 <= self.dither < np.inf, f"dither must be at least 0, not {self.dither!r}")

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        """The policy of the expected machine."""
        if isinstance(problem.machine, DynamicsBelief):
            return certain_path(problem, rng, self.dither)
        solution = solve(problem.machine.system, problem.cost, check=True)
        m = problem.cost.input_size
        covariance = np.broadcast_to(self.dither**2 * np.eye(m), (problem.cost.horizon - 1, m, m))
        return Choice(
            solution.policy,
            float(solution.cost(problem.start)),
            dither=covariance if self.dither else None,
        )
