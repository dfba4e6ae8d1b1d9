"""The belief of a study: an agent, folded over the log's episodes in their order.

Two readers of the same log hold the same agent bit for bit, whichever snapshot they began with: a
snapshot is the agent's file, and a resumed agent goes on as if it had never stopped. What cannot be
learnt from (which `tell` refuses, so that another release must have written it) is counted, and
left out by every reader alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.errors import InputError
from contextual_lqr.files import packed, unpacked
from contextual_lqr.lqr.problem import LinearSystem, Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.agent_file import FORMAT_VERSION, agent_state, restored
from contextual_lqr.study.encoding import context_of, episode_of, plan_fields
from contextual_lqr.study.log import Ask, Episode

_KIND = "agent"


def agent_bytes(agent: Agent) -> bytes:
    """All of an agent, to the bit."""
    return packed(_KIND, FORMAT_VERSION, *agent_state(agent))


class Learner:
    """An agent that has learnt the first `number` episodes of a log."""

    def __init__(self, number: int, content: bytes, name: str, own: dict[str, Any]) -> None:
        state, arrays = unpacked(content, _KIND, FORMAT_VERSION, name)
        self.agent = restored(Agent, state, arrays, name, **own)
        self.number, self.snapshot, self.unusable = number, number, 0

    def fold(self, episodes: Iterable[Episode]) -> None:
        """Learn what comes next, in order."""
        for one in episodes:
            assert one.number == self.number + 1
            try:
                with warnings.catch_warnings():  # the one who told it was warned
                    warnings.simplefilter("ignore", UserWarning)
                    self.agent.tell(context_of(one.context), _episode(one), one.machine)
            except InputError:
                self.unusable += 1
            self.number = one.number

    def content(self) -> bytes:
        """The agent as it is now, for a snapshot."""
        return agent_bytes(self.agent)


def _episode(one: Episode) -> Trajectory:
    return episode_of(one.content, f"episode {one.number}")


def expected(decoder: Decoder, asks: Iterable[Ask]) -> Decoder:
    """What will be known once these asks are told, if the machines do as is expected.

    Each plan is played on its machine as it is believed to be, with noise as it is believed to be,
    so that what is expected stays the same, and what is unknown shrinks where it is being probed.
    """
    twin = decoder.copy()
    for ask in asks:
        plan, x = plan_fields(ask.content, ask.context, f"ask {ask.key}")
        context, rng = plan["context"], np.random.default_rng(int(ask.key[:16], 16))
        system = decoder.machine_at(decoder.context_map.matrix(context), ask.machine).system
        played = _imagined(system, plan["policy"].gains, plan["offsets"], x, rng)
        if played is not None:
            twin.update(context, played, ask.machine)
    return twin


def _imagined(
    system: LinearSystem, gains: Any, offsets: Any, x: Any, rng: np.random.Generator
) -> Trajectory | None:
    states, inputs = [x], []
    noise = rng.standard_normal((len(gains), len(x))) @ system.noise_factor.T
    with np.errstate(over="ignore", invalid="ignore"):
        for K, offset, w in zip(gains, offsets, noise, strict=True):
            inputs.append(K @ states[-1] + offset)
            states.append(system.A @ states[-1] + system.B @ inputs[-1] + w)
    if not (np.isfinite(states).all() and np.isfinite(inputs).all()):
        return None  # it is expected to run away: nothing is to be learnt from that
    return Trajectory(np.array(states), np.array(inputs))
