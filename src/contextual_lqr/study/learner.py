"""The belief of a study: an agent, folded over the log's episodes in their order.

Two readers of the same log hold the same agent bit for bit, whichever snapshot they began with: a
snapshot is the agent's file, and a resumed agent goes on as if it had never stopped. Whoever is far
behind begins with the last snapshot again, and whoever folds many episodes leaves one, so that of
many processes few fold. What cannot be learnt from (which `tell` refuses, so that another release
must have written it) is counted, and left out by every reader alike.

A snapshot must not grow with the number of episodes. What an agent keeps of them is bounded, but
where machines are kept apart an episode without a label is another machine: of these, as many are
kept apart as are needed to know how machines differ, and later ones teach the law alone.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from contextual_lqr.errors import FormatError, InputError
from contextual_lqr.files import packed, unpacked
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.agent_file import FORMAT_VERSION, agent_state, restored
from contextual_lqr.study.encoding import context_of, episode_of
from contextual_lqr.study.forking import known_to_forks
from contextual_lqr.study.log import Episode, Log, StoreError

_KIND = "agent"
_STRIDE = 256  # episodes after which a snapshot is left,
_FEW = 16  # that everybody folds; who folds more does it for all others, and leaves a snapshot
_MANY = 8  # by which a snapshot must be ahead to be worth reading or leaving
_LITTLE = 8  # times as many episodes are known: what is new then changes deviations by 6 %
_PATIENCE = 10.0  # seconds for which somebody waits for what another one is learning,
_NAP = 0.03  # before its second look
_SIZE = 1 << 14  # bytes of a snapshot that one episode is worth: its cost stays in proportion
_SOME = 1000  # episodes that are read at once
_UNLABELLED = 256  # machines without a label that are kept apart: their spread is then known to 5 %


def agent_bytes(agent: Agent) -> bytes:
    """All of an agent, to the bit."""
    return packed(_KIND, FORMAT_VERSION, *agent_state(agent))


def agent_from(content: bytes, name: str, own: dict[str, Any]) -> Agent:
    """The agent of such bytes, given what they cannot hold; `name` says where they are from."""
    state, arrays = unpacked(content, _KIND, FORMAT_VERSION, name)
    agent = restored(Agent, state, arrays, name, **own)
    if agent.decoder._machines is not None:
        agent.decoder._machines.most_unlabelled = _UNLABELLED
    return agent


def what_no_file_holds(agent: Agent) -> dict[str, Any]:
    """What of an agent its file may not hold."""
    return {
        "context_map": agent.decoder.context_map,
        "strategy": agent.strategy,
        "beta": agent.beta if callable(agent.beta) else None,
        "incumbent": agent.incumbent,
    }


class _Folding:
    """Filters of warnings are those of all threads: one folds at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    _forked = __init__


_folding = known_to_forks(_Folding())


class Learner:
    """An agent that has learnt the first `number` episodes of a log."""

    agent: Agent

    def __init__(self, log: Log, own: dict[str, Any], first: Callable[[], Agent | None]) -> None:
        known_to_forks(self)
        self._log, self._own, self._first, self.unusable = log, own, first, 0
        self._begin()

    def _begin(self) -> None:
        """With the last snapshot there is.

        If it is damaged or of another release, with the first, or what the study is known to be
        of: the log has all that was learnt, and it is folded again.
        """
        number, content = self._log.snapshot()
        self._unread, self._is_whole = -1, True
        try:
            self.agent = agent_from(content, self._log.name, self._own)
        except FormatError:
            self._unread, (number, content) = number, self._log.snapshot(0)
            self.agent = self._from_the_first(content)
        self._own = what_no_file_holds(self.agent)  # need not be made again
        self.number = self._snapshot = number
        self._size = len(content)

    def _from_the_first(self, content: bytes) -> Agent:
        try:
            return agent_from(content, self._log.name, self._own)
        except FormatError:
            if (agent := self._first()) is None:
                raise
            return agent_from(agent_bytes(agent), self._log.name, self._own)

    def catch_up(self) -> None:
        """Learn what was told since, by whomever."""
        self._learn(plan=False)

    def keep_up(self) -> None:
        """The same for a plan, which need not know the last few episodes of very many.

        But what a machine that is kept apart has told itself always matters.
        """
        self._learn(plan=self.agent.decoder.store is None)

    def _learn(self, plan: bool) -> None:
        if not self._is_whole:
            self._begin()
        told, self._snapshot = self._log.progress()
        if told <= self.number + _FEW:
            return self._fold_to(told, _STRIDE)
        spare = min(told // _LITTLE, _STRIDE) if plan else 0
        if told <= self.number + spare:
            return None
        nap, until = _NAP, time.monotonic() + _PATIENCE
        while told > self._snapshot + max(spare, _FEW):
            if self.fold_for_all(told) or time.monotonic() > until:
                break
            if plan and 2 * max(self._snapshot, self.number) >= told:
                break  # it is being learnt; half of it will do for now
            time.sleep(nap)
            nap, (_, self._snapshot) = 2 * nap, self._log.progress()
        self._skip()
        if not plan or spare < told - self.number <= _FEW or self.number < told // 2:
            self._fold_to(told, _STRIDE)
        return None

    def fold_for_all(self, told: int) -> bool:
        """Fold so many episodes and leave a snapshot, unless another one is at it."""
        with self._log.learning() as mine:
            if mine:
                _, self._snapshot = self._log.progress()  # another one may just have done so
                self._skip()
                self._fold_to(told, _MANY)
            return mine

    def _forked(self) -> None:
        """Another thread may have been in the middle of an episode."""
        self._is_whole = False

    def _skip(self) -> None:
        """What a snapshot has learnt."""
        if self._snapshot >= self.number + _MANY:
            self._begin()

    def _fold_to(self, told: int, stride: int) -> None:
        while self.number < told:
            self.fold(self._log.after(self.number, min(_SOME, told - self.number)))
            if self.outgrown(self.number, stride) or self.number >= self._unread > 0:
                with suppress(StoreError):  # it makes opening quick, and can wait: a disk is full
                    self.leave_snapshot()

    def outgrown(self, number: int, stride: int = _STRIDE) -> bool:
        """Whether a log of so many episodes has outgrown its last snapshot."""
        stride = max(stride, self._size // _SIZE)
        if number >= self._snapshot + stride:
            _, self._snapshot = self._log.progress()
        return number >= self._snapshot + stride

    def leave_snapshot(self) -> None:
        """Of the agent as it is now."""
        content = agent_bytes(self.agent)
        self._log.add_snapshot(self.number, content)
        self._snapshot, self._size, self._unread = self.number, len(content), -1

    def fold(self, episodes: Iterable[Episode]) -> None:
        """Learn what comes next, in order."""
        with _folding.lock, warnings.catch_warnings():  # the one who told it was warned
            warnings.simplefilter("ignore", UserWarning)
            for one in episodes:
                assert one.number == self.number + 1
                try:
                    self.agent.tell(context_of(one.context), _episode(one), one.machine)
                except InputError:
                    self.unusable += 1
                self.number = one.number


def _episode(one: Episode) -> Trajectory:
    return episode_of(one.content, f"episode {one.number}")
