"""Finite-horizon linear-quadratic control: the solution, any policy's cost, a gradient, a rollout.

The problem is stated in `problem.py`. The sign is the paper's: u = K x. (python-control writes
u = -K x.) Steps are counted from 1; the value of a state at step h is xᵀ P[h] x + c[h].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.checks import (
    all_finite,
    as_numbers,
    as_symmetric,
    broadcast_batches,
    read_only,
    record,
    require,
    require_semi_definite,
)
from contextual_lqr.errors import InputError, UnsolvableError
from contextual_lqr.problem import LinearPolicy, LinearSystem, QuadraticCost, Spread, Trajectory


class Status(IntEnum):
    """How the solution of one member of a batch ended."""

    SOLVED = kernels.SOLVED
    NOT_POSITIVE_DEFINITE = kernels.NOT_POSITIVE_DEFINITE
    NOT_FINITE = kernels.NOT_FINITE
    INACCURATE = kernels.INACCURATE


_REASONS = {
    Status.NOT_POSITIVE_DEFINITE: "R + BᵀPB is not positive definite",
    Status.NOT_FINITE: "the value matrix leaves the finite numbers",
    Status.INACCURATE: "the system is so unstable that too many digits are lost",
}


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimal policy of every member of a batch, and its value xᵀ P[h] x + c[h].

    A member that could not be solved says so in `status`: its gains and value matrices are NaN,
    its value constants and its cost infinite. One that is INACCURATE has all of them, but they are
    not to be trusted to 1e-6.
    """

    policy: LinearPolicy
    value_matrices: Float[Array, "*batch H d d"]
    value_constants: Float[Array, "*batch H"]
    status: Int[Array, "*batch"]
    failed_step: Int[Array, "*batch"]

    @property
    def solved(self) -> Any:
        """Whether each member was solved."""
        return self.status == kernels.SOLVED

    def cost(self, start: ArrayLike) -> Any:
        """The optimal expected cost J₁* from `start`, (..., d); inf for a member not solved."""
        d = self.value_matrices.shape[-1]
        x = as_numbers("start", start, "(..., d)", 1)
        if x.shape[-1] != d:
            raise InputError(f"start must have {d} coordinates, not {x.shape[-1]}")
        broadcast_batches({"solution": self.status.shape, "start": x.shape[:-1]})
        with np.errstate(over="ignore", invalid="ignore"):
            Px = _apply(self.value_matrices[..., 0, :, :], x)
            J = np.asarray(np.vecdot(x, Px) + self.value_constants[..., 0])
        return _or_infinite(J)


class CostGradient(NamedTuple):
    """∂J₁*/∂A and ∂J₁*/∂B, shaped like A and B; NaN for a member that cannot be solved."""

    dA: Float[Array, "*batch d d"]
    dB: Float[Array, "*batch d m"]


def solve(
    system: LinearSystem,
    cost: QuadraticCost,
    *,
    spread: Spread | None = None,
    check: bool = False,
) -> Solution:
    """The optimal policy and its value, by one backward pass (eq. optimal-value, ph, km).

    With a `spread`, the policy hedges against systems that vary about this one. Nothing is raised
    for a member without solution, unless `check`: then `UnsolvableError` names the first such
    member and the step.
    """
    shape, found = _run(system, cost, spread=spread, gains=True, values=True)
    solution = Solution(
        record(object.__new__(LinearPolicy), gains=_unflatten(found.gains, shape)),
        _unflatten(found.values, shape),
        _unflatten(found.constants, shape),
        _unflatten(found.status, shape),
        _unflatten(found.failed_step, shape),
    )
    if check and found.status.any():
        raise UnsolvableError(_failure(solution, cost.horizon))
    return solution


def optimal_policy(system: LinearSystem, cost: QuadraticCost) -> LinearPolicy:
    """The policy alone, to the bit that of `solve`; its gains are NaN for a member not solved."""
    shape, found = _run(system, cost, gains=True)
    return record(object.__new__(LinearPolicy), gains=_unflatten(found.gains, shape))


def optimal_cost(system: LinearSystem, cost: QuadraticCost, start: ArrayLike) -> Any:
    """J₁* alone: what `solve(system, cost).cost(start)` says, without keeping gains or values."""
    shape, found = _run(system, cost, start=start)
    return _or_infinite(_unflatten(found.cost, shape))


