"""What an episode that was played has cost."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import broadcast_batches, require
from contextual_lqr.lqr.problem import QuadraticCost, Trajectory
from contextual_lqr.lqr.target_cost import TargetCost


def trajectory_cost(
    trajectory: Trajectory, cost: QuadraticCost
) -> np.float64 | Float[Array, "*batch"]:
    """Σ xᵀQx + uᵀRu + 2xᵀNu over the steps played, and xᵀQx of the last state.

    For a `TargetCost`, x and u are distances from the target.

    Parameters
    ----------
    trajectory : Trajectory
        What was played; an episode that was stopped early is charged as far as it went.
    cost : QuadraticCost or TargetCost
        Its weights, for at least as many steps.

    Returns
    -------
    float or array
        One number per episode; inf where the sum overflows.

    Raises
    ------
    InputError
        If the sizes differ, or there are more steps than the cost has.

    Examples
    --------
    >>> cost = clqr.QuadraticCost(Q=[np.eye(1)] * 3, R=[np.eye(1)] * 2)
    >>> float(clqr.trajectory_cost(clqr.Trajectory([[1.0], [0.5]], [[-0.5]]), cost))
    1.5
    """
    x, u, n = trajectory.states, trajectory.inputs, len(trajectory)
    sizes, own = (x.shape[-1], u.shape[-1]), (cost.state_size, cost.input_size)
    require(
        sizes == own,
        f"the trajectory has {sizes[0]} states and {sizes[1]} inputs, but the cost is for {own[0]} "
        f"states and {own[1]} inputs",
    )
    steps = cost.horizon - 1
    require(n <= steps, f"the trajectory has {n} steps, but the cost is for {steps}")
    broadcast_batches({"trajectory": x.shape[:-2], "cost": cost.batch_shape})
    if isinstance(cost, TargetCost):
        x, u = cost.errors(x, u)
    with np.errstate(over="ignore", invalid="ignore"):
        J = _forms(x, cost.Q[..., : n + 1, :, :], x) + _forms(u, cost.R[..., :n, :, :], u)
        if cost.N is not None:
            J = J + 2 * _forms(x[..., :-1, :], cost.N[..., :n, :, :], u)
    return np.where(np.isnan(J), np.inf, J)[()]


def _forms(a: Array, W: Array, b: Array) -> Array:
    """Σ_h a[h]ᵀ W[h] b[h]."""
    return np.asarray(np.vecdot(a, (W @ b[..., None])[..., 0]).sum(-1))
