"""Digests of episodes against Python's sets: exact, whatever the order, and bounded."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextual_lqr import FormatError
from contextual_lqr.belief import evidence
from contextual_lqr.belief.evidence import Digests, episode_digests

_some = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=30)


def test_an_episode_has_one_digest_alone_and_among_others() -> None:
    rng = np.random.default_rng(1)
    contexts, states, inputs = rng.normal(size=(50, 2)), rng.normal(size=(50, 4, 3)), np.eye(50)
    together = episode_digests(contexts, states, inputs)
    assert together.dtype == np.uint64
    assert len(set(together.tolist())) == 50
    order = rng.permutation(50)
    again = episode_digests(contexts[order], np.asfortranarray(states[order]), inputs[order])
    assert np.array_equal(again, together[order])
    for i in (0, 17):
        alone = episode_digests(contexts[i : i + 1], states[i : i + 1], [inputs[i].tolist()])
        assert alone == together[i : i + 1]
    # One last digit more, another shape, numbers on the other side of a border: another episode.
    changed = states.copy()
    changed[:, 1, 1] = np.nextafter(changed[:, 1, 1], 9)
    for other in (
        episode_digests(contexts, changed, inputs),
        episode_digests(contexts, states.reshape(50, 12), inputs),
        episode_digests(contexts, states, inputs[:, :-1]),
        episode_digests(contexts[:, :1], np.c_[contexts[:, 1:], states.reshape(50, 12)], inputs),
    ):
        assert not set(together.tolist()) & set(other.tolist())
    assert episode_digests([[-0.0]]) == episode_digests([[0.0]])
    assert len(episode_digests(np.zeros((0, 3)))) == 0


@given(st.lists(_some, max_size=5))
def test_repeats_are_found_as_by_a_set(batches: list[list[int]]) -> None:
    digests, seen = Digests(), set[int]()
    for batch in batches:
        expected = [one in seen or one in batch[:i] for i, one in enumerate(batch)]
        assert digests.known(batch).tolist() == expected
        assert digests.add(batch).tolist() == expected
        seen |= set(batch)
        assert digests.array().tolist() == sorted(seen)
    assert len(digests) == len(seen)
    assert digests.coverage == 1.0


@given(_some, _some)
def test_merging_is_a_union(one: list[int], other: list[int]) -> None:
    left, right = Digests(), Digests()
    left.add(one)
    right.add(other)
    assert left.overlap(right) == right.overlap(left) == len(set(one) & set(other))
    left.merge(right)
    assert left.array().tolist() == sorted({*one, *other})


@pytest.mark.parametrize("parts", [[0, 500], [0, 1, 2, 499, 500], [0, 250, 500]])
def test_beyond_the_limit_the_smallest_are_kept_in_any_order(
    parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "LIMIT", 100)
    all_of_them = np.random.default_rng(2).permutation(episode_digests(np.arange(500.0)[:, None]))
    total = Digests()
    for a, b in pairwise(parts):
        piece = Digests()
        piece.add(all_of_them[a:b])
        total.merge(piece)
    assert np.array_equal(total.array(), np.sort(all_of_them)[:100])
    assert total.coverage == pytest.approx(0.2, rel=0.3)
    assert total.known(all_of_them).sum() == 100  # what is said to be known is known
    assert not total.known(episode_digests(np.arange(500.0, 900)[:, None])).any()


def test_a_file_gives_back_the_same_and_refuses_another() -> None:
    digests = Digests()
    digests.add([3, 1, 2**64 - 1])
    again = Digests.from_array(digests.array())
    assert np.array_equal(again.array(), digests.array())
    assert again.overlap(digests) == 3
    for wrong in ([2, 1], [1, 1], np.eye(2), [1.0, 2.0], np.arange(evidence.LIMIT + 1)):
        array = np.asarray(wrong)
        array = array.astype(np.uint64) if array.dtype.kind == "i" else array
        with pytest.raises(FormatError, match="digests"):
            Digests.from_array(array)


def test_a_million_are_quick() -> None:
    rng = np.random.default_rng(3)
    many = rng.integers(0, 2**64, 1_000_000, np.uint64)
    began = time.perf_counter()
    digests = Digests()
    assert not digests.add(many).any()
    other = Digests()
    other.add(many[:1000])
    digests.merge(other)
    assert digests.overlap(other) > 50
    assert time.perf_counter() - began < 5  # a fifth of a second on a machine that does little else
