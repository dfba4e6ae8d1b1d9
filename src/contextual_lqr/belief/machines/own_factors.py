"""The factors of [y, x'] of machines, without the columns that say nothing new.

A state that is an earlier output or input is, a step later, a column of y: x'_r = y_j in all rows.
Then Qᵀx'_r is column j of R, and nothing is left over. Of seven states that are a history of one
output and one input, six are such copies, and a factor takes 45 numbers instead of 120.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array

from contextual_lqr.belief.factors import packed_size, unpacked
from contextual_lqr.belief.machines.packed_triangles import PackedTriangles

Copied = tuple[int, ...]  # for each state, which column of y its x' is; -1 if it is none


class OwnFactors:
    """One factor a machine, of columns that are the same for all."""

    def __init__(self, states: int, width: int) -> None:
        self.states, self.width = states, width
        self.copied: Copied | None = None  # once there are rows
        self.triangles = PackedTriangles(packed_size(self.size))

    @property
    def free(self) -> list[int]:
        """The states of which there is something to keep."""
        copied = self.copied or (-1,) * self.states
        return [r for r, column in enumerate(copied) if column < 0]

    @property
    def size(self) -> int:
        """How many columns are kept."""
        return self.width + len(self.free)

    def copy(self) -> OwnFactors:
        """An independent twin."""
        twin = OwnFactors(self.states, self.width)
        twin.copied, twin.triangles = self.copied, self.triangles.copy()
        return twin

    def kept(self, columns: Sequence[Array]) -> list[Array]:
        """Of the columns of [y, x'], those that are kept."""
        return [*columns[: self.width], *(columns[self.width + r] for r in self.free)]

    def require(self, copied: Copied | None) -> None:
        """Be fit for rows with these copies; for rows that differ in them, keep all columns."""
        if copied is None or copied == self.copied:
            return
        if self.copied is None:
            count, self.copied = len(self.triangles), copied
            self.triangles = PackedTriangles(packed_size(self.size))
            self.triangles.grow(count)
        elif max(self.copied) >= 0:
            upper = ~np.tri(self.width + self.states, k=-1, dtype=bool)
            whole = PackedTriangles(int(upper.sum()))
            for block in self.triangles.blocks():
                first = len(whole)
                whole.grow(len(block))
                whole.put(np.arange(first, len(whole)), self._whole(block)[:, upper])
            self.copied, self.triangles = (-1,) * self.states, whole

    def whole(self, at: Int64[Array, " n"]) -> Float[Array, "n s s"]:
        """The factors of all columns, of some machines."""
        return self._whole(self.triangles.take(at))

    def _whole(self, packed: Float[Array, "n numbers"]) -> Float[Array, "n s s"]:
        y, own = self.width, unpacked(packed, self.size)
        if self.copied is None or max(self.copied) < 0:
            return own
        whole = np.zeros((len(own), y + self.states, y + self.states))
        at = y + np.array(self.free, np.int64)
        whole[:, :y, :y], whole[:, :y, at] = own[:, :y, :y], own[:, :y, y:]
        whole[:, at[:, None], at] = own[:, y:, y:]
        for r, column in enumerate(self.copied):
            if column >= 0:
                whole[:, :y, y + r] = own[:, :y, column]
        return whole
