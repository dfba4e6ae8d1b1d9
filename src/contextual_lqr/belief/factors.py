"""Triangular factors: what rows of numbers say about a least-squares problem, by QR alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dgeqrf

from contextual_lqr import kernels

_SMALL = 4096  # numbers up to which our kernel is quicker than a call of LAPACK (measured)
_TRIANGLES = 32  # that are merged at once


def triangle(*blocks: Float[Array, "_ n"]) -> Float[Array, "n n"]:
    """The square triangular factor of the rows of all blocks, its diagonal not negative.

    Rows of very different size go into Householder's reflections largest first: only then does the
    rounding of large rows not drown what small ones say (states of 1e12 beside states of 1).
    """
    n, count = blocks[0].shape[1], sum(map(len, blocks))
    if n * count <= _SMALL:
        found = kernels.factor_rows(np.concatenate(blocks))
        if found is not None:
            return found
    columns = np.zeros((n, max(n, count)))  # LAPACK's order: a column of the rows in one piece
    place = 0
    for block in blocks:
        columns[:, place : place + len(block)] = block.T
        place += len(block)
    sizes = np.abs(columns).max(0)
    if sizes.max() > 1e4 * sizes.min():
        columns = columns[:, np.argsort(-sizes, kind="stable")]
    reduced, _, _, _ = dgeqrf(columns.T, overwrite_a=True)
    signs = np.where(np.diagonal(reduced) < 0, -1.0, 1.0)[:n, None]  # QR leaves them free
    return np.where(_upper(n), signs * reduced[:n], 0.0)


def tall_triangle(
    columns: Sequence[Float[Array, " rows"]], chosen: Int64[Array, " some"] | None, limit: float
) -> Float[Array, "n n"] | None:
    """The same for many rows, or some of them, given by their columns: by the compiled kernel.

    None if that has to be done here: a number is above the limit or not finite, sizes of rows
    differ a lot, or there is no such kernel.
    """
    n = len(columns)
    parts: Any = kernels.factor_blocks(columns, chosen, block_rows(n), limit)
    while parts is not None and len(parts) > 1:
        rows = parts.reshape(-1, n)
        fewer = kernels.factor_blocks(list(rows.T), None, _TRIANGLES * n, np.inf)
        if fewer is None:  # they must be sorted first
            size = _TRIANGLES * n
            fewer = np.stack([triangle(rows[i : i + size]) for i in range(0, len(rows), size)])
        parts = fewer
    return None if parts is None else parts[0]


def take_rows(
    packed: Float[Array, "n numbers"],
    columns: Sequence[Float[Array, " rows"]],
    rows: Int64[Array, " some"],
    ends: Int64[Array, " k"],
    limit: float,
    at: Int64[Array, " k"] | None = None,
) -> Int64[Array, " k"]:
    """Take rows of a table into packed triangles, those at some places; how many each has taken.

    Into number s those that stand in `rows` from the end of the one before to ends[s], but rows
    with a number above the limit, or not finite. Triangles change in place.
    """
    at = np.arange(len(ends)) if at is None else at
    used = kernels.update_triangles(columns, rows, ends, limit, packed, at)

    def table(some: Int64[Array, " few"]) -> Float[Array, "few n"]:
        found = np.stack([column[some] for column in columns], 1)
        return np.asarray(found[np.abs(found).max(1) <= limit])

    take_tables(packed, table, rows, ends, at, used)
    return used


def take_tables(
    packed: Float[Array, "n numbers"],
    table: Callable[[Int64[Array, " few"]], Float[Array, "_ width"]],
    rows: Int64[Array, " some"],
    ends: Int64[Array, " k"],
    at: Int64[Array, " k"],
    used: Int64[Array, " k"],
) -> None:
    """By LAPACK, what the kernel has left: where `used` is -1. How many were taken goes there."""
    for s in np.flatnonzero(used < 0):
        some = table(rows[ends[s - 1] if s else 0 : ends[s]])
        n = some.shape[1]
        before = unpacked(packed[at[[s]]], n)[0]
        packed[at[s]], used[s] = triangle(before, some)[_upper(n)], len(some)


def packed_size(n: int) -> int:
    """How many numbers there are in a triangle of n columns."""
    return n * (n + 1) // 2


def unpacked(packed: Float[Array, "count numbers"], n: int) -> Float[Array, "count n n"]:
    """Triangles of n columns, whose upper parts are packed row by row."""
    triangles = np.zeros((len(packed), n, n))
    if len(packed):
        triangles[:, _upper(n)] = packed
    return triangles


def solve_triangle(
    R: Float[Array, "n n"],
    right: Float[Array, "n k"],
    *,
    transposed: bool = False,
    overwrite: bool = False,
) -> Float[Array, "n k"]:
    """R⁻¹ right, or R⁻ᵀ right if transposed, for a triangle R.

    By BLAS's dtrsm: LAPACK's dtrtrs wakes threads for the smallest of matrices, and on a busy
    machine waits for them many times longer than it computes.
    """
    return np.asarray(dtrsm(1.0, R, right, trans_a=int(transposed), overwrite_b=overwrite))


def block_rows(columns: int) -> int:
    """How many rows make a block that stays in the cache.

    BLAS finds it too small for threads, which for matrices this narrow cost more than they save.
    """
    return max(2 * columns, 7500 // columns)


def column_blocks(columns: Sequence[Array], some: Array | None) -> Iterator[Float[Array, "n k"]]:
    """Columns, or some of their rows, as rows, in such blocks."""
    rows = np.stack([one if some is None else one[some] for one in columns])
    size = block_rows(len(columns))
    return (rows[:, i : i + size].T for i in range(0, rows.shape[1], size))


@cache
def _upper(n: int) -> Array:
    return ~np.tri(n, k=-1, dtype=bool)
