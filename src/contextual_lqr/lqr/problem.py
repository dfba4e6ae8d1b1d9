"""The records of the control problem: a system, its cost, a policy, what was played.

The problem, for one machine (every array may carry leading batch axes, which broadcast):

    x[h+1] = A x[h] + B u[h] + w[h+1],   E[w wᵀ] = noise              h = 1 .. H-1
    cost   = Σ_{h<H} x[h]ᵀ Q[h] x[h] + u[h]ᵀ R[h] u[h] + 2 x[h]ᵀ N[h] u[h]  +  x[H]ᵀ Q[H] x[H]

    A (d, d)   B (d, m)   noise (d, d)   Q (H, d, d)   R (H-1, m, m)   N (H-1, d, m)
    states (H, d)   inputs (H-1, m)   gains (H-1, m, d)

Records are checked when they are made, and cannot be changed afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import (
    altered,
    as_covariances,
    as_numbers,
    as_symmetric,
    broadcast_batches,
    frozen,
    read_only,
    record,
    require,
    require_semi_definite,
)
from contextual_lqr.display import Displayed, batch_fact
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.dynamics import Dynamics

_Cost = TypeVar("_Cost", bound="QuadraticCost")


def as_states(name: str, value: ArrayLike, d: int) -> Float[Array, "*batch d"]:
    """States of `d` coordinates, one or a batch, or a sentence that says why not."""
    x = as_numbers(name, value, "(..., d)", 1)
    if x.shape[-1] != d:
        raise InputError(f"{name} must have {d} coordinates, not {x.shape[-1]}")
    return x


def apply(matrices: Array, vectors: Array) -> Array:
    """M v, either of them a batch; much quicker than a general product where neither is."""
    if matrices.ndim == 2 and vectors.ndim == 1:
        return np.asarray(matrices @ vectors)
    return np.asarray(matrices @ vectors[..., None])[..., 0]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LinearSystem(Dynamics):
    """Machines that obey x' = A x + B u + w, with E[w wᵀ] = noise.

    Parameters
    ----------
    A : array_like, (..., d, d)
        How a state carries over to the next. Leading axes are a batch of machines.
    B : array_like, (..., d, m)
        What inputs do to the next state.
    noise : array_like, (..., d, d), optional
        The covariance of w; zero by default.

    Attributes
    ----------
    batch_shape : tuple of int
        The leading axes, () for one machine.
    has_noise : bool
        Whether there is any.

    Raises
    ------
    InputError
        If a shape does not fit, a number is not finite, or noise is not a covariance.

    Examples
    --------
    >>> clqr.LinearSystem([[1, 0.5], [0, 0.9]], [[0], [0.5]])
    <LinearSystem: states 2, inputs 1, noise none>
    """

    A: Float[Array, "*#batch d d"]
    B: Float[Array, "*#batch d m"]
    noise: Float[Array, "*#batch d d"]
    batch_shape: tuple[int, ...]
    has_noise: bool

    def __init__(self, A: ArrayLike, B: ArrayLike, noise: ArrayLike | None = None) -> None:
        A, B = as_numbers("A", A, "(..., d, d)", 2), as_numbers("B", B, "(..., d, m)", 2)
        d = A.shape[-1]
        if A.shape[-2] != d or d == 0:
            raise InputError(f"A must be square, (..., d, d), but has shape {A.shape}")
        if B.shape[-2] != d or B.shape[-1] == 0:
            raise InputError(
                f"B must have as many rows as A, (..., {d}, m), but has shape {B.shape}"
            )
        if noise is None:
            W = np.zeros((d, d))
        else:
            W = as_numbers("noise", noise, "(..., d, d)", 2)
            require(W.shape[-2:] == (d, d), f"noise must have shape (..., {d}, {d}), not {W.shape}")
            W = as_covariances("noise", W)
        self._hold(frozen(A), frozen(B), read_only(W))


class Weights(Displayed):
    """What all costs have in common."""

    Q: Array
    R: Array
    N: Array | None
    _core: ClassVar[int]  # axes that are not of the batch

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
        return self._batch(self.Q, self.R, self.N)

    @classmethod
    def _batch(cls, Q: Array, R: Array, N: Array | None) -> tuple[int, ...]:
        parts = {"Q": Q, "R": R} | ({} if N is None else {"N": N})
        return broadcast_batches({name: W.shape[: -cls._core] for name, W in parts.items()})


@dataclass(frozen=True, init=False, eq=False, repr=False)
class QuadraticCost(Weights):
    """The cost of an episode, Σ xᵀQx + uᵀRu + 2xᵀNu over its steps, and xᵀQx of its last state.

    Parameters
    ----------
    Q : array_like, (..., H, d, d)
        The weight of each state. H is the number of states, one more than there are inputs.
    R : array_like, (..., H-1, m, m)
        The weight of each input.
    N : array_like, (..., H-1, d, m), optional
        The cross term of each step.
    indefinite : bool
        Allow stages that are not convex: [[Q, N], [Nᵀ, R]] not positive semi-definite.

    Raises
    ------
    InputError
        If a shape does not fit, a number is not finite, or a weight is asymmetric or indefinite.

    Examples
    --------
    >>> clqr.QuadraticCost(Q=[np.eye(2)] * 15, R=[np.eye(1)] * 14)
    <QuadraticCost: states 2, inputs 1, steps 14, cross term no>
    """

    Q: Float[Array, "*#batch H d d"]
    R: Float[Array, "*#batch steps m m"]
    N: Float[Array, "*#batch steps d m"] | None
    indefinite: bool
    _core = 3

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
        self._batch(Q, R, N)
        if not indefinite:
            require_convex(Q, R, N, "; pass indefinite=True if that is meant")
        N = None if N is None else frozen(N)
        record(self, Q=frozen(Q), R=frozen(R), N=N, indefinite=indefinite)

    @property
    def horizon(self) -> int:
        """The number of states H in an episode, which has H-1 inputs."""
        return int(self.Q.shape[-3])

    def rest(self: _Cost, step: int) -> _Cost:
        """The cost of what is left from this step on."""
        N = None if self.N is None else self.N[..., step:, :, :]
        return altered(self, Q=self.Q[..., step:, :, :], R=self.R[..., step:, :, :], N=N)

    @cached_property
    def later_weights(self) -> Float[Array, "*batch d d"]:
        """The sum of Q over all states but the first, which alone are moved by noise."""
        return read_only(self.Q[..., 1:, :, :].sum(-3))

    def floor(self, start: Float[Array, " d"], noise: Float[Array, "d d"]) -> float:
        """The least that any machine costs: the start, and the noise of each step once."""
        if self.indefinite:
            return -np.inf
        if self.N is not None:
            return 0.0
        return float(start @ self.Q[0] @ start + np.vdot(self.later_weights, noise))

    def _facts(self) -> dict[str, object]:
        facts = {"states": self.state_size, "inputs": self.input_size, "steps": self.horizon - 1}
        cross = "no" if self.N is None else "yes"
        return {**facts, "cross term": cross, **batch_fact(self.batch_shape)}


def require_convex(Q: Array, R: Array, N: Array | None, hint: str) -> None:
    """Refuse weights of steps, and of a last state, that are not positive semi-definite."""
    require_semi_definite("Q", Q, hint)
    require_semi_definite("R", R, hint)
    if N is None or N.shape[-3] == 0:
        return
    stages = Q[..., :-1, :, :]
    batch = np.broadcast_shapes(stages.shape[:-2], R.shape[:-2], N.shape[:-2])
    d, m = Q.shape[-1], R.shape[-1]
    joint = np.empty((*batch, d + m, d + m))
    joint[..., :d, :d], joint[..., d:, d:] = stages, R
    joint[..., :d, d:], joint[..., d:, :d] = N, N.mT
    require_semi_definite("[[Q, N], [Nᵀ, R]]", joint, f": N is too large for Q and R{hint}")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ModelUncertainty(Displayed):
    """How uncertain [A, B] itself is: one covariance for each of its rows, redrawn at each step.

    For the deviation Δ of [A, B], E[ΔᵀPΔ] = Σ_r P_rr covariances[r]. A policy that is optimal
    against it pushes less where less is known.

    Parameters
    ----------
    covariances : array_like, (..., d, d+m, d+m)
        The covariance of each row of [A, B].

    Raises
    ------
    InputError
        If the shape is wrong, or one of them is not a covariance.

    Examples
    --------
    >>> clqr.ModelUncertainty([0.01 * np.eye(3), 0.04 * np.eye(3)])
    <ModelUncertainty: states 2, inputs 1, largest deviation 0.2>
    """

    covariances: Float[Array, "*batch d y y"]

    def __init__(self, covariances: ArrayLike) -> None:
        C = as_numbers("covariances", covariances, "(..., d, d+m, d+m)", 3)
        d, y = C.shape[-3], C.shape[-1]
        require(
            C.shape[-2] == y and 0 < d < y,
            f"covariances must have shape (..., d, d+m, d+m), not {C.shape}",
        )
        C = as_symmetric("covariances", C)
        require_semi_definite("covariances", C)
        record(self, covariances=read_only(C))

    def _facts(self) -> dict[str, object]:
        *batch, d, y, _ = self.covariances.shape
        variances = np.einsum("...ii->...i", self.covariances)
        largest = f"{np.sqrt(variances.max(initial=0.0)):.3g}"
        facts = {"states": d, "inputs": y - d, "largest deviation": largest}
        return {**facts, **batch_fact(tuple(batch))}


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LinearPolicy(Displayed):
    """The inputs u[h] = gains[h] x[h]; `policy(step, state)` is one of them.

    Parameters
    ----------
    gains : array_like, (..., H-1, m, d)
        One matrix for each step, with the sign of u = K x. (python-control writes u = -K x.)

    Raises
    ------
    InputError
        If there are fewer than three axes, or a number is not finite.

    Examples
    --------
    >>> policy = clqr.LinearPolicy([[[-0.5, -1.0]]] * 14)
    >>> policy
    <LinearPolicy: states 2, inputs 1, steps 14>
    >>> policy(0, [1.0, 0.2])
    array([-0.7])
    """

    gains: Float[Array, "*batch steps m d"]

    def __init__(self, gains: ArrayLike) -> None:
        record(self, gains=frozen(as_numbers("gains", gains, "(..., H-1, m, d)", 3)))

    def __call__(self, step: int, state: ArrayLike) -> Float[Array, "*batch m"]:
        """The input in this state, (..., d), at this step, counted from 0."""
        steps, _, d = self.gains.shape[-3:]
        require(0 <= step < steps, f"the policy has steps 0 to {steps - 1}, not {step!r}")
        return apply(self.gains[..., step, :, :], as_states("state", state, d))

    def _facts(self) -> dict[str, object]:
        *batch, steps, m, d = self.gains.shape
        return {"states": d, "inputs": m, "steps": steps, **batch_fact(tuple(batch))}


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Trajectory(Displayed):
    """What was played: states and the inputs between them. Its length is the number of steps.

    Parameters
    ----------
    states : array_like, (..., H, d)
        The states, the first and the last included.
    inputs : array_like, (..., H-1, m)
        The input that was played in each state but the last.

    Raises
    ------
    InputError
        If there is not one more state than inputs, or a number is not finite.

    Examples
    --------
    >>> clqr.Trajectory(states=[[1.0, 0.0], [1.0, -0.2]], inputs=[[-0.4]])
    <Trajectory: states 2, inputs 1, steps 1>
    """

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

    def _facts(self) -> dict[str, object]:
        *batch, _, d = self.states.shape
        facts = {"states": d, "inputs": self.inputs.shape[-1], "steps": len(self)}
        return {**facts, **batch_fact(tuple(batch))}


def require_fit(policy: Displayed, system: Dynamics) -> None:
    """Refuse a policy that is not of the system's sizes."""
    facts = policy._facts()
    d, m, steps = facts["states"], facts["inputs"], facts.get("steps", system.steps)
    require(
        system.steps in (None, steps),
        f"the policy has {steps} steps, but the system {system.steps}",
    )
    require(
        (d, m) == (system.state_size, system.input_size),
        f"the policy is for {d} states and {m} inputs, but the system has {system.state_size} "
        f"states and {system.input_size} inputs",
    )
