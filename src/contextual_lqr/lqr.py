"""Finite-horizon linear-quadratic control: the problem, its solution, any policy's cost, a rollout.

The problem, for one machine (every array may carry leading batch axes, which broadcast):

    x[h+1] = A x[h] + B u[h] + w[h+1],   E[w wᵀ] = noise              h = 1 .. H-1
    cost   = Σ_{h<H} x[h]ᵀ Q[h] x[h] + u[h]ᵀ R[h] u[h] + 2 x[h]ᵀ N[h] u[h]  +  x[H]ᵀ Q[H] x[H]

    A (d, d)   B (d, m)   noise (d, d)   Q (H, d, d)   R (H-1, m, m)   N (H-1, d, m)
    states (H, d)   inputs (H-1, m)   gains (H-1, m, d)   value matrices P (H, d, d)

The sign is the paper's: u = K x. (python-control writes u = -K x.) Steps are counted from 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.checks import (
    as_numbers,
    as_symmetric,
    broadcast_batches,
    frozen,
    read_only,
    record,
    require,
    require_semi_definite,
)
from contextual_lqr.errors import InputError, UnsolvableError


class Status(IntEnum):
    """How the solution of one member of a batch ended."""

    SOLVED = kernels.SOLVED
    NOT_POSITIVE_DEFINITE = kernels.NOT_POSITIVE_DEFINITE
    NOT_FINITE = kernels.NOT_FINITE


_REASONS = {
    Status.NOT_POSITIVE_DEFINITE: "R + BᵀPB is not positive definite",
    Status.NOT_FINITE: "the value matrix leaves the finite numbers",
}


@dataclass(frozen=True, init=False, eq=False)
class LinearSystem:
    """Machines that obey x' = A x + B u + w, with E[w wᵀ] = noise (zero unless given)."""

    A: Float[Array, "*#batch d d"]
    B: Float[Array, "*#batch d m"]
    noise: Float[Array, "*#batch d d"]

    def __init__(self, A: ArrayLike, B: ArrayLike, noise: ArrayLike | None = None) -> None:
        A, B = as_numbers("A", A, "(..., d, d)", 2), as_numbers("B", B, "(..., d, m)", 2)
        d = A.shape[-1]
        require(
            A.shape[-2] == d and d > 0, f"A must be square, (..., d, d), but has shape {A.shape}"
        )
        require(
            B.shape[-2] == d and B.shape[-1] > 0,
            f"B must have as many rows as A, (..., {d}, m), but has shape {B.shape}",
        )
        if noise is None:
            W = np.zeros((d, d))
        else:
            W = as_numbers("noise", noise, "(..., d, d)", 2)
            require(W.shape[-2:] == (d, d), f"noise must have shape (..., {d}, {d}), not {W.shape}")
            W = as_symmetric("noise", W)
            require_semi_definite("noise, a covariance,", W)
        broadcast_batches({"A": A.shape[:-2], "B": B.shape[:-2], "noise": W.shape[:-2]})
        record(self, A=frozen(A), B=frozen(B), noise=read_only(W))

    @property
    def state_size(self) -> int:
        """The number of states d."""
        return int(self.A.shape[-1])

    @property
    def input_size(self) -> int:
        """The number of inputs m."""
        return int(self.B.shape[-1])

    @cached_property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes: () for one machine."""
        return np.broadcast_shapes(self.A.shape[:-2], self.B.shape[:-2], self.noise.shape[:-2])

    @cached_property
    def noise_factor(self) -> Float[Array, "*batch d d"]:
        """A matrix L with L Lᵀ = noise; a coordinate without noise has a row of exact zeros."""
        spread, directions = np.linalg.eigh(self.noise)
        L = directions * np.sqrt(np.maximum(spread, 0))[..., None, :]
        noisy = np.einsum("...ii->...i", self.noise)[..., None] > 0
        return read_only(np.where(noisy, L, 0.0))

    @cached_property
    def _noise_or_none(self) -> Array | None:
        return self.noise if self.noise.any() else None


@dataclass(frozen=True, init=False, eq=False)
class QuadraticCost:
    """The cost of an episode: Q (H, d, d), R (H-1, m, m) and the cross term N (H-1, d, m).

    Each stage must be convex, [[Q, N], [Nᵀ, R]] positive semi-definite, unless `indefinite=True`.
    """

    Q: Float[Array, "*#batch H d d"]
    R: Float[Array, "*#batch steps m m"]
    N: Float[Array, "*#batch steps d m"] | None

    def __init__(
        self, Q: ArrayLike, R: ArrayLike, N: ArrayLike | None = None, *, indefinite: bool = False
    ) -> None:
        Q, R = as_numbers("Q", Q, "(..., H, d, d)", 3), as_numbers("R", R, "(..., H-1, m, m)", 3)
        H, d, m = Q.shape[-3], Q.shape[-1], R.shape[-1]
        require(
            Q.shape[-2] == d and d > 0 and H > 0, f"Q must have shape (..., H, d, d), not {Q.shape}"
        )
        require(
            R.shape[-3] == H - 1 and R.shape[-2] == m and m > 0,
            f"R must have shape (..., {H - 1}, m, m), one matrix fewer than Q has, not {R.shape}",
        )
        Q, R = as_symmetric("Q", Q), as_symmetric("R", R)
        if N is not None:
            N = as_numbers("N", N, "(..., H-1, d, m)", 3)
            require(
                N.shape[-3:] == (H - 1, d, m),
                f"N must have shape (..., {H - 1}, {d}, {m}), not {N.shape}",
            )
        broadcast_batches(
            {"Q": Q.shape[:-3], "R": R.shape[:-3], "N": () if N is None else N.shape[:-3]}
        )
        if not indefinite:
            _require_convex(Q, R, N)
        record(self, Q=frozen(Q), R=frozen(R), N=None if N is None else frozen(N))

    @property
    def horizon(self) -> int:
        """The number of states H of an episode; it has H-1 inputs."""
        return int(self.Q.shape[-3])

    @property
    def state_size(self) -> int:
        """The number of states d."""
        return int(self.Q.shape[-1])

    @property
    def input_size(self) -> int:
        """The number of inputs m."""
        return int(self.R.shape[-1])

    @cached_property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes: () for one cost."""
        shapes = [self.Q.shape[:-3], self.R.shape[:-3]]
        return np.broadcast_shapes(*shapes, () if self.N is None else self.N.shape[:-3])


