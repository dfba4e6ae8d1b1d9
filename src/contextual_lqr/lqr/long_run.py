"""Control of loops that run on and on: the constant gain, any gain's cost, a gradient.

With a discount γ the equations are those of √γ [A, B]:

    P = Q + KᵀRK + NK + KᵀNᵀ + γ FᵀPF,   F = A + BK,   and the cost is tr(P M) with
    M = noise (γ = 1: the average of a step)   or   M = x xᵀ + γ/(1-γ) noise (from the start x)

`solve.py` is the door: what it is asked with a `StationaryCost` is answered here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.linalg import matrix_balance

from contextual_lqr import kernels
from contextual_lqr.checks import broadcast_batches, record, require
from contextual_lqr.display import Displayed
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.batches import flatten, or_infinite, unflatten
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.hedged_riccati import hedged_riccati
from contextual_lqr.lqr.problem import LinearSystem, ModelUncertainty, as_states
from contextual_lqr.lqr.stationary import StationaryCost, StationaryPolicy, require_sizes
from contextual_lqr.lqr.status import REASONS, Status

Costs = np.float64 | Float[Array, "*batch"]

_UNDAMPED = 1 - 1e-6  # a mode of at least this does not decay
_UNSEEN = 1e-9  # what is so small, in balanced units, is rounding


@dataclass(frozen=True, eq=False, repr=False)
class StationarySolution(Displayed):
    """The optimal constant gain of every member of a batch, and its value matrix P.

    A member that could not be solved is marked in `status`: its gain and value matrix are NaN, and
    its cost is infinite.

    Attributes
    ----------
    policy : StationaryPolicy
        The optimal one.
    value_matrix : array, (..., d, d)
        P: from a state x, the future costs xᵀPx, besides what the noise costs. Constant states cost
        that at every step.
    status : array of int, (...)
        A `Status` for each member.
    """

    policy: StationaryPolicy
    value_matrix: Float[Array, "*batch d d"]
    status: Int[Array, "*batch"]
    _problem: tuple[LinearSystem, StationaryCost]

    @property
    def solved(self) -> np.bool_ | Bool[Array, "*batch"]:
        """Whether each member was solved."""
        return np.asarray(self.status == kernels.SOLVED)[()]

    def cost(self, start: ArrayLike | None = None) -> Costs:
        """The average cost per step; or, with a discount, that of all steps from `start`."""
        weight = _weight(*self._problem, start)
        return or_infinite(np.asarray(_trace(self.value_matrix, weight)))

    def _facts(self) -> dict[str, object]:
        facts = self.policy._facts()
        if not self.status.ndim:
            return {**facts, "status": REASONS.get(Status(int(self.status)), "solved")}
        return {**facts, "status": f"{int(self.solved.sum())} of {self.status.size} solved"}


class _Problem:
    """A system and its cost, brought to one batch axis, the discount taken into A and B."""

    def __init__(
        self, system: LinearSystem, cost: StationaryCost, others: dict[str, tuple[int, ...]]
    ) -> None:
        require_sizes(system, cost)
        batches = {"system": system.batch_shape, "cost": cost.batch_shape}
        self.shape = broadcast_batches({**batches, **others})
        self.batch, self.discount = math.prod(self.shape), cost.discount
        scale = math.sqrt(cost.discount)
        self.A, self.B = scale * self.flat(system.A), scale * self.flat(system.B)
        self.Q, self.R = self.flat(cost.Q), self.flat(cost.R)
        self.N = None if cost.N is None else self.flat(cost.N)

    def flat(self, M: Array, core: int = 2) -> Array:
        return flatten(M, core, self.shape)

    @property
    def stages(self) -> tuple[Array, Array, Array, Array, Array | None]:
        return self.A, self.B, self.Q, self.R, self.N

    def member(self, i: int) -> tuple[Array, Array, Array, Array, Array | None]:
        """The stages of one member."""

        def own(M: Array) -> Array:
            return np.asarray(M[0 if len(M) == 1 else i])

        N = None if self.N is None else own(self.N)
        return own(self.A), own(self.B), own(self.Q), own(self.R), N

    def value_of(self, K: Array) -> tuple[Array, Array]:
        """The closed loop of these gains, and its value P, NaN where it is not stable."""
        Nt = np.zeros_like(K) if self.N is None else self.N.mT
        with np.errstate(over="ignore", invalid="ignore"):
            F = self.A + self.B @ K
            C = self.Q + K.mT @ (self.R @ K + Nt) + Nt.mT @ K
        P, _ = kernels.lyapunov(F, C, batch=self.batch, threads=kernels.threads())
        return F, P


def solve(
    system: LinearSystem, cost: StationaryCost, uncertainty: ModelUncertainty | None = None
) -> StationarySolution:
    """The optimal constant gain, by doubling; `solve.solve` says the rest."""
    others = {} if uncertainty is None else {"uncertainty": uncertainty.covariances.shape[:-3]}
    p = _Problem(system, cost, others)
    found = kernels.riccati(*p.stages, batch=p.batch, threads=kernels.threads())
    status = found.status.copy()
    for i in np.flatnonzero(status == Status.NOT_CONVERGED).tolist():
        status[i] = _why(*p.member(i))
    if uncertainty is not None:
        d, m = system.state_size, system.input_size
        sizes = uncertainty.covariances.shape[-3:-1]
        require(
            sizes == (d, d + m), f"the uncertainty is for sizes {sizes}, the system {(d, d + m)}"
        )
        covariances = p.discount * p.flat(uncertainty.covariances, 3)
        found, certain = hedged_riccati(p.stages, covariances, found._replace(status=status))
        status = np.where((status == Status.SOLVED) & ~certain, Status.TOO_UNCERTAIN, status)
    policy = record(object.__new__(StationaryPolicy), gain=unflatten(found.gain, p.shape))
    values, ends = unflatten(found.value, p.shape), unflatten(status, p.shape)
    return StationarySolution(policy, values, ends, (system, cost))


def optimal_cost(system: LinearSystem, cost: StationaryCost, start: ArrayLike | None) -> Costs:
    """The least cost: the average of a step, or with a discount that of all from `start`."""
    weight = _weight(system, cost, start)
    p = _Problem(system, cost, {"start": weight.shape[:-2]})
    P = kernels.riccati(*p.stages, batch=p.batch, threads=kernels.threads()).value
    return or_infinite(unflatten(_trace(P, p.flat(weight)), p.shape))


def policy_cost(
    policy: StationaryPolicy, system: LinearSystem, cost: StationaryCost, start: ArrayLike | None
) -> Costs:
    """What a constant gain costs, infinite where it does not hold the system."""
    weight = _weight(system, cost, start)
    p = _Problem(system, cost, {"start": weight.shape[:-2], "policy": policy.gain.shape[:-2]})
    _, P = p.value_of(p.flat(policy.gain))
    return or_infinite(unflatten(_trace(P, p.flat(weight)), p.shape))


def cost_and_gradient(
    system: LinearSystem,
    cost: StationaryCost,
    start: ArrayLike | None,
    policy: StationaryPolicy | None = None,
) -> tuple[Costs, Array, Array]:
    """The cost of the best gain, or of the one given, and its derivatives by A and B.

    J = tr(P M), and for X = M + γ F X Fᵀ: ∂J/∂F = 2γ P F X, F = A + B K. By the envelope theorem
    the best gain may be held fixed.
    """
    weight = _weight(system, cost, start)
    others = {} if policy is None else {"policy": policy.gain.shape[:-2]}
    p = _Problem(system, cost, {"start": weight.shape[:-2], **others})
    if policy is None:
        K = kernels.riccati(*p.stages, batch=p.batch, threads=kernels.threads()).gain
    else:
        K = p.flat(policy.gain)
    F, P = p.value_of(K)
    M = p.flat(weight)
    X, _ = kernels.lyapunov(F.mT, M, batch=p.batch, threads=kernels.threads())
    with np.errstate(over="ignore", invalid="ignore"):
        dA = 2 * math.sqrt(p.discount) * P @ F @ X  # F has √γ already
        dB = dA @ K.mT
    J = or_infinite(unflatten(_trace(P, M), p.shape))
    return J, unflatten(dA, p.shape), unflatten(dB, p.shape)


def constant(system: Dynamics) -> LinearSystem:
    """The system, refused if it changes: machines that run on and on do not."""
    if isinstance(system, LinearSystem):
        return system
    raise InputError("a StationaryCost is for a LinearSystem: one that changes has an episode")


def _weight(system: LinearSystem, cost: StationaryCost, start: ArrayLike | None) -> Array:
    """M: the cost is tr(P M). What is constant costs at every step, by itself."""
    if cost.discount == 1 and cost.constant:
        require(start is not None, "the average cost depends on what is constant: give `start`")
        x = as_states("start", start, system.state_size)  # type: ignore[arg-type]
        stays = np.isin(np.arange(system.state_size), cost.constant)
        z, noise = np.where(stays, x, 0.0), np.where(stays | stays[:, None], 0.0, system.noise)
        return np.asarray(noise + z[..., :, None] * z[..., None, :])
    if cost.discount == 1:
        return system.noise
    if start is None:
        require(False, "with a discount the cost depends on where the machine starts: give `start`")
    x = as_states("start", start, system.state_size)  # type: ignore[arg-type]
    broadcast_batches({"system": system.batch_shape, "start": x.shape[:-1]})
    more = cost.discount / (1 - cost.discount) * system.noise
    return np.asarray(x[..., :, None] * x[..., None, :] + more)


def _why(A: Array, B: Array, Q: Array, R: Array, N: Array | None) -> Status:
    """Why there is no stabilising gain, by Hautus' tests of the modes that do not decay."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(A @ A).all() or not np.isfinite(B.T @ Q @ B).all():
            return Status.NOT_FINITE
    if N is not None:  # the modes that matter are those with u = -R⁻¹Nᵀx
        toward = np.linalg.solve(R, N.T)
        A, Q = A - B @ toward, Q - N @ toward
    balanced, (scale, _) = matrix_balance(A, permute=False, separate=True)
    inputs, weights = B / scale[:, None], Q * scale * scale[:, None]
    size = max(1.0, float(np.linalg.norm(balanced)))
    inputs = inputs * (size / np.where((n := np.linalg.norm(inputs, axis=0)) > 0, n, 1.0))
    weights = weights * (size / (float(np.linalg.norm(weights)) or 1.0))
    for mode in np.linalg.eigvals(balanced):
        if abs(mode) >= _UNDAMPED:
            shifted = mode * np.eye(len(A)) - balanced
            for joint, why in (
                (np.hstack((shifted, inputs)), Status.NOT_STABILISABLE),
                (np.vstack((shifted, weights)), Status.NOT_DETECTABLE),
            ):
                if np.linalg.svd(joint, compute_uv=False)[-1] <= _UNSEEN * size:
                    return why
    return Status.NOT_CONVERGED


def _trace(P: Array, M: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((P * M).sum((-2, -1)))
