"""Steps are taken into the factors of tests as rows of all their columns, however they come."""

import numpy as np
import pytest

from contextual_lqr.belief.factors import packed_size, triangle, unpacked
from contextual_lqr.belief.machines.lagged_steps import Columns, lagged_rows, take_steps


@pytest.mark.parametrize("held", [(-1, 0), (0, 0), (-1, -1)])
@pytest.mark.parametrize("odd", [0.0, 50.0, np.nan, 1e80])
def test_factors_are_those_of_the_rows(odd: float, held: tuple[int, int]) -> None:
    rng, n, steps, y, d = np.random.default_rng(0), 3, 30, 2, 1
    which = Columns(d, held)
    moves, after = rng.normal(size=(n, steps, y)), rng.normal(size=(n, steps, d))
    moves[1, 7, 1] = odd  # the row, and that of the step after, which sees it
    rows = lagged_rows(moves, after, which.acting)
    assert rows.shape[-1] == which.size
    assert np.array_equal(rows[:, 1:, y : 2 * y], moves[:, :-1], equal_nan=True)
    packed = np.zeros((5, packed_size(which.size)))
    numbers = np.arange(n * steps) % steps
    at, limit = np.array([1, 2, 4]), 10.0
    for some in (slice(0, 12), slice(12, steps)):  # in two pieces
        places = np.arange(n * steps).reshape(n, steps)[:, some]
        ends = np.arange(1, n + 1) * places.shape[1]
        columns = list(moves.reshape(-1, y).T), list(after.reshape(-1, d).T)
        take_steps(packed, *columns, numbers, places.ravel(), ends, limit, at, which.acting)
    assert not packed[[0, 3]].any()
    for own, T in zip(rows, unpacked(packed[at], which.size), strict=True):
        told = np.concatenate((own[:, : 2 * y], own[:, -d:]), 1)
        own = own[np.abs(told).max(1) <= limit]
        expected = triangle(own)
        np.testing.assert_allclose(T.T @ T, expected.T @ expected, rtol=1e-10, atol=1e-10)
    assert np.isfinite(packed).all()


def test_squares_that_leave_the_range_are_taken_in_by_lapack() -> None:
    moves, after = [np.array([1.0, 1e72, 2.0])], [np.array([1.0, 2.0, 3.0])]
    size, steps = Columns.of(1, 0).size, np.arange(3)
    packed = np.zeros((1, packed_size(size)))
    take_steps(packed, moves, after, steps, steps, np.array([3]), np.inf, np.zeros(1, int), 1)
    rows = lagged_rows(np.stack(moves, 1), np.stack(after, 1))
    expected = triangle(rows, np.zeros((size, size)))
    np.testing.assert_allclose(unpacked(packed, size)[0], expected, rtol=1e-9, atol=1e-9)
