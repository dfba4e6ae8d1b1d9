"""The loops in NumPy, one line an equation: the readable truth, the test oracle, the fallback.

Glossary. The system is x[h+1] = A x[h] + B u[h] + w, the input u[h] = K[h] x[h].

    A (d, d), B (d, m)      dynamics                    F = A + B K       closed loop
    Q (H, d, d), R (H-1, m, m), N (H-1, d, m)           stage costs xᵀQx + uᵀRu + 2 xᵀNu
    W (d, d)                covariance of w             P (d, d), c       value xᵀPx + c
    E (H-1, m, m)           covariance of a dither      (added to the inputs of a given policy)
    X (d, d)                second moment E[x xᵀ]       S = R + BᵀPB
    C (d, d+m, d+m)         covariances of the rows of [A, B] itself

Every array has one leading batch axis of length n, or 1 where all members share it. N and W may
be None. A member that fails (`status`) is followed no further: its P is set to zero, so that the
others are unharmed, and its results are blanked out at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

SOLVED, NOT_POSITIVE_DEFINITE, NOT_FINITE = 0, 1, 2

_EPSILON = np.finfo(np.float64).eps


class Outcome(NamedTuple):
    """What a pass found; what was not asked for is None."""

    gains: Float[Array, "n steps m d"] | None
    values: Float[Array, "n H d d"] | None
    constants: Float[Array, "n H"] | None
    cost: Float[Array, " n"] | None
    dA: Float[Array, "n d d"] | None
    dB: Float[Array, "n d m"] | None
    status: Int[Array, " n"]
    failed_step: Int[Array, " n"]


def recursions(
    A: Float[Array, "a d d"],
    B: Float[Array, "b d m"],
    Q: Float[Array, "q H d d"],
    R: Float[Array, "r steps m m"],
    N: Float[Array, "k steps d m"] | None,
    noise: Float[Array, "w d d"] | None,
    *,
    start: Float[Array, "s d"] | None = None,
    policy: Float[Array, "p steps m d"] | None = None,
    dither: Float[Array, "e steps m m"] | None = None,
    covariances: Float[Array, "v d dm dm"] | None = None,
    batch: int,
    gains: bool = False,
    values: bool = False,
    gradient: bool = False,
    threads: int = 1,
) -> Outcome:
    """One backward pass (of the optimal policy, or of the one given), and a forward pass if asked.

    `start` given, the cost from there is returned; `threads` is for the compiled twin only.
    """
    d, m, H = A.shape[-1], B.shape[-1], Q.shape[1]
    W = np.zeros((d, d)) if noise is None else noise
    Nt = np.zeros((1, H - 1, m, d)) if N is None else N.swapaxes(-1, -2)
    status = np.zeros(batch, np.int8)
    failed_step = np.zeros(batch, np.int32)
    all_K, all_P, all_c = (
        np.empty((batch, H - 1, m, d)),
        np.empty((batch, H, d, d)),
        np.zeros((batch, H)),
    )

    def mark(bad: Array, why: int, step: int) -> None:
        new = bad & (status == SOLVED)
        status[new], failed_step[new] = why, step

    with np.errstate(over="ignore", invalid="ignore"):
        P = np.array(np.broadcast_to(Q[:, H - 1], (batch, d, d)))
        c = np.zeros(batch)
        mark(~_finite(P), NOT_FINITE, H)
        all_P[:, H - 1] = P
        for h in reversed(range(H - 1)):
            c = c + (P * W).sum((-2, -1))  # c_h = c_{h+1} + tr(P_{h+1} W)
            mark(~np.isfinite(c), NOT_FINITE, h + 1)
            Q_h, R_h, Nt_h = Q[:, h], R[:, h], Nt[:, h]
            if covariances is not None:  # E[ΔᵀPΔ] = Σ_i P_ii C_i for the deviation Δ of [A, B]
                C = np.einsum("nii,niab->nab", P, covariances)
                Q_h, R_h, Nt_h = Q_h + C[:, :d, :d], R_h + C[:, d:, d:], Nt_h + C[:, d:, :d]
            if policy is None:
                S = R_h + _t(B) @ P @ B
                mark(~_finite(S), NOT_FINITE, h + 1)
                mark(_indefinite(S), NOT_POSITIVE_DEFINITE, h + 1)
                S[status != SOLVED] = np.eye(m)
                K = -np.linalg.solve(S, _t(B) @ P @ A + Nt_h)  # eq. km, with N
            else:
                K = policy[:, h]
                if dither is not None:  # what is added to the inputs costs tr(E_h (R_h + BᵀPB))
                    c = c + ((R_h + _t(B) @ P @ B) * dither[:, h]).sum((-2, -1))
                    mark(~np.isfinite(c), NOT_FINITE, h + 1)
            F = A + B @ K
            P = _t(F) @ P @ F + _t(K) @ (R_h @ K + Nt_h) + _t(Nt_h) @ K + Q_h
            P = (P + _t(P)) / 2  # symmetric in exact arithmetic: eq. ph in Joseph's form
            mark(~_finite(P), NOT_FINITE, h + 1)
            P[status != SOLVED] = 0
            all_K[:, h], all_P[:, h], all_c[:, h] = K, P, c
        cost = None if start is None else ((start[:, None] @ P @ start[:, :, None])[:, 0, 0] + c)

        dA, dB = np.zeros((batch, d, d)), np.zeros((batch, d, m))
        if gradient and start is not None:
            X = start[:, :, None] * start[:, None]
            for h in range(H - 1):
                F = A + B @ all_K[:, h]
                PFX = all_P[:, h + 1] @ F @ X
                dA += 2 * PFX  # ∇_[A,B] J = 2 Σ_h P_{h+1} F_h X_h [I; K_h]ᵀ
                dB += 2 * PFX @ _t(all_K[:, h])
                X = F @ X @ _t(F) + W

    failed = status != SOLVED
    for blank in (all_K, all_P, dA, dB):
        blank[failed] = np.nan
    all_c[failed] = np.inf
    if cost is not None:
        cost[failed] = np.inf
    return Outcome(
        all_K if gains else None,
        all_P if values else None,
        all_c if values else None,
        cost,
        dA if gradient else None,
        dB if gradient else None,
        status,
        failed_step,
    )


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
    """Which Θ makes [A, B] = Θ G the cheapest machine, among costs of at least `floor`."""
    n, d = thetas.shape[:2]
    M = thetas @ G
    operands = Q[None], R[None], None if N is None else N[None], noise[None]
    found = recursions(M[..., :d], M[..., d:], *operands, start=start[None], batch=n, gains=True)
    assert found.cost is not None
    assert found.gains is not None
    good = (found.cost >= floor) & np.isfinite(found.cost)
    if not good.any():
        return Best(-1, 0.0, n, np.empty(found.gains.shape[1:]))
    best = int(np.argmin(np.where(good, found.cost, np.inf)))
    return Best(best, float(found.cost[best]), n - int(good.sum()), found.gains[best])


def transferred_costs(
    thetas: Float[Array, "k d p"],
    G: Float[Array, "n p y"],
    A: Float[Array, "n d d"],
    B: Float[Array, "n d m"],
    Q: Float[Array, "H d d"],
    R: Float[Array, "steps m m"],
    N: Float[Array, "steps d m"] | None,
    noise: Float[Array, "d d"],
    start: Float[Array, " d"],
    *,
    threads: int = 1,
) -> Float[Array, "k n"]:
    """What the optimal policy of the machine Θ G costs on the machine (A, B) of the same context.

    Infinite where Θ G has no solution, or its policy's cost is not finite.
    """
    d, n = A.shape[-1], len(A)
    costs = np.empty((len(thetas), n))
    stages = Q[None], R[None], None if N is None else N[None]
    for theta, row in zip(thetas, costs, strict=True):
        M = theta @ G
        gains = recursions(M[..., :d], M[..., d:], *stages, None, batch=n, gains=True).gains
        paid = recursions(A, B, *stages, noise[None], start=start[None], policy=gains, batch=n)
        row[:] = paid.cost
    return costs


def roll_out(
    A: Float[Array, "d d"],
    B: Float[Array, "d m"],
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
    states, inputs = [start], []
    beyond = bound is not None and bool((np.abs(start) > bound).any())
    with np.errstate(over="ignore", invalid="ignore"):
        for h in range(0 if beyond else len(gains)):
            u = gains[h] @ states[h] + (0.0 if offsets is None else offsets[h])
            x = A @ states[h] + B @ u + shocks[h]
            if not (np.isfinite(x).all() and np.isfinite(u).all()):
                break
            states.append(x)
            inputs.append(u)
            if bound is not None and (np.abs(x) > bound).any():
                break
    return np.array(states), np.array(inputs).reshape(-1, gains.shape[1])


def scatter(
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


def _t(M: Array) -> Array:
    return M.swapaxes(-1, -2)


def _finite(P: Array) -> Array:
    return np.asarray(np.isfinite(P).all((-2, -1)))


def _indefinite(S: Float[Array, "n m m"]) -> Array:
    """Which members have no Cholesky factor, to rounding."""
    m = S.shape[-1]

    def bad(L: Array, S: Array) -> Array:
        pivots, diagonals = np.einsum("...ii->...i", L) ** 2, np.einsum("...ii->...i", S)
        return np.asarray(~(pivots > m * _EPSILON * diagonals).all(-1))

    try:
        return bad(np.linalg.cholesky(S), S)
    except np.linalg.LinAlgError:  # one of them; find out which
        if len(S) == 1:
            return np.ones(1, bool)
        return np.concatenate([_indefinite(one[None]) for one in S])
