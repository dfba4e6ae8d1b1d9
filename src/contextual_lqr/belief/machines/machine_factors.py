"""What each machine of a fleet has shown, and what the fleet then says about one of them.

Machine i has the matrix G_i (p, y) of its context, y = d + m. Its rows [y, x'] reduce by QR to

    R_i (y, y), upper triangular,   F_i = Qᵀx' (y, d),   and what least squares leaves over of each
    row r of [A, B]: the sum of squares rss_ir, with n_i - y degrees of freedom if n_i > y, else 0.

Row r of its [A, B] is G_iᵀθ_r + e_ir, e_ir ~ (0, S_r / w_ir), so that F_i[:, r] has mean
R_i G_iᵀθ_r and covariance σ_r² M_ir with M_ir = I + R_i (S_r / σ_r² w_ir) R_iᵀ = L_ir L_irᵀ.

    whitened rows    L_ir⁻¹ [R_i G_iᵀ, F_i[:, r]]: ordinary rows of the regression of θ_r
    pooled           U_r upper triangular, V_r = U_rᵀU_r = prior + Σ_i of the rows' squares
    one machine      mean G_iᵀθ_r, covariance G_iᵀ(σ_r² V_r⁻¹)G_i + S_r, and its own R_i, F_i

Leading axes are batch axes: N machines, and d rows r of [A, B].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from contextual_lqr import kernels
from contextual_lqr.belief.machines.machine_rows import MachineFactors, MachineRows
from contextual_lqr.checks import require

_LITTLE = 1e2  # own information in units of the prior's: subtracting costs two digits at most
_LARGE = 1e4  # a root beyond which squaring it would drown the noise of 1
_ROUNDS = 12
_EPSILON = float(np.finfo(np.float64).eps)


class Pooled(NamedTuple):
    """The fleet's regression: V_r = U_rᵀU_r; Cov θ_r = σ_r² V_r⁻¹.

    `inverted`: U holds W instead, V_r⁻¹ = W_rᵀW_r, as about a prior that may be certain.
    """

    U: Float[Array, "d p p"]
    theta: Float[Array, "d p"]
    inverted: bool = False

    def half(self, r: int, right: Float[Array, "n p k"]) -> Float[Array, "n p k"]:
        """U_r⁻ᵀ right: half of rightᵀ V_r⁻¹ right."""
        return self.U[r] @ right if self.inverted else _solve_transposed(self.U[r], right)


def whiten(
    factors: MachineFactors | MachineRows,
    deviations: Float[Array, "d y y"],
    variances: Float[Array, " d"],
    weights: Float[Array, "N d"] | None = None,
) -> tuple[Float[Array, "d N q p"], Float[Array, "d N q"]]:
    """L⁻¹ R Gᵀ and L⁻¹ F[:, r]: noise of variance σ_r² on each row, deviations included."""
    X = factors.reduced.X if isinstance(factors, MachineFactors) else factors.X
    N, q, p = X.shape
    d = factors.F.shape[2]
    rows, right = np.empty((d, N, q, p)), np.empty((d, N, q))
    for r in range(d):
        if not deviations[r].any():
            rows[r], right[r] = X, factors.F[:, :, r]
            continue
        root = factors.R @ (square_root(deviations[r]) / np.sqrt(variances[r]))
        if weights is not None:
            root = root / np.sqrt(weights[:, r, None, None])
        L = noise_factor(root)
        both = solve_lower(L, np.concatenate([X, factors.F[:, :, r, None]], axis=2))
        rows[r], right[r] = both[..., :p], both[..., p]
    return rows, right


def whitened_rows(
    factors: MachineFactors | MachineRows,
    deviations: Float[Array, "d y y"],
    variances: Float[Array, " d"],
    weights: Float[Array, "N d"] | None = None,
) -> Float[Array, "d k q"]:
    """The triangular factor of the whitened rows [X̃, f̃] of all machines, for each row r; q = p + 1.

    Those of parts of a fleet too large to hold are pooled as well as one.
    """
    require(len(factors), "there must be a machine to learn from")
    found: Array | None = None
    for some in factors.chunks():
        chosen = None if weights is None else weights[some]
        rows, right = whiten(factors[some], deviations, variances, chosen)
        d, p = len(rows), rows.shape[-1]
        new = np.concatenate([rows.reshape(d, -1, p), right.reshape(d, -1, 1)], axis=2)
        found = triangles(new if found is None else np.concatenate([found, new], axis=1))
    assert found is not None
    return found


def pool(*parts: Float[Array, "d _ q"], prior: ArrayLike = 0.0) -> Pooled:
    """The regression of Θ on whitened rows and a prior.

    `prior` has rows (k, p), or (d, k, p), that say `prior @ θ_r = 0` up to σ_r: √λ I for a ridge
    of λ; or its √λ_j alone, (p,).
    """
    d, _, q = parts[0].shape
    told = np.asarray(prior, float)
    if told.ndim < 2:
        told = np.diag(np.broadcast_to(told, q - 1))
    told = np.broadcast_to(told, (d, *told.shape[-2:]))
    told = np.concatenate([told, np.zeros((*told.shape[:2], 1))], axis=2)
    spare = np.zeros((d, q, q))  # so that there are p rows in any case
    rows = triangles(np.concatenate([*parts, told, spare], axis=1))
    U, right = rows[:, :-1, :-1], rows[:, :-1, -1]
    return Pooled(U, np.stack([_back_substitute(U[r], right[r]) for r in range(d)]))


class Belief(NamedTuple):
    """Mean and covariance of each row r of [A, B] of N machines."""

    means: Float[Array, "*N d y"]
    covariances: Float[Array, "*N d y y"]


def fleet_belief(
    maps: Float[Array, "*N p y"],
    pooled: Pooled,
    deviations: Float[Array, "d y y"],
    variances: Float[Array, " d"],
) -> Belief:
    """What the fleet says about machines of which nothing else is known: zero-shot."""
    G = np.asarray(maps)[..., None, :, :]
    U = pooled.U  # (*N, d, p, y): U⁻ᵀG
    spread = U @ G if pooled.inverted else solve_lower(U.swapaxes(-1, -2), G)
    covariances = variances[:, None, None] * (spread.swapaxes(-1, -2) @ spread) + deviations
    return Belief(np.einsum("...py,rp->...ry", maps, pooled.theta), covariances)


def leave_one_out(
    factors: MachineFactors,
    pooled: Pooled,
    deviations: Float[Array, "d y y"],
    variances: Float[Array, " d"],
    weights: Float[Array, "N d"] | None = None,
    machines: int | None = None,
) -> Belief:
    """What the other machines say about each machine: a downdate of y rows, not a fit.

    These may be some of all `machines` that the law was pooled from.

    With A = U⁻ᵀX̃ᵀ for the machine's whitened rows X̃, f̃ and C Cᵀ = I - AᵀA (Woodbury):

        V₋ᵢ⁻¹ = U⁻¹ (I + A C⁻ᵀ C⁻¹ Aᵀ) U⁻ᵀ,   θ₋ᵢ = θ - U⁻¹ A C⁻ᵀ C⁻¹ (f̃ - X̃θ)

    and as S is the mean of E[w e eᵀ] over N - p/y machines (θ takes the rest), that of all but one
    is (S - its share) times (N - p/y) / (N - p/y - 1), e about the mean of θ and θ₋ᵢ.
    """
    N, p, y = factors.maps.shape
    count = (N if machines is None else machines) - p / y
    d = factors.F.shape[2]
    means, covariances = np.empty((N, d, y)), np.empty((N, d, y, y))
    for some in factors.chunks():
        part = factors[some]
        w = None if weights is None else weights[some]
        rows, right = whiten(part, deviations, variances, w)
        all_in = np.einsum("npy,rp->nry", part.maps, pooled.theta)
        for r in range(d):
            theta = pooled.theta[r]
            spread = pooled.half(r, part.maps)  # U⁻ᵀG (n, p, y)
            A = pooled.half(r, rows[r].transpose(0, 2, 1))  # (n, p, y)
            at = A.transpose(0, 2, 1)
            error = (right[r] - rows[r] @ theta)[..., None]
            both = _over_gap(at @ A, np.concatenate([at @ spread, error], axis=2), len(theta))
            lost, error = both[..., :-1], both[..., -1:]  # C⁻¹ Aᵀ U⁻ᵀ G, C⁻¹ (f̃ - X̃θ)
            means[some, r] = all_in[:, r] - (lost.transpose(0, 2, 1) @ error)[..., 0]
            root = np.concatenate([spread, lost], axis=1)
            covariances[some, r] = variances[r] * (root.transpose(0, 2, 1) @ root)
        if deviations.any():
            midway = (all_in + means[some]) / 2
            covariances[some] += _of_others(part, midway, deviations, variances, w, count)
    return Belief(means, covariances)


def _over_gap(
    leverage: Float[Array, "N y y"], right: Float[Array, "N y k"], p: int
) -> Float[Array, "N y k"]:
    """C⁻¹ right, C Cᵀ = I - leverage; a machine that alone shows something has 1, to rounding."""
    found = np.empty_like(right)
    small = np.trace(leverage, axis1=1, axis2=2) < 0.5  # as almost all are: Cholesky will do
    C = np.linalg.cholesky(np.eye(leverage.shape[1]) - leverage[small])
    found[small] = solve_lower(C, right[small])
    if not small.all():
        values, P = np.linalg.eigh(leverage[~small])
        gap = np.maximum(1 - values, p * _EPSILON)
        found[~small] = P.transpose(0, 2, 1) @ right[~small] / np.sqrt(gap)[..., None]
    return found


def _of_others(
    factors: MachineFactors,
    mean: Float[Array, "N d y"],
    deviations: Float[Array, "d y y"],
    variances: Float[Array, " d"],
    weights: Float[Array, "N d"] | None,
    count: float,
) -> Float[Array, "N d y y"]:
    """S without each machine, positive semidefinite; S counts as the mean of `count` machines."""
    y = factors.R.shape[1]
    own = np.ones(mean.shape[:2]) if weights is None else weights
    S = deviations / own[..., None, None]
    K = square_root(S)
    e, U = _condition(factors.R, factors.F, mean, K, variances)  # in units of K
    half = solve_lower(U.swapaxes(-1, -2), np.broadcast_to(np.eye(y), U.shape))
    moment = half.swapaxes(-1, -2) @ half + e @ e.swapaxes(-1, -2)  # K⁻¹ E[eeᵀ] K⁻ᵀ
    values, vectors = np.linalg.eigh(moment)
    left = np.sqrt(np.maximum(count - values, 0) / max(count - 1, 1.0))
    # w E[eeᵀ] = (√w K) moment (√w K)ᵀ, and √w K is the root of S itself
    root = np.sqrt(own)[..., None, None] * K @ (vectors * left[..., None, :])
    return np.asarray(root @ root.swapaxes(-1, -2))


def machine_posterior(
    R_own: Float[Array, "*N y y"],
    F_own: Float[Array, "*N y d"],
    mean: Float[Array, "*N d y"],
    covariance: Float[Array, "*N d y y"],
    variances: Float[Array, " d"],
    degrees: Float[Array, " d"] | None = None,
) -> Belief:
    """The belief about machines once their own rows are known.

    With the prior covariance KKᵀ, row r is mean + Kz with z ~ (0, I), and least squares over z of
    [R K / σ; I] z = [(F - R mean) / σ; 0] by QR gives mean and covariance K (U⁻¹U⁻ᵀ) Kᵀ.

    With `degrees` ν the prior is Student's: c KKᵀ, with the c ≥ 1 that the machine's own rows ask
    for. By EM, c = (ν + E[zᵀz]) / (ν + y), z in units of K. So a machine far beyond the others is
    not drawn towards them.

    Where own rows say little beside the prior C, the same without its root, by the L of
    L Lᵀ = I + R C Rᵀ / σ²: mean + C RᵀL⁻ᵀ L⁻¹(F - R mean) / σ², and C - C RᵀL⁻ᵀ L⁻¹R C / σ².
    """
    R, sigma = R_own[..., None, :, :], np.sqrt(variances)[:, None, None]
    along = R @ covariance / sigma
    spread = along @ R.swapaxes(-1, -2) / sigma
    if degrees is None and np.abs(spread).max(initial=0.0) < _LITTLE:
        off = (F_own.swapaxes(-1, -2)[..., None] - R @ mean[..., None]) / sigma
        L = np.linalg.cholesky(np.eye(mean.shape[-1]) + spread)
        both = solve_lower(L, np.concatenate([along, off], axis=-1))
        found = both[..., :-1].swapaxes(-1, -2) @ both
        return Belief(mean + found[..., -1], covariance - found[..., :-1])
    K = square_root(covariance)
    z, U = _condition(R_own, F_own, mean, K, variances)
    if degrees is not None:
        y, c = mean.shape[-1], np.ones(mean.shape[:-1])
        for _ in range(_ROUNDS):
            half = solve_lower(U.swapaxes(-1, -2), np.broadcast_to(np.eye(y), U.shape))
            squares = c * (np.square(z).sum((-2, -1)) + np.square(half).sum((-2, -1)))
            before, c = c, np.maximum((degrees + squares) / (degrees + y), 1.0)
            if np.abs(c - before).max(initial=0.0) < 1e-3:
                break
            z, U = _condition(R_own, F_own, mean, K * np.sqrt(c)[..., None, None], variances)
        K = K * np.sqrt(c)[..., None, None]
    found = solve_lower(U.swapaxes(-1, -2), K.swapaxes(-1, -2))  # U⁻ᵀKᵀ
    posterior = mean + (K @ z)[..., 0]
    return Belief(posterior, found.swapaxes(-1, -2) @ found)


def _condition(R: Array, F: Array, mean: Array, K: Array, variances: Array) -> tuple[Array, Array]:
    """z (*N, d, y, 1) of row = mean + Kz given the machine's own rows, and U: Cov z = U⁻¹U⁻ᵀ."""
    y = mean.shape[-1]
    sigma = np.sqrt(variances)[:, None, None]
    R = R[..., None, :, :]
    rows = R @ K / sigma
    right = (F.swapaxes(-1, -2)[..., None] - R @ mean[..., None]) / sigma
    eye = np.broadcast_to(np.eye(y), rows.shape)
    top = np.concatenate([rows, right], axis=-1)
    bottom = np.concatenate([eye, np.zeros_like(right)], axis=-1)
    full = triangles(np.concatenate([top, bottom], axis=-2))
    U, z = full[..., :y, :y], full[..., :y, y:].copy()
    for j in reversed(range(y)):  # back substitution
        z[..., j, :] /= U[..., j, j, None]
        z[..., :j, :] -= U[..., :j, j, None] * z[..., j, None, :]
    return z, U


