"""Watch an agent learn a fleet: one row per episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from contextual_lqr.checks import require
from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.planning import (
    CertaintyEquivalence,
    Optimism,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
)

STRATEGIES: dict[str, Callable[[], Strategy | None]] = {
    "cautious": lambda: None,  # the fleet's own, which knows its state limit
    "certainty": CertaintyEquivalence,
    "thompson": ThompsonSampling,
    "optimism": Optimism,
    "sampled": SampledOptimism,
}
UNSEEN = 20


@dataclass(frozen=True)
class EpisodeRow:
    """One episode, and what the agent knew after it.

    `optimum` is what the best controller costs on this machine in the mean, None if nobody knows;
    `unseen` is the median of `Fleet.score` over 20 machines never tried.
    """

    episode: int
    context: dict[str, float]
    trajectory: Trajectory
    cost: float
    optimum: float | None
    unseen: float

    def plain(self) -> dict[str, Any]:
        """All but the trajectory, as JSON can hold it."""
        facts = {name: value for name, value in vars(self).items() if name != "trajectory"}
        return {**facts, "steps": len(self.trajectory)}


def episodes(
    fleet: Fleet,
    strategy: str = "cautious",
    number: int = 10,
    seed: int = 0,
    adapt: Literal["episode", "step"] = "step",
) -> Iterator[EpisodeRow]:
    """Learn from one machine after another."""
    require(strategy in STRATEGIES, f"the strategies are {', '.join(STRATEGIES)}, not {strategy!r}")
    require(number >= 1, f"there must be at least 1 episode, not {number!r}")
    require(seed >= 0, f"seed must be at least 0, not {seed!r}")
    rng, others = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    unseen = [fleet.sample_context(others) for _ in range(UNSEEN)]
    # The paper's rule goes with the paper's λ = 1.
    options = {"regularisation": 1.0} if strategy == "sampled" else {}
    agent = fleet.agent(STRATEGIES[strategy](), seed, **options)
    for k in range(1, number + 1):
        context = fleet.sample_context(rng)
        played = fleet.teach(agent, context, rng, adapt)
        scored = float(np.median([fleet.score(agent, other) for other in unseen]))
        cost, best = float(trajectory_cost(played, fleet.cost)), fleet.optimum(context)
        yield EpisodeRow(k, context, played, cost, best, scored)
