"""A simulated fleet: it hands out contexts and plays policies; its truth is for scoring only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap, Schedule
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost, Trajectory
from contextual_lqr.lqr.rollout import rollout_live, simulate
from contextual_lqr.lqr.solve import optimal_cost, policy_cost
from contextual_lqr.lqr.time_varying import TimeVaryingSystem
from contextual_lqr.planning import Cautious, Strategy
from contextual_lqr.planning.agent import Agent

Physics = Callable[[Mapping[str, float]], tuple[Array, Array]]
"""From a context to the true A and B of its machine."""


@dataclass(frozen=True, eq=False)
class Fleet:
    """Machines with [A, B] = Θ G(context), exactly or nearly, all with the same task.

    The truth is a Θ, or a function from the context to (A, B) where the features are only nearly
    right, or None for machines whose equations nobody has written down. `states`, `inputs` and
    `units` (of the context) are for people; beyond `state_limit` the model no longer holds.
    """

    context_map: ContextMap
    cost: QuadraticCost
    start: Float[Array, " d"]
    noise: Float[Array, "d d"]
    sample_context: Callable[[np.random.Generator], Any]
    _truth: Float[Array, "d p"] | Physics | None = field(repr=False)
    states: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    state_limit: tuple[float, ...] | None = None

    @property
    def noise_level(self) -> Float[Array, " d"]:
        """The standard deviation of each coordinate's noise, which an agent must roughly know."""
        return np.sqrt(np.diag(self.noise))

    def agent(self, strategy: Strategy | None = None, seed: int = 0, **options: Any) -> Agent:
        """An agent that knows nothing of the fleet but its task and how noisy it is."""
        return Agent(
            self.context_map,
            self.cost,
            self.start,
            Cautious(state_limit=self.state_limit) if strategy is None else strategy,
            **{"noise_level": self.noise_level, **options},
            seed=seed,
        )

    def play(
        self,
        policy: LinearPolicy,
        context: Any,
        rng: np.random.Generator,
        *,
        state_bound: float | None = None,
    ) -> Trajectory:
        """One episode of the machine with this context."""
        system = true_system(self, context)
        return simulate(policy, system, self.start, rng, state_bound=state_bound)

    def teach(
        self,
        agent: Agent,
        context: Any,
        rng: np.random.Generator,
        adapt: Literal["episode", "step"] = "episode",
    ) -> Trajectory:
        """One live episode of the agent on this machine; leaving its limit ends it early."""
        system = true_system(self, context)
        # All noise is drawn at once: how far an episode gets does not change what follows it.
        shocks = rng.standard_normal((agent.cost.horizon - 1, system.state_size))
        with agent.episode(context, adapt) as episode:
            return rollout_live(episode, system, self.start, shocks @ system.noise_factor.T)

    def optimum(self, context: Any) -> float | None:
        """The least expected cost of this machine; None if unknown."""
        return float(optimal_cost(true_system(self, context), self.cost, self.start))

    def score(self, agent: Agent, context: Any) -> float:
        """What the agent's controller costs on this machine above the optimum, relative to it."""
        truth = true_system(self, context)
        paid = policy_cost(agent.controller(context), truth, self.cost, self.start)
        return float(paid / optimal_cost(truth, self.cost, self.start)) - 1


def true_decoder(fleet: Fleet) -> Float[Array, "d p"]:
    """The Θ that no learner may see.

    Where the features are only nearly right there is none: then it is the Θ that comes closest to
    the truth, by least squares over 128 machines of the fleet.
    """
    if isinstance(fleet._truth, Array):
        return fleet._truth
    rng = np.random.default_rng(0)
    contexts = [fleet.sample_context(rng) for _ in range(128)]
    M = np.concatenate([_dynamics(fleet, context) for context in contexts], axis=1)
    G = np.concatenate(list(fleet.context_map.matrices(contexts)), axis=1)
    return np.asarray(np.linalg.lstsq(G.T, M.T, rcond=None)[0].T)


def true_system(fleet: Fleet, context: Any) -> LinearSystem:
    """The true machine with this context; for scoring."""
    M, d = _dynamics(fleet, context), len(fleet.start)
    return LinearSystem(M[:, :d], M[:, d:], fleet.noise)


def true_schedule(fleet: Fleet, schedule: Schedule) -> TimeVaryingSystem:
    """The true machine whose context changes; for scoring.

    During a step its context is the one the step began with.
    """
    M, d = np.stack([_dynamics(fleet, one) for one in schedule.one_by_one]), len(fleet.start)
    return TimeVaryingSystem(M[..., :d], M[..., d:], fleet.noise)


def misfit(fleet: Fleet, contexts: list[Any]) -> Float[Array, " contexts"]:
    """How far `true_decoder` is from each machine: ‖[A, B] - Θ G‖ / ‖[A - I, B]‖.

    With a short step A is near the identity, which is not to the features' credit: so I is
    subtracted.
    """
    theta, d = true_decoder(fleet), len(fleet.start)
    found = []
    for context in contexts:
        M = _dynamics(fleet, context)
        off = M - theta @ fleet.context_map.matrix(context)
        found.append(np.linalg.norm(off) / np.linalg.norm(M - np.eye(d, M.shape[1])))
    return np.array(found)


def _dynamics(fleet: Fleet, context: Any) -> Float[Array, "d y"]:
    """The true [A, B]."""
    G = fleet.context_map.matrix(context)  # which refuses a context that is none
    if isinstance(fleet._truth, Array):
        return np.asarray(fleet._truth @ G)
    require(fleet._truth is not None, "nobody knows the true dynamics of this fleet: play it")
    assert fleet._truth is not None
    return np.hstack(fleet._truth(context))
