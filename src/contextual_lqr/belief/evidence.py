"""Which episodes a belief has taken in, so that none is counted twice.

Every episode, or stretch of one in a log, has a digest of 64 bits, and a belief keeps those it has
seen, sorted: up to LIMIT of them, all; beyond, the LIMIT smallest. Digests are uniform, so these
are a fair sample, and the same whatever the order in which episodes came and beliefs were merged.
What is kept is exact:

    a repeat is noticed     always, up to LIMIT episodes; beyond, a log of r episodes that is told
                            again goes unnoticed with a probability of (1 - coverage)ʳ
    a new episode is taken for a repeat     with a probability below LIMIT / 2⁶⁴ = 7e-15
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from jaxtyping import Bool, UInt64
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.errors import FormatError

LIMIT = 1 << 17  # digests, a mebibyte
_ODD = np.uint64(0x9E3779B97F4A7C15)


def episode_digests(*parts: ArrayLike) -> UInt64[Array, " n"]:
    """A digest for each of n episodes from the numbers that make it up.

    Each part (contexts or their matrices, states, inputs) has the episodes on its first axis. An
    episode has the same digest alone as among others.
    """
    # Adding zero makes -0.0 and 0.0 the same bits, as they are the same numbers.
    arrays = [np.ascontiguousarray(np.asarray(part, "<f8") + 0.0) for part in parts]
    sizes = repr([array.shape[1:] for array in arrays]).encode()
    found = bytearray()
    for numbers in zip(*arrays, strict=True):
        digest = blake2b(sizes, digest_size=8)
        for one in numbers:
            digest.update(one)
        found += digest.digest()
    return np.frombuffer(bytes(found), "<u8").astype(np.uint64)


def table_digest(
    factor: Array | None, columns: Sequence[Array], chosen: Array | None
) -> UInt64[Array, " 1"]:
    """The digest of a table, or of rows chosen from it: of their factor or, without one, of them.

    The factor of the same rows is the same to the bit; that of others is not.
    """
    if factor is not None:
        return episode_digests(factor[None])
    rows = (one if chosen is None else one[chosen] for one in columns)
    return episode_digests(*(np.asarray(one)[None] for one in rows))


def text_hashes(texts: Sequence[str]) -> UInt64[Array, " n"]:
    """A hash of each text."""
    found = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(found, "<u8").astype(np.uint64)


def row_hashes(columns: Sequence[Array]) -> UInt64[Array, " n"]:
    """A hash of each row of a table, its columns of floats or of hashes, in their order.

    A hundred times quicker than digests of rows one by one, for those who do not want to deceive.
    """
    found = np.full(len(columns[0]), _ODD)
    moved = np.empty_like(found)
    for column in columns:
        bits = column if column.dtype == np.uint64 else _bits(column)
        found ^= bits
        _mix(found, moved)
    return found


def stretch_digests(sums: UInt64[Array, " n"]) -> UInt64[Array, " n"]:
    """The digests of stretches, each from the sum of the hashes of its rows.

    A sum, modulo 2⁶⁴: rows may be hashed in pieces. Their order is in them, as their steps are.
    """
    found = sums ^ _ODD
    _mix(found, np.empty_like(found))
    return found


def _bits(column: Array) -> UInt64[Array, " n"]:
    return (column + 0.0).astype(np.float64, copy=False).view(np.uint64)  # -0.0 is 0.0


def _mix(found: UInt64[Array, " n"], moved: UInt64[Array, " n"]) -> None:
    """Let every bit change about half of all, in place (the finaliser of SplitMix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        np.right_shift(found, np.uint64(shift), out=moved)
        found ^= moved
        found *= np.uint64(factor)
    np.right_shift(found, np.uint64(31), out=moved)
    found ^= moved


class Digests:
    """The digests of the episodes that were taken in."""

    def __init__(self) -> None:
        self._kept = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def coverage(self) -> float:
        """The share of all episodes whose repeats would be noticed; 1 until LIMIT is reached."""
        return 1.0 if len(self) < LIMIT else (int(self._kept[-1]) + 1) / 2**64

    def known(self, digests: ArrayLike) -> Bool[Array, " n"]:
        """Which of these have been here, or stand before in the same list; nothing is added."""
        given = np.atleast_1d(np.asarray(digests, np.uint64))
        found, first = np.unique(given, return_index=True)
        repeated = np.ones(len(given), bool)
        repeated[first] = self._has(found)
        return repeated

    def add(self, digests: ArrayLike) -> Bool[Array, " n"]:
        """Take these in, and say as `known` which of them are repeats."""
        repeated = self.known(digests)
        self._insert(np.sort(np.atleast_1d(np.asarray(digests, np.uint64))[~repeated]))
        return repeated

    def overlap(self, other: Digests) -> int:
        """How many episodes both have, of those that are kept."""
        return int(self._has(other._kept).sum())

    def merge(self, other: Digests) -> None:
        """Take in what another has."""
        self._insert(other._kept[~self._has(other._kept)])

    def _has(self, digests: UInt64[Array, " n"]) -> Bool[Array, " n"]:
        place = np.searchsorted(self._kept, digests)
        inside = place < len(self._kept)
        inside[inside] = self._kept[place[inside]] == digests[inside]
        return inside

    def _insert(self, fresh: UInt64[Array, " n"]) -> None:
        """Merge a sorted list of others into ours, and keep the smallest."""
        fresh = fresh[:LIMIT]
        if len(fresh):
            place = np.searchsorted(self._kept, fresh)
            self._kept = np.insert(self._kept, place, fresh)[:LIMIT]

    def copy(self) -> Digests:
        """An independent twin; what is kept is replaced, never written into."""
        twin = Digests()
        twin._kept = self._kept
        return twin

    def array(self) -> UInt64[Array, " kept"]:
        """All that there is to save."""
        return self._kept.copy()

    @classmethod
    def from_array(cls, array: Array) -> Digests:
        """What `array` gave."""
        good = array.dtype == np.uint64 and array.ndim == 1 and len(array) <= LIMIT
        if not good or (array[1:] <= array[:-1]).any():
            raise FormatError(f"its digests are not an increasing list of at most {LIMIT} integers")
        digests = cls()
        digests._kept = array.copy()
        return digests
