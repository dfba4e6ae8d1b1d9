"""What a study refuses, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from contextual_lqr.checks import require, shown
from contextual_lqr.errors import FormatError
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.agent_file import agent_state
from contextual_lqr.study.learner import agent_bytes, agent_from, what_no_file_holds
from contextual_lqr.study.log import Log

_OWN = ("context_map", "strategy", "beta", "incumbent")


def as_key(key: Any) -> str:
    """What an ask or an episode is known by."""
    require(
        isinstance(key, str) and 0 < len(key) <= 64 and key.isprintable(),
        f"a key must be a string of 1 to 64 printable characters, not {shown(key)}",
    )
    return str(key)


def require_labels(**labels: Any) -> None:
    """Of machines and workers."""
    for name, label in labels.items():
        fits = label is None or (
            isinstance(label, str) and 0 < len(label) <= 500 and label.isprintable()
        )
        require(fits, f"{name} must be 1 to 500 printable characters, not {shown(label)}")


def require_usable(agent: Agent, context: Any, trajectory: Trajectory) -> None:
    """An episode that the agent could learn from."""
    require(
        isinstance(trajectory, Trajectory),
        f"trajectory must be a Trajectory, not {shown(trajectory)}",
    )
    sizes = (agent.cost.state_size, agent.cost.input_size)
    played = (trajectory.states.shape[-1], trajectory.inputs.shape[-1])
    require(
        trajectory.states.ndim == 2 and played == sizes,
        f"an episode here has states (H, {sizes[0]}) and inputs (H-1, {sizes[1]}), not "
        f"{trajectory.states.shape} and {trajectory.inputs.shape}",
    )
    agent.decoder.context_map.matrix(context)


def require_same(agent: Agent, store: Log) -> None:
    """Refuse a study that began with another agent; their random numbers may differ."""
    own = what_no_file_holds(agent)
    ours = agent_from(agent_bytes(agent), store.name, own)
    try:
        first = agent_from(store.snapshot(0)[1], store.name, own)
    except FormatError:  # of another release: there is nothing to compare with
        return
    (state, arrays), (its, its_arrays) = agent_state(first), agent_state(ours)
    odd = {name for name in {*state, *its} - {"random"} if state.get(name) != its.get(name)}
    odd |= {
        name
        for name in {*arrays, *its_arrays}
        if not np.array_equal(arrays.get(name, 0), its_arrays.get(name, 0))
    }
    require(
        not odd,
        f"the study at {store.name} was started with another fleet or other options: they differ "
        f"in {', '.join(sorted(odd))}; open it without a fleet, or start another one",
    )


def own_parts(own: dict[str, Any], agent: Agent | None) -> dict[str, Any]:
    """What of a study's agent must be given again, as given or as of this agent."""
    odd = set(own) - set(_OWN)
    require(not odd, f"Study.open has no option {', '.join(sorted(odd))}")
    given = dict.fromkeys(_OWN) | own
    if agent is not None:
        known = what_no_file_holds(agent)
        given = {name: known[name] if one is None else one for name, one in given.items()}
    return given
