"""The loops in NumPy, one line an equation: the readable truth, the test oracle, the fallback.

Glossary. The system is x[h+1] = A x[h] + B u[h] + w, the input u[h] = K[h] x[h].

    A (d, d), B (d, m)      dynamics                    F = A + B K       closed loop
    Q (H, d, d), R (H-1, m, m), N (H-1, d, m)           stage costs xᵀQx + uᵀRu + 2 xᵀNu
    W (d, d)                covariance of w             P (d, d), c       value xᵀPx + c
    E (H-1, m, m)           covariance of a dither      (added to the inputs of a given policy)
    X (d, d)                second moment E[x xᵀ]       S = R + BᵀPB
    C (d, d+m, d+m)         covariances of the rows of [A, B] itself

Every array has one leading batch axis of length n, or 1 where all members share it. N and W may
be None. A and B, W and C may change from step to step: then an axis of H-1 follows that of the
batch, and dA and dB are the gradients by those of each step. A member that fails (`status`) is
followed no further: its P is set to zero, so that the others are unharmed, and its results are
blanked out at the end.

Digits. A step rounds P_h by about ε G_h, diagonal, G_jj = P_jj + Σ_i |P_ii F_ij| (|F_ij| + |A_ij|)
with P_ii of the step after, which is what it adds up (F too is a sum). A K that is solved for is
wrong by about ε κ, κ the largest S_kk over its pivot, and P, since K is the best, by that squared:
G_jj is larger by ε κ Σ_k S_kk K_kj². The steps before treat all that as they treat P. So rounding
has done about ε Z to P, with Z <- FᵀZF + G. Where ε Z is not small beside P, as for a very unstable
system, a member is solved again with twice the digits (`Decimal`), by the same lines. Where even
that is not enough for 1e-6, it fails as INACCURATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

SOLVED, NOT_POSITIVE_DEFINITE, NOT_FINITE, INACCURATE = 0, 1, 2, 3

compiled: str | None = None

_LOSS = 1e-8  # the ε Z, relative to P, from which too many digits are lost
_ZERO = 1e-20  # what is within ε Z of zero is zero, if ε Z is at most that beside the sum's terms
_DIGITS = 32  # of a Decimal; as the compiled twin has


class Outcome(NamedTuple):
    """What a pass found; what was not asked for is None."""

    gains: Float[Array, "n steps m d"] | None
    values: Float[Array, "n H d d"] | None
    constants: Float[Array, "n H"] | None
    cost: Float[Array, " n"] | None
    dA: Float[Array, "n *stages d d"] | None
    dB: Float[Array, "n *stages d m"] | None
    status: Int[Array, " n"]
    failed_step: Int[Array, " n"]


def recursions(
    A: Float[Array, "a *stages d d"],
    B: Float[Array, "b *stages d m"],
    Q: Float[Array, "q H d d"],
    R: Float[Array, "r steps m m"],
    N: Float[Array, "k steps d m"] | None,
    noise: Float[Array, "w *_ d d"] | None,
    *,
    start: Float[Array, "s d"] | None = None,
    policy: Float[Array, "p steps m d"] | None = None,
    dither: Float[Array, "e steps m m"] | None = None,
    covariances: Float[Array, "v *_ d dm dm"] | None = None,
    batch: int,
    gains: bool = False,
    values: bool = False,
    gradient: bool = False,
    refine: bool = True,
    threads: int = 1,
) -> Outcome:
    """One backward pass (of the optimal policy, or of the one given), and a forward pass if asked.

    `start` given, the cost from there is returned; without `refine`, members are as 16 digits have
    them; `threads` is for the compiled twin only.
    """
    operands = _Operands(A, B, Q, R, N, noise, start, policy, dither, covariances)
    found = _plain(operands, batch, gradient)
    status, failed_step = found[-2:]
    if not refine:
        status[(status == INACCURATE) & (failed_step == 0)] = SOLVED  # as far as 16 digits tell
        again = np.empty(0, int)
    else:
        again = np.flatnonzero(np.isin(status, (NOT_POSITIVE_DEFINITE, INACCURATE)))
    if again.size:
        with localcontext(Context(_DIGITS, Emin=-999, Emax=307, traps=[])):
            members = _Operands._make(None if M is None else _decimal(M, again) for M in operands)
            refined = _passes(members, len(again), gradient, 10.0 ** (1 - _DIGITS))
        for M, better in zip(found, refined, strict=True):
            M[again] = better.astype(M.dtype)
        _blank(found, status == INACCURATE, np.nan, np.inf)
    kept = [gains, values, values, start is not None, gradient, gradient, True, True]
    return Outcome._make(M if keep else None for M, keep in zip(found, kept, strict=True))


class _Operands(NamedTuple):
    A: Array
    B: Array
    Q: Array
    R: Array
    N: Array | None
    noise: Array | None
    start: Array | None
    policy: Array | None = None
    dither: Array | None = None
    covariances: Array | None = None


def _plain(operands: _Operands, batch: int, gradient: bool = False) -> tuple[Array, ...]:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _passes(operands, batch, gradient, float(np.finfo(np.float64).eps))


def _blank(found: tuple[Array, ...], members: Array, nan: object, inf: object) -> None:
    """A member that failed has no answer."""
    for M, nothing in zip(found[:6], (nan, nan, inf, inf, nan, nan), strict=True):
        M[members] = nothing


def _decimal(M: Array, members: Array) -> Array:
    M = M if len(M) == 1 else M[members]
    return np.array([Decimal(float(entry)) for entry in M.flat], object).reshape(M.shape)


def _passes(operands: _Operands, batch: int, gradient: bool, epsilon: float) -> tuple[Array, ...]:
    """Everything an `Outcome` holds, in the operands' kind of numbers, good to about epsilon."""
    A, B, Q, R, N, noise, start, policy, dither, covariances = operands
    d, m, H, kind = A.shape[-1], B.shape[-1], Q.shape[1], A.dtype
    system = A, B, np.zeros((1, d, d), kind) if noise is None else noise
    Nt = np.zeros((1, H - 1, m, d), kind) if N is None else _t(N)
    status = np.zeros(batch, np.int8)
    failed_step = np.zeros(batch, np.int32)
    all_K, all_P, all_c = (
        np.empty((batch, H - 1, m, d), kind),
        np.empty((batch, H, d, d), kind),
        np.zeros((batch, H), kind),
    )
    lost = np.zeros(batch, bool)
    number = Decimal if kind.hasobject else float
    small, loss, zero = number(epsilon), number(_LOSS / epsilon), number(_ZERO / epsilon)

    def mark(bad: Array, why: int, step: int) -> None:
        new = bad & (status == SOLVED)
        status[new], failed_step[new] = why, step

    def doubt(error: Array, value: Array, terms: Array | int = 0) -> None:
        size = np.abs(value)
        nothing = (size <= small * error) & (error <= zero * terms)
        lost[~_every((error <= loss * size) | nothing)] = True

    P = np.array(np.broadcast_to(Q[:, H - 1], (batch, d, d)))
    c, z = np.zeros(batch, kind), np.zeros(batch, kind)
    G = np.abs(_diagonal(P))
    Z = G[:, :, None] * np.eye(d, dtype=kind)
    mark(~_finite(P), NOT_FINITE, H)
    all_P[:, H - 1] = P
    for h in reversed(range(H - 1)):
        A, B, W = (_of_step(M, h) for M in system)
        c, z = c + _trace(P, W), z + _trace(Z, W)  # c_h = c_{h+1} + tr(P_{h+1} W), and its error
        mark(~_finite(c), NOT_FINITE, h + 1)
        Q_h, R_h, Nt_h = Q[:, h], R[:, h], Nt[:, h]
        if covariances is not None:  # E[ΔᵀPΔ] = Σ_i P_ii C_i for the deviation Δ of [A, B]
            C = (_diagonal(P)[:, :, None, None] * _of_step(covariances, h, 4)).sum(1)
            Q_h, R_h, Nt_h = Q_h + C[:, :d, :d], R_h + C[:, d:, d:], Nt_h + C[:, d:, :d]
        if policy is None:
            S = R_h + _t(B) @ P @ B
            mark(~_finite(S), NOT_FINITE, h + 1)
            K, pivots = _eliminate(S, -(_t(B) @ P @ A + Nt_h))  # eq. km, with N
            least = number(m * epsilon) * _diagonal(S)
            bad = ~_every((pivots > least) & (pivots > 0))
            mark(bad & lost, INACCURATE, h + 1)
            mark(bad, NOT_POSITIVE_DEFINITE, h + 1)
            doubt(_diagonal(S), pivots)  # digits that cancel there are lost in K
            worst = number(epsilon) * (_diagonal(S) / pivots).max(1)
            G = worst[:, None] * (_diagonal(S)[:, :, None] * K * K).sum(1)
        else:
            K, G = policy[:, h], np.zeros((1, d), kind)
            if dither is not None:  # what is added to the inputs costs tr(E_h (R_h + BᵀPB))
                c = c + _trace(R_h + _t(B) @ P @ B, dither[:, h])
                z = z + _trace(_t(B) @ Z @ B, dither[:, h])
                mark(~_finite(c), NOT_FINITE, h + 1)
        F = A + B @ K
        G = G + (np.abs(_diagonal(P)[:, :, None] * F) * (np.abs(F) + np.abs(A))).sum(1)
        P = _t(F) @ P @ F + _t(K) @ (R_h @ K + Nt_h) + _t(Nt_h) @ K + Q_h
        P = (P + _t(P)) / 2  # symmetric in exact arithmetic: eq. ph in Joseph's form
        mark(~_finite(P), NOT_FINITE, h + 1)
        G = G + np.abs(_diagonal(P))
        Z = _t(F) @ Z @ F + G[:, :, None] * np.eye(d, dtype=kind)
        doubt(_diagonal(Z), _diagonal(P), G)
        P[status != SOLVED] = Z[status != SOLVED] = 0
        all_K[:, h], all_P[:, h], all_c[:, h] = K, P, c
    doubt(z, c)
    cost = np.zeros(batch, kind)
    if start is not None:
        cost, error = _form(P, start) + c, _form(Z, start) + z
        doubt(error, cost, (start * start * G).sum(1) + np.abs(c))

    dA, dB = (np.zeros((batch, *M.shape[1:]), kind) for M in system[:2])
    if gradient and start is not None:
        X = start[:, :, None] * start[:, None]
        for h in range(H - 1):
            A, B, W = (_of_step(M, h) for M in system)
            F = A + B @ all_K[:, h]
            PFX = all_P[:, h + 1] @ F @ X
            _of_step(dA, h)[...] += 2 * PFX  # ∇_[A,B] J = 2 Σ_h P_{h+1} F_h X_h [I; K_h]ᵀ
            _of_step(dB, h)[...] += 2 * PFX @ _t(all_K[:, h])
            X = F @ X @ _t(F) + W

    found = all_K, all_P, all_c, cost, dA, dB, status, failed_step
    _blank(found, status != SOLVED, number("nan"), number("inf"))
    status[lost & (status == SOLVED)] = INACCURATE
    return found


