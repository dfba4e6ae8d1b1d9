"""Steps as the columns of a table, each with a context and the label of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt64
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.evidence.digests import row_hashes
from contextual_lqr.belief.evidence.episodes import RowLabels
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.context.dynamics import repeated
from contextual_lqr.errors import ContextError


class Runs(NamedTuple):
    """Rows that stand side by side, of one machine and one context."""

    starts: Int64[Array, " runs"]  # among the rows of the table
    lengths: Int64[Array, " runs"]
    labels: RowLabels
    G: Float[Array, "runs p y"]
    keys: Array  # what is kept of their contexts
    machines: UInt64[Array, " runs"]  # a hash of label and context


@dataclass(frozen=True)
class StepTable:
    """Columns of one length, d, m and d of them; of the rows, those `chosen`, or all.

    The others are as if they were not there; if rows are chosen, `contexts` is a mapping.
    """

    context_map: ContextMap
    contexts: Any
    labels: RowLabels
    states: Sequence[Array]
    inputs: Sequence[Array]
    next_states: Sequence[Array]
    chosen: Int64[Array, " some"] | None = None

    @cached_property
    def rows(self) -> Int64[Array, " some"]:
        """The places of the rows."""
        return np.arange(len(self.states[0])) if self.chosen is None else self.chosen

    @cached_property
    def moves(self) -> list[Array]:
        """The columns of y; of features, NaN in rows that are not chosen."""
        contexts, x, u = self.contexts, self.states, self.inputs
        if self.chosen is None or not isinstance(self.context_map, Dynamics):
            return self.context_map.moves(contexts, x, u)
        x, u = ([column[self.chosen] for column in part] for part in (x, u))
        found = self.context_map.moves(repeated(contexts, self.chosen), x, u)
        columns = np.full((len(found), len(self.states[0])), np.nan)
        columns[:, self.chosen] = found
        return list(columns)

    @property
    def columns(self) -> list[Array]:
        """Those of [y, x']."""
        return [*self.moves, *self.next_states]

    @cached_property
    def copied(self) -> tuple[int, ...]:
        """For each column of x', which column of y it is, as of a state that is the past; or -1."""
        places = {_where(column): j for j, column in enumerate(self.moves)}
        return tuple(places.get(_where(column), -1) for column in self.next_states)

    @cached_property
    def ranges(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The least and the most of each column of [y, x'] over the rows; NaN if not finite."""
        return kernels.column_ranges(self.columns, self.rows)

    @property
    def state_sizes(self) -> Float[Array, " k"]:
        """The largest of each column of [x, x']."""
        d = len(self.states)
        if isinstance(self.context_map, Dynamics):
            low, high = kernels.column_ranges([*self.states, *self.next_states], self.rows)
        else:
            low, high = (np.concatenate((end[:d], end[-d:])) for end in self.ranges)
        return np.asarray(np.maximum(-low, high))

    def encoded(self) -> tuple[list[Array], Int64[Array, " some"] | None]:
        """The columns of [z, x'], z = G y, and which of their rows are chosen."""
        if isinstance(self.context_map, Dynamics):  # z is y
            return self.columns, self.chosen
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # refused later
                z = self.context_map.encode(self.contexts, self.states, self.inputs)
                return [*z, *self.next_states], self.chosen
        except ContextError:
            if self.chosen is None:
                raise
        # Perhaps for a row that is not chosen.
        few = {name: np.asarray(values)[self.chosen] for name, values in self.contexts.items()}
        x, u, after = (
            [column[self.chosen] for column in part]
            for part in (self.states, self.inputs, self.next_states)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            return [*self.context_map.encode(few, x, u), *after], None

    @cached_property
    def follows(self) -> Bool[Array, " n"]:
        """Which rows of the columns are the step after the one above.

        They are if both are chosen, and the one starts exactly in the state where the other ends.
        """
        among = np.zeros(len(self.states[0]), bool)
        among[self.rows] = True
        follows = np.zeros(len(among), bool)
        follows[1:] = among[1:] & among[:-1]
        for x, after in zip(self.states, self.next_states, strict=True):
            if _where(x[1:]) != _where(after[:-1]):  # of logs, both are one array
                follows[1:] &= x[1:] == after[:-1]
        return follows

    @property
    def steps(self) -> Int64[Array, " n"]:
        """The number of each row in its episode."""
        places = np.arange(len(self.follows))
        return np.asarray(places - np.maximum.accumulate(np.where(self.follows, 0, places)))

    @cached_property
    def runs(self) -> Runs:
        """Without labels, episodes are told apart by where one step does not follow another."""
        rows, codes, contexts = self.rows, self.labels.codes[self.rows], self.contexts
        named = isinstance(contexts, Mapping)
        if named:
            values = [np.asarray(column)[rows] for column in contexts.values()]
        else:
            values = list(self.context_map.keys(contexts)[rows].reshape(len(rows), -1).T)
        begins = np.zeros(len(rows), bool)
        if self.labels.names.unnamed:
            unnamed = np.array([name is None for name in self.labels.names])
            begins = unnamed[codes] & ~self.follows[rows]
        for column in (codes, *values):
            begins[1:] |= column[1:] != column[:-1]
        begins[0] = True
        starts = np.flatnonzero(begins)
        firsts = rows[starts]
        few: Any = [contexts[i] for i in firsts] if not named else {}
        if named:
            few = {name: np.asarray(values)[firsts] for name, values in contexts.items()}
        labels = RowLabels(codes[starts], self.labels.names)
        lengths = np.diff(starts, append=len(rows))
        G = self.context_map.matrices(few)
        keys = self.context_map.keys(few, G)
        return Runs(starts, lengths, labels, G, keys, machine_hashes(labels.hashes, keys))


def machine_hashes(labels: UInt64[Array, " n"], keys: Array) -> UInt64[Array, " n"]:
    """Of machines, by hashes of their labels and their contexts: the same in every process."""
    values = keys.reshape(len(keys), -1) if keys.size else keys[:0]
    return row_hashes([labels, *values.T])


def _where(column: Array) -> tuple[Any, ...]:
    """Where an array is in memory, and how it lies there."""
    return column.__array_interface__["data"][0], column.strides, column.shape, column.dtype


@dataclass(frozen=True)
class EpisodeRows:
    """Episodes of one length, read as a table of their steps."""

    y: Float[Array, "n steps y"]
    after: Float[Array, "n steps d"]

    @property
    def rows(self) -> Int64[Array, " all"]:
        """The places of the rows."""
        return np.arange(self.y.shape[0] * self.y.shape[1])

    @property
    def copied(self) -> tuple[int, ...]:
        """As of a `StepTable`: what is played is not looked into."""
        return (-1,) * int(self.after.shape[2])

    @cached_property
    def moves(self) -> list[Array]:
        """The columns of y."""
        return list(np.ascontiguousarray(self.y.reshape(-1, self.y.shape[2]).T))

    @cached_property
    def next_states(self) -> list[Array]:
        """The columns of x'."""
        return list(np.ascontiguousarray(self.after.reshape(-1, self.after.shape[2]).T))

    @property
    def columns(self) -> list[Array]:
        """Those of [y, x']."""
        return [*self.moves, *self.next_states]

    @property
    def steps(self) -> Int64[Array, " all"]:
        """The number of each row in its episode."""
        return np.asarray(self.rows % self.y.shape[1])
