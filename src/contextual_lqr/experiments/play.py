"""One episode of an agent on a simulated machine, the noise given."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.agent import Agent
from contextual_lqr.plan import Plan
from contextual_lqr.problem import LinearSystem, Trajectory


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
    machine: LinearSystem,
    shocks: Float[Array, "steps d"],
    adapt: Literal["episode", "step"] = "episode",
) -> Played:
    """Ask, play, tell."""
    if adapt == "step":
        return _play_live(agent, context, machine, shocks)
    plan = agent.ask(context)
    states, inputs = _roll_out(plan, machine, agent.start, shocks)
    if len(inputs):
        agent.tell(context, Trajectory(states, inputs))
    return Played(states, inputs, plan)


def _roll_out(
    plan: Plan, machine: LinearSystem, start: Array, shocks: Array
) -> tuple[Array, Array]:
    A, B, x = machine.A, machine.B, start
    states, inputs = [x], []
    with np.errstate(over="ignore", invalid="ignore"):
        for K, offset, w in zip(plan.policy.gains, plan.offsets, shocks, strict=True):
            u = K @ x + offset
            x = A @ x + B @ u + w
            inputs.append(u)
            states.append(x)
    x, u = np.array(states), np.array(inputs)
    finite = np.isfinite(x[1:]).all(1) & np.isfinite(u).all(1)
    played = len(u) if finite.all() else int(np.argmin(finite))
    return x[: played + 1], u[:played]


def _play_live(agent: Agent, context: Any, machine: LinearSystem, shocks: Array) -> Played:
    A, B, x = machine.A, machine.B, agent.start
    states, inputs = [x], []
    with agent.episode(context, adapt="step") as episode:
        for w in shocks:
            u = episode.act(x)
            with np.errstate(over="ignore", invalid="ignore"):
                x = A @ x + B @ u + w
            if not np.isfinite(x).all():
                break
            episode.observe(x)
            states.append(x)
            inputs.append(u)
    return Played(np.array(states), np.array(inputs).reshape(-1, B.shape[1]), None)
