"""Which episodes a belief has taken in, so that none is counted twice.

Every episode, or stretch of one in a log, has a digest of 64 bits, made of the sum of the hashes of
its steps; so every beginning of it has one too. A belief keeps the digests of the episodes it has
seen, sorted: up to LIMIT of them, all; beyond, the LIMIT smallest; and, in the same way, up to
BEGINNINGS of their beginnings. Digests are uniform, so these are fair samples, and the same
whatever the order in which episodes came and beliefs were merged. What is kept is exact:

    a repeat is noticed     always, up to LIMIT episodes; beyond, a log of r episodes that is told
                            again goes unnoticed with a probability of (1 - coverage)ʳ
    an episode that has grown since     as a repeat of its beginning
    an old copy, which ends earlier     always, up to BEGINNINGS steps in all; beyond, as above
    a new episode is taken for a repeat     with a probability below LIMIT / 2⁶⁴ = 7e-15

A piece from the middle of an episode, or its end, is an episode of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt64
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.errors import FormatError

LIMIT = 1 << 17  # digests, a mebibyte
BEGINNINGS = 1 << 14
_ODD = np.uint64(0x9E3779B97F4A7C15)
_RECENT = 1 << 14  # digests, until they are joined to the others
_FEW = 64  # times as many are kept
_MANY, _TO_SIEVE = 1 << 14, np.uint64(44)


def episode_digests(
    G: Float[Array, "n p q"], y: Float[Array, "n steps y"], after: Float[Array, "n steps d"]
) -> UInt64[Array, "n steps"]:
    """The digests of n episodes, of steps (y, x'), and of their beginnings, after each step.

    An episode has the same digest alone as among others; its own is the last.
    """
    n, steps = y.shape[:2]
    number = np.broadcast_to(np.arange(steps, dtype=float)[:, None], (n, steps, 1))
    rows = np.concatenate((number, y, after), -1)
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
    return np.fromiter(map(_text_hash, texts), np.uint64, len(texts))


@lru_cache(1 << 16)
def _text_hash(text: str) -> int:
    """That of a label, which comes again with every episode of its machine."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def row_hashes(columns: Sequence[Array]) -> UInt64[Array, " n"]:
    """A hash of each row of a table, its columns of numbers or of hashes, in their order.

    A hundred times quicker than digests of rows one by one; it is no defence against deceit.
    """
    return kernels.row_hashes(columns)


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
    """The digests of the episodes that were taken in, and of their beginnings."""

    def __init__(self) -> None:
        self._settled = self._begun = np.zeros(0, np.uint64)
        self._recent = self._settled  # that are still to be joined to the settled ones

    @property
    def _kept(self) -> UInt64[Array, " kept"]:
        if len(self._recent):
            self._kept = _smallest(self._settled, self._recent, LIMIT)
        return self._settled

    @_kept.setter
    def _kept(self, all_of_them: UInt64[Array, " kept"]) -> None:
        self._settled, self._recent = all_of_them, self._recent[:0]

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def coverage(self) -> float:
        """The share of all episodes whose repeats would be noticed; 1 until LIMIT is reached."""
        few = len(self._settled) + len(self._recent) < LIMIT
        return 1.0 if few else _share(self._kept, LIMIT)

    @property
    def old_copies_coverage(self) -> float:
        """The same of copies of them that end earlier."""
        return _share(self._begun, BEGINNINGS)

    def known(self, digests: ArrayLike) -> Bool[Array, " n"]:
        """Which of these have been here, or stand before in the same list; nothing is added."""
        given = np.atleast_1d(np.asarray(digests, np.uint64))
        found, first = np.unique(given, return_index=True)
        repeated = np.ones(len(given), bool)
        many = len(self._settled) + len(self._recent) > LIMIT  # some are to be forgotten first
        been = _within(self._kept if many else self._settled, found)
        been |= _within(self._recent, found)
        repeated[first] = been | self.begun(found)
        return repeated

    def begun(self, digests: UInt64[Array, " n"]) -> Bool[Array, " n"]:
        """Which are beginnings of what has been here."""
        return _within(self._begun, digests)

    def among(self, many: UInt64[Array, " n"]) -> Bool[Array, " n"]:
        """Which have been here, of many of which few have; they may stand twice in the list."""
        if len(many) < _MANY:
            return _within(self._kept, many)
        sieve = np.zeros(1 << 20, bool)
        sieve[(self._kept >> _TO_SIEVE).astype(np.intp)] = True
        found = sieve[(many >> _TO_SIEVE).astype(np.intp)]
        found[found] = _within(self._kept, many[found])
        return found

    def known_steps(self, beginnings: Sequence[UInt64[Array, "_ _"]]) -> Int64[Array, " n"]:
        """How many first steps of episodes have been here: all of a repeat, none of a new one.

        In between is an episode that has grown since, or that stands beside a beginning of its own.
        """
        digests = np.concatenate([some[:, -1] for some in beginnings])
        repeated, seen = self.known(digests), self.copy()
        seen._kept = _smallest(seen._kept, digests, LIMIT)
        known, place = np.zeros(len(digests), np.int64), 0
        for some in beginnings:
            own = slice(place, place := place + len(some))
            found = seen.among(some.ravel()).reshape(some.shape)
            found[:, -1] = repeated[own]
            known[own] = (found * np.arange(1, some.shape[1] + 1)).max(1)
        return known

    def add(self, digests: ArrayLike) -> None:
        """Take these in."""
        fresh = np.asarray(digests, np.uint64).ravel()
        if len(self._settled) >= LIMIT:
            fresh = fresh[fresh < self._settled[-1]]
        if len(self._recent) + len(fresh) > _RECENT:
            self._kept = _smallest(self._kept, fresh, LIMIT)
        else:
            self._recent = _smallest(self._recent, fresh, LIMIT)

    def add_episodes(self, beginnings: Sequence[UInt64[Array, "_ _"]]) -> None:
        """Take in episodes, each a row: its beginnings and, last, itself."""
        for some in beginnings:
            self._kept = _smallest(self._kept, some[:, -1], LIMIT)
            self.add_beginnings(some[:, :-1])

    def add_beginnings(
        self, beginnings: UInt64[Array, ...], ends: Int64[Array, " n"] | None = None
    ) -> None:
        """Of episodes that are taken in, the digests of what they begin with; `ends` are whole."""
        fresh = beginnings.ravel()
        few = np.ones(len(fresh), bool)
        if len(self._begun) >= BEGINNINGS:
            few = fresh < self._begun[-1]
        if ends is not None:
            few[ends] = False
        self._begun = _smallest(self._begun, fresh[few], BEGINNINGS)

    def overlap(self, other: Digests) -> int:
        """How many episodes both have, or one has and the other a beginning of, of those kept."""
        theirs = _smallest(other._kept, other._begun, LIMIT + BEGINNINGS)
        begun = self._begun[~_within(self._kept, self._begun)]
        return _common(self._kept, theirs) + _common(other._kept, begun)

    def merge(self, other: Digests) -> None:
        """Take in what another has."""
        self._kept = _smallest(self._kept, other._kept, LIMIT)
        self._begun = _smallest(self._begun, other._begun, BEGINNINGS)

    def copy(self) -> Digests:
        """An independent twin; what is kept is replaced, never written into."""
        twin = Digests()
        twin._settled, twin._recent, twin._begun = self._settled, self._recent, self._begun
        return twin

    def arrays(self) -> dict[str, UInt64[Array, " kept"]]:
        """All that there is to save."""
        return {"digests": self._kept.copy(), "beginnings": self._begun.copy()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Digests:
        """What `arrays` gave; an older one has no beginnings."""
        digests = cls()
        digests._kept = _checked(arrays["digests"], LIMIT)
        digests._begun = _checked(arrays.get("beginnings", digests._begun), BEGINNINGS)
        return digests


def _share(kept: UInt64[Array, " kept"], limit: int) -> float:
    return 1.0 if len(kept) < limit else (int(kept[-1]) + 1) / 2**64


def _within(kept: UInt64[Array, " kept"], digests: UInt64[Array, " n"]) -> Bool[Array, " n"]:
    place = np.searchsorted(kept, digests)
    inside = place < len(kept)
    inside[inside] = kept[place[inside]] == digests[inside]
    return inside


def _common(some: UInt64[Array, " n"], others: UInt64[Array, " k"]) -> int:
    """How many are in both lists, each in order and without repeats."""
    both = np.concatenate((some, others))
    both.sort(kind="stable")  # quick, of two lists in order
    return int(np.count_nonzero(both[1:] == both[:-1]))


def _smallest(
    kept: UInt64[Array, " kept"], digests: UInt64[Array, ...], limit: int
) -> UInt64[Array, " _"]:
    """The smallest of both, in order, each once."""
    fresh = digests.ravel()
    if len(kept) >= limit:
        fresh = fresh[fresh < kept[-1]]
    if not len(fresh):
        return kept
    if _FEW * len(fresh) < len(kept):
        return _inserted(kept, np.unique(fresh))[:limit]
    both = np.concatenate((kept, np.sort(fresh)))
    both.sort(kind="stable")  # quick, of two lists in order
    first = np.concatenate(([True], both[1:] != both[:-1]))
    return both[first][:limit]


def _inserted(kept: UInt64[Array, " kept"], fresh: UInt64[Array, " few"]) -> UInt64[Array, " both"]:
    """The same for few, in order and each once: quicker, as nothing is sorted."""
    fresh = fresh[~_within(kept, fresh)]
    places = np.searchsorted(kept, fresh) + np.arange(len(fresh))
    both, old = np.empty(len(kept) + len(fresh), np.uint64), np.ones(len(kept) + len(fresh), bool)
    old[places] = False
    both[places], both[old] = fresh, kept
    return both


def _checked(array: Array, limit: int) -> UInt64[Array, " kept"]:
    good = array.dtype == np.uint64 and array.ndim == 1 and len(array) <= limit
    if not good or (array[1:] <= array[:-1]).any():
        raise FormatError(f"its digests are not an increasing list of at most {limit} integers")
    return array.copy()