class Best(NamedTuple):
    """The decoder of least cost, and its policy; if there is none, `which` is -1 and these void."""

    which: int
    cost: float
    rejected: int  # decoders without solution, or of a cost below the floor
    gains: Float[Array, "steps m d"]


def best_decoder(
    thetas: Float[Array, "n d p"],
    G: Float[Array, "p y"],
    Q: Float[Array, "H d d"],
    R: Float[Array, "steps m m"],
    N: Float[Array, "steps d m"] | None,
    noise: Float[Array, "d d"],
    start: Float[Array, " d"],
    floor: float,
    *,
    threads: int = 1,
) -> Best:
    """Which Θ makes [A, B] = Θ G the cheapest machine, among costs of at least `floor`.

    Costs are compared only, and most machines are wild: none is solved again with more digits.
    """
    n, d = thetas.shape[:2]
    M = thetas @ G
    stages = Q[None], R[None], None if N is None else N[None], noise[None], start[None]
    gains, _, _, cost, *_ = _plain(_Operands(M[..., :d], M[..., d:], *stages), n)
    good = (cost >= floor) & np.isfinite(cost)
    if not good.any():
        return Best(-1, 0.0, n, np.empty(gains.shape[1:]))
    best = int(np.argmin(np.where(good, cost, np.inf)))
    return Best(best, float(cost[best]), n - int(good.sum()), gains[best])


