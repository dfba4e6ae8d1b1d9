"""The gains of an episode that are best for machines which differ much, and stay as they are.

To hedge in `solve` takes deviations as drawn anew at each step. Those of a machine stay, so that an
input that is too strong for it is too strong at every step: the hedge is too timid for most
machines, and still explodes on some. So gains are refined for the least mean of log J(K, M_j) over
alternatives M_j to the machine; of J itself the few worst would be all that counts.

    never tried      it is like one of those seen: their deviations about its own law (a bootstrap,
                     which need not be Gaussian)
    with own data    draws of its posterior, in pairs on either side of the mean

Gains of every step can fit a hundred machines too well: each of these varies at each step besides,
as in `solve`, with a part of the covariance of what is believed.

log J is below its tangent, so that what lessens Σ_j w_j J(K, M_j) with w_j = 1 / J(K', M_j) lessens
that mean, too, from the gains K' on. As a function of the gain of one step alone the sum is
quadratic. With the second moment X_j of the state before the step and the value P_j after it,

    Σ_j w_j (S_j K + L_j) X_j = 0,    S_j = R + B_jᵀP_jB_j,   L_j = Nᵀ + B_jᵀP_jA_j

so each sweep, moments forward and then gains backward from the last step, lessens it. Where no
alternative moves the state the gains stay as they were. What a forecast adds to the next state at
each step is known: A_j is that of the step then.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from contextual_lqr.belief.machine import MachineBelief, as_system
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.lqr.preview import Preview
from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost
from contextual_lqr.lqr.stationary import Cost

_VARIED = 0.85  # of the covariances: less would fit the machines seen too well
_PAIRS, _FEWEST = 32, 10  # of draws; with fewer, for want of room, gains stay as they are
_SWEEPS = 20
_SETTLED = 1e-3  # the gain of a sweep in the mean logarithm
_RANK = 1e-10
_TOGETHER = 1 << 22  # numbers in the moments of machines that are refined at once


def refinable(cost: Cost) -> TypeGuard[QuadraticCost]:
    """Whether gains can be refined: of an episode in which no input is free."""
    return isinstance(cost, QuadraticCost) and not cost.indefinite


def refined_gains(
    belief: MachineBelief,
    gains: Float[Array, "k steps m d"],
    cost: QuadraticCost,
    start: Float[Array, " d"],
    population: Population,
    left_out: Int[Array, " k"] | None = None,
    preview: Preview | None = None,
) -> Float[Array, "k steps m d"]:
    """The gains of machines never seen, like those of the population, from hedged ones.

    `left_out` are the places of machines that must not stand for themselves; `preview` is what is
    forecast.
    """
    found, d = gains.copy(), belief.mean.shape[1]
    places, apart = population.seen
    size = max(1, _TOGETHER // (len(places) * (gains.shape[1] + 1) * d * d))
    for first in range(0, len(gains), size):
        some = slice(first, first + size)
        part = belief[some]
        systems = as_system(part.mean + apart[:, None], part.noise)
        counted = np.ones((len(places), len(part.mean)), bool)
        if left_out is not None:
            counted = places[:, None] != left_out[some]
        sweeps = _Sweeps(systems, counted, _VARIED * part.covariances, cost, start, preview)
        found[some] = sweeps.settled(gains[some])
    return found


def refined_on_draws(
    belief: MachineBelief,
    gains: Float[Array, "k steps m d"],
    cost: QuadraticCost,
    start: Float[Array, " d"],
    preview: Preview | None = None,
) -> Float[Array, "k steps m d"]:
    """The gains of machines with data of their own, from hedged ones."""
    found, d = gains.copy(), belief.mean.shape[1]
    numbers = 2 * (gains.shape[1] + 1) * d * d
    pairs = min(_PAIRS, _TOGETHER // numbers)
    if pairs < _FEWEST:
        return found
    size = max(1, _TOGETHER // (pairs * numbers))
    for first in range(0, len(gains), size):
        some = slice(first, first + size)
        part = belief[some]
        # Each machine has the same draws whichever others are refined beside it.
        drawn = [part[i].draw(pairs, np.random.default_rng(5)) for i in range(len(part.mean))]
        M = np.stack([np.concatenate((one.A, one.B), -1) for one in drawn], 1)
        systems = as_system(np.concatenate((M, 2 * part.mean - M)), part.noise)
        counted = np.ones(systems.A.shape[:2], bool)
        sweeps = _Sweeps(systems, counted, _VARIED * part.covariances, cost, start, preview)
        found[some] = sweeps.settled(gains[some])
    return found


class _Sweeps:
    """n alternatives to each of k machines, and a mean of their costs as a function of gains."""

    def __init__(
        self,
        systems: LinearSystem,
        counted: Bool[Array, "n k"],
        covariances: Float[Array, "k d y y"],
        cost: QuadraticCost,
        start: Float[Array, " d"],
        preview: Preview | None = None,
    ) -> None:
        self.A, self.B, self.preview = systems.A, systems.B, preview
        self.noise = np.broadcast_to(systems.noise, self.A.shape)
        self.counted, self.C, self.cost, self.start = counted, covariances, cost, start

    def _at(self, t: int) -> Float[Array, "n k d d"]:
        """A of the step."""
        if self.preview is None:
            return self.A
        A = self.A.copy()
        A[..., self.preview.one] += self.preview.changes[t]
        return A

    def settled(self, gains: Float[Array, "k steps m d"]) -> Float[Array, "k steps m d"]:
        """Sweep until the mean hardly falls; what is no number at the start stays as it was."""
        K, found, before = gains, gains, np.full(len(gains), np.inf)
        going = np.ones(len(gains), bool)  # each by itself
        for _ in range(_SWEEPS + 1):
            X = self._moments(K)
            paid = self._paid(K, X)
            logs = np.log(paid).mean(0, where=self.counted)
            going &= logs < before
            found = np.where(going[:, None, None, None], K, found)
            going &= before - logs > _SETTLED
            if not going.any():
                break
            K, before = self._swept(K, X, np.where(self.counted, 1 / paid, 0.0)), logs
        return found

    def _moments(self, K: Float[Array, "k steps m d"]) -> Float[Array, "H n k d d"]:
        """X_t = E[xxᵀ] before each step."""
        d, at = len(self.start), np.arange(len(self.start))
        X = np.empty((K.shape[1] + 1, *self.A.shape))
        X[0] = np.outer(self.start, self.start)
        for t in range(K.shape[1]):
            F = self._at(t) + self.B @ K[:, t]
            X[t + 1] = F @ X[t] @ F.swapaxes(-1, -2) + self.noise
            Y = np.concatenate((np.broadcast_to(np.eye(d), (len(K), d, d)), K[:, t]), 1)
            varied = Y.swapaxes(1, 2)[:, None] @ self.C @ Y[:, None]  # (k, d, d, d)
            more = X[t].reshape(*X.shape[1:3], -1).swapaxes(0, 1) @ varied.reshape(
                *varied.shape[:2], -1
            ).swapaxes(1, 2)
            X[t + 1][..., at, at] += more.swapaxes(0, 1)
        return X

    def _paid(
        self, K: Float[Array, "k steps m d"], X: Float[Array, "H n k d d"]
    ) -> Float[Array, "n k"]:
        """The costs of gains with these moments."""
        cost = self.cost
        total = np.einsum("ij,nkij->nk", cost.Q[-1], X[-1])
        for t in range(K.shape[1]):
            stage = cost.Q[t] + K[:, t].swapaxes(1, 2) @ cost.R[t] @ K[:, t]
            if cost.N is not None:
                stage = stage + cost.N[t] @ K[:, t] + (cost.N[t] @ K[:, t]).swapaxes(1, 2)
            total += np.einsum("kij,nkij->nk", stage, X[t])
        return np.asarray(total)

    def _swept(
        self,
        K: Float[Array, "k steps m d"],
        X: Float[Array, "H n k d d"],
        weights: Float[Array, "n k"],
    ) -> Float[Array, "k steps m d"]:
        """The gains, each the best for the moments before it and the gains after it."""
        cost, w, d = self.cost, weights[..., None, None], len(self.start)
        k, steps, m, _ = K.shape
        K, P = K.copy(), np.broadcast_to(cost.Q[-1], self.A.shape)
        flat = self.C.reshape(k, d, -1)
        for t in reversed(range(steps)):
            varied = np.einsum("njii->jni", P) @ flat
            varied = varied.swapaxes(0, 1).reshape(*P.shape[:2], *self.C.shape[2:])
            PB, A = P @ self.B, self._at(t)
            S = cost.R[t] + self.B.swapaxes(-1, -2) @ PB + varied[..., d:, d:]
            L = PB.swapaxes(-1, -2) @ A + varied[..., d:, :d]
            N = np.zeros((d, m)) if cost.N is None else cost.N[t]
            L = L + N.T
            wX = w * X[t]
            slope = ((S @ K[:, t] + L) @ wX).sum(0).reshape(k, m * d)
            S_wide, X_wide = S.reshape(*S.shape[:2], m * m), wX.reshape(*wX.shape[:2], d * d)
            curve = S_wide.transpose(1, 2, 0) @ X_wide.transpose(1, 0, 2)  # (k, mm, dd)
            curve = curve.reshape(k, m, m, d, d).swapaxes(2, 3).reshape(k, m * d, m * d)
            K[:, t] += _least(curve, -slope).reshape(k, m, d)
            F, E = A + self.B @ K[:, t], varied
            cross = K[:, t].swapaxes(1, 2) @ (E[..., d:, :d] + N.T)
            P = F.swapaxes(-1, -2) @ P @ F + cost.Q[t] + E[..., :d, :d] + cross
            P = P + cross.swapaxes(-1, -2)
            P = P + K[:, t].swapaxes(1, 2) @ (E[..., d:, d:] + cost.R[t]) @ K[:, t]
        return K


def _least(curve: Float[Array, "k q q"], right: Float[Array, "k q"]) -> Float[Array, "k q"]:
    """The smallest solution of curve z = right, in units in which the diagonal is 1."""
    good = np.isfinite(curve).all((1, 2)) & np.isfinite(right).all(1)
    curve = np.where(good[:, None, None], curve, np.eye(curve.shape[1]))
    sizes = np.sqrt(np.maximum(np.einsum("kii->ki", curve), 0.0))
    sizes = np.where(sizes > 0, sizes, 1.0)
    values, turn = np.linalg.eigh(curve / sizes[:, :, None] / sizes[:, None])
    kept = values > _RANK * values[:, -1:]
    along = np.einsum("kij,ki->kj", turn, right / sizes) / np.where(kept, values, 1.0)
    found = np.einsum("kij,kj->ki", turn, np.where(kept, along, 0.0)) / sizes
    return np.where(good[:, None], found, np.nan)