def square_root(covariance: Float[Array, "*N y y"]) -> Float[Array, "*N y y"]:
    """K with KKᵀ the covariance, which may be singular; in any units."""
    sizes = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0))
    safe = np.where(sizes > 0, sizes, 1)
    values, vectors = np.linalg.eigh(covariance / safe[..., None] / safe[..., None, :])
    return np.asarray(sizes[..., None] * vectors * np.sqrt(np.maximum(values, 0))[..., None, :])


def data_factor(
    R: Float[Array, "*M y y"], covariance: Float[Array, "*N y y"], variance: Array | float
) -> Float[Array, "*N y y"]:
    """L, lower triangular, with L Lᵀ = I + R C Rᵀ / σ²: what machines' own rows are, whitened."""
    variance = np.asarray(variance)[..., None, None]
    spread = R @ (covariance / variance) @ R.swapaxes(-1, -2)
    if np.abs(spread).max(initial=0.0) < _LARGE**2:
        return np.asarray(np.linalg.cholesky(np.eye(R.shape[-1]) + spread))
    return noise_factor(R @ square_root(covariance) / np.sqrt(variance))


def noise_factor(root: Float[Array, "N q k"]) -> Float[Array, "N q q"]:
    """L, lower triangular, with L Lᵀ = I + root rootᵀ."""
    N, q, _ = root.shape
    eye = np.eye(q)
    if np.abs(root).max(initial=0.0) < _LARGE:
        return np.asarray(np.linalg.cholesky(eye + root @ root.transpose(0, 2, 1)))
    stack = np.concatenate([root.transpose(0, 2, 1), np.broadcast_to(eye, (N, q, q))], axis=1)
    return triangles(stack).transpose(0, 2, 1)


