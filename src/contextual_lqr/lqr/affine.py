"""Loops that run on and on with states that stay as they are: 1, or the weather.

No input moves such a state z, whose row of [A, B] is that of the identity, and it never goes to 0:
it is an affine term of the others, x' = A x + Z z + B u + w. The best input is u = K x + Kz z, with
the gain K of the others alone, and from some step to the next the value xᵀPx + 2xᵀYz grows by
tr(P noise) + zᵀMz, the average cost. For a gain [Kz, K], with F = A + BK, Fz = Z + B Kz and the
weights W of [z; x] under that gain,

    P = Wxx + FᵀPF        Y = (I - Fᵀ)⁻¹ (Wxz + FᵀP Fz)        M = Wzz + FzᵀP Fz + FzᵀY + YᵀFz

For the best gain Y does not depend on Kz, which follows from it. A noise in z is left out. With a
discount z dies out, and there is nothing to do: `long_run.py` has all other cases. Which states
stay is said by the cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.checks import broadcast_batches, record, require
from contextual_lqr.lqr import long_run
from contextual_lqr.lqr.batches import or_infinite
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.long_run import Costs, StationarySolution
from contextual_lqr.lqr.problem import LinearSystem, ModelUncertainty, as_states
from contextual_lqr.lqr.stationary import StationaryCost, StationaryPolicy, require_sizes

_ROUNDING = 1e-9  # what rows of constant states may differ from the identity's


class _Split(NamedTuple):
    """A system and its weights, by what stays (z) and what moves (x)."""

    still: list[int]
    moving: list[int]
    system: LinearSystem  # of what moves
    cost: StationaryCost
    A: Array  # (..., x, x)
    Z: Array  # (..., x, z)
    B: Array
    W: Array  # the weights of [z; x; u], (..., y, y)

    @classmethod
    def of(cls, system: LinearSystem, cost: StationaryCost) -> _Split | None:
        """None if nothing stays, or it does not matter."""
        require_sizes(system, cost)
        if cost.discount != 1 or not cost.constant:
            return None
        d, m, still = system.state_size, system.input_size, list(cost.constant)
        rows = np.concatenate((system.A[..., still, :], system.B[..., still, :]), -1)
        same = (np.abs(rows - np.eye(d, d + m)[still]) <= _ROUNDING).all(
            (*range(rows.ndim - 2), -1)
        )
        for i, good in zip(still, np.atleast_1d(same), strict=True):
            require(good, f"state {i + 1} is declared constant, but the system changes it")
        moving = cost.moving
        rows = system.A[..., moving, :]
        A, B = (
            np.ascontiguousarray(rows[..., moving]),
            np.ascontiguousarray(system.B[..., moving, :]),
        )
        noise = system.noise[..., moving, :][..., moving]
        order = still + moving
        W = np.zeros((*cost.batch_shape, d + m, d + m))
        W[..., :d, :d] = cost.Q[..., order, :][..., order]
        W[..., d:, d:] = cost.R
        N = None
        if cost.N is not None:
            N = cost.N[..., moving, :]
            W[..., :d, d:] = cost.N[..., order, :]
            W[..., d:, :d] = W[..., :d, d:].mT
        own = StationaryCost(cost.Q[..., moving, :][..., moving], cost.R, N)
        parts = LinearSystem.unchecked(A, B, noise)
        return cls(still, moving, parts, own, A, rows[..., still], B, W)

    @property
    def order(self) -> list[int]:
        return self.still + self.moving

    def weights(self, more: Array | float = 0.0) -> tuple[Array, ...]:
        """Qzz, Qzx, Qxx, Nz, Nx, R, of which some may be raised."""
        c, d = len(self.still), len(self.still) + len(self.moving)
        W = self.W + more
        z, x, u = slice(c), slice(c, d), slice(d, None)
        return tuple(W[..., i, j] for i, j in ((z, z), (z, x), (x, x), (z, u), (x, u), (u, u)))

    def loop(self, Kz: Array, K: Array, P: Array, more: Array | float = 0.0) -> tuple[Array, ...]:
        """F and Fz of a gain, and Y and M, from the P of what moves."""
        Qzz, Qzx, _, Nz, Nx, R = self.weights(more)
        F, Fz = self.A + self.B @ K, self.Z + self.B @ Kz
        cross = Qzx.mT + Nx @ Kz + K.mT @ (Nz.mT + R @ Kz)
        Y = _solve(np.eye(F.shape[-1]) - F.mT, cross + F.mT @ P @ Fz, P)
        own = Qzz + Nz @ Kz + (Nz @ Kz).mT + Kz.mT @ R @ Kz
        return F, Fz, Y, own + Fz.mT @ P @ Fz + Fz.mT @ Y + Y.mT @ Fz

    def gain(self, policy: StationaryPolicy) -> tuple[Array, Array]:
        return policy.gain[..., self.still], policy.gain[..., self.moving]

    def values(self, start: ArrayLike | None, d: int) -> Float[Array, "*batch z"]:
        """What stays, which the start says."""
        require(start is not None, "the average cost depends on what is constant: give `start`")
        return np.asarray(as_states("start", start, d)[..., self.still])  # type: ignore[arg-type]


def moving_part(
    system: Dynamics, gain: Float[Array, "*batch m d"], cost: StationaryCost
) -> tuple[LinearSystem, Float[Array, "*batch m n"], StationaryCost]:
    """The states that are not constant: what their modes and margins are, z does not change."""
    split = _Split.of(long_run.constant(system), cost)
    assert split is not None
    return split.system, np.ascontiguousarray(gain[..., split.moving]), split.cost


def solve(
    system: LinearSystem, cost: StationaryCost, uncertainty: ModelUncertainty | None = None
) -> StationarySolution:
    """The optimal constant gain; `solve.solve` says the rest."""
    split = _Split.of(system, cost)
    if split is None:
        return long_run.solve(system, cost, uncertainty)
    own, more, d = None, 0.0, system.state_size
    if uncertainty is not None:
        C = uncertainty.covariances[..., split.moving, :, :]
        places = [*split.order, *range(d, d + system.input_size)]
        C = C[..., places, :][..., places]
        c = len(split.still)
        own = record(object.__new__(ModelUncertainty), covariances=C[..., c:, c:])
    found = long_run.solve(split.system, split.cost, own)
    K, P, B = found.policy.gain, found.value_matrix, split.B
    if uncertainty is not None:
        more = np.einsum("...r,...rij->...ij", np.einsum("...ii->...i", P), C)
    with np.errstate(over="ignore", invalid="ignore"):
        _, Qzx, _, Nz, _, R = split.weights(more)
        F = split.A + B @ K
        Y = Qzx.mT + K.mT @ Nz.mT + F.mT @ P @ split.Z
        Y = _solve(np.eye(F.shape[-1]) - F.mT, Y, P)
        S = R + B.mT @ P @ B
        Kz = -_solve(S, B.mT @ (P @ split.Z + Y) + Nz.mT, P)
        *_, M = split.loop(Kz, K, P, more)
    gain, value = (np.empty((*P.shape[:-2], rows, d)) for rows in (K.shape[-2], d))
    gain[..., split.still], gain[..., split.moving] = Kz, K
    order = np.argsort(split.order)
    whole = np.concatenate((np.concatenate((M, Y.mT), -1), np.concatenate((Y, P), -1)), -2)
    value[...] = whole[..., order, :][..., order]
    policy = record(object.__new__(StationaryPolicy), gain=gain)
    return replace(found, policy=policy, value_matrix=value, _problem=(system, cost))


def optimal_cost(system: LinearSystem, cost: StationaryCost, start: ArrayLike | None) -> Costs:
    """The least cost: the average of a step, or with a discount that of all from `start`."""
    split = _Split.of(system, cost)
    if split is None:
        return long_run.optimal_cost(system, cost, start)
    return solve(system, cost).cost(start)


def policy_cost(
    policy: StationaryPolicy, system: LinearSystem, cost: StationaryCost, start: ArrayLike | None
) -> Costs:
    """What a constant gain costs, infinite where it does not hold the system."""
    split = _Split.of(system, cost)
    if split is None:
        return long_run.policy_cost(policy, system, cost, start)
    z = split.values(start, system.state_size)
    Kz, K, P, _ = _valued(policy, split)
    with np.errstate(over="ignore", invalid="ignore"):
        *_, M = split.loop(Kz, K, P)
        return _total(P, split, M, z)


def cost_and_gradient(
    system: LinearSystem,
    cost: StationaryCost,
    start: ArrayLike | None,
    policy: StationaryPolicy | None = None,
) -> tuple[Costs, Array, Array]:
    """The cost of the best gain, or of the one given, and its derivatives by A and B.

    ∂J/∂[Fz, F] = 2 (P [Fz, F] + Y [I, 0]) E[z; x][z; x]ᵀ, and by the envelope theorem the best gain
    may be held fixed.
    """
    split = _Split.of(system, cost)
    if split is None:
        return long_run.cost_and_gradient(system, cost, start, policy)
    z = split.values(start, system.state_size)
    played = solve(system, cost).policy if policy is None else policy
    Kz, K, P, X = _valued(played, split)
    with np.errstate(over="ignore", invalid="ignore"):
        F, Fz, Y, M = split.loop(Kz, K, P)
        n, c = F.shape[-1], len(split.still)
        rest = _solve(np.eye(n) - F, Fz @ z[..., None], P)[..., 0]
        shape = broadcast_batches({"one": rest.shape[:-1], "start": z.shape[:-1]})
        mean = np.concatenate(
            (np.broadcast_to(z, (*shape, c)), np.broadcast_to(rest, (*shape, n))), -1
        )
        moments = mean[..., :, None] * mean[..., None, :]
        moments[..., c:, c:] += X
        half = np.concatenate((P @ Fz + Y, P @ F), -1)
        ordered = 2 * half @ moments
        dA = np.zeros((*ordered.shape[:-2], n + c, n + c))
        dB = np.zeros((*ordered.shape[:-2], n + c, K.shape[-2]))
        into = np.zeros_like(dA[..., split.moving, :])
        into[..., split.order] = ordered
        dA[..., split.moving, :] = into
        dB[..., split.moving, :] = into @ played.gain.mT
        J = _total(P, split, M, z)
    return J, dA, dB


def _valued(policy: StationaryPolicy, split: _Split) -> tuple[Array, Array, Array, Array]:
    """Kz, K, P and the variance X of what moves under a gain, NaN where it is not stable."""
    Kz, K = split.gain(policy)
    _, _, Q, _, N, R = split.weights()
    with np.errstate(over="ignore", invalid="ignore"):
        F = split.A + split.B @ K
        C = Q + N @ K + (N @ K).mT + K.mT @ R @ K
    P, X = (_lyapunov(M, V) for M, V in ((F, C), (F.mT, split.system.noise)))
    return Kz, K, P, X


def _lyapunov(F: Array, V: Array) -> Array:
    shape = broadcast_batches({"loop": F.shape[:-2], "weight": V.shape[:-2]})
    flat = [np.broadcast_to(M, (*shape, *M.shape[-2:])).reshape(-1, *M.shape[-2:]) for M in (F, V)]
    found, _ = kernels.lyapunov(*flat, batch=len(flat[0]), threads=kernels.threads())
    return np.asarray(found.reshape(*shape, *found.shape[-2:]))


def _total(P: Array, split: _Split, M: Array, z: Array) -> Costs:
    """tr(P noise) + zᵀMz."""
    with np.errstate(over="ignore", invalid="ignore"):
        by_noise = (P * split.system.noise).sum((-2, -1))
        return or_infinite(np.asarray(by_noise + np.einsum("...i,...ij,...j->...", z, M, z)))


def _solve(A: Array, B: Array, P: Array) -> Array:
    """A⁻¹B; NaN for loops that are not stable, whose P is not finite."""
    good = np.isfinite(P).all((-2, -1), keepdims=True) & np.isfinite(A).all((-2, -1), keepdims=True)
    return np.where(good, np.linalg.solve(np.where(good, A, np.eye(A.shape[-1])), B), np.nan)