def _require_convex(Q: Array, R: Array, N: Array | None) -> None:
    hint = "; pass indefinite=True if that is meant"
    require_semi_definite("Q", Q, hint)
    require_semi_definite("R", R, hint)
    if N is None or N.shape[-3] == 0:
        return
    stages = Q[..., :-1, :, :]
    batch = np.broadcast_shapes(stages.shape[:-2], R.shape[:-2], N.shape[:-2])
    d, m = Q.shape[-1], R.shape[-1]
    joint = np.empty((*batch, d + m, d + m))
    joint[..., :d, :d], joint[..., d:, d:] = stages, R
    joint[..., :d, d:], joint[..., d:, :d] = N, N.swapaxes(-1, -2)
    require_semi_definite("[[Q, N], [Nᵀ, R]]", joint, f": N is too large for Q and R{hint}")


@dataclass(frozen=True, init=False, eq=False)
class LinearPolicy:
    """The inputs u[h] = gains[h] x[h], gains of shape (..., H-1, m, d)."""

    gains: Float[Array, "*batch steps m d"]

    def __init__(self, gains: ArrayLike) -> None:
        record(self, gains=frozen(as_numbers("gains", gains, "(..., H-1, m, d)", 3)))


@dataclass(frozen=True, init=False, eq=False)
class Trajectory:
    """What was played: states (..., H, d) and the inputs (..., H-1, m) between them."""

    states: Float[Array, "*batch H d"]
    inputs: Float[Array, "*batch steps m"]

    def __init__(self, states: ArrayLike, inputs: ArrayLike) -> None:
        states = as_numbers("states", states, "(..., H, d)", 2)
        inputs = as_numbers("inputs", inputs, "(..., H-1, m)", 2)
        require(
            states.shape[:-2] == inputs.shape[:-2] and states.shape[-2] == inputs.shape[-2] + 1,
            "a trajectory has one state more than inputs, but states has shape "
            f"{states.shape} and inputs {inputs.shape}",
        )
        record(self, states=frozen(states), inputs=frozen(inputs))

    def __len__(self) -> int:
        """The number of steps played, one fewer than states."""
        return int(self.inputs.shape[-2])


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimal policy of every member of a batch, and its value xᵀ P[h] x + c[h].

    A member that could not be solved says so in `status`: its gains and values are NaN, its cost
    is infinite.
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
        require(x.shape[-1] == d, f"start must have {d} coordinates, not {x.shape[-1]}")
        broadcast_batches({"solution": self.status.shape, "start": x.shape[:-1]})
        with np.errstate(over="ignore", invalid="ignore"):
            J = np.einsum("...i,...ij,...j->...", x, self.value_matrices[..., 0, :, :], x)
            J = J + self.value_constants[..., 0]
        return _or_infinite(J)


