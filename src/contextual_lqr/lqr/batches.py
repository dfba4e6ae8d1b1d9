"""Batches on their way to the kernels, which have one leading axis, and back."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import all_finite, read_only


def flatten(array: Array, core: int, batch: tuple[int, ...]) -> Array:
    """One leading axis: as long as the batch, or 1 where all members share the array."""
    leading, own = array.shape[:-core], array.shape[-core:]
    if own[0]:  # the usual cases, and quick
        if not leading:
            return array[None]
        if leading == batch and len(batch) == 1:
            return array
    if leading != batch and any(size != 1 for size in leading):
        array = np.ascontiguousarray(np.broadcast_to(array, batch + own))
    return array.reshape(-1, *own) if own[0] else np.zeros((1, *own))


def unflatten(array: Array | None, batch: tuple[int, ...]) -> Array:
    """What the kernels have found, in the shape of the batch, read-only."""
    assert array is not None  # it was asked for
    if len(batch) != 1:
        array = array.reshape(batch + array.shape[1:]) if batch else array[0, ...]
    return read_only(array)


def or_infinite(cost: Float[Array, "*batch"]) -> np.float64 | Float[Array, "*batch"]:
    """NaN is what overflow leaves of terms with different signs, or a member without solution."""
    if all_finite(cost):  # the usual case, and quick
        return cost[()]
    return np.where(np.isnan(cost), np.inf, cost)[()]
