"""What is asked of many rows, keys or small triangles at once, in NumPy; cpp/ has it compiled.

`known` keys are hashes, and a hash table of them has the place of one of them in each of its slots,
or -1. A key is looked for from the slot on that its last bits name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray as Array

_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(columns: Sequence[Array]) -> Array:
    """A hash of each row of a table, its columns of floats or of hashes, in their order."""
    found = np.full(len(columns[0]), _ODD)
    for column in columns:
        bits = column
        if column.dtype != np.uint64:
            bits = (column + 0.0).astype(np.float64).view(np.uint64)  # -0.0 is 0.0
        found ^= bits
        mixed(found)
    return found


def digests(hashes: Array, starts: Array) -> Array:
    """A digest of every beginning of every stretch of rows, from the sum of its rows' hashes."""
    sums = np.cumsum(hashes)
    sums -= np.repeat(sums[starts] - hashes[starts], np.diff(starts, append=len(hashes)))
    return mixed(sums ^ _ODD)


def mixed(found: Array) -> Array:
    """The finaliser of SplitMix64, in place: every bit changes about half of all."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found ^= found >> np.uint64(shift)
        found *= np.uint64(factor)
    found ^= found >> np.uint64(31)
    return found


def column_ranges(columns: Sequence[Array], rows: Array) -> tuple[Array, Array]:
    """The least and the most of each column over some rows; NaN where one is not finite."""
    chosen = np.stack([column[rows] for column in columns])
    finite = np.where(np.isfinite(chosen).all(1), 0.0, np.nan)
    return chosen.min(1) + finite, chosen.max(1) + finite


def find_keys(known: Array, table: Array, wanted: Array) -> Array:
    """Where keys stand among the known ones, by a hash table of these; -1 if they do not."""
    mask = np.uint64(len(table) - 1)
    slots, found = wanted & mask, np.full(len(wanted), -1)
    left = np.arange(len(wanted))
    while len(left):
        places = table[slots[left]]
        left, places = left[places >= 0], places[places >= 0]
        same = known[places] == wanted[left]
        found[left[same]] = places[same]
        left = left[~same]
        slots[left] = (slots[left] + np.uint64(1)) & mask
    return found


def enter_keys(known: Array, table: Array, places: Array) -> None:
    """Enter known keys, those at some places, in a hash table; of equal ones the first is found.

    A slot of the table has the place of a key, or -1; there are more than keys entered, 2ᵏ.
    """
    mask = len(table) - 1
    for place in places.tolist():
        slot = int(known[place]) & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = place


def solve_lower(L: Array, right: Array) -> Array:
    """L⁻¹ right for right sides (n, q, k) and their lower triangles (n, q, q), or one for all."""
    found = np.array(right, float)
    for j in range(L.shape[-1]):
        found[:, j] /= L[:, j, j, None]
        found[:, j + 1 :] -= L[:, j + 1 :, j, None] * found[:, j, None]
    return found
