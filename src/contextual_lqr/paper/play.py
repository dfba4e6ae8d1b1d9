"""One episode of an agent on a simulated machine, the noise given."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.checks import record
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.plan import Plan


class Played(NamedTuple):
    """What happened; `plan` is None if every step was planned anew.

    An episode whose state would overflow ends before it, and so is shorter.
    """

    states: Float[Array, "H d"]
    inputs: Float[Array, "steps m"]
    plan: Plan | None


def play(
    agent: Agent,
    context: Any,
    dynamics: Float[Array, "d y"],
    shocks: Float[Array, "steps d"],
    adapt: Literal["episode", "step"] = "episode",
) -> Played:
    """Ask, play on the machine with the dynamics [A, B], tell."""
    if adapt == "step":
        return _play_live(agent, context, dynamics, shocks)
    plan = agent.ask(context)
    d, offsets = len(agent.start), None if plan.dither is None else plan.offsets
    A, B = np.ascontiguousarray(dynamics[:, :d]), np.ascontiguousarray(dynamics[:, d:])
    states, inputs = kernels.roll_out(A, B, plan.policy.gains, agent.start, shocks, offsets=offsets)
    if len(inputs):  # they are ours and finite: nothing to check or to copy
        agent.tell(context, record(object.__new__(Trajectory), states=states, inputs=inputs))
    return Played(states, inputs, plan)


def _play_live(agent: Agent, context: Any, dynamics: Array, shocks: Array) -> Played:
    x, states, inputs = agent.start, [agent.start], []
    with agent.episode(context, adapt="step") as episode:
        for w in shocks:
            u = episode.act(x)
            with np.errstate(over="ignore", invalid="ignore"):
                x = dynamics @ np.concatenate((x, u)) + w
            if not np.isfinite(x).all():
                break
            episode.observe(x)
            states.append(x)
            inputs.append(u)
    m = dynamics.shape[1] - len(x)
    return Played(np.array(states), np.array(inputs).reshape(-1, m), None)
