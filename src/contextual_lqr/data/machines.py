"""What each machine of a fleet says by itself, for the misfit alarm.

For every machine three triangular factors are kept, whatever the number of its rows:

    two of rows [z x'], of even and of odd steps: the one half is held out from the other;
    one of rows [z x' z₊ x'₊], a step beside the next: the correlation of successive residuals.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.factors import triangle
from contextual_lqr.context import ContextMap
from contextual_lqr.data.rows import Transitions

MOST_MACHINES = 2000
_MOST_NUMBERS = 32_000_000  # 256 MB of factors
_BLOCK = 8000  # numbers in a block of rows; see decoder.py


@dataclass
class Machine:
    """The factors of one machine, and how many rows they stand for."""

    label: str
    columns: int
    halves: list[Array] = field(default_factory=list)
    lagged: Array = field(default_factory=lambda: np.zeros((0, 0)))
    rows: list[int] = field(default_factory=lambda: [0, 0])
    pairs: int = 0
    ignored: int = 0
    episodes: int = 0

    def __post_init__(self) -> None:
        n = self.columns
        self.halves = [np.zeros((n, n)), np.zeros((n, n))]
        self.lagged = np.zeros((2 * n, 2 * n))

    @property
    def factor(self) -> Array:
        """The factor of all rows."""
        return triangle(*self.halves)

    def merge(self, later: Machine) -> None:
        """Take in the same machine's later rows."""
        self.halves = [triangle(*both) for both in zip(self.halves, later.halves, strict=True)]
        self.lagged = triangle(self.lagged, later.lagged)
        self.rows = [mine + its for mine, its in zip(self.rows, later.rows, strict=True)]
        self.pairs += later.pairs
        self.ignored += later.ignored
        self.episodes += later.episodes


class Machines:
    """The machines seen so far, told apart by their label or, without one, by their context."""

    def __init__(self, context_map: ContextMap, noise_level: float) -> None:
        self._map = context_map
        self._limit = noise_level / float(np.finfo(float).eps)  # as in Decoder
        self._numbers: dict[object, int] = {}
        self.found: list[Machine] = []
        self.too_many = False

    def add(self, batch: Transitions) -> None:
        """Take in some transitions; beyond the limit everything is forgotten."""
        if self.too_many:
            return
        whose = machine_of(batch)
        if len(self._numbers.keys() | whose.keys) > MOST_MACHINES:
            self.too_many = True
            self.found.clear()
            return
        z = self._map.encode(batch.contexts, list(batch.states.T), list(batch.inputs.T))
        rows = np.stack((*z, *batch.after.T)).T
        n = rows.shape[1]
        for key in whose.keys:
            if key not in self._numbers:
                self._numbers[key] = len(self.found)
                self.found.append(Machine(label_of(key, batch), n))
            if self._beyond(n):
                self.too_many = True
                self.found.clear()
                return
        numbers = [self._numbers[key] for key in whose.keys]
        small = np.abs(rows).max(1) <= self._limit
        order = np.argsort(whose.index, kind="stable")
        edges = np.searchsorted(whose.index[order], np.arange(len(numbers) + 1))
        even = batch.steps % 2 == 0
        for k, number in enumerate(numbers):
            at = order[edges[k] : edges[k + 1]]
            machine = self.found[number]
            machine.episodes += int(batch.begins[at].sum())
            machine.ignored += int((~small[at]).sum())
            at = at[small[at]]
            for half, which in enumerate((even[at], ~even[at])):
                machine.halves[half] = _with(machine.halves[half], rows[at[which]])
                machine.rows[half] += int(which.sum())
            later = at[batch.follows[at]]  # a row that follows the one before it is its pair
            later = later[small[later - 1]]
            pairs = np.concatenate((rows[later - 1], rows[later]), 1)
            machine.lagged = _with(machine.lagged, pairs)
            machine.pairs += len(later)

    def merge(self, later: Machines) -> None:
        """Take in what was learnt from the part of the logs that comes next."""
        self.too_many |= later.too_many
        for key, number in () if self.too_many else later._numbers.items():
            its = later.found[number]
            if key not in self._numbers:
                self._numbers[key] = len(self.found)
                self.found.append(copy(its))  # what is merged stays as it was
                self.too_many |= self._beyond(its.columns)
            else:
                self.found[self._numbers[key]].merge(its)
        if self.too_many:
            self.found.clear()

    def _beyond(self, n: int) -> bool:
        return len(self.found) > min(MOST_MACHINES, _MOST_NUMBERS // (6 * n * n))


@dataclass(frozen=True)
class Whose:
    """Which machines transitions are of."""

    keys: list[object]  # what tells them apart
    index: Array  # for each row, which of these it is


def machine_of(batch: Transitions) -> Whose:
    """Whose each transition is: by the column `machine`, or by equal contexts."""
    starts = np.flatnonzero(~batch.follows)
    keys: list[object]
    if batch.machines is not None:
        keys = [str(one) for one in batch.machines[starts]]
    else:
        values = [column[starts].tolist() for column in batch.contexts.values()]
        keys = list(zip(*values, strict=True))
    places: dict[object, int] = {}
    index = np.array([places.setdefault(key, len(places)) for key in keys], dtype=int)
    lengths = np.diff(np.append(starts, len(batch)))
    return Whose(list(places), np.repeat(index, lengths))


def label_of(key: object, batch: Transitions) -> str:
    """What a machine is called."""
    if not isinstance(key, tuple):
        return str(key)
    return ", ".join(f"{name}={value:g}" for name, value in zip(batch.contexts, key, strict=True))


def _with(factor: Array, rows: Array) -> Array:
    """The factor with more rows, in blocks that stay in the cache."""
    n = factor.shape[1]
    size = max(2 * n, _BLOCK // n - n)
    for i in range(0, len(rows), size):
        factor = triangle(factor, rows[i : i + size])
    return factor
