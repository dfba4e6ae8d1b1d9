"""Batches on their way to the kernels, which have one leading axis, and back."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import all_finite, read_only, require
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import ModelUncertainty


def staged(uncertainty: ModelUncertainty, steps: int) -> Array:
    """The covariances with an axis for the steps, which is 1 if all are alike."""
    C = uncertainty.covariances
    C = C[None] if C.ndim == 3 else C
    require(
        C.shape[-4] in (1, steps),
        f"the system has {steps} steps, so covariances must have shape (..., {steps}, d, d+m, d+m) "
        f"or (d, d+m, d+m), not {uncertainty.covariances.shape}",
    )
    return C


def of_steps(array: Array, core: int, system: Dynamics, shape: tuple[int, ...]) -> Array:
    """What may differ from step to step: with an axis for these, or without if it does not."""
    if system.steps is None:
        return flatten(array, core, shape)
    alike = array.shape[-core - 1] == 1
    return (
        flatten(array.squeeze(-core - 1), core, shape) if alike else flatten(array, core + 1, shape)
    )


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