def roll_out(
    A: Float[Array, "*stages d d"],
    B: Float[Array, "*stages d m"],
    gains: Float[Array, "steps m d"],
    start: Float[Array, " d"],
    shocks: Float[Array, "steps d"],
    *,
    offsets: Float[Array, "steps m"] | None = None,
    bound: Float[Array, " d"] | None = None,
) -> tuple[Float[Array, "H d"], Float[Array, "played m"]]:
    """The states and inputs of one episode, u = K x + offset.

    It ends before a step that overflows, and after a state with |x| above the bound.
    """
    A, B = (np.broadcast_to(M, (len(gains), *M.shape[-2:])) for M in (A, B))
    states, inputs = [start], []
    beyond = bound is not None and bool((np.abs(start) > bound).any())
    with np.errstate(over="ignore", invalid="ignore"):
        for h in range(0 if beyond else len(gains)):
            u = gains[h] @ states[h] + (0.0 if offsets is None else offsets[h])
            x = A[h] @ states[h] + B[h] @ u + shocks[h]
            if not (np.isfinite(x).all() and np.isfinite(u).all()):
                break
            states.append(x)
            inputs.append(u)
            if bound is not None and (np.abs(x) > bound).any():
                break
    return np.array(states), np.array(inputs).reshape(-1, gains.shape[1])


