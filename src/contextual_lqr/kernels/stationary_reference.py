"""The equations of a loop that runs on and on, in NumPy: what is computed, and the fallback.

Glossary, as in `reference.py`, with one Q, R, N and one gain K for all steps:

    P = Q + KᵀRK + NK + KᵀNᵀ + FᵀPF,  F = A + BK,  K = -(R + BᵀPB)⁻¹ (BᵀPA + Nᵀ)        (Riccati)
    P = Q + FᵀPF                                                                      (Lyapunov)

Both are solved by doubling: after k rounds, P is the cost of 2ᵏ steps. The Riccati equation takes
the structure-preserving form, for the input v = u + R⁻¹Nᵀx, which leaves no cross term:

    A <- A (I + GH)⁻¹ A,   G <- G + A (I + GH)⁻¹ G Aᵀ,   H <- H + Aᵀ H (I + GH)⁻¹ A

from G = BR⁻¹Bᵀ, H = Q. No A is inverted, and with H = CᵀC only W = I + CGCᵀ, which is positive
definite: (I + GH)⁻¹ = I - GCᵀW⁻¹C. A vanishes, H becomes P. What rounding has done to P is undone
by Newton's method: K of P, then P of K by the Lyapunov equation.

Digits. A step rounds P by about ε G, as in `reference.py`, which adds up to ε Z, Z = G + FᵀZF; and
rounding BᵀPA does about ε a_j √(Σ_k b_k²/S_kk) to column j of K, in the metric S, with
a_j = Σ_i |A_ij| √P_ii and b_k = Σ_i |B_ik| √P_ii. Where either may be more than 1e-9 (an input that
hardly reaches modes that grow fast), or where Newton's method does not settle, a member is solved
again with twice the digits (`Decimal`): then Newton's method is for what P lacks to its equation,
since F, squared again and again, loses digits of its own. A gain that does not hold the system
once it is rounded to a double is no answer.

Units. Nothing here is compared in the units of states or inputs: diagonals are compared with
themselves, and whether A vanishes is asked of the products A_ij A_ji.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

from contextual_lqr.kernels.reference import (
    _DIGITS,
    INACCURATE,
    SOLVED,
    _decimal,
    _diagonal,
    _eliminate,
    _every,
    _finite,
    _t,
)

NOT_CONVERGED = 4

_ROUNDS = 40  # doublings: 10¹² steps
_NEWTON, _CORRECTIONS = 8, 2
_WALKED = 1e-8
_ACCURATE = 3e-7  # the change of P, as it wanders, from which its 1e-6 is in doubt
_LOST = 1e-9  # what rounding may have done to K or P, relative to it
_HELD = 0.1  # what a gain may cost more once it is rounded to a double

_Members = tuple[Array, ...]  # A, B, Q, R, N


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
    N = np.zeros((1, d, m)) if N is None else N
    members = A, B, Q, R, N = tuple(
        np.array(np.broadcast_to(M, (batch, *M.shape[1:]))) for M in (A, B, Q, R, N)
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        P, vanished = _doubled(members)
        K = _gain(members, P)
        status = np.where(vanished, INACCURATE, NOT_CONVERGED).astype(np.int8)
        share = 5e3 * _epsilon(P)
        for _ in range(_NEWTON):
            open_ = np.flatnonzero(status == INACCURATE)
            if not open_.size:
                break
            own, p = _chosen(members, open_), P[open_]
            new, stable = _value(own, K[open_])
            P[open_], K[open_] = new, _gain(own, new)
            status[open_[~stable]] = NOT_CONVERGED
            status[open_[stable & _settled(new - p, new, share)]] = SOLVED
        good = (status == SOLVED) & _exact(members, K, P)
        if (status == INACCURATE).any():  # it wanders at the level of rounding, or farther
            fine = stable & _settled(new - p, new, _ACCURATE)
            status[open_[fine & (status[open_] == INACCURATE)]] = SOLVED
        finite = _finite(K) & _finite(P)
    status[~finite & (status == SOLVED)] = NOT_CONVERGED
    K[status != SOLVED] = P[status != SOLVED] = np.nan
    again = np.flatnonzero(~(good & finite))
    if again.size:
        with localcontext(Context(_DIGITS, Emin=-999, Emax=307, traps=[])):
            better, value, good = _again(tuple(_decimal(M, again) for M in members))
        K[again[good]], P[again[good]], status[again[good]] = better[good], value[good], SOLVED
    return Constant(K, P, status)


def _again(members: _Members) -> tuple[Array, Array, Array]:
    """K and P with twice the digits, rounded, and which members can be had so."""
    P, good = _doubled(members)
    K = _gain(members, P)
    for _ in range(_CORRECTIONS):
        F, C = _loop(members, K)
        change, stable = lyapunov(F, C + _t(F) @ P @ F - P, batch=len(P))
        P = P + change
        K, near = _gain(members, P), stable & _settled(change, P, _LOST)
    good = good & near & _exact(members, K, P) & _finite(K) & _finite(P)
    rounded = K.astype(np.float64)
    value, stable = _value(members, _decimal(rounded, np.arange(len(K))))
    good = good & stable & _settled(value - P, value, _HELD)
    return rounded, P.astype(np.float64), np.asarray(good, bool)


def _chosen(members: _Members, which: Array) -> _Members:
    return tuple(M[which] for M in members)


def _loop(members: _Members, K: Array) -> tuple[Array, Array]:
    """F = A + BK, and what a step costs, Q + KᵀRK + NK + KᵀNᵀ."""
    A, B, Q, R, N = members
    return A + B @ K, Q + _t(K) @ (R @ K + _t(N)) + N @ K


def _value(members: _Members, K: Array) -> tuple[Array, Array]:
    return lyapunov(*_loop(members, K), batch=len(K))


def _exact(members: _Members, K: Array, P: Array) -> Array:
    """Which members rounding leaves K and P to 1e-9."""
    A, B, _, R, _ = members
    epsilon, share = _epsilon(P), _number(P)(_LOST)
    F, sizes, S = A + B @ K, np.abs(_diagonal(P)), _diagonal(R + _t(B) @ P @ B)
    roots = np.sqrt(sizes)
    reached = ((np.abs(B) * roots[:, :, None]).sum(1) ** 2 / S).sum(1)
    a = (np.abs(A) * roots[:, :, None]).sum(1)
    used = sizes + (S[:, :, None] * K * K).sum(1)
    kept = _every((epsilon * a) ** 2 * reached[:, None] <= share * share * used)
    G = sizes + (sizes[:, :, None] * np.abs(F) * (np.abs(F) + np.abs(A))).sum(1)
    Z, stable = lyapunov(
        F, epsilon * G[:, :, None] * np.eye(F.shape[-1], dtype=P.dtype), batch=len(P)
    )
    return np.asarray(kept & stable & _every(_diagonal(Z) <= share * sizes))


def lyapunov(F: Array, Q: Array, *, batch: int, threads: int = 1) -> tuple[Array, Array]:
    """P = Q + FᵀPF, and which members have one because F is stable; the others' P is NaN.

    F and Q, (f, d, d) and (q, d, d), are of floats or of Decimals.
    """
    F, P = (np.array(np.broadcast_to(M, (batch, *M.shape[1:]))) for M in (F, Q))
    stable, open_ = np.zeros(batch, bool), np.arange(batch)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_ROUNDS):
            f, p = F[open_], P[open_]
            more = _t(f) @ p @ f
            p = p + (more + _t(more)) / 2
            F[open_], P[open_] = f @ f, p
            cycles = _cycles(F[open_])
            stable[open_] = _settled(more, p, _epsilon(P)) & (cycles <= _epsilon(P))
            if stable[open_].any():
                stable[open_] &= _acyclic(F[open_])
            open_ = open_[~stable[open_] & _finite(cycles + p.sum((1, 2)))]
            if not open_.size:
                break
    P[~stable] = _number(P)("nan")
    return P, stable


def _doubled(members: _Members) -> tuple[Array, Array]:
    """H after as many rounds as it takes for A to vanish, and whether it does."""
    A, B, Q, R, N = members
    d, epsilon = A.shape[-1], _epsilon(A)
    RN, pivots = _eliminate(R, np.concatenate((_t(N), _t(B)), 2))
    A, H, G = A - B @ RN[..., :d], Q - N @ RN[..., :d], B @ RN[..., d:]
    H, G = (H + _t(H)) / 2, (G + _t(G)) / 2
    positive = _every(pivots > R.shape[-1] * epsilon * _diagonal(R))
    vanished, open_ = np.zeros(len(A), bool), np.flatnonzero(positive)
    for _ in range(_ROUNDS):
        if not open_.size:
            break
        a, g, h = A[open_], G[open_], H[open_]
        C = _root(h)
        CA, U = C @ a, g @ _t(C)
        W = np.eye(d, dtype=A.dtype) + C @ U
        solved, _ = _eliminate(W, np.concatenate((CA, _t(U)), 2))
        Y, Z = solved[..., :d], solved[..., d:]  # W⁻¹CA and W⁻¹CG
        more = _t(CA) @ Y
        less = a @ (g - U @ Z) @ _t(a)
        A[open_] = a @ (a - U @ Y)
        H[open_] = h = h + (more + _t(more)) / 2
        G[open_] = g + (less + _t(less)) / 2
        cycles = _cycles(A[open_])
        vanished[open_] = _settled(more, h, 5000 * epsilon) & (cycles <= epsilon)
        open_ = open_[~vanished[open_] & _finite(cycles + h.sum((1, 2)))]
    return H, vanished


def _gain(members: _Members, P: Array) -> Array:
    A, B, _, R, N = members
    PB = P @ B
    return -_eliminate(R + _t(B) @ PB, _t(PB) @ A + _t(N))[0]


def _number(M: Array) -> Any:
    """What makes one of the numbers that an array holds."""
    return Decimal if M.dtype.hasobject else float


def _epsilon(M: Array) -> Any:
    """How precise these are."""
    return Decimal(10) ** (1 - _DIGITS) if M.dtype.hasobject else float(np.finfo(np.float64).eps)


def _settled(change: Array, value: Array, share: Any) -> Array:
    """Whether a round has added next to nothing."""
    return _every(np.abs(_diagonal(change)) <= _number(value)(share) * np.abs(_diagonal(value)))


def _cycles(A: Array) -> Array:
    """The largest |A_ij A_ji|, which is the same in all units."""
    return np.asarray(np.abs(A * _t(A)).max((1, 2)))


def _acyclic(A: Array) -> Array:
    """Whether no closed walk is left, of any length: diag (I + |A|)^2ⁿ ≤ 1 + √ε, 2ⁿ ≥ d.

    States that feed one another in a ring of three or more have no A_ij A_ji at all; if the ring
    grows and costs nothing, nothing else tells.
    """
    walks = np.eye(A.shape[-1], dtype=A.dtype) + np.abs(A)
    for _ in range((A.shape[-1] - 1).bit_length()):
        walks = walks @ walks
    return _every(_diagonal(walks) <= _number(A)(1 + _WALKED))


def _root(H: Array) -> Array:
    """C, an upper triangle with CᵀC = H, which may be singular: then with rows of zeros."""
    d, one = H.shape[-1], _number(H)(1)
    C, left, least = H * 0, H.copy(), d * _epsilon(H) * _diagonal(H)
    for k in range(d):
        pivot = left[:, k, k]
        told = np.asarray(pivot > least[:, k], bool)
        row = np.where(told[:, None], left[:, k], 0 * one)
        C[:, k, k:] = row[:, k:] / np.sqrt(np.where(told, pivot, one))[:, None]
        left -= C[:, k, :, None] * C[:, k, None]
    return C
