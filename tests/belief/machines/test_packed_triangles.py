"""Triangles in blocks are those of one array, whatever is shared; copied columns are not kept."""

import numpy as np
import pytest
from numpy import ndarray as Array

from contextual_lqr.belief.factors import triangle
from contextual_lqr.belief.machines import packed_triangles
from contextual_lqr.belief.machines.own_factors import OwnFactors
from contextual_lqr.belief.machines.packed_triangles import PackedTriangles


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_as_good_as_one_array(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(packed_triangles, "BLOCK", 3)
    rng = np.random.default_rng(seed)
    pairs: list[tuple[PackedTriangles, Array]] = [(PackedTriangles(2), np.zeros((0, 2)))]
    for _ in range(60):
        k = int(rng.integers(len(pairs)))
        mine, plain = pairs[k]
        match rng.choice(["grow", "copy", "extend", "put"]):
            case "grow":
                mine.grow(more := int(rng.integers(5)))
                pairs[k] = mine, np.concatenate((plain, np.zeros((more, 2))))
            case "copy" if len(pairs) < 5:
                pairs.append((mine.copy(), plain.copy()))
            case "extend":
                other, its = pairs[int(rng.integers(len(pairs)))]
                if other is not mine and len(plain) + len(its) < 200:
                    mine.extend(other)
                    pairs[k] = mine, np.concatenate((plain, its))
            case "put" if len(plain):
                at = rng.permutation(len(plain))[: rng.integers(len(plain)) + 1]
                at = np.sort(at) if rng.random() < 0.5 else at
                plain[at] = values = rng.normal(size=(len(at), 2))
                mine.put(at, values)
        for one, expected in pairs:
            order = rng.permutation(len(expected))
            assert len(one) == len(expected)
            assert np.array_equal(one.array(), expected)
            assert np.array_equal(one.take(order), expected[order])


def test_columns_that_are_copies_come_back() -> None:
    rng, upper = np.random.default_rng(0), ~np.tri(5, k=-1, dtype=bool)
    y, after = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    rows = np.concatenate((y, after[:, :1], y[:, [1]], after[:, 1:]), 1)  # x'₁ is y₁
    factors = OwnFactors(3, 3)
    factors.require((-1, 1, -1))
    factors.triangles.grow(1)
    assert factors.size == 5
    kept = np.stack(factors.kept(list(rows.T)), 1)
    factors.triangles.put(np.array([0]), triangle(kept)[upper][None])
    for _ in range(2):  # as they are kept, and with all columns
        (T,) = factors.whole(np.array([0]))
        np.testing.assert_allclose(T.T @ T, rows.T @ rows, atol=1e-12)
        assert not np.tril(T, -1).any()
        factors.require((-1, -1, -1))
    assert factors.size == 6