def policy_cost(
    policy: LinearPolicy,
    system: LinearSystem,
    cost: QuadraticCost,
    start: ArrayLike,
    *,
    dither: ArrayLike | None = None,
) -> Any:
    """The exact expected cost of any linear policy on any system; inf where it overflows.

    `dither`, (..., H-1, m, m), is the covariance of what is added to the inputs at each step.
    Policies, systems, costs, starts and dithers broadcast against each other like NumPy arrays.
    """
    E = None
    if dither is not None:
        E = as_symmetric("dither", as_numbers("dither", dither, "(..., H-1, m, m)", 3))
        require(E.shape[-3:] == cost.R.shape[-3:], f"dither must have R's shape, not {E.shape}")
        require_semi_definite("dither, a covariance,", E)
    shape, found = _run(system, cost, start=start, policy=policy, dither=E)
    return _or_infinite(_unflatten(found.cost, shape))


def cost_gradient(system: LinearSystem, cost: QuadraticCost, start: ArrayLike) -> CostGradient:
    """The exact gradient of J₁* by the dynamics: one backward and one forward pass.

    By the envelope theorem the optimal gains may be held fixed:
    ∇J = 2 Σ_h P[h+1] (A + B K[h]) E[x[h] x[h]ᵀ] [I; K[h]]ᵀ.
    """
    return cost_and_gradient(system, cost, start)[1]


def cost_and_gradient(
    system: LinearSystem, cost: QuadraticCost, start: ArrayLike
) -> tuple[Any, CostGradient]:
    """J₁* and its gradient, from the same two passes."""
    shape, found = _run(system, cost, start=start, gradient=True)
    gradient = CostGradient(_unflatten(found.dA, shape), _unflatten(found.dB, shape))
    return _or_infinite(_unflatten(found.cost, shape)), gradient


def policy_cost_and_gradient(
    policy: LinearPolicy, system: LinearSystem, cost: QuadraticCost, start: ArrayLike
) -> tuple[Any, CostGradient]:
    """The cost of a given policy, and its gradient by the dynamics: the same two passes.

    The formula of `cost_gradient` holds for any gains, with P the value of the policy.
    """
    shape, found = _run(system, cost, start=start, policy=policy, gradient=True)
    gradient = CostGradient(_unflatten(found.dA, shape), _unflatten(found.dB, shape))
    return _or_infinite(_unflatten(found.cost, shape)), gradient


def simulate(
    policy: LinearPolicy,
    system: LinearSystem,
    start: ArrayLike,
    rng: np.random.Generator,
    *,
    state_bound: float | ArrayLike | None = None,
) -> Trajectory:
    """Play the policy. Without a bound, policies, systems and starts may be batches.

    `state_bound` (a number, or one for each coordinate) stops an episode after the first state that
    has a larger coordinate; the trajectory is then as long as what was played. One episode whose
    state overflows is stopped before it; a batch in which that happens is refused.
    """
    x = as_numbers("start", start, "(..., d)", 1)
    d, m = system.state_size, system.input_size
    steps = policy.gains.shape[-3]
    require(policy.gains.shape[-2:] == (m, d), _mismatch(policy, system))
    require(x.shape[-1] == d, f"start must have {d} coordinates, not {x.shape[-1]}")
    batch = broadcast_batches(
        {"policy": policy.gains.shape[:-3], "system": system.batch_shape, "start": x.shape[:-1]}
    )
    bound = np.inf if state_bound is None else as_numbers("state_bound", state_bound, "(d,)", 0)
    if state_bound is not None:
        require(not batch, f"a state bound stops one episode, but these are a batch of {batch}")
        require(
            bool(np.all(bound > 0)) and np.shape(bound) in ((), (d,)),
            f"state_bound must be positive, a number or {d} of them, not {state_bound!r}",
        )
    # All noise is drawn at once, so that how far an episode gets does not change what follows it.
    shocks = rng.standard_normal((*batch, steps, d))
    shocks = np.einsum("...ij,...hj->...hi", system.noise_factor, shocks)
    if not batch:
        limit = None if state_bound is None else np.full(d, bound)
        return Trajectory(
            *kernels.roll_out(system.A, system.B, policy.gains, x, shocks, bound=limit)
        )
    states, inputs = np.empty((*batch, steps + 1, d)), np.empty((*batch, steps, m))
    states[..., 0, :] = x
    with np.errstate(over="ignore", invalid="ignore"):
        for h in range(steps):
            x = states[..., h, :]
            u = inputs[..., h, :] = _apply(policy.gains[..., h, :, :], x)
            states[..., h + 1, :] = _apply(system.A, x) + _apply(system.B, u) + shocks[..., h, :]
    if not np.isfinite(states).all():
        raise InputError("an episode of this batch overflows: simulate it alone, or with a bound")
    return Trajectory(states, inputs)


