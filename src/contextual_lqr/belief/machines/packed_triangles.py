"""Packed triangles, one a machine, in blocks: they grow without being moved or taking more room.

A copy shares the blocks, as does whoever takes them over from another; whoever writes into a shared
block first copies it. So joining the parts of a million machines takes the memory of all of them
only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int64
from numpy import ndarray as Array

from contextual_lqr.belief.factors import take_rows

BLOCK = 4096  # triangles at most
_NUMBERS = 1 << 19  # in a block at most
_MERGED = 1 << 16  # numbers of triangles that are merged at once


class Written(NamedTuple):
    """Triangles of one block that take in rows of a table."""

    block: Float[Array, "room numbers"]
    which: slice  # of the triangles that were asked for
    rows: slice  # of all rows, those that they take in
    ends: Int64[Array, " some"]  # where those of each end among these
    at: Int64[Array, " some"]  # where each is in the block


class PackedTriangles:
    """Triangles of so many numbers each, by their places."""

    def __init__(self, numbers: int) -> None:
        self.numbers = numbers
        self._blocks: list[Float[Array, "room numbers"]] = []
        self._ends = np.zeros(0, np.int64)  # place after the last triangle of each block
        self._own: list[bool] = []  # which blocks may be written into

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def copy(self) -> PackedTriangles:
        """An independent twin."""
        twin = PackedTriangles(self.numbers)
        twin.extend(self)
        return twin

    def grow(self, count: int) -> None:
        """So many more at the end, of zeros."""
        while count > 0:
            used = self._used(-1) if self._blocks else 0
            if not self._blocks or not self._own[-1] or used == len(self._blocks[-1]):
                room = min(BLOCK, max(1, _NUMBERS // self.numbers))
                self._add(np.zeros((room, self.numbers)), 0, own=True)
                used = 0
            more = min(count, len(self._blocks[-1]) - used)
            self._ends[-1] += more
            count -= more

    def extend(self, other: PackedTriangles) -> None:
        """Take over the triangles of another, which keeps them."""
        for i, block in enumerate(other._blocks):
            self._add(block, other._used(i), own=False)
        other._own = [False] * len(other._blocks)

    def take(self, at: Int[Array, " k"]) -> Float[Array, "k numbers"]:
        """Those at some places."""
        found = np.empty((len(at), self.numbers))
        for i, some, within in self._grouped(at):
            if isinstance(some, slice):
                np.take(self._blocks[i], within, 0, out=found[some], mode="clip")
            else:
                found[some] = self._blocks[i][within]
        return found

    def written(self, at: Int[Array, " k"], ends: Int64[Array, " k"]) -> Iterator[Written]:
        """Block by block, those at ascending places, to take rows in: each up to its end."""
        for i, some, within in self._grouped(at):
            assert isinstance(some, slice), "places must rise"
            first = int(ends[some.start - 1]) if some.start else 0
            rows = slice(first, int(ends[some.stop - 1]))
            yield Written(self._writable(i), some, rows, ends[some] - first, within)

    def put(self, at: Int[Array, " k"], triangles: Float[Array, "k numbers"]) -> None:
        """Write over those at some places."""
        for i, some, within in self._grouped(at):
            self._writable(i)[within] = triangles[some]

    def merge(self, at: Int[Array, " k"], others: Float[Array, "k numbers"], size: int) -> None:
        """Take the rows of other triangles, of `size` columns, into those at ascending places."""
        together = max(1, _MERGED // size**2)
        for k in range(0, len(at), together):
            some, n, first = slice(k, k + together), len(at[k : k + together]), 0
            table = np.zeros((size, n, size))  # of columns: the rows of one triangle after another
            for i in range(size):
                table[i:, :, i] = others[some, first : first + size - i].T
                first += size - i
            columns, rows, ends = list(table.reshape(size, -1)), np.arange(n * size), np.arange(n)
            for one in self.written(at[some], (ends + 1) * size):
                take_rows(one.block, columns, rows[one.rows], one.ends, np.inf, one.at)

    def blocks(self) -> Iterator[Float[Array, "n numbers"]]:
        """All of them, in their order."""
        return (block[: self._used(i)] for i, block in enumerate(self._blocks))

    def array(self) -> Float[Array, "n numbers"]:
        """All of them, as one array."""
        return np.concatenate([np.zeros((0, self.numbers)), *self.blocks()])

    def _add(self, block: Float[Array, "room numbers"], used: int, *, own: bool) -> None:
        self._blocks.append(block)
        self._ends = np.append(self._ends, len(self) + used)
        self._own.append(own)

    def _writable(self, i: int) -> Float[Array, "room numbers"]:
        if not self._own[i]:
            shared, used = self._blocks[i], self._used(i)
            self._blocks[i], self._own[i] = np.zeros(shared.shape), True  # no memory until used
            self._blocks[i][:used] = shared[:used]
        return self._blocks[i]

    def _used(self, i: int) -> int:
        starts = np.append(0, self._ends[:-1])
        return int(self._ends[i] - starts[i])

    def _grouped(
        self, at: Int[Array, " k"]
    ) -> Iterator[tuple[int, Array | slice, Int[Array, " some"]]]:
        """Block by block: which of the places are there, and where in the block."""
        starts = np.append(0, self._ends)
        if (at[1:] >= at[:-1]).all():  # as they mostly are, and slices are quicker
            cuts = np.searchsorted(at, starts)
            for i in np.flatnonzero(np.diff(cuts)).tolist():
                some = slice(int(cuts[i]), int(cuts[i + 1]))
                yield i, some, at[some] - starts[i]
            return
        which = np.searchsorted(self._ends, at, "right")
        for i in np.unique(which).tolist():
            chosen = which == i
            yield i, chosen, at[chosen] - starts[i]
