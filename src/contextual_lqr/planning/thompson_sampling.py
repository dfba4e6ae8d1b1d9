"""Thompson sampling: play what would be optimal for one draw of the posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.machine import as_system
from contextual_lqr.checks import require
from contextual_lqr.lqr.solve import solve
from contextual_lqr.planning.paths.path_strategies import drawn_path
from contextual_lqr.planning.problem import Choice, PlanningProblem, PlansEpisodes


@dataclass(frozen=True)
class ThompsonSampling(PlansEpisodes):
    """Believe one draw, and play its optimal policy.

    Parameters
    ----------
    attempts : int
        A draw whose problem has no solution is drawn again, this many times at most; then the
        estimate takes its place.
    """

    attempts: int = 10

    def __post_init__(self) -> None:
        require(self.attempts >= 1, f"attempts must be at least 1, not {self.attempts!r}")

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        """The policy of one draw."""
        if isinstance(problem.machine, DynamicsBelief):
            return drawn_path(problem, rng)
        posterior = problem.decoder.posterior_at(problem.context_matrix)
        for _ in range(self.attempts):
            thetas, noise = posterior.draw(1, rng)
            drawn = as_system(thetas[0] @ problem.context_matrix, noise[0])
            solution = solve(drawn, problem.cost)
            if solution.solved:
                theta = thetas[0]
                break
        else:
            theta = problem.decoder.estimate
            solution = solve(problem.systems(theta), problem.cost, check=True)
        return Choice(solution.policy, float(solution.cost(problem.start)), theta)
