"""How much machines deviate from the law, by restricted maximum likelihood over their factors.

For each row r of [A, B] by itself, with the factors R_i, F_i, X_i = R_i G_iᵀ of machine_factors:

    f_i = F_i[:, r] ~ (X_i θ, σ² M_i),   M_i = I + R_i T R_iᵀ / w_i,   S = σ² T

    -2 log L(T) = ν log σ̂²(T) + Σ log|M_i| + log|Σ X_iᵀM_i⁻¹X_i|,   ν = Σ n_i - rank X
    σ̂²(T) = (Σ rss_i + Σ (f_i - X_iθ̂)ᵀ M_i⁻¹ (f_i - X_iθ̂)) / ν

Gradient and expected information take one pass over the machines each: with R̃ = L⁻¹R, f̃ likewise,
and Q_i the machine's part of the Q of all whitened X̃_i,

    W_i = R̃ᵀR̃ - R̃ᵀQ_iQ_iᵀR̃,   v_i = R̃ᵀ(f̃ - X̃θ̂) / σ̂,   g = Σ W_i - v_i v_iᵀ,   H = Σ W_i ⊗ W_i

so each step minimises a convex quadratic over positive definite T, less κ log|T|: the prior of
Chung et al. (2015), which no rescaling or turning of the coordinates changes, worth one machine,
that keeps T off the boundary when machines are few. Coordinates in which Σ W_i = N I make all of it
indifferent to units, and to states that nearly tell each other. A prior of Θ that somebody has
stated, P for row r of a machine, says how far machines may be off: less κ (log|T| - tr P⁻¹S), which
is largest at S = P, and S = 0 in what is known.

Machines with a wrong label must not spoil S and θ. A Student distribution of e_i, its degrees
estimated, is fitted first; w_i is 1 for machines that it can explain, and nearly 0 for others. We
do not return the Student fit itself: where deviations are skewed (as in the heating of houses), its
mean and spread are those of the typical machine, and a controller must mind the others too.

Where one law for all machines is not rejected against a law for each of them (an exact F test),
S is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from scipy.special import chdtrc, chdtri, fdtrc, fdtri

from contextual_lqr.belief.bounds.log_det_barrier import least_quadratic, log_det
from contextual_lqr.belief.machines.machine_factors import (
    noise_factor,
    solve_lower,
    square_root,
)
from contextual_lqr.belief.machines.machine_rows import MachineFactors, MachineRows
from contextual_lqr.belief.machines.student_tails import heaviness, spectra, student
from contextual_lqr.belief.prior import Prior
from contextual_lqr.checks import require

_MACHINES = 1000  # of which S is estimated; more would not change it enough to matter
_LEVEL = 0.01  # of the test of S = 0
_PASSES = 60
_TOLERANCE = 1e-8  # of a step, squared, in standard errors
_ROUNDING = 1e-12
_ROUNDS = 4  # of choosing degrees and weighting machines
_SETTLED = 1e-3  # change of a weight
_RANK = 1e-10
_NOISELESS = 1e-12  # of the size of x': smaller errors are rounding


@dataclass(frozen=True)
class Deviations:
    """How machines deviate: e_ir ~ (0, covariances[r]), with tails as of Student's distribution."""

    theta: Float[Array, "d p"]  # without a prior
    covariances: Float[Array, "d y y"]  # S_r
    variances: Float[Array, " d"]  # σ_r²
    degrees: Float[Array, " d"]  # of the tails; infinite if Gaussian
    p_values: Float[Array, " d"]  # of one law for all machines
    machines: int  # that this was estimated from


