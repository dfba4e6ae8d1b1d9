"""Watch an agent learn a fleet: one row an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from contextual_lqr.checks import require
from contextual_lqr.errors import MissingExtraError
from contextual_lqr.fleets import FLEETS, true_system
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.lqr.solve import optimal_cost, policy_cost
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.planning import (
    CertaintyEquivalence,
    Optimism,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
)
from contextual_lqr.planning.agent import Agent

PENDULUM = "inverted-pendulum"
NAMES = (*FLEETS, PENDULUM)
STRATEGIES: dict[str, Callable[[], Strategy | None]] = {
    "cautious": lambda: None,  # the fleet's own, which knows its state limit
    "certainty": CertaintyEquivalence,
    "thompson": ThompsonSampling,
    "optimism": Optimism,
    "sampled": SampledOptimism,
}
UNSEEN = 20
Adapt = Literal["episode", "step"]


@dataclass(frozen=True)
class EpisodeRow:
    """One episode, and what the agent knew after it.

    `optimum` is what the best controller costs on this machine in the mean, None if nobody knows;
    `unseen` is the median over 20 machines never tried: of the cost above the optimum, relative to
    it; for the pendulum, of the steps (at most 250) that the controller keeps the pole up.
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


class Stage:
    """A fleet that can be played, be it ours or the physics engine's."""

    def __init__(self, name: str) -> None:
        require(name in NAMES, f"the fleets are {', '.join(NAMES)}, not {name!r}")
        self.name, self._env = name, None
        if name in FLEETS:
            self.fleet = FLEETS[name]()
            return
        try:
            import gymnasium
        except ImportError as error:
            raise MissingExtraError("Gymnasium", "mujoco") from error
        from contextual_lqr import envs
        from contextual_lqr.envs.inverted_pendulum import inverted_pendulum

        self._env, self._rollout = gymnasium.make(envs.PENDULUM), envs.rollout
        self.fleet, self._long = inverted_pendulum(), inverted_pendulum(horizon=251).cost

    def teach(
        self, agent: Agent, context: dict[str, float], rng: np.random.Generator, adapt: Adapt
    ) -> Trajectory:
        """One live episode."""
        if self._env is None:
            return self.fleet.teach(agent, context, rng, adapt)
        seed = int(rng.integers(2**31))
        return self._rollout(agent, self._env, context=context, seed=seed, adapt=adapt).trajectory

    def optimum(self, context: dict[str, float]) -> float | None:
        """The least expected cost of this machine."""
        if self._env is not None:
            return None
        fleet = self.fleet
        return float(optimal_cost(true_system(fleet, context), fleet.cost, fleet.start))

    def score(self, agent: Agent, context: dict[str, float]) -> float:
        """How good the estimate's controller is on this machine."""
        if self._env is not None:
            policy = agent.controller(context, cost=self._long)
            return len(self._rollout(policy, self._env, context=context, seed=0).trajectory)
        fleet, truth = self.fleet, true_system(self.fleet, context)
        paid = policy_cost(agent.controller(context), truth, fleet.cost, fleet.start)
        return float(paid / optimal_cost(truth, fleet.cost, fleet.start)) - 1


def episodes(
    stage: Stage,
    strategy: str = "cautious",
    number: int = 10,
    seed: int = 0,
    adapt: Adapt = "step",
) -> Iterator[EpisodeRow]:
    """Learn from one machine after the other."""
    require(strategy in STRATEGIES, f"the strategies are {', '.join(STRATEGIES)}, not {strategy!r}")
    require(number >= 1, f"there must be at least 1 episode, not {number!r}")
    require(seed >= 0, f"seed must be at least 0, not {seed!r}")
    fleet, rng = stage.fleet, np.random.default_rng([seed, 1])
    others = np.random.default_rng([seed, 2])
    unseen = [fleet.sample_context(others) for _ in range(UNSEEN)]
    # The paper's rule goes with the paper's λ = 1.
    options = {"regularisation": 1.0} if strategy == "sampled" else {}
    agent = fleet.agent(STRATEGIES[strategy](), seed, **options)
    for k in range(1, number + 1):
        context = fleet.sample_context(rng)
        played = stage.teach(agent, context, rng, adapt)
        scored = float(np.median([stage.score(agent, other) for other in unseen]))
        cost, best = float(trajectory_cost(played, fleet.cost)), stage.optimum(context)
        yield EpisodeRow(k, context, played, cost, best, scored)
