"""Machines drawn from a belief, as they are weighed against one another: with 16 digits.

While little is known of a machine, its draws are wild; of many states, so unstable that 16 digits
lose most of theirs. To find out how many takes three times as long as to solve them, and computing
with 32 fifty times. A plan that is good on nearly all draws needs neither. A cost that is lost to
rounding shows where it falls below what any machine must cost: it is then infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.lqr.batches import or_infinite
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost

_TOGETHER = 1 << 21  # numbers in the values of machines solved at once: memory used again


def drawn_costs(
    machines: LinearSystem,
    cost: QuadraticCost,
    start: Float[Array, " d"],
    policy: LinearPolicy | None = None,
    dither: Float[Array, "steps m m"] | None = None,
) -> Float[Array, " n"]:
    """What a policy costs on each machine, or the best one; infinite where that is not known."""
    gains = None if policy is None else policy.gains[None]
    E = None if dither is None else dither[None]
    J = _run(cost, *_each(machines), start=start[None], policy=gains, dither=E).cost
    assert J is not None  # asked for
    least = cost.floor(start, np.zeros_like(machines.A[0]))
    return np.where((1 - 1e-9) * least > J, np.inf, or_infinite(J))


def first_steps(
    machines: LinearSystem, cost: QuadraticCost, start: Float[Array, " d"]
) -> tuple[Float[Array, "n m"], Float[Array, "n m m"], Float[Array, " n"]]:
    """Of each machine the best input, R + BᵀPB with the P of the step after, and the cost.

    They are not finite where a machine cannot be solved.
    """
    own = _each(machines)
    size = max(_TOGETHER // (cost.horizon * machines.A[0].size), 1)
    parts = []
    for first in range(0, len(machines.A), size):
        A, B, W = (M[first : first + size] for M in own)
        K, P, c, *_ = _run(cost, A, B, W, gains=True, values=True)
        assert K is not None and P is not None and c is not None  # noqa: PT018 - all asked for
        with np.errstate(over="ignore", invalid="ignore"):
            metrics = cost.R[0] + B.swapaxes(1, 2) @ P[:, 1] @ B
            parts.append((K[:, 0] @ start, metrics, P[:, 0] @ start @ start + c[:, 0]))
    us, metrics, J = (np.concatenate(each) for each in zip(*parts, strict=True))
    return us, metrics, J


def _each(machines: LinearSystem) -> tuple[Array, Array, Array]:
    A, noise = machines.A, np.broadcast_to(machines.noise, machines.A.shape)
    return A, machines.B, np.ascontiguousarray(noise)


def _run(cost: QuadraticCost, A: Array, B: Array, W: Array, **more: Any) -> kernels.Outcome:
    N = None if cost.N is None else cost.N[None]
    more |= {"batch": len(A), "refine": False, "threads": kernels.threads()}
    return kernels.recursions(A, B, cost.Q[None], cost.R[None], N, W, **more)
