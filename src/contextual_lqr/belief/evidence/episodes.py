"""Episodes as rows: many of equal length side by side, z = G y beside x', a label for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt64
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.digests import text_hashes
from contextual_lqr.belief.factors import block_rows
from contextual_lqr.checks import record, require
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.context.dynamics import repeated
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import Trajectory

Played = tuple[Array, Trajectory]  # places in a sequence, and the episodes that stand there


class Group(NamedTuple):
    """Episodes of one length, by their places in a sequence; y is what each step multiplies."""

    places: Int64[Array, " n"]
    states: Float[Array, "n H d"]
    y: Float[Array, "n steps y"]


def grouped(trajectories: Sequence[Trajectory] | Trajectory) -> list[Played]:
    """Episodes of equal sizes stacked into one, with their places in the sequence."""
    if isinstance(trajectories, Trajectory):
        if trajectories.states.ndim != 3:
            raise InputError(
                "update_many takes trajectories of shape (n, H, d), not "
                f"{trajectories.states.shape}"
            )
        return [(np.arange(len(trajectories.states)), trajectories)]
    places: dict[tuple[int, ...], list[int]] = {}
    for i, one in enumerate(trajectories):
        require(
            isinstance(one, Trajectory) and one.states.ndim == 2,
            f"trajectory {i} must be one episode, states of shape (H, d)",
        )
        places.setdefault((*one.states.shape, one.inputs.shape[1]), []).append(i)
    return [
        (
            np.array(members),
            _stacked(
                np.stack([trajectories[i].states for i in members]),
                np.stack([trajectories[i].inputs for i in members]),
            ),
        )
        for members in places.values()
    ]


def alone(trajectory: Trajectory) -> Played:
    """One episode as a group."""
    return np.zeros(1, np.int64), _stacked(trajectory.states[None], trajectory.inputs[None])


def encoded(context_map: ContextMap, contexts: Any, played: Sequence[Played]) -> list[Group]:
    """Episodes, each with its context, as what their steps multiply."""
    groups = []
    for places, one in played:
        own = repeated(contexts, places) if isinstance(context_map, Dynamics) else contexts
        y = context_map.episode_moves(own, one.states, one.inputs)
        groups.append(Group(places, one.states, y))
    return groups


def without_repeats(groups: Sequence[Group], known: Int64[Array, " n"]) -> list[Group]:
    """What is new of the groups: all but the first `known` steps of each of their episodes."""
    fresh, place = [], 0
    for members, states, y in groups:
        first = known[place : place + len(members)]
        place += len(members)
        for k in np.unique(first[first < y.shape[1]]):
            some = first == k
            fresh.append(Group(members[some], states[some, k:], y[some, k:]))
    return fresh


def rows_of(groups: Sequence[Group], G: Float[Array, "n p y"]) -> Iterator[Float[Array, "rows k"]]:
    """The rows [z x'] of all, in blocks that stay in the processor's cache."""
    for members, states, y in groups:
        columns = G.shape[1] + states.shape[2]
        size = max(1, block_rows(columns) // y.shape[1])
        for i in range(0, len(members), size):
            some = slice(i, i + size)
            yield episode_rows(G[members[some]], y[some], states[some, 1:])


def episode_rows(
    G: Float[Array, "*batch p y"], y: Float[Array, "*batch steps y"], after: Float[Array, ...]
) -> Float[Array, "rows k"]:
    """The rows [z x'] of episodes, z = G y."""
    p, d = G.shape[-2], after.shape[-1]
    rows = np.empty((*y.shape[:-1], p + d))
    with np.errstate(over="ignore", invalid="ignore"):  # refused later
        rows[..., :p] = y @ G.mT
    rows[..., p:] = after
    return rows.reshape(-1, p + d)


def sized_for(context_map: ContextMap, trajectory: Trajectory, name: str) -> ContextMap:
    """The map for machines of the trajectory's sizes, if both fit together."""
    if trajectory.states.shape[-2] < 2:
        raise InputError(f"{name}: states holds only one state, but an episode has at least two")
    d, m = trajectory.states.shape[-1], trajectory.inputs.shape[-1]
    if context_map.states in (None, d) and context_map.inputs in (None, m):
        sized = (context_map.states, context_map.inputs) == (d, m)
        return context_map if sized else context_map.sized(d, m)
    raise InputError(
        f"{name} has states of {d} coordinates and inputs of {m}, but the decoder is for "
        f"{context_map.states} and {context_map.inputs}"
    )


class Names(list[str | None]):
    """What machines are called, each hashed once for all rows; more may be appended."""

    _hashes: UInt64[Array, " n"] = np.zeros(0, np.uint64)  # of those that were looked at
    _unnamed = False  # whether there is a None among these

    @property
    def hashes(self) -> UInt64[Array, " n"]:
        """A hash of each."""
        if len(self._hashes) < len(self):
            more = self[len(self._hashes) :]
            self._unnamed |= None in more
            new = text_hashes([name or "" for name in more])
            self._hashes = np.concatenate((self._hashes, new))
        return self._hashes

    @property
    def unnamed(self) -> bool:
        """Whether some have no name."""
        return len(self.hashes) > 0 and self._unnamed


class RowLabels(NamedTuple):
    """The machines of a table's rows: row i is of `names[codes[i]]`; None is without a label."""

    codes: Int64[Array, " n"]
    names: Names

    @property
    def hashes(self) -> UInt64[Array, " n"]:
        """A hash of each label."""
        return np.asarray(self.names.hashes[self.codes])

    @property
    def unnamed(self) -> Bool[Array, " n"] | None:
        """Which have none, if there are any."""
        if not self.names.unnamed:
            return None
        return np.asarray(np.array([name is None for name in self.names])[self.codes])

    @classmethod
    def of(cls, machine: Any, count: int) -> RowLabels:
        """One label for all rows, or one for each."""
        if isinstance(machine, RowLabels):
            return machine
        numbers: dict[str | None, int] = {}
        labels = machine_labels(machine, count, "rows")
        codes = [numbers.setdefault(label, len(numbers)) for label in labels]
        return cls(np.array(codes, np.int64), Names(numbers))


def machine_labels(machine: Any, count: int, of: str) -> list[str | None]:
    """A label for each, or None: each episode is another machine."""
    if machine is None or isinstance(machine, str):
        return [machine] * count
    labels = list(machine)
    require(len(labels) == count, f"there are {count} {of}, but {len(labels)} labels in machine")
    return [None if label is None else str(label) for label in labels]


def _stacked(states: Float[Array, "n H d"], inputs: Float[Array, "n steps m"]) -> Trajectory:
    return record(object.__new__(Trajectory), states=states, inputs=inputs)
