"""A list of keys says where each stands; a copy does not change with it."""

from itertools import pairwise

import numpy as np

from contextual_lqr.belief.machines.key_table import KeyTable


def test_keys_are_found_where_they_were_put_but_those_that_are_only_listed() -> None:
    rng = np.random.default_rng(0)
    every = rng.integers(0, 2**64, 5000, dtype=np.uint64)
    listed = rng.random(5000) < 0.1
    table, cuts = KeyTable(), [0, 1, 7, 7, 900, 5000]
    for first, end in pairwise(cuts):
        before = table.copy()
        table.append(every[first:end], listed[first:end])
        places = np.where(listed, -1, np.arange(5000))
        places[end:] = -1
        assert np.array_equal(table.find(every), places)
        assert np.array_equal(table.keys, every[:end])
        assert table.only_listed == np.count_nonzero(listed[:end])
        assert len(before) == first
        assert (before.find(every[first:]) == -1).all()
