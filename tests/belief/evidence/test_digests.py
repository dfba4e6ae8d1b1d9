"""Digests of episodes against Python's sets: exact, whatever the order, and bounded."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextual_lqr import FormatError
from contextual_lqr.belief.evidence import digests as evidence
from contextual_lqr.belief.evidence.digests import Digests, episode_digests

_some = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=30)


def digests_of(G: np.ndarray, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return episode_digests(G, np.concatenate((x[:, :-1], u), -1), x[:, 1:])


def some_digests(numbers: np.ndarray) -> np.ndarray:
    G, x = numbers[:, None, None].astype(float), np.zeros((len(numbers), 2, 1))
    return digests_of(G, x, x[:, 1:])[:, 0]


def test_an_episode_has_one_digest_alone_and_among_others() -> None:
    rng = np.random.default_rng(1)
    G, x, u = (rng.normal(size=(50, *shape)) for shape in ((2, 5), (4, 3), (3, 2)))
    together = digests_of(G, x, u)
    assert together.dtype == np.uint64
    assert len(set(together.ravel().tolist())) == 150
    order = rng.permutation(50)
    again = digests_of(G[order], np.asfortranarray(x[order]), u[order])
    assert np.array_equal(again, together[order])
    assert np.array_equal(digests_of(G[7:8], x[7:8], u[7:8]), together[7:8])
    assert np.array_equal(digests_of(G, x[:, :3], u[:, :2]), together[:, :2])  # beginnings
    # One last digit more, other steps, numbers on the other side of a border: another episode.
    changed = x.copy()
    changed[:, 0, 1] = np.nextafter(changed[:, 0, 1], 9)
    for other in (
        digests_of(G, changed, u),
        digests_of(G, x[:, 1:], u[:, 1:]),
        digests_of(G[..., :4], x, u),
        digests_of(G, x[..., :2], np.concatenate((u, x[:, 1:, 2:]), -1)),
        digests_of(G[:, ::-1], x, u),
    ):
        assert not set(together.ravel().tolist()) & set(other.ravel().tolist())
    assert np.array_equal(digests_of(-0.0 * G, x, u), digests_of(0.0 * G, x, u))
    assert digests_of(G[:0], x[:0], u[:0]).shape == (0, 3)


def test_beginnings_are_found_with_those_of_their_own_list() -> None:
    rng = np.random.default_rng(4)
    all_of_them = rng.integers(0, 2**64, (5, 4), np.uint64)
    digests = Digests()
    digests.add([all_of_them[0, 1], all_of_them[0, 2], all_of_them[1, 3]])
    short = all_of_them[2:3, :2]  # of the third, its first two steps
    assert digests.known_steps([all_of_them, short]).tolist() == [3, 4, 2, 0, 0, 0]
    many = rng.integers(0, 2**64, 1 << 15, np.uint64)
    digests.add(many[::100])
    assert np.array_equal(digests.among(many), np.arange(len(many)) % 100 == 0)


@given(st.lists(_some, max_size=5))
def test_repeats_are_found_as_by_a_set(batches: list[list[int]]) -> None:
    digests, seen = Digests(), set[int]()
    for batch in batches:
        expected = [one in seen or one in batch[:i] for i, one in enumerate(batch)]
        assert digests.known(batch).tolist() == expected
        digests.add(batch)
        seen |= set(batch)
        assert digests.arrays()["digests"].tolist() == sorted(seen)
    assert len(digests) == len(seen)
    assert digests.coverage == 1.0


@given(_some, _some)
def test_merging_is_a_union(one: list[int], other: list[int]) -> None:
    left, right = Digests(), Digests()
    left.add(one)
    right.add(other)
    assert left.overlap(right) == right.overlap(left) == len(set(one) & set(other))
    left.merge(right)
    assert left.arrays()["digests"].tolist() == sorted({*one, *other})


@pytest.mark.parametrize("parts", [[0, 500], [0, 1, 2, 499, 500], [0, 250, 500]])
def test_beyond_the_limit_the_smallest_are_kept_in_any_order(
    parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "LIMIT", 100)
    all_of_them = np.random.default_rng(2).permutation(some_digests(np.arange(500)))
    total = Digests()
    for a, b in pairwise(parts):
        piece = Digests()
        piece.add(all_of_them[a:b])
        total.merge(piece)
    assert np.array_equal(total.arrays()["digests"], np.sort(all_of_them)[:100])
    assert total.coverage == pytest.approx(0.2, rel=0.3)
    assert total.known(all_of_them).sum() == 100  # what is said to be known is known
    assert not total.known(some_digests(np.arange(500, 900))).any()


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_beyond_the_limit_old_copies_are_sampled_in_any_order(
    pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "BEGINNINGS", 100)
    rng = np.random.default_rng(5)
    beginnings = rng.integers(0, 2**64, (100, 9), np.uint64)
    total = Digests()
    for some in np.array_split(rng.permutation(beginnings), pieces):
        piece = Digests()
        piece.add(some[:, -1])
        piece.add_beginnings(np.concatenate((some[:, :-1], some[:, :-1])))  # told twice
        total.merge(piece)
    kept = total.arrays()["beginnings"]
    assert np.array_equal(kept, np.sort(beginnings[:, :-1].ravel())[:100])
    assert total.old_copies_coverage == pytest.approx(1 / 8, rel=0.3)
    assert total.known(beginnings.ravel()).sum() == 200
    assert total.overlap(total) == 100
    assert Digests.from_arrays(total.arrays()).known(kept).all()


def test_a_file_gives_back_the_same_and_refuses_another() -> None:
    digests = Digests()
    digests.add([3, 1, 2**64 - 1])
    again = Digests.from_arrays(digests.arrays())
    assert np.array_equal(again.arrays()["digests"], digests.arrays()["digests"])
    assert again.overlap(digests) == 3
    for wrong in ([2, 1], [1, 1], np.eye(2), [1.0, 2.0], np.arange(evidence.LIMIT + 1)):
        array = np.asarray(wrong)
        array = array.astype(np.uint64) if array.dtype.kind == "i" else array
        with pytest.raises(FormatError, match="digests"):
            Digests.from_arrays({"digests": array})


def test_a_million_are_quick() -> None:
    rng = np.random.default_rng(3)
    many = rng.integers(0, 2**64, 1_000_000, np.uint64)
    began = time.perf_counter()
    digests = Digests()
    assert not digests.known(many).any()
    digests.add(many)
    other = Digests()
    other.add(many[:1000])
    digests.merge(other)
    assert digests.overlap(other) > 50
    assert time.perf_counter() - began < 5  # a fifth of a second on a machine that does little else
