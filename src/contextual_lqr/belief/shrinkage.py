"""Regression about a prior: each row of Θ by itself, with a noise that the data tell.

Row r is Θ_r = Θ₀_r + √c K_r ζ with ζ ~ (0, I), K_r of `prior.py`, so that no covariance is inverted
and what is known stays known. With the factor [D E; 0 T] of the rows [z x'] and the decomposition
D K_r = P diag(q) Qᵀ, everything is a sum over the directions i of ζ, g = Pᵀ(E_r - D Θ₀_r):

    Θ̂_r       Θ₀_r + K_r Q ζ̂,   ζ̂_i = h_i g_i / q_i,   h_i = c q_i² / (v + c q_i²)
    Cov Θ_r    v WᵀW,   W = diag(√(c / (v + c q_i²))) QᵀK_rᵀ

h_i is the share of direction i that the data have told, and Σ h_i how many unknowns they were spent
on. The variance v of the noise and the stretch c of the prior maximise their likelihood, the
rough noise level counting as one observation and the prior as `_WORTH` directions; c is at least 1,
so that a prior which the data contradict gives way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machines.machine_factors import triangles
from contextual_lqr.belief.prior import Prior

_WORTH = 1.0
_ROUNDS = 200
_SETTLED = 1e-10
_CERTAIN = 1e9  # degrees of freedom that are as good as infinite


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Θ̂ about a prior; row r has the covariance variances[r] · W[r]ᵀW[r].

    `degrees` are those of the variances of the noise, `row_degrees` those of the covariances, which
    are as good as known while the prior speaks. `log_dets` has log det(I + c KᵀDᵀDK / v), `ranks`
    the number of unknowns, `told` how many of them the data have told, and `stretch` the c.
    """

    theta: Float[Array, "d p"]
    W: Float[Array, "d p p"]
    variances: Float[Array, " d"]
    degrees: Float[Array, " d"]
    row_degrees: Float[Array, " d"]
    log_dets: Float[Array, " d"]
    ranks: Float[Array, " d"]
    told: Float[Array, " d"]
    stretch: Float[Array, " d"]


def shrink(
    factors: Float[Array, "d k q"],
    rows: float,
    prior: Prior,
    level: Float[Array, " d"],
    variances: Float[Array, " d"] | None = None,
) -> Shrunk:
    """The regression of each row r of Θ on `rows` rows of factor [D_r, E_r] (q = p + 1).

    The noise has roughly the `level`, or exactly the `variances` if these are given.
    """
    p = prior.theta.shape[1]
    return shrink_rows(factors[..., :p], factors[..., p], rows, prior, level, variances)


def shrink_rows(
    D: Float[Array, "#d k p"],
    E: Float[Array, "d k"],
    rows: float,
    prior: Prior,
    level: Float[Array, " d"],
    variances: Float[Array, " d"] | None = None,
) -> Shrunk:
    """The same, its factors in two parts; D may be the same for all rows of Θ.

    Where K_r is the same too, as of states of one size, D K_r is decomposed once for all.
    """
    p, K = prior.theta.shape[1], prior.roots
    if len(D) == 1 and (K[:1] == K).all():
        K = K[:1]
    missing = max(p - D.shape[1], 0)  # so that there are p directions in any case
    if missing:
        D, E = np.pad(D, ((0, 0), (0, missing), (0, 0))), np.pad(E, ((0, 0), (0, missing)))
    f = E - (D @ prior.theta[:, :, None])[..., 0]
    P, q, Qt = np.linalg.svd(D @ K, full_matrices=False)
    g = (f[:, None] @ P)[:, 0]
    rest = np.maximum(np.square(f).sum(1) - np.square(g).sum(1), 0.0)
    squares, ranks = np.square(q), np.broadcast_to(K.any(1).sum(1), len(f))
    v, c = _likeliest(squares, g, rest, rows, np.square(level), variances)
    spread = v[:, None] + c[:, None] * squares
    share = c[:, None] * squares / spread
    told = share.sum(1)
    Q = Qt.swapaxes(1, 2)
    zeta = (c[:, None] * q * g / spread)[..., None]
    theta = prior.theta + (K @ (Q @ zeta))[..., 0]
    # As a triangle: what is drawn with it is then the same in all units.
    W = triangles(np.sqrt(c[:, None] / spread)[..., None] * (Qt @ K.swapaxes(1, 2)))
    degrees = 1 + np.maximum(rows - told, 0.0)
    # v has the relative variance 2 / degrees; of it, a covariance takes the share that is told.
    part = told / np.maximum(ranks, 1)
    row_degrees = np.minimum(degrees / np.maximum(np.square(part), 1e-300), _CERTAIN)
    log_dets = np.log1p(c[:, None] * squares / v[:, None]).sum(1)
    return Shrunk(theta, W, v, degrees, row_degrees, log_dets, ranks.astype(float), told, c)


def _likeliest(
    squares: Float[Array, "#d p"],
    g: Float[Array, "d p"],
    rest: Float[Array, " d"],
    rows: float,
    assumed: Float[Array, " d"],
    variances: Float[Array, " d"] | None,
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """v and c, by repetition; `rest` is of the data what no direction reaches."""
    v, c = assumed if variances is None else variances, np.ones(len(rest))
    squares, g = np.ascontiguousarray(squares.T), np.ascontiguousarray(g.T)
    for _ in range(_ROUNDS):
        before = v, c
        spread = v + c * squares
        unspread = np.square(g / spread)
        told = c * np.add.reduce(squares / spread, 0)
        # ζ̂² = c² q² g² / spread²; what it leaves of g is v / spread of it.
        explained = np.square(c) * np.add.reduce(squares * unspread, 0)
        c = np.maximum((_WORTH + explained) / (_WORTH + told), 1.0)
        if variances is None:
            left = rest + np.square(v) * np.add.reduce(unspread, 0)
            v = (assumed + left) / (1 + np.maximum(rows - told, 0.0))
        moved = np.abs(np.log(v / before[0])) + np.abs(np.log(c / before[1]))
        if moved.max(initial=0.0) < _SETTLED:
            break
    return v, c
