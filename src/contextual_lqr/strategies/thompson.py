"""Thompson sampling: play what would be optimal for one draw of the posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contextual_lqr.checks import require
from contextual_lqr.lqr import solve
from contextual_lqr.strategies.posterior import Posterior
from contextual_lqr.strategies.strategy import Choice, PlansEpisodes, Situation


@dataclass(frozen=True)
class ThompsonSampling(PlansEpisodes):
    """Believe one draw, and play its optimal policy.

    A draw whose problem has no solution is drawn again, at most `attempts` times; then the
    estimate takes its place.
    """

    attempts: int = 10

    def __post_init__(self) -> None:
        require(self.attempts >= 1, f"attempts must be at least 1, not {self.attempts!r}")

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """The policy of one draw."""
        posterior = Posterior(situation)
        for _ in range(self.attempts):
            thetas, noise = posterior.draw(1, rng)
            solution = solve(situation.systems(thetas[0], noise[0]), situation.cost)
            if solution.solved:
                theta = thetas[0]
                break
        else:
            theta = situation.decoder.estimate
            solution = solve(situation.systems(theta), situation.cost, check=True)
        return Choice(solution.policy, theta, float(solution.cost(situation.start)))
