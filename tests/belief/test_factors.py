"""Triangular factors of many rows: the compiled blocks against NumPy's QR."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_lqr import BlockContext, ContextError, Decoder, kernels
from contextual_lqr.belief import factors
from contextual_lqr.belief.factors import (
    block_rows,
    take_rows,
    tall_triangle,
    triangle,
    unpacked,
)
from episodes import MAP

compiled = pytest.mark.skipif(kernels.compiled is None, reason="the kernels are not built")


@compiled
@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 90), st.integers(1, 40), st.integers(0, 99))
def test_blocks_are_the_triangles_of_numpy(n: int, rows: int, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns, chosen = rng.uniform(0.5, 2, (n, rows)), None
    if seed % 2:  # some of more rows, the others unfit
        chosen = np.sort(rng.permutation(rows + 7)[:rows])
        more = np.full((n, rows + 7), np.nan)
        more[:, chosen] = columns
    given_columns = list(columns if chosen is None else more)
    triangles = kernels.factor_blocks(given_columns, chosen, block, 2.0)
    assert triangles is not None
    assert len(triangles) == -(-rows // block)
    for b, R in enumerate(triangles):
        part = columns[:, b * block : (b + 1) * block].T
        expected = np.zeros((n, n))
        expected[: min(part.shape)] = np.abs(np.linalg.qr(part, mode="r"))
        # A row of a triangle is free in its sign, and in nothing else.
        assert np.allclose(np.abs(R), expected, rtol=1e-9, atol=1e-12)
        assert np.allclose(R.T @ R, part.T @ part, rtol=1e-12)
        assert np.array_equal(R, np.triu(R))


@compiled
@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e9, 1e160])
def test_rows_that_must_be_sorted_or_refused_are_left_to_numpy(odd: float) -> None:
    columns = np.random.default_rng(0).uniform(1, 2, size=(3, 50))
    columns[1, 30] = odd
    assert kernels.factor_blocks(list(columns), None, 20, np.inf) is None
    columns[:, 30] = 0.0
    assert kernels.factor_blocks(list(columns), None, 20, np.inf) is None
    columns[:, 30] = 1.0
    assert kernels.factor_blocks(list(columns), None, 20, 10.0) is not None
    assert kernels.factor_blocks(list(columns), None, 20, 1.5) is None


@compiled
@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 12), st.integers(0, 999))
def test_a_few_rows_of_any_sizes_give_lapacks_triangle(
    n: int, count: int, spread: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, n)) * 10.0 ** rng.uniform(-spread, spread, (count, 1))
    rows[rng.random(count) < 0.1] = 0.0
    found, small = kernels.factor_rows(rows), factors._SMALL
    assert found is not None
    factors._SMALL = -1
    try:
        expected = triangle(rows)
    finally:
        factors._SMALL = small
    assert np.array_equal(found, np.triu(found))
    # A row of a triangle is free in its sign; what small rows say must not drown in large ones.
    scale = np.linalg.norm(expected, axis=1, keepdims=True)
    assert (np.abs(np.abs(found) - np.abs(expected)) <= 1e-9 * scale + 1e-300).all()


@compiled
@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e160, 1e-160])
def test_numbers_whose_squares_overflow_are_left_to_lapack(odd: float) -> None:
    rows = np.ones((3, 2))
    rows[1, 1] = odd
    assert kernels.factor_rows(rows) is None


@settings(max_examples=60)
@given(
    st.integers(1, 9),
    st.one_of(
        st.lists(st.integers(0, 40), min_size=1, max_size=6),
        st.lists(st.integers(17, 20), min_size=4, max_size=9),  # alike, as four at once must be
        st.lists(st.integers(130, 150), min_size=4, max_size=5),
    ),
    st.integers(0, 12),
    st.integers(0, 999),
)
def test_rows_are_taken_into_many_triangles_at_once(
    n: int, lengths: list[int], spread: int, seed: int
) -> None:
    """As LAPACK's of old and new rows together, of whatever sizes, with the kernels or without."""
    rng = np.random.default_rng(seed)
    ends, mostly = np.cumsum(lengths), seed % 3 > 0  # whether rows are as those of most logs
    rows = rng.normal(size=(ends[-1] + 3, n)) * 10.0 ** rng.uniform(
        -spread, spread, (ends[-1] + 3, 1)
    )
    rows[rng.random(len(rows)) < (0.02 if mostly else 0.1)] = 0.0
    order = (np.arange(len(rows)) if mostly else rng.permutation(len(rows)))[: ends[-1]]
    rows[order[rng.random(len(order)) < (0.01 if mostly else 0.1)], rng.integers(n)] = np.nan
    before = [
        rng.normal(size=(k, n)) * 10.0 ** rng.uniform(-spread, spread)
        for k in rng.integers(0, 30, len(lengths))
    ]
    limit = 10.0 ** rng.uniform(spread / 2, spread + 1)
    old = np.array([triangle(one, np.zeros((1, n))) for one in before])
    packed = np.ascontiguousarray(old[:, ~np.tri(n, k=-1, dtype=bool)])
    used = take_rows(packed, list(rows.T), order, ends, limit)
    for i, (told, T) in enumerate(zip(before, unpacked(packed, n), strict=True)):
        new = rows[order[ends[i] - lengths[i] : ends[i]]]
        new = new[np.abs(new).max(1) <= limit]
        assert used[i] == len(new)
        every = np.concatenate((told, new))
        expected = triangle(every, np.zeros((1, n)))
        # Of fewer rows than columns, the last rows of a triangle are rounding.
        count = np.count_nonzero(every.any(1))
        some = min(n, count)
        scale = np.linalg.norm(expected, axis=1, keepdims=True)
        off = np.abs(np.abs(T) - np.abs(expected))
        if count >= n:
            assert (off <= 1e-6 * scale + 1e-300).all()
        np.testing.assert_allclose(
            T.T @ T, every.T @ every, rtol=1e-8, atol=1e-12 * scale.max() ** 2
        )
        assert (np.diagonal(T)[:some] >= 0).all()