def estimate_deviations(
    factors: MachineFactors,
    changing: MachineRows | None = None,
    *,
    known: Float[Array, "d p"] | None = None,
    skip: Bool[Array, " d"] | None = None,
    used: Bool[Array, "d y"] | None = None,
    stated: Prior | None = None,
    robust: bool = True,
    shrinkage: float = 1.0,
    rng: np.random.Generator | None = None,
) -> Deviations:
    """S_r, σ_r² and the degrees of freedom of the deviations, for each row r.

    `robust` sets aside machines far beyond the others. `shrinkage` is κ, how many machines the
    prior of S_r is worth. `changing` are machines whose context changes. A row of `known` that is
    finite is the true θ_r: S_r is 0 unless the data contradict it. Rows to `skip` have S_r = 0,
    and if they are known they are untested. Where features are those of a row alone, G = I, it has
    those that are `used`. A prior that somebody has `stated` says how far machines may be off, too.
    Of many machines, `rng` draws some.
    """
    constant = len(factors)
    N = constant + (0 if changing is None else len(changing))
    require(N, "there must be a machine to learn from")
    _, p, y = factors.maps.shape
    d = factors.F.shape[2]
    chosen = np.arange(N)
    if N > _MACHINES:
        rng = rng or np.random.default_rng(0)
        chosen = np.sort(rng.choice(N, _MACHINES, replace=False))
    some = factors[chosen[chosen < constant]].reduced
    if changing is not None:
        some = some.beside(changing[chosen[chosen >= constant] - constant])
    X = some.X
    theta, S, variances = np.zeros((d, p)), np.zeros((d, y, y)), np.zeros(d)
    degrees, p_values = np.full(d, np.inf), np.ones(d)
    basis = _directions(some.R) * np.sqrt(len(some.R))
    turned = some.R @ basis
    for r in range(d):
        given = known is not None and bool(np.isfinite(known[r]).all())
        own: Any = slice(None) if used is None else np.flatnonzero(used[r])
        design, f = X[:, :, own], some.F[:, :, r]
        if known is not None and given:
            design, f = X[:, :, :0], f - X @ known[r]
        R, directions, prior = turned, basis, None
        if stated is not None and not given:
            law = stated.roots[r][:, stated.roots[r].any(0)]
            reach = _reach(factors.maps, law)
            design, f = X @ law, f - X @ stated.theta[r]
            R, directions, prior = _turned(some.R, reach)
        elif used is not None:
            R, directions, _ = _turned(some.R, np.eye(y)[:, own])
        rss = float(some.rss[:, r].sum())
        row = _Row(R, directions, design, f, rss, some.told, some.spare, prior)
        if known is not None and given and skip is not None and skip[r]:
            theta[r], variances[r] = known[r], row.variance_of_known
            continue
        fit, p_values[r] = row.one_law()
        if p_values[r] < _LEVEL and not (skip is not None and skip[r]):
            deviating, tails = row.fit(shrinkage, robust)
            if p_values[r] < 0:  # nothing spare to test with: by the likelihood ratio instead
                p_values[r] = row.likelihood_ratio(fit, deviating)
            if p_values[r] < _LEVEL:
                fit, degrees[r] = deviating, tails
                S[r] = fit.variance * (row.basis @ fit.T @ row.basis.T)
        variances[r] = fit.variance
        found = row.columns @ fit.theta
        if known is not None and given:
            theta[r] = known[r]
        elif stated is not None:
            theta[r] = stated.theta[r] + law @ found
        else:
            theta[r, own] = found
    S = (S + S.transpose(0, 2, 1)) / 2
    return Deviations(theta, S, variances, degrees, np.abs(p_values), len(some))


def machine_weights(factors: MachineRows, found: Deviations) -> Float[Array, "N d"]:
    """w_ir: 1 for a machine within the tails of the fleet, nearly 0 for one far beyond them."""
    weights = np.ones((len(factors), len(found.theta)))
    for r in np.flatnonzero(found.covariances.any((1, 2))):
        f = factors.F[:, :, r] - factors.X @ found.theta[r]
        sigma = np.sqrt(found.variances[r])
        L = noise_factor(factors.R @ square_root(found.covariances[r]) / sigma)
        distances = np.square(solve_lower(L, f[:, :, None] / sigma)).sum((1, 2))
        weights[:, r] = _weights(distances, factors.told, float(found.degrees[r]), found.machines)
    return weights


def _weights(distances: Array, sizes: Array, degrees: float, machines: int) -> Array:
    """Weights by δ = fᵀM⁻¹f / σ², which is about q times an F(q, degrees) variable."""
    heavier = 1 - 2 / degrees  # of the scale of a Student to its covariance
    tail = _LEVEL / machines
    if np.isinf(degrees):
        limits = chdtri(sizes, tail)
    else:
        limits = sizes / fdtri(degrees, sizes, tail) * heavier  # 1 / F(q, ν) is F(ν, q)
    return np.where(distances > limits, np.square(sizes / np.maximum(distances, limits)), 1.0)


class _Fit(NamedTuple):
    """One pass over the machines at T: the likelihood, and its derivatives in coordinates U e."""

    T: Array  # (k, k), in the coordinates of `_Row.basis`
    theta: Array  # in the columns of `_Row.columns`
    minus_2_log_likelihood: float
    variance: float
    U: Array  # (k, k)
    g: Array  # (k, k)
    H: Array  # (k², k²)
    residuals: Array  # (N, q)