class CostGradient(NamedTuple):
    """∂J₁*/∂A and ∂J₁*/∂B, shaped like A and B; NaN for a member that cannot be solved."""

    dA: Float[Array, "*batch d d"]
    dB: Float[Array, "*batch d m"]


def solve(system: LinearSystem, cost: QuadraticCost, *, check: bool = False) -> Solution:
    """The optimal policy and its value, by one backward pass (eq. optimal-value, ph, km).

    Nothing is raised for a member without solution, unless `check`: then `UnsolvableError` names
    the first such member and the step.
    """
    shape, found = _run(system, cost, gains=True, values=True)
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


def optimal_cost(system: LinearSystem, cost: QuadraticCost, start: ArrayLike) -> Any:
    """J₁* alone: what `solve(system, cost).cost(start)` says, without keeping gains or values."""
    shape, found = _run(system, cost, start=start)
    return _or_infinite(_unflatten(found.cost, shape))


def policy_cost(
    policy: LinearPolicy, system: LinearSystem, cost: QuadraticCost, start: ArrayLike
) -> Any:
    """The exact expected cost of any linear policy on any system; inf where it overflows.

    Policies, systems, costs and starts broadcast against each other like NumPy arrays.
    """
    shape, found = _run(system, cost, start=start, policy=policy)
    return _or_infinite(_unflatten(found.cost, shape))


def cost_gradient(system: LinearSystem, cost: QuadraticCost, start: ArrayLike) -> CostGradient:
    """The exact gradient of J₁* by the dynamics: one backward and one forward pass.

    By the envelope theorem the optimal gains may be held fixed:
    ∇J = 2 Σ_h P[h+1] (A + B K[h]) E[x[h] x[h]ᵀ] [I; K[h]]ᵀ.
    """
    shape, found = _run(system, cost, start=start, gradient=True)
    return CostGradient(_unflatten(found.dA, shape), _unflatten(found.dB, shape))


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
    has a larger coordinate; the trajectory is then as long as what was played. An episode whose
    state overflows is stopped before it.
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
    states, inputs = np.empty((*batch, steps + 1, d)), np.empty((*batch, steps, m))
    states[..., 0, :] = x
    played = steps
    if state_bound is not None and (np.abs(x) > bound).any():
        played = steps = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for h in range(steps):
            x = states[..., h, :]
            u = inputs[..., h, :] = _apply(policy.gains[..., h, :, :], x)
            x = _apply(system.A, x) + _apply(system.B, u) + shocks[..., h, :]
            states[..., h + 1, :] = x
            if batch:
                continue
            if not (np.isfinite(x).all() and np.isfinite(u).all()):
                played = h
                break
            if state_bound is not None and (np.abs(x) > bound).any():
                played = h + 1
                break
    return Trajectory(states[..., : played + 1, :], inputs[..., :played, :])


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
    x = gains = None
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
    shape = broadcast_batches(batches)
    found = kernels.recursions(
        _flatten(system.A, 2, shape),
        _flatten(system.B, 2, shape),
        _flatten(cost.Q, 3, shape),
        _flatten(cost.R, 3, shape),
        None if cost.N is None else _flatten(cost.N, 3, shape),
        None if system._noise_or_none is None else _flatten(system.noise, 2, shape),
        start=None if x is None else _flatten(x, 1, shape),
        policy=None if gains is None else _flatten(gains, 3, shape),
        batch=math.prod(shape),
        threads=kernels.threads(),
        **wanted,
    )
    return shape, found


def _flatten(array: Array, core: int, batch: tuple[int, ...]) -> Array:
    """One leading axis: as long as the batch, or 1 where all members share the array."""
    leading, own = array.shape[:-core], array.shape[-core:]
    if leading != batch and any(size != 1 for size in leading):
        array = np.ascontiguousarray(np.broadcast_to(array, batch + own))
    return array.reshape(-1, *own) if own[0] else np.zeros((1, *own))


def _unflatten(array: Array | None, batch: tuple[int, ...]) -> Array:
    assert array is not None  # it was asked for
    return read_only(array.reshape(batch + array.shape[1:]))


def _or_infinite(cost: Any) -> Any:
    """NaN is what overflow leaves of terms with different signs, or a member without solution."""
    return np.where(np.isnan(cost), np.inf, cost)[()]


def _failure(solution: Solution, horizon: int) -> str:
    failed = np.argwhere(solution.status != Status.SOLVED)
    first = tuple(int(i) for i in failed[0])
    where = f"member {first[0] if len(first) == 1 else first}: " if first else ""
    others = f" ({len(failed)} members of the batch failed)" if len(failed) > 1 else ""
    reason = _REASONS[Status(int(solution.status[first]))]
    return f"{where}{reason} at step {solution.failed_step[first]} of {horizon - 1}{others}"
