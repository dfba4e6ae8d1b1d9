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
from contextual_lqr.belief.episodes import RowLabels
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.context.dynamics import repeated
from contextual_lqr.errors import ContextError

_SQUARED = 1e75  # whose square has a square that is a number


class Runs(NamedTuple):
    """Rows that stand side by side, of one machine and one context."""

    starts: Int64[Array, " runs"]  # among the rows of the table
    lengths: Int64[Array, " runs"]
    names: list[str | None]
    hashes: UInt64[Array, " runs"]  # of the names
    G: Float[Array, "runs p y"]
    keys: Array  # what is kept of their contexts


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
            follows[1:] &= x[1:] == after[:-1]
        return follows

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
        if None in self.labels.names:
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
        names = [self.labels.names[code] for code in codes[starts].tolist()]
        hashes = self.labels.names.hashes[codes[starts]]
        lengths = np.diff(starts, append=len(rows))
        G = self.context_map.matrices(few)
        return Runs(starts, lengths, names, hashes, G, self.context_map.keys(few, G))

    def lagged(self, rows: Int64[Array, " some"], limit: float) -> list[Array]:
        """The columns of `lagged_rows`; NaN in rows where a number is beyond the limit."""
        y, after, before = (
            np.array([column[at] for column in columns])
            for columns, at in (
                (self.moves, rows),
                (self.next_states, rows),
                (self.moves, rows - 1),
            )
        )
        places = np.arange(len(self.follows))
        step = places - np.maximum.accumulate(np.where(self.follows, 0, places))
        return _lagged(y, np.where(self.follows[rows], before, y), step[rows], after, limit)


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

    @property
    def columns(self) -> list[Array]:
        """Those of [y, x']."""
        table = np.concatenate((self.y, self.after), -1)
        return list(np.ascontiguousarray(table.reshape(-1, table.shape[-1]).T))

    def lagged(self, rows: Int64[Array, " some"], limit: float) -> list[Array]:
        """As of a `StepTable`."""
        before = np.concatenate((self.y[:, :1], self.y[:, :-1]), 1)
        y, before, after = (
            np.ascontiguousarray(part.reshape(-1, part.shape[-1])[rows].T)
            for part in (self.y, before, self.after)
        )
        return _lagged(y, before, rows % self.y.shape[1], after, limit)


def lagged_rows(
    y: Float[Array, "*episodes steps y"], after: Float[Array, "*episodes steps d"]
) -> Float[Array, "*episodes steps k"]:
    """The rows [y, y⁻, sign y, y |y|, |y|, 1, t y, sign (u - u⁻), x'] of episodes, t = 0, 1, …

    The first is its own step before, as if the machine had stood there: 0 would be a jump, and tell
    more than all other steps.
    """
    before = np.concatenate((y[..., :1, :], y[..., :-1, :]), -2)
    step, d = np.arange(y.shape[-2])[:, None], after.shape[-1]
    return np.concatenate((y, before, *_curves(y, before, step, d, -1), after), -1)


def lagged_size(y: int, d: int) -> int:
    """How many columns they have; of features, which may be fewer than states, none is tested."""
    return 6 * y + 1 + max(y - d, 0) + d


def _curves(y: Array, before: Array, step: Array, d: int, axis: int) -> tuple[Array, ...]:
    """What no linear law has, in any units: functions of y, of the step, and of where u goes."""
    size, one = np.abs(y), np.ones_like(y.take([0], axis))
    turns = np.sign(y - before).take(range(d, y.shape[axis]), axis)
    return np.sign(y), y * size, size, one, step * y, turns


def _lagged(y: Array, before: Array, step: Array, after: Array, limit: float) -> list[Array]:
    most = np.abs(np.concatenate((y, before, after))).max(0)
    y = np.where(most <= min(limit, _SQUARED), y, np.nan)
    return [*y, *before, *np.concatenate(_curves(y, before, step, len(after), 0)), *after]
