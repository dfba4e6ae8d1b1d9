"""Whether inputs act as the law says where they do not follow the states.

Under a controller that was tuned to the machine it runs, what is played depends on what the machine
is: where inputs act weakly gains are high, and all loops look alike. A law for all machines takes
that for inputs that hardly act, and for machines that hardly deviate. The part of an input that
does not follow the states, its dither, is not deceived: with [x; u] = Q R, and R and F = Qᵀx' cut
below the states,

    F_u = R_uu B_iᵀ + noise

whatever A_i is. If B_i is diag(1 + γ) times what the law has, one γ for an input of all machines,
then z_ir = F_u - R_uu b_ir = R_uu diag(b_ir) γ + noise, for the rows r that are learnt; by least
squares, and with the variance that the machines themselves show, γ should be 0.

Where the dither is too weak to say so, it matters whether feedback differed from machine to
machine: K_i = (R_xx⁻¹ R_xu)ᵀ, but for what a line in the features of the context explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import stdtr

from contextual_lqr.belief.machines.machine_rows import MachineFactors
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.certificates.model_tests.explained import EXACT
from contextual_lqr.certificates.model_tests.finding import numbered

LEVEL = 0.001
_MATTERS = 0.1  # of an input's strength: the cost of less is below what is trusted
_OPEN, _DIFFER = 0.3, 0.02  # how far off it may be, where feedback differs by so much of itself
_FEWEST, _MACHINES = 5, 1000  # machines, and at most that are looked at, spread over all
_RANK = 1e-9
_ASKED = (
    "were machines logged under controllers tuned to each of them? (one controller for all, or "
    "more dither, would tell)"
)


class _Strengths(NamedTuple):
    """γ of each input, and its standard deviation."""

    gamma: Float[Array, " m"]
    deviation: Float[Array, " m"]


def deceived(population: Population | None, names: Sequence[str] | None = None) -> str:
    """Which input acts differently where it is free, or may, in words; "" if none does.

    `names` are those of all states and inputs.
    """
    if population is None or population.given or len(population.factors) < _FEWEST:
        return ""
    places = np.linspace(0, len(population.factors) - 1, _MACHINES).astype(int)
    some = population.factors[np.unique(places)]
    found = _strengths(population, some)
    if found is None:
        return ""
    gamma, deviation = found
    d, m = some.F.shape[2], len(gamma)
    inputs = (numbered(d, m) if names is None else names)[d:]
    p_values = 2 * stdtr(len(some) - len(gamma), -np.abs(gamma) / deviation)
    told = (p_values <= LEVEL / len(gamma)) & (np.abs(gamma) > _MATTERS)
    if told.any():
        j = int(np.argmin(np.where(told, p_values, np.inf)))
        return (
            f"where it does not follow the states, {inputs[j]} acts {1 + gamma[j]:.2g} times as "
            f"strongly as the law says: {_ASKED}"
        )
    unsure = np.abs(gamma) + 2 * deviation
    if (unsure > _OPEN).any() and _feedback_differs(some):
        return (
            f"the part of {inputs[int(np.argmax(unsure))]} that does not follow the states "
            f"hardly shows how it acts: {_ASKED}"
        )
    return ""


def _strengths(population: Population, factors: MachineFactors) -> _Strengths | None:
    d = factors.F.shape[2]
    sizes = np.square(factors.F).sum((0, 1)) / max(factors.rows.sum(), 1.0)
    noisy = population.variances > EXACT**2 * sizes  # the others are as good as given
    learnt = [r for r in range(d) if r not in population.known and noisy[r]]
    N, m = len(factors), factors.R.shape[2] - d
    if not learnt or not 1 <= m < N:
        return None
    B = np.einsum("rp,npy->nry", population.pooled.theta[learnt], factors.maps[:, :, d:])
    R, F = factors.R[:, d:, d:], factors.F[:, d:, learnt].transpose(0, 2, 1)
    level = np.sqrt(population.variances[learnt])[:, None]
    W = R[:, None] * B[:, :, None] / level[..., None]  # (N, rows, m, m)
    z = (F - np.einsum("nij,nrj->nri", R, B)) / level
    H, g = np.einsum("nrij,nrik->jk", W, W), np.einsum("nrij,nri->j", W, z)
    size = np.sqrt(np.diagonal(H))
    if not np.isfinite(H).all() or not (size > 0).all():
        return None
    H = H / np.outer(size, size)  # in units of each input
    if np.linalg.cond(H) > 1 / _RANK:
        return None
    gamma = np.linalg.solve(H, g / size) / size
    scores = np.einsum("nrij,nri->nj", W, z - W @ gamma) / size  # of each machine
    half = np.linalg.solve(H, scores.T) / size[:, None]
    deviation = np.sqrt(np.square(half).sum(1) * N / (N - m))
    return _Strengths(gamma, np.maximum(deviation, 1e-300))


def _feedback_differs(factors: MachineFactors) -> bool:
    """Whether machines were fed back differently, by more than contexts and dither explain."""
    d = factors.F.shape[2]
    states, played = factors.R[:, :d, :d], factors.R[:, :d, d:]
    sizes = np.sqrt(np.square(states).sum((0, 1)))
    states = states / np.where(sizes > 0, sizes, 1.0)
    gains = np.linalg.pinv(states, rcond=_RANK) @ played  # (N, d, m), in units of the states
    features = factors.maps.reshape(len(factors), -1)
    features = np.concatenate((np.ones((len(factors), 1)), features), 1)
    usual = np.abs(features).max(0)
    features = features[:, usual > 0] / usual[usual > 0]
    U, values, _ = np.linalg.svd(features, full_matrices=False)
    U = U[:, values > _RANK * values[0]]
    flat = gains.reshape(len(gains), -1)
    rest = (flat - U @ (U.T @ flat)).reshape(gains.shape)
    spare = len(gains) / max(len(gains) - U.shape[1], 1)
    differ, dither = np.square(states @ rest).sum() * spare, np.square(factors.R[:, d:, d:]).sum()
    return bool(differ > max(dither, _DIFFER**2 * np.square(played).sum()))
