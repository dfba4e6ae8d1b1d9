"""A simulated fleet whose machines are not linear, x' = Θ φ(context, x, u) + w, with a known Θ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.context import Dynamics
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.lqr.target_cost import TargetCost
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.planning import Strategy
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.paths.path_strategies import ATTEMPTS
from contextual_lqr.planning.paths.trajectory import solve_trajectory

_Rule = Callable[[int, Array], Array]


@dataclass(frozen=True, eq=False)
class NonlinearFleet:
    """Machines with x' = Θ φ(context, x, u) + w, all with the same task; see `Fleet`.

    `play` takes any rule from step and state to an input: a `TrajectoryPolicy`, or `plan.input`.
    """

    context_map: Dynamics
    cost: TargetCost
    start: Float[Array, " d"]
    noise: Float[Array, "d d"]
    input_bounds: tuple[Float[Array, " m"], Float[Array, " m"]]
    sample_context: Callable[[np.random.Generator], dict[str, float]]
    _truth: Float[Array, "d p"] = field(repr=False)
    states: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def noise_level(self) -> Float[Array, " d"]:
        """The standard deviation of each coordinate's noise, which an agent must roughly know."""
        return np.sqrt(np.diag(self.noise))

    def agent(self, strategy: Strategy | None = None, seed: int = 0, **options: Any) -> Agent:
        """An agent that knows nothing of the fleet but its features, its task and its noise."""
        given = {"noise_level": self.noise_level, "input_bounds": self.input_bounds, **options}
        return Agent(self.context_map, self.cost, self.start, strategy, seed=seed, **given)

    def step(
        self, context: Any, state: Array, inputs: Array, rng: np.random.Generator
    ) -> Float[Array, " d"]:
        """Where a machine is after one step; inputs beyond their limits are clipped."""
        u = np.clip(inputs, *self.input_bounds)
        shock = self.noise_level * rng.standard_normal(len(self.start))
        return np.asarray(true_machine(self, context).step(state, u) + shock)

    def play(self, policy: _Rule, context: Any, rng: np.random.Generator) -> Trajectory:
        """One episode of the machine with this context."""
        states, inputs = [self.start], []
        for step in range(self.cost.horizon - 1):
            inputs.append(np.clip(policy(step, states[-1]), *self.input_bounds))
            states.append(self.step(context, states[-1], inputs[-1], rng))
        return Trajectory(np.array(states), np.array(inputs))

    def teach(
        self,
        agent: Agent,
        context: Any,
        rng: np.random.Generator,
        adapt: Literal["episode", "step"] = "episode",
    ) -> Trajectory:
        """One live episode of the agent on this machine."""
        states, inputs = [self.start], []
        with agent.episode(context, adapt) as episode:
            while not episode.finished:
                inputs.append(episode.act(states[-1]))
                states.append(self.step(context, states[-1], inputs[-1], rng))
                episode.observe(states[-1])
        return Trajectory(np.array(states), np.array(inputs))

    def optimum(self, context: Any) -> float:
        """The least cost that was found for this machine's path, without noise."""
        found = solve_trajectory(
            true_machine(self, context),
            self.cost,
            self.start,
            input_bounds=self.input_bounds,
            attempts=ATTEMPTS,
        )
        return float(found.cost)

    def score(self, agent: Agent, context: Any) -> float:
        """What the agent's controller costs above the optimum, relative to it, without noise."""
        policy: Any = agent.controller(context)
        machine, states, inputs = true_machine(self, context), [self.start], []
        for step in range(self.cost.horizon - 1):
            inputs.append(np.clip(policy(step, states[-1]), *self.input_bounds))
            states.append(machine.step(states[-1], inputs[-1]))
        paid = trajectory_cost(Trajectory(np.array(states), np.array(inputs)), self.cost)
        return float(paid) / self.optimum(context) - 1


def true_machine(fleet: NonlinearFleet, context: Any) -> DynamicsBelief:
    """The machine with this context as it really is; for scoring."""
    return DynamicsBelief.known(fleet.context_map, context, fleet._truth, fleet.noise)
