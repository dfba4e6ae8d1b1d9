"""What a fault of an actuator costs along the expected run: the run is played again with it.

Instead of u the actuator of input j gives u + γ f(u), as in actuators.py. To first order in γ the
run x̄, ū is then off by z, v with

    z_{t+1} = (A + B K) z_t + γ M_j f(ū_j),  z_0 = 0,  v = K z

where M_j f(ū_j) is B_j f(ū_j) and, where states hold what the input was, what still comes of it
then: the columns of A for these, but not their rows, which hold what was asked. That costs
Σ zᵀQz + vᵀRv + 2zᵀNv, and twice what z, v have in common with the run: the part that is
in step with it. A fault that was found costs both; one that is merely not excluded costs the
former, of the second order, since the latter may just as well make a run cheaper. Where noise
drives the run, ū is a root mean square, with the sign of the mean.

An actuator that ends gives less, and not more: it costs both from a level of 10 % on, because few
logged inputs tell of it. But it gives no less than nothing: γ u⁵, which grows so fast beyond the
logs, counts as u at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machines.lagged_steps import held_inputs
from contextual_lqr.certificates.model_tests.finding import DOUBT, Finding
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.moments import step_moments
from contextual_lqr.lqr.problem import QuadraticCost


def faulty_runs(
    faults: Sequence[Finding],
    system: Dynamics,
    gains: Float[Array, "n steps m d"],
    cost: QuadraticCost,
    start: Float[Array, " d"],
    *,
    in_step: bool = False,
) -> Float[Array, "k n"]:
    """What each of k faults costs n machines under their gains.

    With the part that is `in_step` with the run, if asked, also where a fault is not found.
    """
    n, d, k = len(gains), gains.shape[-1], len(faults)
    inputs = [one.regressor - d for one in faults if one.regressor is not None]
    limits = np.array([one.limit for one in faults])
    ends = np.array([one.way == "fifths" for one in faults])
    M = np.concatenate((system.A, system.B), -1)
    held = np.array(held_inputs(M.reshape(-1, *M.shape[-2:])[0]))
    by = held[:, None] == inputs  # (y, k)
    noise = np.asarray(system.noise).reshape(-1, d, d)[0]
    moments = step_moments(M, noise, gains, start)
    x, Z = np.broadcast_to(start, (n, d)), np.zeros((n, d, k))
    own, shared, before = np.zeros((n, k)), np.zeros((n, k)), None
    for t, moment in enumerate(moments):
        K = gains[:, t]
        u, V = (K @ x[..., None])[..., 0], K @ Z
        size = np.sqrt(np.diagonal(moment, axis1=1, axis2=2))
        usual = np.where(np.concatenate((x, u), -1) < 0, -size, size)
        before = usual if before is None else before
        Q, R, N = cost.Q[t], cost.R[t], None if cost.N is None else cost.N[t]
        own += (Z * (Q @ Z)).sum(1) + (V * (R @ V)).sum(1)
        shared += ((x @ Q)[:, None] @ Z + (u @ R)[:, None] @ V)[:, 0]
        if N is not None:
            own += 2 * (Z * (N @ V)).sum(1)
            shared += ((x @ N)[:, None] @ V + (u @ N.T)[:, None] @ Z)[:, 0]
        A, B = system.at(t)
        done = {
            "signs": np.sign(usual),
            "squares": usual * size,
            "sizes": size,
            "offset": np.ones_like(usual),
            "steps": t * usual,
            "turns": np.sign(usual - before),
            "fifths": usual * size**4,
        }
        off = np.stack([done[one.way] for one in faults], -1) * limits * by
        most = size[..., None]
        off[..., ends] = np.clip(off[..., ends], -most, most)
        acting = A @ off[:, :d] + B @ off[:, d:]
        Z = A @ Z + B @ V + np.where(held[:d, None] < 0, acting, 0.0)
        x, before = (A @ x[..., None] + B @ u[..., None])[..., 0], usual
    own += (Z * (cost.Q[-1] @ Z)).sum(1)
    shared += ((x @ cost.Q[-1])[:, None] @ Z)[:, 0]
    likely = [one.way == "fifths" and one.p_value <= DOUBT for one in faults]
    found = np.array([one.found for one in faults]) | likely | in_step
    total = own + 2 * np.abs(shared) * found
    return np.where(np.isfinite(total), np.maximum(total, 0.0), np.inf).T
