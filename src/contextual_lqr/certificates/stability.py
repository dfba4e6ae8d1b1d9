"""Whether the closed loop of an episode grows, though it need not.

The transition over the episode is Φ = Π (A + B K_h). Its spectral radius is what a deviation of the
state is multiplied by in the long run if episode follows episode; unlike a norm it does not depend
on units. A coordinate that stays constant has a mode of 1, and is no instability. Nor is it one if
the best controller lets a mode grow: the last gains of an episode are small, so a pole which falls
quickly begins to fall before the end. So the mode is compared with that of the best controller.

A constant gain runs for ever: its loop grows unless every mode of A + B K is below 1.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.lqr.affine import moving_part
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.solve import optimal_policy
from contextual_lqr.lqr.stationary import Cost, StationaryCost
from contextual_lqr.lqr.time_varying import TimeVaryingSystem

GROWTH = 2.0  # a mode more than twice that of the best controller, or than 1, is an instability


def grows(systems: Dynamics, gains: Float[Array, "*steps m d"], cost: Cost) -> Bool[Array, " n"]:
    """Whether a mode more than doubles over the episode, by these gains and not by the best.

    With a `StationaryCost`, whether one does not decay under the constant gain, (m, d).
    """
    A, B = systems.A, systems.B
    if isinstance(cost, StationaryCost):
        if cost.constant:
            systems, gains, cost = moving_part(systems, gains, cost)
            A, B = systems.A, systems.B
        with np.errstate(over="ignore", invalid="ignore"):
            F = A + B @ gains
        return ~kernels.lyapunov(F, np.eye(A.shape[-1])[None], batch=len(A))[1]
    mode = largest_modes(A, B, gains, GROWTH)
    growing = mode > GROWTH
    some = np.flatnonzero(growing)
    if len(some):
        quiet = np.zeros((A.shape[-1],) * 2)
        kind = LinearSystem if systems.steps is None else TimeVaryingSystem
        own = kind.unchecked(A[some], B[some], quiet)
        best = largest_modes(own.A, own.B, optimal_policy(own, cost).gains, 1.0)
        best = np.where(np.isfinite(best), best, 0.0)  # there is no best controller
        growing[some] = mode[some] > GROWTH * np.maximum(best, 1.0)
    return growing


def largest_modes(
    A: Float[Array, "n *stages d d"], B: Float[Array, "n *stages d m"], gains: Array, above: float
) -> Float[Array, " n"]:
    """The spectral radius of each Φ, infinite if Φ is; 0 for what is certainly not `above` that.

    The gains, (steps, m, d), are the same for all systems or have one more axis in front. A and B
    are constant, or those of each step.
    """
    modes = np.zeros(len(A))
    # A norm is never below the spectral radius: for most, it is enough.
    some = np.flatnonzero(~(_norms(A, B, gains) <= above**2))
    if not len(some):
        return modes
    K = gains if gains.ndim == 3 else gains[some]
    with np.errstate(over="ignore", invalid="ignore"):
        A, B = (M[some] if M.ndim == 4 else M[some, None] for M in (A, B))
        F = A + B @ K
        while F.shape[1] > 1:  # neighbours are multiplied, so that few calls do all
            odd = F[:, F.shape[1] // 2 * 2 :]
            F = np.concatenate((F[:, 1::2] @ F[:, : F.shape[1] // 2 * 2 : 2], odd), 1)
        power = Phi = F[:, 0]
        for _ in range(3):  # ‖Φ⁸‖ ≥ ρ⁸
            power = power @ power
        left = ~((power * power).sum((-2, -1)) <= above**16)
    finite = np.isfinite(Phi).all((-2, -1))
    modes[some[~finite]] = np.inf
    left &= finite
    if left.any():
        modes[some[left]] = np.abs(np.linalg.eigvals(Phi[left])).max(-1)
    return modes


def _norms(A: Array, B: Array, gains: Array) -> Float[Array, " n"]:
    """‖Φ‖², the sum over unit starts of what the policy costs if only the last state counts."""
    n, (d, m) = len(B), B.shape[-2:]
    gains = np.ascontiguousarray(gains if gains.ndim == 4 else gains[None])
    steps = gains.shape[1]
    Q = np.zeros((1, steps + 1, d, d))
    Q[0, -1] = np.eye(d)
    found = kernels.recursions(
        A, B, Q, np.zeros((1, steps, m, m)), None, None, policy=gains, batch=n, values=True
    )
    assert found.values is not None  # asked for
    return np.asarray(np.einsum("nii->n", found.values[:, 0]))
