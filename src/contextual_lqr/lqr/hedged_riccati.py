"""The best constant gain for a system that varies: its Riccati equation with multiplicative noise.

Row r of [A, B] varies at each step with covariance C_r, which adds Σ_r P_rr C_r to the weights of
[x; u]. For a given gain, P is linear in its own diagonal p: with L(V) the solution of the Lyapunov
equation of the closed loop F for V, and Y = [I; K],

    P = L(Q_K) + Σ_r p_r L(YᵀC_rY),    so that    p = (I - T)⁻¹ diag L(Q_K),   T_jr = L(YᵀC_rY)_jj

and the gain holds the varying system exactly if T, which has no negative entry, has a spectral
radius below one. From such a gain Newton's method leads to the best one. To find one, the equation
is solved for weights that are held fixed, from those of no variation: P grows until its gain holds.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.kernels import Constant

_ROUNDS = 100
_SETTLED = 1e-11  # the change of P, relative to it


def hedged_riccati(
    stages: tuple[Array, Array, Array, Array, Array | None],
    covariances: Float[Array, "c d y y"],
    certain: Constant,
) -> tuple[Constant, Bool[Array, " n"]]:
    """The gains and values, from those of systems that do not vary; and which members have one."""
    n, m, d = certain.gain.shape
    A, B, Q, R, N = (
        np.zeros((n, d, m)) if M is None else np.broadcast_to(M, (n, *M.shape[1:])) for M in stages
    )
    C = np.broadcast_to(covariances, (n, *covariances.shape[1:]))
    K, P = certain.gain.copy(), certain.value.copy()
    solved = np.zeros(n, bool)
    open_ = np.flatnonzero(certain.status == kernels.SOLVED)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_ROUNDS):
            if not open_.size:
                break
            a, b, q, r, s, c, k = (M[open_] for M in (A, B, Q, R, N, C, K))
            new, holds = _value(a, b, q, r, s, c, k)
            more = np.einsum("nr,nrij->nij", np.einsum("nii->ni", P[open_]), c)
            raised = kernels.riccati(
                a,
                b,
                q + more[:, :d, :d],
                r + more[:, d:, d:],
                s + more[:, :d, d:],
                batch=len(open_),
                threads=kernels.threads(),
            )
            new = np.where(holds[:, None, None], new, raised.value)
            more = np.einsum("nr,nrij->nij", np.einsum("nii->ni", new), c)
            PB = new @ b
            S = r + more[:, d:, d:] + b.swapaxes(1, 2) @ PB
            rhs = PB.swapaxes(1, 2) @ a + (s + more[:, :d, d:]).swapaxes(1, 2)
            good = np.isfinite(S).all((1, 2)) & np.isfinite(rhs).all((1, 2))
            S[~good], rhs[~good] = np.eye(m), 0.0
            change = np.abs(np.einsum("nii->ni", new - P[open_]))
            done = holds & (change <= _SETTLED * np.einsum("nii->ni", new)).all(1) & good
            K[open_], P[open_] = -np.linalg.solve(S, rhs), new
            solved[open_[done]] = True
            open_ = open_[~done & good]
    K[~solved] = P[~solved] = np.nan
    status = np.where(solved, kernels.SOLVED, kernels.NOT_CONVERGED).astype(np.int8)
    return Constant(K, P, status), solved


def _value(
    A: Array, B: Array, Q: Array, R: Array, N: Array, C: Array, K: Array
) -> tuple[Array, Array]:
    """P of the gains, and which of them hold the varying systems."""
    n, d = A.shape[:2]
    F = A + B @ K
    Y = np.concatenate((np.broadcast_to(np.eye(d), (n, d, d)), K), 1)
    own = Q + K.swapaxes(1, 2) @ (R @ K + N.swapaxes(1, 2)) + N @ K
    varied = Y.swapaxes(1, 2)[:, None] @ C @ Y[:, None]
    weights = np.concatenate((own[:, None], varied), 1).reshape(-1, d, d)
    loops = np.repeat(F, d + 1, 0)
    L, _ = kernels.lyapunov(loops, weights, batch=len(loops), threads=kernels.threads())
    L = L.reshape(n, d + 1, d, d)
    stable = np.isfinite(L).all((1, 2, 3))
    L = np.where(stable[:, None, None, None], L, 0.0)
    diagonals = np.einsum("nrjj->nrj", L)
    # In units in which P of the varied part is of one size T has the same eigenvalues.
    T = diagonals[:, 1:].swapaxes(1, 2)
    holds = stable & (np.abs(np.linalg.eigvals(T)).max(1) < 1)
    T = np.where(holds[:, None, None], T, 0.0)
    p = np.linalg.solve(np.eye(d) - T, diagonals[:, 0, :, None])[..., 0]
    return L[:, 0] + np.einsum("nr,nrij->nij", p, L[:, 1:]), holds
