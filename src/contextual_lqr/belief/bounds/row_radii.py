"""How far each row of Θ may be off, and between which limits the noise lies.

    ‖(Θ_i - Θ̂_i) Rᵀ‖ ≤ s_i,    V = RᵀR = λI + Σ zzᵀ,    i = 1 .. d

    determinant   s_i = √λ c_i + σ_i √(2 (log d + ½ log(det V / λᵖ) + log 1/δ))
    regression    s_i = √λ c_i + σ_i √(p F),   F the 1 - δ/d quantile of Fisher's F(p, ν)

The first is the step of the paper's proof before the rows are summed (`DeterminantBeta` adds their
squares up); it holds for inputs chosen in any way. The second is the ellipsoid of linear
regression, exact for Gaussian noise if the inputs do not respond to it, and nearly so in long logs.
Rows of Θ that are known do not move, and do not count among the d. About a prior, V_i of each row
holds its covariance in place of λ, and the ratio of determinants is that of `shrinkage.py`; the
first term is the χ² limit of the prior's own deviation, for half of δ. c_i bounds ‖Θ_i‖: twice the
norm of its estimate. σ_i is the noise of a coordinate, if it is estimated with its χ² limits: half
of δ is spent on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import chdtri, fdtri, gammaincinv

from contextual_lqr.belief.bounds.cost_search import PlausibleMachines, triangles_of
from contextual_lqr.belief.confidence import BetaRule, ConfidenceSet
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.shrinkage import Shrunk
from contextual_lqr.checks import require
from contextual_lqr.lqr.stationary import Cost


@dataclass(frozen=True, eq=False)
class RowRadii:
    """s_i of each row (`joint`: together they stay within √β), the noise, and its limits."""

    rows: Float[Array, " d"]
    joint: bool
    noise: Float[Array, "d d"]
    least_noise: Float[Array, "d d"]
    most_noise: Float[Array, "d d"]

    def with_variances(self, variances: Float[Array, " d"]) -> RowRadii:
        """The same with noise of these variances: where machines deviate, residuals have more."""
        before = np.diagonal(self.noise)
        scale = np.sqrt(np.where(before > 0, variances / np.where(before > 0, before, 1.0), 0.0))

        def scaled(W: Array) -> Array:
            return np.asarray(scale[:, None] * W * scale)

        noises = (scaled(W) for W in (self.noise, self.least_noise, self.most_noise))
        return RowRadii(self.rows, self.joint, *noises)


def row_radii(
    decoder: Decoder,
    beta: str | float | BetaRule,
    delta: float,
    noise: Float[Array, "d d"] | None = None,
) -> RowRadii:
    """The reach of a decoder's rows; `noise` if it is known."""
    d, p = decoder.estimate.shape
    degrees = max(decoder.rows - p, 0) + 1  # the noise level counts as one observation
    W, least, most = decoder.noise_estimate if noise is None else noise, 1.0, 1.0
    if noise is None:
        # ν Ŵ / W is χ² with ν degrees along any direction; a weighted sum of them varies less.
        delta = delta / 2
        least = degrees / float(chdtri(degrees, delta / 2))
        most = degrees / max(2 * float(gammaincinv(degrees / 2, delta / 2)), 1e-300)
    free = np.ones(d)
    free[list(decoder.known)] = 0.0
    if callable(beta) or not isinstance(beta, str):
        joint = ConfidenceSet(decoder, beta).beta
        return RowRadii(np.sqrt(joint) * free, True, W, least * W, most * W)
    require(
        beta in ("determinant", "regression"),
        f'beta must be "determinant", "regression", a number or a rule, not {beta!r}',
    )
    regression = decoder.regression
    sigma, unknown = np.sqrt(np.maximum(np.diagonal(W), 0.0)), free.sum()
    if decoder.prior is not None:
        rows = _about_prior(decoder.shrunk, beta, delta / unknown, most) * free
        return RowRadii(np.sqrt(decoder.shrunk.variances) * rows, False, W, least * W, most * W)
    prior = 2 * np.linalg.norm(np.sqrt(regression.prior) * decoder.estimate, axis=1)
    if beta == "determinant":
        spread = max((decoder.log_det - regression.log_det_prior) / 2, 0.0)
        inside = 2 * (np.log(unknown) + spread + np.log(1 / delta))
        rows = prior + sigma * np.sqrt(most * inside)
    else:
        quantile = float(chdtri(p, delta / unknown)) / p
        if noise is None:
            quantile = float(_exceeded(p, degrees, delta / unknown))
        rows = prior + sigma * np.sqrt(p * quantile)
    return RowRadii(rows * free, False, W, least * W, most * W)


def _about_prior(found: Shrunk, beta: str, delta: float, most: float) -> Float[Array, " d"]:
    """The reach of each row in deviations of the noise.

    How well that is known, `most` of it, counts as far as it is data that speak.
    """
    k = np.maximum(found.ranks, 1)
    most = 1 + (most - 1) * found.told / k
    if beta == "regression":
        return np.asarray(np.sqrt(k * _exceeded(k, found.row_degrees, delta)))
    prior = np.sqrt(chdtri(k, delta / 2))
    return np.asarray(prior + np.sqrt(most * (found.log_dets + 2 * np.log(2 / delta))))


def _exceeded(p: Any, degrees: Any, delta: float) -> Any:
    """What Fisher's F(p, degrees) exceeds with probability δ, however small: 1/F is an F too."""
    return 1 / fdtri(degrees, p, delta)


def plausible_machines(
    decoder: Decoder,
    G: Float[Array, "n p y"],
    belief: MachineBelief,
    radii: RowRadii,
    delta: float,
    cost: Cost,
    start: Float[Array, " d"],
) -> PlausibleMachines:
    """The machines with these context matrices, and all the dynamics plausible for each.

    A row of [A, B] in which machines deviate from the law lies in the ellipsoid of its own
    covariance C: with probability 1 - δ/d, (M - M̂) C⁻¹ (M - M̂)ᵀ ≤ y F, F the quantile of Fisher's
    F(y, degrees).
    """
    T = triangles_of(decoder.posterior.halves(G))
    population = decoder.population
    rows = np.zeros(len(radii.rows), bool) if population is None else population.deviating
    if not rows.any():
        return PlausibleMachines(belief.mean, T, radii.rows, radii.joint, cost, start)
    n, d, y = belief.mean.shape
    triangles, reach = np.broadcast_to(T, (n, d, y, y)).copy(), radii.rows.copy()
    triangles[:, rows] = belief.roots[:, rows].mT
    degrees = belief.degrees.reshape(-1, d).min(0)  # one reach for all
    quantiles = fdtri(y, degrees[rows], 1 - delta / d)
    reach[rows] = np.sqrt(y * quantiles)
    return PlausibleMachines(belief.mean, triangles, reach, False, cost, start)