class _Row:
    """The regression of one row r of [A, B] on the factors of many machines."""

    def __init__(
        self,
        turned: Array,
        basis: Array,
        X: Array,
        f: Array,
        rss: float,
        sizes: Array,
        spare: Array,
        prior: Array | None = None,
    ) -> None:
        # What no machine has shown cannot be seen to deviate; in these directions ΣR_iᵀR_i = N I.
        self.turned, self.basis = turned, basis
        self.X, self.f, self.rss = X, f, rss
        self.sizes = sizes
        # Independent columns only: then REML needs no prior, and Q is orthonormal.
        self.columns = _directions(X)
        self.X = X @ self.columns
        self.between = float(self.sizes.sum()) - self.X.shape[2]
        self.within = float(spare.sum())
        size = float(np.square(f).sum()) / max(self.f.size, 1)
        self.floor = max(_NOISELESS**2 * size, float(np.finfo(float).tiny))
        # From a T too large Fisher's steps are those of EM; from one too small they overshoot.
        self.large = 1e2
        self.prior = np.zeros((basis.shape[1],) * 2) if prior is None else prior
        if self.within > 0:
            self.prior = max(rss / self.within, self.floor) * self.prior  # of T = S / σ²

    @property
    def variance_of_known(self) -> float:
        """σ² of a row of which nothing is to be learnt: f has its law taken away."""
        freedom = max(self.between + self.within, 1.0)
        return float(max((self.rss + np.square(self.f).sum()) / freedom, self.floor))

    def one_law(self) -> tuple[_Fit, float]:
        """The fit if S = 0, and the p-value of that (-1 if nothing is spare to test it with)."""
        k = self.basis.shape[1]
        at = self._pass(np.zeros((k, k)), np.ones(len(self.f)))
        left = float(np.square(at.residuals).sum())
        if self.between <= 0:
            return at, 1.0
        if self.within <= 0:
            return at, -1.0
        noise = max(self.rss / self.within, self.floor)
        ratio = left / self.between / noise
        self.large = max(left / noise / len(self.f), 1.0)
        return at, float(fdtrc(self.between, self.within, ratio))

    def fit(self, shrinkage: float, robust: bool) -> tuple[_Fit, float]:
        """T by restricted maximum likelihood, and the degrees of its tails."""
        ones = np.ones(len(self.f))
        degrees = np.inf
        eye = np.eye(self.basis.shape[1])
        start: Array = self.large * eye
        if self.prior.any():  # which says what is too large
            start = np.linalg.solve(eye / self.large + self.prior, eye)
        at = gaussian = self._maximise(start, ones, shrinkage)
        for _ in range(_ROUNDS if robust else 0):
            before, (degrees, factor) = degrees, heaviness(*self._spectra(at))
            if degrees == before:
                break
            at = self._reweight(at._replace(T=at.T * factor), degrees, shrinkage)
        if np.isinf(degrees):
            return gaussian, degrees
        lam, z = self._spectra(at)
        distances = (np.square(z) / (1 + lam)).sum(1) * (1 - 2 / degrees)
        weights = _weights(distances, self.sizes, degrees, len(self.f))
        if (weights == 1).all():
            return gaussian, degrees
        return self._maximise(at.T / (1 - 2 / degrees), weights, shrinkage), degrees

    def _reweight(self, at: _Fit, degrees: float, shrinkage: float) -> _Fit:
        """EM for the Student distribution, its weights relative to their mean (van Dyk 1997)."""
        weights = np.ones(len(self.f))
        for _ in range(_PASSES):
            before, weights = weights, student(*self._spectra(at), degrees)[1]
            weights /= weights.mean()
            at = self._maximise(at.T, weights, shrinkage, passes=1)
            if np.abs(np.log(weights / before)).max() < _SETTLED:
                break
        return at

    def _spectra(self, at: _Fit) -> tuple[Array, Array]:
        return spectra(self.turned @ square_root(at.T), at.residuals / np.sqrt(at.variance))

    def likelihood_ratio(self, one_law: _Fit, fit: _Fit) -> float:
        """The p-value of S = 0 by the likelihood ratio.

        T is on the boundary then: about half of its k (k + 1) / 2 numbers are free.
        """
        k = self.basis.shape[1]
        ratio = one_law.minus_2_log_likelihood - fit.minus_2_log_likelihood
        return float(chdtrc(k * (k + 1) / 4 + 1, max(ratio, 0.0)))

    def _maximise(self, T: Array, weights: Array, shrinkage: float, passes: int = _PASSES) -> _Fit:
        """Fisher scoring over positive definite T, halving a step that does not gain."""

        def objective(at: _Fit) -> float:
            prior = float((self.prior * at.T).sum()) - log_det(at.T)
            return at.minus_2_log_likelihood + shrinkage * prior

        at = self._pass(T, weights, shrinkage)
        for _ in range(passes):
            root = at.U @ square_root(at.T)
            here = root @ root.T  # not U T Uᵀ, in which sizes that differ much cancel
            try:
                g = at.g
                if self.prior.any():
                    g = g + shrinkage * np.linalg.solve(
                        at.U.T, np.linalg.solve(at.U.T, self.prior).T
                    )
                step = least_quadratic(here, g, at.H, shrinkage) - here
            except np.linalg.LinAlgError:  # singular within rounding: single rows, fitted exactly
                return at
            decrement = float(step.ravel() @ at.H @ step.ravel())
            back = np.linalg.solve(at.U, np.linalg.solve(at.U, step).T)
            if not np.isfinite(back).all():  # one machine alone: nothing says how machines deviate
                return at
            share, new = 1.0, at
            while share > 1e-6:
                new = self._pass(at.T + share * (back + back.T) / 2, weights, shrinkage)
                if objective(new) <= objective(at) + _ROUNDING * abs(objective(at)):
                    break
                share /= 2
            else:
                return at
            at = new
            if decrement < _TOLERANCE:
                return at
        return at

    def _pass(self, T: Array, weights: Array, shrinkage: float = 0.0) -> _Fit:
        N, q, k = self.turned.shape
        p = self.X.shape[2]
        R = self.turned / np.sqrt(weights)[:, None, None]
        L = noise_factor(R @ square_root(T))
        both = np.concatenate([R, self.X, self.f[:, :, None]], axis=2)
        both = solve_lower(L, both)
        R, X, f = both[:, :, :k], both[:, :, k : k + p].reshape(N * q, p), both[:, :, -1]
        value = 2 * float(np.log(np.diagonal(L, axis1=1, axis2=2)).sum())
        U = np.linalg.qr(R.reshape(-1, k), mode="r") / np.sqrt(N)
        R = solve_lower(U.T[None], R.reshape(1, -1, k).transpose(0, 2, 1))[0]  # U e
        R = np.ascontiguousarray(R.reshape(k, N, q).transpose(1, 0, 2))  # (N, k, q)
        W = R @ R.transpose(0, 2, 1)
        theta = np.zeros(0)
        if p:
            Q, A = np.linalg.qr(X)
            value += 2 * float(np.log(np.abs(np.diagonal(A))).sum())
            along = Q.T @ f.reshape(-1)
            theta = np.linalg.solve(A, along)
            f = f - (Q @ along).reshape(f.shape)
            seen = R @ Q.reshape(N, q, p)
            W -= seen @ seen.transpose(0, 2, 1)
        freedom = max(self.between + self.within, 1.0)
        freedom = max(freedom - shrinkage * k, freedom / 2)  # the prior is on S = σ²T
        variance = max((self.rss + float(np.square(f).sum())) / freedom, self.floor)
        value += freedom * float(np.log(variance))
        v = (R @ f[:, :, None])[:, :, 0] / np.sqrt(variance)
        total = W.sum(0)
        flat = W.reshape(N, -1)
        H = (flat.T @ flat).reshape(k, k, k, k).transpose(0, 2, 1, 3).reshape(k * k, k * k)
        # σ² is estimated beside T; divided by all rows, this leaves H positive semidefinite
        H -= np.outer(total, total) / (self.between + self.within + p)
        residuals = np.einsum("nij,nj->ni", L, f)
        return _Fit(T, theta, value, variance, U, total - v.T @ v, H, residuals)


