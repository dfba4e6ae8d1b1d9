"""One episode of an agent on a simulated machine, the noise given."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, Trajectory
from contextual_lqr.lqr.rollout import rollout, rollout_live
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.plan import Plan


class Played(NamedTuple):
    """What happened; `plan` is None if every step was planned anew.

    An episode whose state would overflow ends before it, and so is shorter.
    """

    trajectory: Trajectory
    plan: Plan | None


def play(
    agent: Agent,
    context: Any,
    system: LinearSystem,
    shocks: Float[Array, "steps d"],
    adapt: Literal["episode", "step"] = "episode",
) -> Played:
    """Ask, play on this machine, tell."""
    if adapt == "step":
        with agent.episode(context, adapt="step") as episode:
            return Played(rollout_live(episode, system, agent.start, shocks), None)
    plan = agent.ask(context)
    offsets = None if plan.dither is None else plan.offsets
    assert isinstance(plan.policy, LinearPolicy)
    played = rollout(plan.policy, system, agent.start, shocks, offsets=offsets)
    if len(played):
        agent.tell(plan, played)
    return Played(played, plan)
