"""The least of a convex quadratic over positive definite matrices, less a multiple of log|T|."""

from __future__ import annotations

import numpy as np
from numpy import ndarray as Array
from scipy.linalg.lapack import dpotrf, dpotrs

from contextual_lqr.belief.machines.machine_factors import solve_lower

_PASSES = 60
_SINGULAR = 1e-6  # of a Cholesky factor: beyond that, least squares must tell what is free


def least_quadratic(T: Array, g: Array, H: Array, barrier: float) -> Array:
    """min over positive definite T' of g·(T' - T) + (T' - T) H (T' - T) / 2 - barrier log|T'|.

    By Newton's method; the quadratic and the barrier are convex.
    """
    k = len(T)
    i, j = np.tril_indices(k)  # a symmetric matrix by its lower triangle, t
    twice = np.where(i == j, 1.0, 2.0)  # how often each number of it counts
    lower, upper = i * k + j, j * k + i
    h = (H[lower] + H[upper]) * (twice / 2)[:, None]
    h = (h[:, lower] + h[:, upper]) * (twice / 2)
    g = twice * (g + g.T)[i, j] / 2
    start, here = T, T

    def value(at: Array) -> float:
        t = (at - start)[i, j]
        return float(g @ t + t @ h @ t / 2) - barrier * log_det(at)

    for _ in range(_PASSES):
        half = solve_lower(np.linalg.cholesky(here), np.eye(k))
        inverse = half.T @ half
        slope = g + h @ (here - start)[i, j] - barrier * twice * inverse[i, j]
        # The second derivative of -log|T| along t_ij and t_kl: T⁻¹_ik T⁻¹_jl, over both orders.
        turn = inverse[i][:, i] * inverse[j][:, j] + inverse[i][:, j] * inverse[j][:, i]
        curve = h + barrier / 2 * twice[:, None] * turn * twice
        move = -_solve_definite(curve, slope)
        gain = -float(slope @ move)
        full = np.zeros((k, k))
        full[i, j] = full[j, i] = move
        share, now = 1.0, value(here)
        while share > 1e-8 and not value(here + share * full) <= now - 0.1 * share * gain:
            share /= 2
        here = here + share * full if share > 1e-8 else here
        if gain < 1e-12 or share <= 1e-8:
            break
    return here


def _solve_definite(curve: Array, slope: Array) -> Array:
    """curve⁻¹ slope, by Cholesky; by least squares where the curve is only semidefinite."""
    size = np.sqrt(np.maximum(np.diagonal(curve), 0.0))
    if (size > 0).all():
        factor, failed = dpotrf(curve / size[:, None] / size, lower=1)
        if not failed and np.diagonal(factor).min() > _SINGULAR:
            return np.asarray(dpotrs(factor, slope / size, lower=1)[0] / size)
    return np.asarray(np.linalg.lstsq(curve, slope, rcond=1e-14)[0])


def log_det(T: Array) -> float:
    """log|T|, -inf unless T is positive definite."""
    values = np.linalg.eigvalsh(T)
    return float(np.log(values).sum()) if values[0] > 0 else -np.inf
