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
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg.lapack import dposv

from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost
from contextual_lqr.planning.drawn_machines import first_steps


def least_regret(
    cost: QuadraticCost,
    x: Float[Array, " d"],
    machines: LinearSystem,
    shape: Float[Array, "m m"],
    doubt: float,
    budget: float,
) -> tuple[Float[Array, " m"], float]:
    """The next input, and the s² of a dither s² `shape` that costs `budget` of the regret left."""
    us, metrics, J = first_steps(machines, cost, x)
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
