"""Linear-quadratic control: the solution, any policy's cost, a gradient.

The problem is stated in `problem.py`. The sign is the paper's: u = K x. (python-control writes
u = -K x.) Steps are counted from 1; the value of a state at step h is xᵀ P[h] x + c[h]. For a
`StationaryCost` they answer for one constant gain (`long_run.py`, `affine.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.checks import (
    as_numbers,
    as_symmetric,
    broadcast_batches,
    record,
    require,
    require_semi_definite,
)
from contextual_lqr.display import Displayed
from contextual_lqr.errors import InputError, UnsolvableError
from contextual_lqr.lqr import affine, long_run
from contextual_lqr.lqr.batches import flatten, of_steps, or_infinite, staged, unflatten
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.long_run import StationarySolution
from contextual_lqr.lqr.problem import (
    LinearPolicy,
    ModelUncertainty,
    QuadraticCost,
    apply,
    as_states,
    require_fit,
)
from contextual_lqr.lqr.stationary import StationaryCost, StationaryPolicy
from contextual_lqr.lqr.status import REASONS, Status, failure
from contextual_lqr.lqr.target_cost import TargetCost

Costs = np.float64 | Float[Array, "*batch"]

_Doubt = ModelUncertainty | None
_CANCELLED = 50  # the terms of xᵀPx, relative to it, from which too many digits of P are lost


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Displayed):
    """The optimal policy of every member of a batch, and its value xᵀ P[h] x + c[h].

    A member that could not be solved says so in `status`: its gains and value matrices are NaN, its
    value constants and its cost infinite.

    Attributes
    ----------
    policy : LinearPolicy
        The optimal one.
    value_matrices, value_constants : array, (..., H, d, d) and (..., H)
        P and c of every step, the last state's included.
    status, failed_step : array of int, (...)
        A `Status` for each member, and the step (from 1) where it failed, 0 if at none.
    """

    policy: LinearPolicy
    value_matrices: Float[Array, "*batch H d d"]
    value_constants: Float[Array, "*batch H"]
    status: Int[Array, "*batch"]
    failed_step: Int[Array, "*batch"]
    _problem: tuple[Dynamics, QuadraticCost, ModelUncertainty | None]

    @property
    def solved(self) -> np.bool_ | Bool[Array, "*batch"]:
        """Whether each member was solved."""
        return np.asarray(self.status == kernels.SOLVED)[()]

    def cost(self, start: ArrayLike) -> Costs:
        """The optimal expected cost J₁* from `start`, (..., d), right to 1e-6.

        It is infinite for a member that was not solved, and where it cannot be had to that.
        """
        x = as_states("start", start, self.value_matrices.shape[-1])
        broadcast_batches({"solution": self.status.shape, "start": x.shape[:-1]})
        P, c = self.value_matrices[..., 0, :, :], self.value_constants[..., 0]
        with np.errstate(over="ignore", invalid="ignore"):
            J = np.asarray(np.vecdot(x, apply(P, x)) + c)
            terms = (x * x * np.abs(np.diagonal(P, axis1=-2, axis2=-1))).sum(-1) + np.abs(c)
            cancelled = self.solved & ~(terms <= _CANCELLED * np.abs(J))
        if cancelled.any():  # P, as rounded, does not know it: once more, from this start
            system, cost, uncertainty = self._problem
            shape, found = _run(system, cost, uncertainty=uncertainty, start=x)
            J = np.where(cancelled, unflatten(found.cost, shape), J)
        return or_infinite(J)

    def _facts(self) -> dict[str, object]:
        facts = self.policy._facts()
        if not self.status.ndim:
            reason = REASONS.get(Status(int(self.status)), "solved")
            where = f", step {self.failed_step}" if self.failed_step else ""
            return {**facts, "status": reason + where}
        return {**facts, "status": f"{int(self.solved.sum())} of {self.status.size} solved"}


class CostGradient(NamedTuple):
    """∂J₁*/∂A and ∂J₁*/∂B, shaped like A and B; NaN for a member that cannot be solved.

    Of a `TimeVaryingSystem`, those by the A and B of each step.
    """

    dA: Float[Array, "*batch_and_steps d d"]
    dB: Float[Array, "*batch_and_steps d m"]


@overload
def solve(
    system: Dynamics, cost: QuadraticCost, *, uncertainty: _Doubt = None, check: bool = False
) -> Solution: ...
@overload
def solve(
    system: Dynamics, cost: StationaryCost, *, uncertainty: _Doubt = None, check: bool = False
) -> StationarySolution: ...
def solve(
    system: Dynamics,
    cost: QuadraticCost | StationaryCost,
    *,
    uncertainty: ModelUncertainty | None = None,
    check: bool = False,
) -> Solution | StationarySolution:
    """The optimal policy and its value, by one backward pass (eq. optimal-value, ph, km).

    Parameters
    ----------
    system : LinearSystem or TimeVaryingSystem
        What is controlled. Batches broadcast against each other.
    cost : QuadraticCost or StationaryCost
        What an episode costs, or a step of a machine that runs on and on.
    uncertainty : ModelUncertainty, optional
        Hedge against systems that vary about this one.
    check : bool
        Raise if a member has no solution; otherwise its `status` says so, and nothing is raised.

    Returns
    -------
    Solution or StationarySolution
        For a `StationaryCost` one constant gain, by doubling.

    Raises
    ------
    InputError
        If sizes or batches do not fit together.
    UnsolvableError
        With `check`: it names the first member without a solution, and the step.

    Examples
    --------
    >>> system = clqr.LinearSystem([[1, 0.5], [0, 0.9]], [[0], [0.5]])
    >>> cost = clqr.QuadraticCost(Q=[np.eye(2)] * 15, R=[np.eye(1)] * 14)
    >>> solution = clqr.solve(system, cost)
    >>> solution
    <Solution: states 2, inputs 1, steps 14, status solved>
    >>> print(f"{solution.cost([1.0, 0.0]):.4f}")
    4.5404
    >>> clqr.solve(system, clqr.StationaryCost(np.eye(2), np.eye(1))).policy.gain.round(4)
    array([[-0.6714, -1.3243]])
    """
    if isinstance(cost, StationaryCost):
        constant = affine.solve(long_run.constant(system), cost, uncertainty)
        if check and constant.status.any():
            raise UnsolvableError(failure(constant.status))
        return constant
    shape, found = _run(system, cost, uncertainty=uncertainty, gains=True, values=True)
    solution = Solution(
        record(object.__new__(LinearPolicy), gains=unflatten(found.gains, shape)),
        unflatten(found.values, shape),
        unflatten(found.constants, shape),
        unflatten(found.status, shape),
        unflatten(found.failed_step, shape),
        (system, cost, uncertainty),
    )
    if check and found.status.any():
        raise UnsolvableError(failure(solution.status, solution.failed_step, cost.horizon - 1))
    return solution


def optimal_policy(system: Dynamics, cost: QuadraticCost) -> LinearPolicy:
    """The policy alone, to the bit that of `solve`; its gains are NaN for a member not solved."""
    shape, found = _run(system, cost, gains=True)
    return record(object.__new__(LinearPolicy), gains=unflatten(found.gains, shape))


def optimal_cost(
    system: Dynamics, cost: QuadraticCost | StationaryCost, start: ArrayLike | None = None
) -> Costs:
    """J₁* alone: what `solve(system, cost).cost(start)` says, without keeping gains or values.

    Parameters
    ----------
    system, cost : LinearSystem or TimeVaryingSystem, QuadraticCost or StationaryCost
        As for `solve`.
    start : array_like, (..., d)
        The first state, or a batch of them. The average cost of a step (`StationaryCost` without a
        discount) does not depend on it.

    Returns
    -------
    float or array
        One number a member, right to 1e-6; inf for one that cannot be solved.

    Raises
    ------
    InputError
        If sizes or batches do not fit together.

    Examples
    --------
    >>> system = clqr.LinearSystem([[1, 0.5], [0, 0.9]], [[0], [0.5]])
    >>> cost = clqr.QuadraticCost(Q=[np.eye(2)] * 15, R=[np.eye(1)] * 14)
    >>> clqr.optimal_cost(system, cost, [[1, 0], [0, 1]]).round(4)
    array([4.5404, 4.873 ])
    """
    if isinstance(cost, StationaryCost):
        return affine.optimal_cost(long_run.constant(system), cost, start)
    shape, found = _run(system, cost, start=_given(start))
    return or_infinite(unflatten(found.cost, shape))


def policy_cost(
    policy: LinearPolicy | StationaryPolicy,
    system: Dynamics,
    cost: QuadraticCost | StationaryCost,
    start: ArrayLike | None = None,
    *,
    dither: ArrayLike | None = None,
) -> Costs:
    """The exact expected cost of any linear policy on any system.

    Parameters
    ----------
    policy, system, cost
        What is played, on what, at which price: a `LinearPolicy` for a `QuadraticCost`, a
        `StationaryPolicy` for either cost. Batches broadcast against each other.
    start : array_like, (..., d)
        The first state, or a batch of them. The average cost of a step (`StationaryCost` without a
        discount) does not depend on it.
    dither : array_like, (..., H-1, m, m), optional
        The covariance of noise that is added to the inputs at each step.

    Returns
    -------
    float or array
        One number a member; inf where it overflows, or cannot be had to 1e-6 (a very unstable
        system, which the policy holds), or where a constant gain does not hold the system.

    Raises
    ------
    InputError
        If sizes or batches do not fit together, or a dither is not a covariance.

    Examples
    --------
    >>> system = clqr.LinearSystem([[1, 0.5], [0, 0.9]], [[0], [0.5]])
    >>> cost = clqr.QuadraticCost(Q=[np.eye(2)] * 15, R=[np.eye(1)] * 14)
    >>> idle = clqr.LinearPolicy(np.zeros((14, 1, 2)))
    >>> float(clqr.policy_cost(idle, system, cost, [1, 0]))
    15.0
    """
    if isinstance(cost, StationaryCost):
        require(dither is None, "a dither is for the steps of an episode, not for a StationaryCost")
        if not isinstance(policy, StationaryPolicy):
            raise InputError("a StationaryCost is for a constant gain: give a StationaryPolicy")
        return affine.policy_cost(policy, long_run.constant(system), cost, start)
    E = None
    if dither is not None:
        E = as_symmetric("dither", as_numbers("dither", dither, "(..., H-1, m, m)", 3))
        require(E.shape[-3:] == cost.R.shape[-3:], f"dither must have R's shape, not {E.shape}")
        require_semi_definite("dither, a covariance,", E)
    shape, found = _run(system, cost, start=_given(start), policy=policy, dither=E)
    return or_infinite(unflatten(found.cost, shape))


def cost_gradient(
    system: Dynamics, cost: QuadraticCost | StationaryCost, start: ArrayLike | None = None
) -> CostGradient:
    """The exact gradient of J₁* by the dynamics: one backward and one forward pass.

    By the envelope theorem the optimal gains may be held fixed:
    ∇J = 2 Σ_h P[h+1] (A + B K[h]) X[h] (I; K[h])ᵀ, X[h] the second moment of x[h].

    Parameters and errors are those of `optimal_cost`; NaN for a member that cannot be solved.

    Examples
    --------
    >>> cost = clqr.QuadraticCost(Q=[np.eye(1)] * 2, R=[np.eye(1)])
    >>> clqr.cost_gradient(clqr.LinearSystem([[1.0]], [[1.0]]), cost, [1.0])
    CostGradient(dA=array([[1.]]), dB=array([[-0.5]]))
    """
    return cost_and_gradient(system, cost, start)[1]


def cost_and_gradient(
    system: Dynamics, cost: QuadraticCost | StationaryCost, start: ArrayLike | None = None
) -> tuple[Costs, CostGradient]:
    """J₁* and its gradient, from the same two passes."""
    if isinstance(cost, StationaryCost):
        J, *derivatives = affine.cost_and_gradient(long_run.constant(system), cost, start)
        return J, CostGradient(*derivatives)
    return _with_gradient(*_run(system, cost, start=_given(start), gradient=True))


def policy_cost_and_gradient(
    policy: LinearPolicy | StationaryPolicy,
    system: Dynamics,
    cost: QuadraticCost | StationaryCost,
    start: ArrayLike | None = None,
) -> tuple[Costs, CostGradient]:
    """The cost of a given policy, and its gradient by the dynamics: the same two passes.

    The formula of `cost_gradient` holds for any gains, with P the value of the policy.
    """
    if isinstance(cost, StationaryCost) and isinstance(policy, StationaryPolicy):
        J, *derivatives = affine.cost_and_gradient(long_run.constant(system), cost, start, policy)
        return J, CostGradient(*derivatives)
    return _with_gradient(*_run(system, cost, start=_given(start), policy=policy, gradient=True))


def _with_gradient(shape: tuple[int, ...], found: kernels.Outcome) -> tuple[Costs, CostGradient]:
    gradient = CostGradient(unflatten(found.dA, shape), unflatten(found.dB, shape))
    return or_infinite(unflatten(found.cost, shape)), gradient


def _run(
    system: Dynamics,
    cost: QuadraticCost | StationaryCost,
    *,
    start: ArrayLike | None = None,
    policy: LinearPolicy | StationaryPolicy | None = None,
    dither: Array | None = None,
    uncertainty: ModelUncertainty | None = None,
    **wanted: bool,
) -> tuple[tuple[int, ...], kernels.Outcome]:
    """Bring everything to one batch axis, and run the recursions on it."""
    if isinstance(cost, TargetCost) or not isinstance(cost, QuadraticCost):
        raise InputError("this takes a QuadraticCost; a TargetCost is for solve_trajectory")
    d, m, steps = system.A.shape[-1], system.B.shape[-1], cost.R.shape[-3]
    if cost.Q.shape[-1] != d or cost.R.shape[-1] != m:
        raise InputError(
            f"the system has {d} states and {m} inputs, but the cost is for {cost.state_size} "
            f"states and {cost.input_size} inputs"
        )
    varying = system.steps is not None
    if varying and system.steps != steps:
        raise InputError(f"the system has {system.steps} steps, but the cost {steps}")
    batches = {"system": system.batch_shape, "cost": cost.batch_shape}
    x = gains = C = None
    if start is not None:
        x = as_states("start", start, d)
        batches["start"] = x.shape[:-1]
    if policy is not None:
        if isinstance(policy, StationaryPolicy):
            require_fit(policy, system)
            policy = policy.over(steps)
        gains = policy.gains
        if gains.shape[-3:] != (steps, m, d):
            require_fit(policy, system)
            raise InputError(f"the policy has {gains.shape[-3]} steps, but the cost {steps}")
        batches["policy"] = gains.shape[:-3]
    if dither is not None:
        batches["dither"] = dither.shape[:-3]
    if uncertainty is not None:
        sizes, own = uncertainty.covariances.shape[-3:-1], (d, d + m)
        require(sizes == own, f"the uncertainty is for sizes {sizes}, the system {own}")
        C = staged(uncertainty, steps) if varying else uncertainty.covariances
        batches["uncertainty"] = C.shape[: -4 if varying else -3]
    shape = broadcast_batches(batches)
    found = kernels.recursions(
        flatten(system.A, 3 if varying else 2, shape),
        flatten(system.B, 3 if varying else 2, shape),
        flatten(cost.Q, 3, shape),
        flatten(cost.R, 3, shape),
        None if cost.N is None else flatten(cost.N, 3, shape),
        of_steps(system.noise, 2, system, shape) if system.has_noise else None,
        start=None if x is None else flatten(x, 1, shape),
        policy=None if gains is None else flatten(gains, 3, shape),
        dither=None if dither is None else flatten(dither, 3, shape),
        covariances=None if C is None else of_steps(C, 3, system, shape),
        batch=math.prod(shape),
        threads=kernels.threads(),
        **wanted,
    )
    return shape, found


def _given(start: ArrayLike | None) -> ArrayLike:
    if start is None:
        raise InputError("what an episode costs depends on where it starts: give `start`")
    return start
