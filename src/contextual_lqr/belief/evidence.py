"""Which episodes a belief has taken in, so that none is counted twice.

Every episode, or stretch of one in a log, has a digest of 64 bits, made of the sum of the hashes of
its steps; so every beginning of it has one too, and an episode that has grown since it was taken in
is known by its beginning. A belief keeps the digests it has
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
from jaxtyping import Bool, Float, Int64, UInt64
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.errors import FormatError

LIMIT = 1 << 17  # digests, a mebibyte
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MANY, _TO_SIEVE = 1 << 14, np.uint64(44)


def episode_digests(
    G: Float[Array, "n p y"], states: Float[Array, "n H d"], inputs: Float[Array, "n steps m"]
) -> UInt64[Array, "n steps"]:
    """The digests of n episodes and of their beginnings, after each of their steps.

    An episode has the same digest alone as among others; its own is the last.
    """
    n, steps = inputs.shape[:2]
    number = np.broadcast_to(np.arange(steps, dtype=float)[:, None], (n, steps, 1))
    rows = np.concatenate((number, states[:, :-1], inputs, states[:, 1:]), -1)
    hashes = _hashes(rows) ^ _hashes(G.reshape(n, G.shape[1] * G.shape[2]))[:, None]
    _mix(hashes, np.empty_like(hashes))
    return stretch_digests(np.cumsum(hashes, 1))


def _hashes(rows: Float[Array, "*n k"]) -> UInt64[Array, "*n"]:
    """A hash of each row of few numbers."""
    bits = _bits(rows) ^ (_ODD * np.arange(1, rows.shape[-1] + 1, dtype=np.uint64))
    _mix(bits, np.empty_like(bits))
    found: Array = np.add.reduce(bits, -1)
    _mix(found, np.empty_like(found))
    return found


def table_digest(
    factor: Array | None, columns: Sequence[Array], chosen: Array | None
) -> UInt64[Array, " 1"]:
    """The digest of a table, or of rows chosen from it: of their factor or, without one, of them.

    The factor of the same rows is the same to the bit; that of others is not.
    """
    rows = [factor] if factor is not None else columns
    if factor is None and chosen is not None:
        rows = [one[chosen] for one in columns]
    digest = blake2b(repr(np.shape(rows)).encode(), digest_size=8)
    for one in rows:
        digest.update((np.asarray(one, "<f8") + 0.0).tobytes())  # -0.0 is 0.0
    return np.frombuffer(digest.digest(), "<u8").astype(np.uint64)


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


def stretch_digests(sums: UInt64[Array, ...]) -> UInt64[Array, ...]:
    """The digests of stretches, or beginnings of them, each from the sum of its rows' hashes.

    A sum, modulo 2⁶⁴: rows may be hashed in pieces. Their order is in them, as their steps are.
    """
    found = sums ^ _ODD
    _mix(found, np.empty_like(found))
    return found


def _bits(column: Array) -> UInt64[Array, ...]:
    return (column + 0.0).astype(np.float64, copy=False).view(np.uint64)  # -0.0 is 0.0


def _mix(found: UInt64[Array, ...], moved: UInt64[Array, ...]) -> None:
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

    def among(self, many: UInt64[Array, " n"]) -> Bool[Array, " n"]:
        """Which have been here, of many of which few have; they may stand twice in the list."""
        if len(many) < _MANY:
            return self._has(many)
        sieve = np.zeros(1 << 20, bool)
        sieve[(self._kept >> _TO_SIEVE).astype(np.intp)] = True
        found = sieve[(many >> _TO_SIEVE).astype(np.intp)]
        found[found] = self._has(many[found])
        return found

    def known_steps(self, beginnings: Sequence[UInt64[Array, "_ _"]]) -> Int64[Array, " n"]:
        """How many first steps of episodes have been here: all of a repeat, none of a new one.

        In between is an episode that has grown since, or that stands beside a beginning of its own.
        """
        digests = np.concatenate([some[:, -1] for some in beginnings])
        repeated, seen = self.known(digests), self.copy()
        seen.add(digests)
        known, place = np.zeros(len(digests), np.int64), 0
        for some in beginnings:
            own = slice(place, place := place + len(some))
            found = seen.among(some.ravel()).reshape(some.shape)
            found[:, -1] = repeated[own]
            known[own] = (found * np.arange(1, some.shape[1] + 1)).max(1)
        return known

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
