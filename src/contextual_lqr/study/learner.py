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

from contextual_lqr.errors import InputError
from contextual_lqr.files import packed, unpacked
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.agent_file import FORMAT_VERSION, agent_state, restored
from contextual_lqr.study.encoding import context_of, episode_of
from contextual_lqr.study.log import Episode

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