@pytest.mark.parametrize("odd", [1e160, 1e-160])
def test_numbers_whose_squares_overflow_are_taken_in_by_lapack(odd: float) -> None:
    rows = np.array([[1.0, 0.0], [0.0, odd], [2.0, 1.0]])
    packed = np.zeros((2, 3))
    used = take_rows(packed, list(rows.T), np.arange(3), np.array([2, 3]), np.inf)
    assert used.tolist() == [2, 1]
    np.testing.assert_allclose(packed, [[1, 0, odd], [2, 1, 0]])


@compiled
@pytest.mark.parametrize(("n", "count"), [(14, 2), (14, 30), (44, 3), (60, 120)])
def test_rows_that_repeat_leave_numbers(n: int, count: int) -> None:
    # Each reflection leaves the rounding of the one before: after ten it was below all numbers.
    rows = np.tile(np.random.default_rng(n).standard_normal(n), (count, 1))
    columns, expected = list(np.ascontiguousarray(rows.T)), rows.T @ rows
    packed = np.zeros((1, n * (n + 1) // 2))
    take_rows(packed, columns, np.arange(count), np.array([count]), np.inf)
    tall = tall_triangle(columns, None, np.inf)
    assert tall is not None
    for R in (triangle(rows), tall, unpacked(packed, n)[0]):
        np.testing.assert_allclose(R.T @ R, expected, rtol=1e-12, atol=1e-12 * count)


@compiled
def test_rows_that_come_one_by_one_leave_numbers() -> None:
    rng, n = np.random.default_rng(0), 44
    rows, packed = rng.standard_normal((30, n)), np.zeros((1, n * (n + 1) // 2))
    for row in rows:
        take_rows(packed, list(row[:, None]), np.arange(1), np.array([1]), np.inf)
    R = unpacked(packed, n)[0]
    np.testing.assert_allclose(R.T @ R, rows.T @ rows, rtol=0, atol=1e-12)


@compiled
def test_a_tall_triangle_says_what_all_rows_say() -> None:
    rng = np.random.default_rng(1)
    rows = rng.uniform(1, 2, (50 * block_rows(5) + 3, 5))
    columns = np.ascontiguousarray(rows.T)
    R = tall_triangle(list(columns), None, 2.0)
    assert R is not None
    assert np.allclose(R.T @ R, rows.T @ rows, rtol=1e-11)
    assert np.allclose(np.abs(R), np.abs(triangle(rows)), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e12])
def test_rows_are_learnt_alike_with_and_without_the_kernel(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    n = 3000
    x, u, after = rng.normal(size=(n, 2)), rng.normal(size=(n, 1)), rng.normal(size=(n, 2))
    x[5], after[5] = scale * x[5], scale * after[5]
    estimates = []
    for _ in range(2):
        decoder = Decoder(MAP, 1e-4)
        decoder.update_rows({"gain": np.linspace(0, 1, n)}, x, u, after)
        estimates.append(decoder.estimate)
        monkeypatch.setattr(kernels, "factor_blocks", lambda *_: None)
    assert np.allclose(*estimates, rtol=1e-9, atol=1e-12)


def test_rows_that_are_not_chosen_are_as_if_they_were_not_there() -> None:
    map_ = BlockContext([["1/mass"]], [[1.0]], bounds={"mass": (0, 9)})
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(3, 40))
    chosen = np.flatnonzero(rng.random(40) < 0.6)
    masses = np.ones(40)
    one, other = Decoder(map_, 1e-4), Decoder(map_, 1e-4)
    x, u, after = columns[:, chosen]
    one.update_rows({"mass": masses[chosen]}, x[:, None], u[:, None], after[:, None], episodes=2)
    masses[np.setdiff1d(np.arange(40), chosen)[:3]] = 0  # where 1/mass is refused
    x, u, after = columns
    other.update_columns({"mass": masses}, [x], [u], [after], chosen=chosen, episodes=2)
    assert one.factor.tobytes() == other.factor.tobytes()
    assert (one.rows, one.episodes) == (other.rows, other.episodes) == (len(chosen), 2)
    masses[chosen[5]] = 0
    with pytest.raises(ContextError, match="context 5: the entry '1/mass'"):
        other.update_columns({"mass": masses}, [x], [u], [after], chosen=chosen)
    assert other.rows == len(chosen)
