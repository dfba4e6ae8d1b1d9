"""One episode of an agent on a simulated machine, the noise given."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.agent import Agent
from contextual_lqr.plan import Plan
from contextual_lqr.problem import Trajectory


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
    states, inputs = _roll_out(plan, dynamics, agent.start, shocks)
    if len(inputs):
        agent.tell(context, Trajectory(states, inputs))
    return Played(states, inputs, plan)


def _roll_out(plan: Plan, dynamics: Array, start: Array, shocks: Array) -> tuple[Array, Array]:
    """States and inputs. Written for speed: two products a step, and no arrays made on the way."""
    d, steps, width = len(start), len(shocks), dynamics.shape[1]
    y = np.empty((steps + 1, width + d))  # a row is [x; u; w], and x' = [A, B, I] [x; u; w]
    y[0, :d], y[:-1, width:] = start, shocks
    M = np.concatenate((dynamics, np.eye(d)), 1)
    states, inputs = y[:, :d], y[:-1, d:width]
    xs, dot = list(states), np.dot
    offsets = None if plan.dither is None else plan.offsets
    with np.errstate(over="ignore", invalid="ignore"):
        for h, (K, row, u) in enumerate(zip(plan.policy.gains, y[:-1], inputs, strict=True)):
            dot(K, xs[h], u)
            if offsets is not None:
                u += offsets[h]
            dot(M, row, xs[h + 1])
    finite = np.isfinite(states[1:]).all(1) & np.isfinite(inputs).all(1)
    played = steps if finite.all() else int(np.argmin(finite))
    return states[: played + 1], inputs[:played]


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
