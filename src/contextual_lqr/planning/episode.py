"""One episode being played: an agent that acts and observes, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.episodes import alone, encoded
from contextual_lqr.belief.own_rows import OwnRows
from contextual_lqr.checks import as_numbers, frozen, require
from contextual_lqr.lqr.problem import LinearPolicy, Trajectory
from contextual_lqr.planning.plan import Plan, drawn
from contextual_lqr.planning.problem import PlanningProblem

if TYPE_CHECKING:
    from contextual_lqr.planning.agent import Agent


class Episode:
    """One episode being played on a machine, step by step."""

    def __init__(self, agent: Agent, context: Any, adapt: str, problem: PlanningProblem) -> None:
        self._agent, self._context, self._problem = agent, context, problem
        self._steps = problem.cost.horizon - 1
        self._limit = getattr(agent.strategy, "state_limit", None)
        self._states: list[Array] = []
        self._inputs: list[Array] = []
        self.plan: Plan | None = None  # of adapt="episode"
        self._believed: Decoder | None = None
        self._own: OwnRows | None = None  # of a machine that may deviate from the law
        if adapt == "step" and agent.decoder.deviations.any():
            self._own = OwnRows(problem.machine)
        elif adapt == "step":
            self._believed = agent.decoder.copy(machines=False)
        else:
            start, cost = problem.start, problem.cost
            self.plan = agent.ask(context, problem.label, start=start, cost=cost)
        self._stopped = False
        self._memory: dict[str, Any] = {}  # what was planned for the step before

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached, or a state has left the limit or the region."""
        return self._stopped or len(self._states) > self._steps

    @property
    def trajectory(self) -> Trajectory | None:
        """What was played so far; None before the first step is over."""
        steps = len(self._states) - 1
        if steps < 1:
            return None
        return Trajectory(np.stack(self._states), np.stack(self._inputs[:steps]))

    def act(self, state: ArrayLike) -> Float[Array, " m"]:
        """The input to play in this state."""
        x = as_state(state, self._problem.cost.state_size)
        step = len(self._inputs)
        require(not self.finished, f"the episode is finished after {step} steps: leave its block")
        require(len(self._states) in (0, step + 1), "observe the next state before you act again")
        if not self._states:
            self._states.append(x)
        u = self._replanned(x, step) if self.plan is None else self.plan.input(step, x)
        self._inputs.append(u)
        return u.copy()

    def observe(self, state: ArrayLike, played: ArrayLike | None = None) -> None:
        """The state that came of the last input, or of what the machine `played` in its place."""
        x = as_state(state, self._problem.cost.state_size)
        step = len(self._inputs)
        require(step and step == len(self._states), "act before you observe the next state")
        if played is not None:
            u = as_numbers("played", played, "(m,)", 1)
            shape = self._inputs[-1].shape
            require(u.shape == shape, f"played must have shape {shape}, not {u.shape}")
            self._inputs[-1] = frozen(u)
        if self._agent.region.holds(self._states[-1], x):
            last = Trajectory(np.stack((self._states[-1], x)), self._inputs[-1][None])
            if self._own is not None:
                context_map = self._agent.decoder.context_map
                (group,) = encoded(context_map, [self._context], [alone(last)])
                self._own.add(group.y[0, 0], x)
            elif self._believed is not None:
                self._believed._learn_step(self._context, self._problem.context_matrix, last)
        self._states.append(x)
        if self._limit is not None and (np.abs(x) > self._limit).any():
            self._stopped = True
        if self._agent.region.cuts and not self._agent.region.holds(x):
            self._stopped = True

    def tell(self) -> None:
        """Tell the agent what was played; done by leaving the block."""
        if (played := self.trajectory) is not None:
            played_as = self._context if self.plan is None else self.plan
            self._agent.tell(played_as, played, self._problem.label)

    def _replanned(self, x: Array, step: int) -> Array:
        whole, agent = self._problem, self._agent
        rest = whole.cost.rest(step)
        run = None if whole.incumbent is None else LinearPolicy(whole.incumbent.gains[step:])
        now = replace(
            whole,
            decoder=agent.decoder if self._believed is None else self._believed,
            cost=rest,
            start=x,
            incumbent=run,
            own=None if self._own is None else self._own.belief,
            memory=self._memory,
        )
        u, covariance = agent.strategy.next_input(now, agent._rng)
        if covariance is not None:
            u = u + drawn(covariance, agent._rng)
        return u if agent.input_bounds is None else np.clip(u, *agent.input_bounds)


def as_state(state: ArrayLike, d: int) -> Float[Array, " d"]:
    """A state as a user gives it."""
    x = as_numbers("state", state, "(d,)", 1)
    require(x.shape == (d,), f"a state has {d} coordinates, but this has shape {x.shape}")
    return frozen(x)