def solve_lower(L: Float[Array, "*N q q"], right: Float[Array, "*M q k"]) -> Float[Array, "*B q k"]:
    """L⁻¹ right for many lower triangles at once, by forward substitution."""
    shape, q, k = np.broadcast_shapes(L.shape[:-2], right.shape[:-2]), *right.shape[-2:]
    many = np.broadcast_to(right, (*shape, q, k)).reshape(-1, q, k)
    if L.size > q * q:
        L = np.broadcast_to(L, (*shape, q, q))
    return kernels.solve_lower(L.reshape(-1, q, q), many).reshape(*shape, q, k)


def _solve_transposed(U: Array, right: Array) -> Array:
    """U⁻ᵀ right for one triangle and many right sides (n, p, k)."""
    n, p, k = right.shape
    flat = right.transpose(1, 0, 2).reshape(p, n * k)
    found = solve_triangular(U, flat, trans="T", check_finite=False)
    return np.asarray(found).reshape(p, n, k).transpose(1, 0, 2)


def triangles(rows: Float[Array, "*N n q"]) -> Float[Array, "*N k q"]:
    """The triangular factors of rows, its diagonal not negative."""
    R = np.asarray(np.linalg.qr(rows, mode="r"))
    signs = np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    R[..., : signs.shape[-1], :] *= signs[..., None]
    return R


def _back_substitute(U: Array, right: Array) -> Array:
    """U⁻¹ right; the smallest solution where neither data nor prior say anything."""
    sizes = np.sqrt(np.square(U).sum(0))
    safe = np.where(sizes > 0, sizes, 1)
    if np.abs(np.diagonal(U) / safe).min() > len(U) * _EPSILON:
        return np.asarray(solve_triangular(U, right, check_finite=False))
    return np.asarray(np.linalg.lstsq(U / safe, right, rcond=len(U) * _EPSILON)[0]) / safe
