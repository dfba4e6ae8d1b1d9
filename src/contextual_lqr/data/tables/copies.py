"""Stretches of rows that are in the logs twice: at other steps, in another episode or file.

Exports overlap, and rows are pasted twice. A transition is hashed without its step, and so is each
window of LENGTH successive ones. A run of rows is a copy if

- all its windows were there before: the same rows in the same order
- chance does not explain that: coarse sensors and switches have few values, so that transitions
  recur, and short runs of them too. Each transition counts by the share of its windows that are in
  the run, 1 if it is nowhere else, or OFTEN times in it; a copy has LENGTH of these. Rows at rest
  are no copies either

Up to LIMIT windows are remembered, sorted by the transition that they begin with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int, UInt64
from numpy import ndarray as Array

LENGTH = 20
OFTEN = 16  # that many times LENGTH rows in the same order are no chance
LIMIT = 1 << 22  # 32 MiB
_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)  # bits of a key: the upper ones say which transition, the others which window
_LOWER = np.uint64((1 << 32) - 1)


class SeenRows:
    """The keys of windows that were seen, in sorted blocks, each larger than the next."""

    def __init__(self, blocks: Sequence[UInt64[Array, " n"]] = ()) -> None:
        self._blocks = list(blocks)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def copy(self) -> SeenRows:
        """The same; blocks are never changed."""
        return SeenRows(self._blocks)

    def among(self, keys: UInt64[Array, " n"]) -> Bool[Array, " n"]:
        """Which of these were seen."""
        found = np.zeros(len(keys), bool)
        for block in self._blocks:
            at = np.minimum(np.searchsorted(block, keys), len(block) - 1)
            found |= block[at] == keys
        return found

    def beginning(self, hashes: UInt64[Array, " n"]) -> Int[Array, " n"]:
        """How many different windows begin with each of these transitions."""
        first = hashes & ~_LOWER
        count = np.zeros(len(hashes), np.int64)
        for block in self._blocks:
            count += np.searchsorted(block, first | _LOWER, "right")
            count -= np.searchsorted(block, first)
        return count

    def add(self, keys: UInt64[Array, " n"]) -> None:
        """Take in what was not seen, as long as there is room."""
        keys = _distinct(keys)[: max(LIMIT - len(self), 0)]
        if not len(keys):
            return
        self._blocks.append(keys)
        while len(self._blocks) > 1 and len(self._blocks[-1]) * 2 > len(self._blocks[-2]):
            last = self._blocks.pop()
            self._blocks[-1] = np.sort(np.concatenate((self._blocks[-1], last)))

    def merge(self, other: SeenRows) -> None:
        """Take in what another has seen."""
        for block in other._blocks:
            self.add(block[~self.among(block)])

    def overlaps(self, other: SeenRows) -> bool:
        """Whether one may hold a copy of the other's."""
        return any(bool(self.among(block).any()) for block in other._blocks)


def _distinct(keys: UInt64[Array, " n"]) -> UInt64[Array, " k"]:
    """Sorted, each once: a plain sort is several times quicker than `np.unique`."""
    ordered = np.sort(keys)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def windows(
    hashes: UInt64[Array, " n"], begins: Bool[Array, " n"]
) -> tuple[UInt64[Array, " k"], Int[Array, " k"]]:
    """The keys of all windows in which nothing begins but with the first, and where they start."""
    if len(hashes) < LENGTH:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    begun = np.cumsum(begins)
    starts = np.flatnonzero(begun[LENGTH - 1 :] == begun[: len(begun) - LENGTH + 1])
    keys = np.zeros(len(hashes) - LENGTH + 1, np.uint64)
    for k in range(LENGTH):
        keys *= _ODD
        keys += hashes[k : k + len(keys)]
    keys ^= keys >> _HALF  # products carry bits upwards only
    keys *= _ODD
    return hashes[starts] & ~_LOWER | keys[starts] >> _HALF, starts


def copied_runs(
    hashes: UInt64[Array, " n"],
    begins: Bool[Array, " n"],
    before: Sequence[SeenRows],
) -> tuple[list[tuple[int, int]], UInt64[Array, " k"]]:
    """The runs of rows, from and to, that were there before: among others, or among these.

    And the windows that are new, and begin in other rows.
    """
    keys, starts = windows(hashes, begins)
    seen = np.zeros(len(keys), bool)
    if len(_distinct(keys)) < len(keys):
        _, first, each = np.unique(keys, return_index=True, return_inverse=True)
        seen = first[each] < np.arange(len(keys))
    for rows in before:
        seen |= rows.among(keys)
    if not seen.any():
        return [], keys
    # How many windows that are seen cover each row; none of them reaches over a beginning.
    ahead = np.zeros(len(hashes) + 1, np.int64)
    ahead[starts[seen]] += 1
    ahead[starts[seen] + LENGTH] -= 1
    covered = np.cumsum(ahead[:-1]) > 0
    here = SeenRows([_distinct(keys[~covered[starts]])])
    opens = covered & (begins | ~np.append(False, covered[:-1]))
    closes = covered & np.append(opens[1:] | ~covered[1:], True)
    found, copied = [], np.zeros(len(hashes), bool)
    for a, b in np.stack((np.flatnonzero(opens), np.flatnonzero(closes) + 1), 1).tolist():
        some, times = np.unique(hashes[a:b], return_counts=True)
        everywhere = sum(rows.beginning(some) for rows in (here, *before))
        if np.minimum(times / np.clip(everywhere, 1, OFTEN), 1).sum() >= LENGTH:
            copied[a:b] = True
            found.append((a, b))
    return found, keys[~seen & ~copied[starts]]
