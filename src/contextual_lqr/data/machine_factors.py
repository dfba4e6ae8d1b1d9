"""What each machine of a fleet says by itself, for the misfit alarm.

For every machine three triangular factors are kept, however many rows it has:

    two of rows [z x'], of even and of odd steps: each half is held out from the other;
    one of rows [z x' z₊ x'₊], a step beside the next: the correlation of successive residuals.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.factors import triangle
from contextual_lqr.context import ContextMap
from contextual_lqr.data.transitions import Transitions

MOST_MACHINES = 2000
_MOST_NUMBERS = 32_000_000  # 256 MB of factors
_BLOCK = 8000  # numbers in a block of rows, which then stay in the cache


@dataclass
class MachineFactors:
    """The factors of one machine, and how many rows they stand for."""

    name: str
    halves: list[Array]
    lagged: Array
    rows: tuple[int, int] = (0, 0)
    pairs: int = 0
    ignored: int = 0
    episodes: int = 0

    @classmethod
    def empty(cls, name: str, columns: int) -> MachineFactors:
        """A machine of which no row has been seen."""
        halves = [np.zeros((columns, columns)) for _ in range(2)]
        return cls(name, halves, np.zeros((2 * columns, 2 * columns)))

    @property
    def factor(self) -> Array:
        """The factor of all rows."""
        return triangle(*self.halves)

    def merge(self, later: MachineFactors) -> None:
        """Take in later rows of the same machine."""
        self.halves = [triangle(*both) for both in zip(self.halves, later.halves, strict=True)]
        self.lagged = triangle(self.lagged, later.lagged)
        self.rows = (self.rows[0] + later.rows[0], self.rows[1] + later.rows[1])
        self.pairs += later.pairs
        self.ignored += later.ignored
        self.episodes += later.episodes


class FactorsByMachine:
    """The machines seen so far, by name; beyond a limit all of them are forgotten."""

    def __init__(self, context_map: ContextMap, noise_level: float) -> None:
        self._map = context_map
        self._limit = noise_level / float(np.finfo(float).eps)  # as in Decoder
        self._found: dict[str, MachineFactors] = {}
        p, d, _ = context_map.shape or (0, 0, 0)
        self._columns = p + d
        self._most = min(MOST_MACHINES, _MOST_NUMBERS // max(6 * (p + d) ** 2, 1))
        self.too_many = False

    @property
    def machines(self) -> list[MachineFactors]:
        """In the order in which they were seen first."""
        return list(self._found.values())

    def add(self, batch: Transitions) -> None:
        """Take in some transitions."""
        if self.too_many:
            return
        machines = batch.machines()
        names = machines.names or []
        if self._over(names):
            return
        contexts, states, inputs, after = batch.columns()
        rows = np.stack((*self._map.encode(contexts, states, inputs), *after)).T
        small = np.abs(rows).max(1) <= self._limit
        even, follows = batch.steps % 2 == 0, batch.follows
        order = np.argsort(machines.codes, kind="stable")
        edges = np.searchsorted(machines.codes[order], np.arange(len(names) + 1))
        for k, name in enumerate(names):
            at = order[edges[k] : edges[k + 1]]
            one = self._found.setdefault(name, MachineFactors.empty(name, self._columns))
            one.episodes += int(np.count_nonzero(batch.begins[at]))
            one.ignored += int(np.count_nonzero(~small[at]))
            at = at[small[at]]
            parts = at[even[at]], at[~even[at]]
            one.halves = [_with(f, rows[which]) for f, which in zip(one.halves, parts, strict=True)]
            one.rows = (one.rows[0] + len(parts[0]), one.rows[1] + len(parts[1]))
            later = at[follows[at]]  # a row that follows the one before it is its pair
            later = later[small[later - 1]]
            one.lagged = _with(one.lagged, np.concatenate((rows[later - 1], rows[later]), 1))
            one.pairs += len(later)

    def merge(self, later: FactorsByMachine) -> None:
        """Take in what was learnt from the part of the logs that comes next."""
        self.too_many |= later.too_many
        if self._over(later._found):
            return
        for name, one in later._found.items():
            if name in self._found:
                self._found[name].merge(one)
            else:
                self._found[name] = copy(one)  # what is merged stays as it was

    def _over(self, more: Iterable[str]) -> bool:
        """Whether there would be too many with these; then none is kept."""
        self.too_many |= len(self._found.keys() | more) > self._most
        if self.too_many:
            self._found.clear()
        return self.too_many


def _with(factor: Array, rows: Array) -> Array:
    """The factor with more rows, in blocks that stay in the cache."""
    n = factor.shape[1]
    size = max(2 * n, _BLOCK // n - n)
    for i in range(0, len(rows), size):
        factor = triangle(factor, rows[i : i + size])
    return factor
