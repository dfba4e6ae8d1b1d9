"""Triangular factors of many rows: the compiled blocks against NumPy's QR."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_lqr import kernels
from contextual_lqr.factors import block_rows, tall_triangle, triangle

compiled = pytest.mark.skipif(kernels.compiled is None, reason="the kernels are not built")


@compiled
@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 90), st.integers(1, 40), st.integers(0, 99))
def test_blocks_are_the_triangles_of_numpy(n: int, rows: int, block: int, seed: int) -> None:
    columns = np.random.default_rng(seed).uniform(0.5, 2, (n, rows))
    triangles = kernels.factor_blocks(columns, block)
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
    columns = np.random.default_rng(0).normal(size=(3, 50))
    columns[1, 30] = odd
    assert kernels.factor_blocks(columns, 20) is None
    columns[:, 30] = 0.0
    assert kernels.factor_blocks(columns, 20) is None


@pytest.mark.parametrize("scale", [1.0, 1e12])
@pytest.mark.parametrize("native", [True, False])
def test_a_tall_triangle_says_what_all_rows_say(
    native: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "factor_blocks", lambda *_: None)
    rng = np.random.default_rng(1)
    rows = rng.uniform(1, 2, (50 * block_rows(5) + 3, 5))
    rows[::97] *= scale
    R = tall_triangle(np.ascontiguousarray(rows.T))
    assert np.allclose(R.T @ R, rows.T @ rows, rtol=1e-11)
    assert np.allclose(np.abs(R), np.abs(triangle(rows)), rtol=1e-6)