def _apply(matrix: Array, vector: Array) -> Array:
    if matrix.ndim == 2 and vector.ndim == 1:
        return np.asarray(matrix @ vector)
    return np.asarray(matrix @ vector[..., None])[..., 0]


def _mismatch(policy: LinearPolicy, system: LinearSystem) -> str:
    m, d = policy.gains.shape[-2:]
    return (
        f"the policy is for {d} states and {m} inputs, but the system has {system.state_size} "
        f"states and {system.input_size} inputs"
    )


def _run(
    system: LinearSystem,
    cost: QuadraticCost,
    *,
    start: ArrayLike | None = None,
    policy: LinearPolicy | None = None,
    dither: Array | None = None,
    spread: Spread | None = None,
    **wanted: bool,
) -> tuple[tuple[int, ...], kernels.Outcome]:
    """Bring everything to one batch axis, and run the recursions on it."""
    d, m = system.state_size, system.input_size
    if (cost.state_size, cost.input_size) != (d, m):
        raise InputError(
            f"the system has {d} states and {m} inputs, but the cost is for {cost.state_size} "
            f"states and {cost.input_size} inputs"
        )
    batches = {"system": system.batch_shape, "cost": cost.batch_shape}
    x = gains = covariances = None
    if start is not None:
        x = as_numbers("start", start, "(..., d)", 1)
        require(x.shape[-1] == d, f"start must have {d} coordinates, not {x.shape[-1]}")
        batches["start"] = x.shape[:-1]
    if policy is not None:
        gains = policy.gains
        require(gains.shape[-2:] == (m, d), _mismatch(policy, system))
        require(
            gains.shape[-3] == cost.horizon - 1,
            f"the policy has {gains.shape[-3]} steps, but the cost {cost.horizon - 1}",
        )
        batches["policy"] = gains.shape[:-3]
    if dither is not None:
        batches["dither"] = dither.shape[:-3]
    if spread is not None:
        sizes = spread.rows.shape[-1], spread.columns.shape[-1]
        require(sizes == (d, d + m), f"the spread is for sizes {sizes}, the system {(d, d + m)}")
        batches |= {"rows": spread.rows.shape[:-1], "columns": spread.columns.shape[:-2]}
    shape = broadcast_batches(batches)
    if spread is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            covariances = spread.rows[..., :, None, None] * spread.columns[..., None, :, :]
    found = kernels.recursions(
        _flatten(system.A, 2, shape),
        _flatten(system.B, 2, shape),
        _flatten(cost.Q, 3, shape),
        _flatten(cost.R, 3, shape),
        None if cost.N is None else _flatten(cost.N, 3, shape),
        _flatten(system.noise, 2, shape) if system.has_noise else None,
        start=None if x is None else _flatten(x, 1, shape),
        policy=None if gains is None else _flatten(gains, 3, shape),
        dither=None if dither is None else _flatten(dither, 3, shape),
        covariances=None if covariances is None else _flatten(covariances, 3, shape),
        batch=math.prod(shape),
        threads=kernels.threads(),
        **wanted,
    )
    return shape, found


def _flatten(array: Array, core: int, batch: tuple[int, ...]) -> Array:
    """One leading axis: as long as the batch, or 1 where all members share the array."""
    leading, own = array.shape[:-core], array.shape[-core:]
    if own[0]:  # the usual cases, and quick
        if not leading:
            return array[None]
        if leading == batch and len(batch) == 1:
            return array
    if leading != batch and any(size != 1 for size in leading):
        array = np.ascontiguousarray(np.broadcast_to(array, batch + own))
    return array.reshape(-1, *own) if own[0] else np.zeros((1, *own))


def _unflatten(array: Array | None, batch: tuple[int, ...]) -> Array:
    assert array is not None  # it was asked for
    if len(batch) != 1:
        array = array.reshape(batch + array.shape[1:]) if batch else array[0, ...]
    return read_only(array)


def _or_infinite(cost: Any) -> Any:
    """NaN is what overflow leaves of terms with different signs, or a member without solution."""
    if all_finite(cost):  # the usual case, and quick
        return cost[()]
    return np.where(np.isnan(cost), np.inf, cost)[()]


def _failure(solution: Solution, horizon: int) -> str:
    failed = np.argwhere(solution.status != Status.SOLVED)
    first = tuple(int(i) for i in failed[0])
    where = f"member {first[0] if len(first) == 1 else first}: " if first else ""
    others = f" ({len(failed)} members of the batch failed)" if len(failed) > 1 else ""
    reason = _REASONS[Status(int(solution.status[first]))]
    step = int(solution.failed_step[first])
    return f"{where}{reason}{f' at step {step} of {horizon - 1}' if step else ''}{others}"
