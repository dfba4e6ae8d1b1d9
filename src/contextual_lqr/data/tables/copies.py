"""Stretches of rows that are in the logs twice: at other steps, in another episode or file.

Exports overlap, and rows are pasted twice. A transition is hashed without its step; a run of at
least LENGTH different ones, each of which was there before, is a copy. Rows at rest are alike, and
are no copies. Up to LIMIT transitions are remembered, of runs that are long enough to be copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, UInt64
from numpy import ndarray as Array

LENGTH = 20
LIMIT = 1 << 22  # 32 MiB


class SeenRows:
    """The hashes of transitions that were seen, in sorted blocks, each larger than the next."""

    def __init__(self, blocks: Sequence[UInt64[Array, " n"]] = ()) -> None:
        self._blocks = list(blocks)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def copy(self) -> SeenRows:
        """The same; blocks are never changed."""
        return SeenRows(self._blocks)

    def among(self, hashes: UInt64[Array, " n"]) -> Bool[Array, " n"]:
        """Which of these were seen."""
        found = np.zeros(len(hashes), bool)
        for block in self._blocks:
            at = np.minimum(np.searchsorted(block, hashes), len(block) - 1)
            found |= block[at] == hashes
        return found

    def add(self, hashes: UInt64[Array, " n"]) -> None:
        """Take these in, as long as there is room."""
        hashes = _distinct(hashes)[: max(LIMIT - len(self), 0)]
        if not len(hashes):
            return
        self._blocks.append(hashes)
        while len(self._blocks) > 1 and len(self._blocks[-1]) * 2 > len(self._blocks[-2]):
            last = self._blocks.pop()
            self._blocks[-1] = _distinct(np.concatenate((self._blocks[-1], last)))

    def merge(self, other: SeenRows) -> None:
        """Take in what another has seen."""
        for block in other._blocks:
            self.add(block)

    def overlaps(self, other: SeenRows) -> bool:
        """Whether both have seen so many that one may hold a copy of the other's."""
        return sum(int(self.among(block).sum()) for block in other._blocks) >= LENGTH


def _distinct(hashes: UInt64[Array, " n"]) -> UInt64[Array, " k"]:
    """Sorted, each once: a plain sort is several times quicker than `np.unique`."""
    ordered = np.sort(hashes)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def long_runs(begins: Bool[Array, " n"]) -> Bool[Array, " n"]:
    """Which rows are in runs that are long enough to be copies; a run ends where another begins."""
    starts = np.flatnonzero(np.append(True, begins[1:]))
    lengths = np.diff(np.append(starts, len(begins)))
    return np.repeat(lengths >= LENGTH, lengths)


def copied_runs(
    hashes: UInt64[Array, " n"], begins: Bool[Array, " n"], before: Sequence[SeenRows]
) -> list[tuple[int, int]]:
    """The runs of rows, from and to, that were there before: among others, or among these."""
    seen = np.zeros(len(hashes), bool)
    if len(_distinct(hashes)) < len(hashes):
        _, first, each = np.unique(hashes, return_index=True, return_inverse=True)
        seen = first[each] < np.arange(len(hashes))
    for rows in before:
        seen |= rows.among(hashes)
    if np.count_nonzero(seen) < LENGTH:
        return []
    edges = np.flatnonzero(np.diff(seen, prepend=False, append=False) != 0)
    runs: list[tuple[int, int]] = []
    for a, b in edges.reshape(-1, 2).tolist():
        cuts = [a, *(a + 1 + np.flatnonzero(begins[a + 1 : b])).tolist(), b]
        runs += pairwise(cuts)
    return [(a, b) for a, b in runs if b - a >= LENGTH and len(np.unique(hashes[a:b])) >= LENGTH]
