"""How large what was logged is: the ranges of states and inputs, and of the context matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.episodes import Group
from contextual_lqr.belief.evidence.step_table import StepTable
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap
from contextual_lqr.context.dynamics import repeated

_CHUNK = 4096  # contexts at a time


@dataclass(frozen=True, eq=False)
class Logged:
    """The range of y = [x; u] over all rows, and that of |G|, where it is not 0, of contexts."""

    low: Float[Array, " y"]
    high: Float[Array, " y"]
    least: Float[Array, "p y"]
    most: Float[Array, "p y"]

    @classmethod
    def of_episodes(
        cls, groups: Sequence[Group], G: Float[Array, "n p y"], limit: float
    ) -> Logged | None:
        """Of episodes, their rows beyond the limit left out; None if nothing remains."""
        found: Logged | None = None
        for members, _, moves in groups:
            y = moves.reshape(-1, moves.shape[-1])
            if not np.abs(y).max() <= limit:
                y = y[np.abs(y).max(1) <= limit]
            if len(y):
                found = cls(y.min(0), y.max(0), *range_of(G[members])).merged(found)
        return found

    @classmethod
    def of_table(
        cls,
        table: StepTable,
        limit: float,
        before: Logged | None,
        seen: Bool[Array, " runs"] | None,
    ) -> Logged | None:
        """Of a table that was cut in runs; None if a number of [y, x'] or z is beyond the limit.

        `before` has the matrices of runs that were `seen`, and does for these.
        """
        low, high = table.ranges
        y = len(table.moves)
        after = np.maximum(-low, high)[y:].max()
        low, high = low[:y], high[:y]
        G, sizes = table.runs.G, np.maximum(-low, high)
        if before is None or seen is None or not seen.any():
            found = cls(low, high, *range_of(G))
        else:
            found = cls(low, high, before.least, before.most)
            if not seen.all():
                found = found.merged(cls(low, high, *range_of(G[~seen])))
        with np.errstate(over="ignore"):
            most = np.max([after, sizes.max(), (found.most @ sizes).max()])
        return found if most <= limit else None

    @classmethod
    def of_columns(
        cls,
        columns: Sequence[Float[Array, " n"]],
        chosen: Int64[Array, " some"] | None,
        context_map: ContextMap,
        contexts: Any,
        limit: float,
    ) -> Logged | None:
        """Of a table's rows, or those chosen, by the columns of y; None if nothing remains."""
        rows = np.arange(len(columns[0])) if chosen is None else chosen
        y = [column if chosen is None else column[chosen] for column in columns]
        low, high = _ends(y)
        if not max(-low.min(), high.max()) <= limit:
            good = np.max([np.abs(column) for column in y], axis=0) <= limit
            rows = rows[good]
            if not len(rows):
                return None
            low, high = _ends([column[good] for column in y])
        new = np.ones(len(rows), bool)  # where the context is not that of the row above
        if isinstance(contexts, Mapping):
            new[1:] = False
            for values in contexts.values():
                own = np.asarray(values)[rows]
                new[1:] |= own[1:] != own[:-1]
        rows = rows[new]
        ends: list[tuple[Array, Array]] = []
        for i in range(0, len(rows), _CHUNK):
            some = rows[i : i + _CHUNK]
            ends.append(range_of(context_map.matrices(repeated(contexts, some))))
        least, most = (np.array(each) for each in zip(*ends, strict=True))
        return cls(low, high, least.min(0), most.max(0))

    def merged(self, other: Logged | None) -> Logged:
        """Of the rows of both."""
        if other is None:
            return self
        return Logged(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            np.minimum(self.least, other.least),
            np.maximum(self.most, other.most),
        )

    def within(self, edge: Float[Array, " y"]) -> Logged:
        """Of rows that are no larger."""
        low, high = (np.clip(end, -edge, edge) for end in (self.low, self.high))
        return replace(self, low=low, high=high)

    @cached_property
    def G(self) -> Float[Array, "p y"]:
        """A usual |G|."""
        return middle_of(self.least, self.most)

    def array(self) -> Float[Array, "q y"]:
        """All that there is to save."""
        least = np.where(np.isfinite(self.least), self.least, -1.0)
        return np.concatenate((self.low[None], self.high[None], least, self.most))

    @classmethod
    def from_array(cls, array: Array, p: int) -> Logged:
        """What `array` gave."""
        good = array.ndim == 2 and len(array) == 2 * p + 2 and array.dtype == np.float64
        require(good and np.isfinite(array).all(), "its range of states and inputs does not fit")
        least, most = array[2 : p + 2], array[p + 2 :]
        return cls(array[0], array[1], np.where(least < 0, np.inf, least), most)


def _ends(columns: Sequence[Float[Array, " n"]]) -> tuple[Array, Array]:
    """The least and the most of each."""
    return np.array([one.min() for one in columns]), np.array([one.max() for one in columns])


def range_of(G: Float[Array, "n p y"]) -> tuple[Float[Array, "p y"], Float[Array, "p y"]]:
    """The least |G| that is not 0, infinite if there is none, and the most."""
    size = np.abs(G)
    least, most = size.min(0), size.max(0)
    if (some := (least == 0) & (most > 0)).any():  # 0 of some contexts
        few = size[:, some]
        least[some] = np.where(few > 0, few, np.inf).min(0)
    return np.where(most > 0, least, np.inf), most


def middle_of(least: Float[Array, "p y"], most: Float[Array, "p y"]) -> Float[Array, "p y"]:
    """The geometric middle; 0 where |G| always is."""
    return np.where(most > 0, np.sqrt(np.where(most > 0, least, 0.0)) * np.sqrt(most), 0.0)
