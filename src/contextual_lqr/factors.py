"""Triangular factors: what rows of numbers say about a least-squares problem, by QR alone."""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg.lapack import dgeqrf


def triangle(*blocks: Float[Array, "_ n"]) -> Float[Array, "n n"]:
    """The square triangular factor of the rows of all blocks.

    Rows of very different size go into Householder's reflections largest first: only then is what
    small rows say not drowned by the rounding of large ones (states of 1e12 beside states of 1).
    """
    n, count = blocks[0].shape[1], sum(map(len, blocks))
    columns = np.zeros((n, max(n, count)))  # LAPACK's order: a column of the rows in one piece
    place = 0
    for block in blocks:
        columns[:, place : place + len(block)] = block.T
        place += len(block)
    sizes = np.abs(columns).max(0)
    if sizes.max() > 1e4 * sizes.min():
        columns = columns[:, np.argsort(-sizes, kind="stable")]
    reduced, _, _, _ = dgeqrf(columns.T, overwrite_a=True)
    return np.where(_upper(n), reduced[:n], 0.0)


@cache
def _upper(n: int) -> Array:
    return ~np.tri(n, k=-1, dtype=bool)
