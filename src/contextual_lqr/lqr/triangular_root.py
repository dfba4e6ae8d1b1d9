"""A root of a covariance to draw with."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array


def triangular_root(covariance: Float[Array, "*N y y"]) -> Float[Array, "*N y y"]:
    """The lower triangle L with LLᵀ the covariance, which may be singular; in any units.

    Unlike a root by eigenvectors it hardly moves when the covariance hardly does, and row r is of
    coordinate r alone: what is drawn with it is the same in all units.
    """
    sizes = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0))
    safe = np.where(sizes > 0, sizes, 1)
    left = covariance / safe[..., None] / safe[..., None, :]
    y, rounding = covariance.shape[-1], covariance.shape[-1] * np.finfo(float).eps
    with suppress(np.linalg.LinAlgError):  # LAPACK's, unless one is singular
        L = np.linalg.cholesky(left)
        if (np.square(np.diagonal(L, axis1=-2, axis2=-1)) > rounding).all():
            return np.asarray(sizes[..., None] * L)
    L = np.zeros_like(left)
    for j in range(y):
        pivot = left[..., j, j]
        told = pivot > rounding
        column = left[..., j] / np.sqrt(np.where(told, pivot, 1.0))[..., None]
        column = np.where(told[..., None], column, 0.0)
        column[..., :j] = 0.0
        L[..., j] = column
        left = left - column[..., :, None] * column[..., None, :]
    return np.asarray(sizes[..., None] * L)
