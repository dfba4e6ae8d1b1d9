"""The input of least expected regret, when every step is planned anew.

If machine i were the truth, an input u and the best ones afterwards would cost, above the best,

    r_i(u) = (u - u_i)ᵀ M_i (u - u_i),   u_i = K_i x,   M_i = R + B_iᵀ P_i B_i

with the gain K_i of this step and the value matrix P_i of the next. Regret counts in proportion to
what the machine costs if this step is left out, w_i = 1 / (J_i + r_i(0)), so that no wild draw
outweighs the others:

    u = argmin Σ w_i r_i = M⁻¹ Σ w_i M_i u_i,   M = Σ w_i M_i
    saved = uᵀMu   of the regret Σ w_i r_i(0) of doing nothing,   left = Σ w_i r_i(u)

A runaway is fought as soon as plausible machines agree on how, and not before: where they do not,
their inputs cancel. What they agree on by chance is shrunk away, u ← u (1 - doubt · left / saved)₊.

Draws are weighed, not trusted, and solved with 16 digits. While little is known of a machine with
many states, its draws are so unstable that these lose most of them; 32 would take fifty times as
long, for an input that hardly differs.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg.lapack import dposv

from contextual_lqr import kernels
from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost

_TOGETHER = 1 << 21  # numbers in the values of machines solved at once: memory used again


def least_regret(
    cost: QuadraticCost,
    x: Float[Array, " d"],
    machines: LinearSystem,
    shape: Float[Array, "m m"],
    doubt: float,
    budget: float,
) -> tuple[Float[Array, " m"], float]:
    """The next input, and the s² of a dither s² `shape` that costs `budget` of the regret left."""
    own = machines.A, machines.B, np.broadcast_to(machines.noise, machines.A.shape)
    size = max(_TOGETHER // (cost.horizon * machines.A[0].size), 1)
    parts = [
        _first_step(cost, x, *(np.ascontiguousarray(M[first : first + size]) for M in own))
        for first in range(0, len(machines.A), size)
    ]
    us, metrics, J = (np.concatenate(each) for each in zip(*parts, strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        idle = np.einsum("ni,nij,nj->n", us, metrics, us)
        whole = np.maximum(J, 0.0) + idle
    some = np.isfinite(whole) & (whole > 0) & np.isfinite(metrics).all((1, 2))
    if not some.any():
        return np.zeros(len(shape)), np.inf
    us, weighted = us[some], metrics[some] / whole[some, None, None]
    M = weighted.sum(0)
    _, u, singular = dposv(M, np.einsum("nij,nj->i", weighted, us))
    if singular:
        return np.zeros(len(shape)), np.inf
    off = us - u
    saved, left = float(u @ M @ u), float(np.einsum("ni,nij,nj->", off, weighted, off))
    if saved > 0:
        u = u * max(1 - doubt * left / saved, 0.0)
    price = float((M * shape).sum())
    return u, budget * left / price if price > 0 else 0.0


def _first_step(
    cost: QuadraticCost, x: Float[Array, " d"], A: Array, B: Array, noise: Array
) -> tuple[Float[Array, "n m"], Float[Array, "n m m"], Float[Array, " n"]]:
    """u_i, M_i and J_i of machines; not finite where one cannot be solved."""
    Q, R, N = cost.Q[None], cost.R[None], None if cost.N is None else cost.N[None]
    threads = kernels.threads()
    K, P, c, *_ = kernels.recursions(
        A, B, Q, R, N, noise, batch=len(A), gains=True, values=True, refine=False, threads=threads
    )
    assert K is not None and P is not None and c is not None  # noqa: PT018 - all asked for
    with np.errstate(over="ignore", invalid="ignore"):
        metrics = cost.R[0] + B.swapaxes(1, 2) @ P[:, 1] @ B
        return K[:, 0] @ x, metrics, P[:, 0] @ x @ x + c[:, 0]
