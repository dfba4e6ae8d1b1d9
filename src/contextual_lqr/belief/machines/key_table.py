"""A list of keys, which are hashes: where each stands is found for many at once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64, UInt64
from numpy import ndarray as Array

from contextual_lqr import kernels


class KeyTable:
    """Keys in their order; some are only listed, and never found.

    Of equal keys, the first is found.
    """

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.uint64)
        self._listed = np.zeros(0, bool)
        self._slots = np.full(2, -1, np.int32)  # of a hash table, with places of keys
        self._count = 0
        self.only_listed = 0  # how many

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> UInt64[Array, " n"]:
        """All of them."""
        return self._keys[: self._count]

    def copy(self) -> KeyTable:
        """An independent twin."""
        twin = KeyTable()
        twin._keys, twin._listed = self._keys.copy(), self._listed.copy()
        twin._slots, twin._count = self._slots.copy(), self._count
        twin.only_listed = self.only_listed
        return twin

    def find(self, keys: UInt64[Array, " k"]) -> Int64[Array, " k"]:
        """The place of each; -1 of one that is not here."""
        return kernels.find_keys(self._keys, self._slots, keys)

    def append(self, keys: UInt64[Array, " k"], listed: Bool[Array, " k"] | bool = False) -> None:
        """More keys; some are only listed."""
        first, self._count = self._count, self._count + len(keys)
        if self._count > len(self._keys):
            room = max(self._count, len(self._keys) * 3 // 2)
            self._keys = np.append(self._keys, np.zeros(room - len(self._keys), np.uint64))
            self._listed = np.append(self._listed, np.zeros(room - len(self._listed), bool))
        self._keys[first : self._count], self._listed[first : self._count] = keys, listed
        self.only_listed += int(np.count_nonzero(self._listed[first : self._count]))
        if 2 * (entered := self._count - self.only_listed) > len(self._slots):
            self._slots = np.full(1 << (4 * entered - 1).bit_length(), -1, np.int32)
            first = 0
        places = first + np.flatnonzero(~self._listed[first : self._count])
        kernels.enter_keys(self._keys, self._slots, places)