def _directions(rows: Array) -> Array:
    """Columns D, of which `rows @ D` has orthonormal columns, as many as `rows` has rank."""
    flat = rows.reshape(len(rows) * rows.shape[1], rows.shape[2])
    sizes = np.sqrt(np.square(flat).sum(0))
    sizes[sizes == 0] = 1
    if not flat.shape[1]:
        return np.zeros((0, 0))
    _, s, turn = np.linalg.svd(np.linalg.qr(flat / sizes, mode="r"))
    keep = s > _RANK * s[0]
    return np.asarray(turn[: len(s)][keep].T / s[keep] / sizes[:, None])


def _turned(R: Array, reach: Array) -> tuple[Array, Array, Array]:
    """R in coordinates within reach, these coordinates, and P⁻¹ there if P = reach reachᵀ."""
    directions = _directions(R @ reach) * np.sqrt(len(R))
    basis = reach @ directions
    return R @ basis, basis, directions.T @ directions


def _reach(maps: Array, law: Array) -> Array:
    """A root (y, k) of the mean over machines of GᵀPG, P = law lawᵀ, its columns independent."""
    rows = np.linalg.qr((law.T @ maps).reshape(-1, maps.shape[2]), mode="r") / np.sqrt(len(maps))
    sizes = np.sqrt(np.square(rows).sum(0))
    _, s, turn = np.linalg.svd(rows / np.where(sizes > 0, sizes, 1.0), full_matrices=False)
    return np.asarray(sizes[:, None] * (turn.T * s)[:, s > _RANK * s[0]])
