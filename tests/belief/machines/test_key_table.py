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


def test_slots_are_in_proportion_to_the_keys_that_can_be_found() -> None:
    rng = np.random.default_rng(1)
    every = rng.integers(0, 2**64, 20_000, dtype=np.uint64)
    every[-1] = every[10]  # which was only listed before
    listed = rng.random(20_000) < 0.999
    listed[-1] = False
    table, first, entered = KeyTable(), 0, 0
    for end in (1, 3000, 3001, 12_000, 20_000):
        table.append(every[first:end], listed[first:end])
        first, entered = end, np.count_nonzero(~listed[:end])
        assert 2 * entered <= len(table._slots) <= max(2, 8 * entered)
        places = np.where(listed, -1, np.arange(20_000))
        places[end:], places[10] = -1, 19_999 if end == 20_000 else -1
        for one in (table, table.copy()):
            assert np.array_equal(one.find(every), places)
    assert 0 < entered < 100
    table.append(every, False)  # and once all of them can be found
    places = np.where(listed, np.arange(20_000, 40_000), np.arange(20_000))
    places[[10, -1]] = 19_999
    assert np.array_equal(table.find(every), places)
    assert 2 * (20_000 + entered) <= len(table._slots) <= 8 * (20_000 + entered)
