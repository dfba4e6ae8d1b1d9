"""The equations of a loop that runs on and on, in NumPy: what is computed, and the fallback.

Glossary, as in `reference.py`, with one Q, R, N and one gain K for all steps:

    P = Q + KᵀRK + NK + KᵀNᵀ + FᵀPF,  F = A + BK,  K = -(R + BᵀPB)⁻¹ (BᵀPA + Nᵀ)        (Riccati)
    P = Q + FᵀPF                                                                      (Lyapunov)

Both are solved by doubling: after k rounds, P is the cost of 2ᵏ steps. The Riccati equation takes
the structure-preserving form, for the input v = u + R⁻¹Nᵀx, which leaves no cross term:

    A <- A (I + GH)⁻¹ A,   G <- G + A (I + GH)⁻¹ G Aᵀ,   H <- H + Aᵀ H (I + GH)⁻¹ A

from G = BR⁻¹Bᵀ, H = Q. No A is inverted, and with H = CᵀC only W = I + CGCᵀ, which is positive
definite: (I + GH)⁻¹ = I - GCᵀW⁻¹C. A vanishes, H becomes P. What rounding has done to P is undone
by Newton's method: K of P, then P of K by the Lyapunov equation, a sum of positive terms that
loses no digits.

Units. Nothing here is compared in the units of states or inputs: diagonals are compared with
themselves, and whether A vanishes is asked of the products A_ij A_ji.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from contextual_lqr.kernels.reference import INACCURATE, SOLVED, _diagonal, _eliminate, _t

NOT_CONVERGED = 4

_ROUNDS = 40  # doublings: 10¹² steps
_NEWTON = 8
_EPSILON = float(np.finfo(np.float64).eps)
_SETTLED = 1e-12  # the change of P, relative to it, after which one more step of Newton is the last
_ACCURATE = 3e-7  # the change of P, as it wanders, from which its 1e-6 is in doubt


class Constant(NamedTuple):
    """The gain and the value of each member, NaN unless it is solved."""

    gain: Float[Array, "n m d"]
    value: Float[Array, "n d d"]
    status: Int[Array, " n"]


def riccati(
    A: Float[Array, "a d d"],
    B: Float[Array, "b d m"],
    Q: Float[Array, "q d d"],
    R: Float[Array, "r m m"],
    N: Float[Array, "k d m"] | None,
    *,
    batch: int,
    threads: int = 1,
) -> Constant:
    """The stabilising solution; a member without one ends as NOT_CONVERGED or INACCURATE."""
    d, m = B.shape[-2:]
    A, B, Q, R = (np.array(np.broadcast_to(M, (batch, *M.shape[1:]))) for M in (A, B, Q, R))
    N = np.zeros((batch, d, m)) if N is None else np.array(np.broadcast_to(N, (batch, d, m)))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        P, vanished = _doubled(A, B, Q, R, N)
        K = _gain(A, B, R, N, P)
        status = np.where(vanished, INACCURATE, NOT_CONVERGED).astype(np.int8)
        for _ in range(_NEWTON):
            open_ = np.flatnonzero(status == INACCURATE)
            if not open_.size:
                break
            a, b, q, r, n, k, p = (M[open_] for M in (A, B, Q, R, N, K, P))
            F = a + b @ k
            new, stable = lyapunov(F, q + _t(k) @ (r @ k + _t(n)) + n @ k, batch=len(open_))
            change = np.abs(_diagonal(new) - _diagonal(p))
            P[open_], K[open_] = new, _gain(a, b, r, n, new)
            status[open_[~stable]] = NOT_CONVERGED
            status[open_[stable & (change <= _SETTLED * _diagonal(new)).all(1)]] = SOLVED
        last = np.flatnonzero(status == INACCURATE)
        if last.size:  # it wanders at the level of rounding, or farther
            fine = (change <= _ACCURATE * _diagonal(new)).all(1)
            status[open_[fine & stable]] = SOLVED
        finite = np.isfinite(K).all((1, 2)) & np.isfinite(P).all((1, 2))
    status[~finite & (status == SOLVED)] = NOT_CONVERGED
    K[status != SOLVED] = P[status != SOLVED] = np.nan
    return Constant(K, P, status)


def lyapunov(
    F: Float[Array, "f d d"], Q: Float[Array, "q d d"], *, batch: int, threads: int = 1
) -> tuple[Float[Array, "n d d"], Bool[Array, " n"]]:
    """P = Q + FᵀPF, and which members have one because F is stable; the others' P is NaN."""
    F, P = (np.array(np.broadcast_to(M, (batch, *M.shape[1:]))) for M in (F, Q))
    stable, open_ = np.zeros(batch, bool), np.arange(batch)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_ROUNDS):
            f, p = F[open_], P[open_]
            more = _t(f) @ p @ f
            p = p + (more + _t(more)) / 2
            F[open_], P[open_] = f @ f, p
            stable[open_] = _settled(more, p, _EPSILON) & (_cycles(F[open_]) <= _EPSILON)
            open_ = open_[~stable[open_] & np.isfinite(_cycles(F[open_]) + p.sum((1, 2)))]
            if not open_.size:
                break
    P[~stable] = np.nan
    return P, stable