def sample_ellipsoid(
    Y: Float[Array, "n d p"],
    factor: Float[Array, "p p"],
    centre: Float[Array, "d p"],
    reach: float,
    fractions: Float[Array, " n"],
) -> Float[Array, "n d p"]:
    """centre + reach · fraction · Y R⁻ᵀ / ‖Y‖ for each direction Y; R, `factor`, is triangular."""
    sizes = reach * fractions / np.sqrt(np.einsum("nij,nij->n", Y, Y))
    members = np.linalg.solve(factor, _t(Y * sizes[:, None, None]))
    return np.asarray(centre + _t(members))


def factor_blocks(
    columns: Sequence[Array], chosen: Array | None, block: int, limit: float
) -> Array | None:
    """Left to `factors.py`, which has LAPACK."""
    return None


def factor_rows(rows: Array) -> Array | None:
    """Left to `factors.py`, which has LAPACK."""
    return None


def update_triangles(
    columns: Sequence[Array],
    rows: Array,
    ends: Array,
    limit: float,
    packed: Array,
    at: Array,
    steps: Array | None = None,
    moves: int = 0,
    acting: int = 0,
) -> Array:
    """Left to `factors.py`, which has LAPACK."""
    return np.full(len(ends), -1)


def _of_step(M: Array, h: int, axes: int = 3) -> Array:
    """What is in force at step h; constant, it has so many axes."""
    return M if M.ndim == axes else M[:, h]


def _t(M: Array) -> Array:
    return M.swapaxes(-1, -2)


def _diagonal(P: Array) -> Array:
    return np.diagonal(P, axis1=-2, axis2=-1)


def _trace(P: Array, W: Array) -> Array:
    """tr(PW) of symmetric matrices."""
    return np.asarray((P * W).sum((-2, -1)))


def _form(P: Array, x: Array) -> Array:
    return np.asarray((x[:, None] @ P @ x[:, :, None])[:, 0, 0])


def _finite(P: Array) -> Array:
    """Which members are; subtracted from itself, what is not finite gives NaN."""
    return _every(P - P == 0)


def _every(flags: Array) -> Array:
    """Whether all of a member's are set."""
    return np.asarray(flags.all(tuple(range(1, flags.ndim))))


def _eliminate(S: Array, G: Array) -> tuple[Array, Array]:
    """S⁻¹G and the pivots; one that is not positive is replaced by 1, and G means nothing."""
    S, G, m = S.copy(), G.copy(), S.shape[-1]
    pivots = _diagonal(S).copy()
    for k in range(m):
        pivots[:, k] = S[:, k, k]
        S[~(pivots[:, k] > 0), k, k] = 1
        for i in range(k + 1, m):
            f = (S[:, i, k] / S[:, k, k])[:, None]
            S[:, i] -= f * S[:, k]
            G[:, i] -= f * G[:, k]
    for i in reversed(range(m)):
        for k in range(i + 1, m):
            G[:, i] -= S[:, i, k, None] * G[:, k]
        G[:, i] /= S[:, i, i, None]
    return G, pivots