def _doubled(A: Array, B: Array, Q: Array, R: Array, N: Array) -> tuple[Array, Array]:
    """H after as many rounds as it takes for A to vanish, and whether it does."""
    d = A.shape[-1]
    RN, pivots = _eliminate(R, np.concatenate((_t(N), _t(B)), 2))
    A, H, G = A - B @ RN[..., :d], Q - N @ RN[..., :d], B @ RN[..., d:]
    H, G = (H + _t(H)) / 2, (G + _t(G)) / 2
    positive = (pivots > R.shape[-1] * _EPSILON * _diagonal(R)).all(1)
    vanished, open_ = np.zeros(len(A), bool), np.flatnonzero(positive)
    for _ in range(_ROUNDS):
        a, g, h = A[open_], G[open_], H[open_]
        C = _root(h)
        CA, U = C @ a, g @ _t(C)
        solved, _ = _eliminate(np.eye(d) + C @ U, np.concatenate((CA, _t(U)), 2))
        Y, Z = solved[..., :d], solved[..., d:]  # W⁻¹CA and W⁻¹CG
        more = _t(CA) @ Y
        less = a @ (g - U @ Z) @ _t(a)
        A[open_] = a @ (a - U @ Y)
        H[open_] = h = h + (more + _t(more)) / 2
        G[open_] = g + (less + _t(less)) / 2
        cycles = _cycles(A[open_])
        vanished[open_] = _settled(more, h, _SETTLED) & (cycles <= _EPSILON)
        open_ = open_[~vanished[open_] & np.isfinite(cycles + h.sum((1, 2)))]
        if not open_.size:
            break
    return H, vanished


def _gain(A: Array, B: Array, R: Array, N: Array, P: Array) -> Array:
    PB = P @ B
    return -_eliminate(R + _t(B) @ PB, _t(PB) @ A + _t(N))[0]


def _settled(more: Array, value: Array, share: float) -> Array:
    """Whether a round has added next to nothing."""
    return np.asarray((np.abs(_diagonal(more)) <= share * _diagonal(value)).all(1))


def _cycles(A: Array) -> Array:
    """The largest |A_ij A_ji|, which is the same in all units."""
    return np.asarray(np.abs(A * _t(A)).max((1, 2)))


def _root(H: Array) -> Array:
    """C, an upper triangle with CᵀC = H, which may be singular: then with rows of zeros."""
    d = H.shape[-1]
    C, left, least = np.zeros_like(H), H.copy(), d * _EPSILON * _diagonal(H)
    for k in range(d):
        pivot = left[:, k, k]
        told = pivot > least[:, k]
        row = np.where(told[:, None], left[:, k], 0.0)
        C[:, k, k:] = row[:, k:] / np.sqrt(np.where(told, pivot, 1.0))[:, None]
        left -= C[:, k, :, None] * C[:, k, None]
    return C
