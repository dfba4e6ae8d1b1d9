"""The records of a loop that runs on and on: one cost for all steps, and one gain.

minimise   E Σ_h γʰ (xᵀQx + uᵀRu + 2xᵀNu)                    discount γ < 1, from a start
or         lim 1/H E Σ_{h<H} (xᵀQx + uᵀRu + 2xᵀNu)           γ = 1: the average of a step

Q (d, d)   R (m, m)   N (d, m)   gain (m, d)                 u = K x
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import (
    as_count,
    as_number,
    as_numbers,
    as_symmetric,
    frozen,
    record,
    require,
)
from contextual_lqr.display import Displayed, batch_fact
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import (
    LinearPolicy,
    QuadraticCost,
    Weights,
    apply,
    as_states,
    require_convex,
)

_DEFINITE = 1e-12  # the least eigenvalue of R, in units in which its diagonal is 1


@dataclass(frozen=True, init=False, eq=False, repr=False)
class StationaryCost(Weights):
    """The cost per step, xᵀQx + uᵀRu + 2xᵀNu, of a machine that runs continuously.

    Parameters
    ----------
    Q : array_like, (..., d, d)
        The weight of the state.
    R : array_like, (..., m, m)
        The weight of the input, positive definite: every input must cost something.
    N : array_like, (..., d, m), optional
        The cross term.
    discount : float
        1: what counts is the average over all steps, wherever the machine starts. Below 1: the sum
        from a start, in which a step counts `discount` times as much as the one before.
    constant : sequence of int
        The indices of states that stay as they are: 1, which carries offsets, or the weather. No
        input moves them; the gain has a column for each, which balances it. The average cost then
        depends on what they are in `start`, and any noise in them is left out.

    Raises
    ------
    InputError
        If a shape does not fit, a number is not finite, or a weight is asymmetric or indefinite.

    Examples
    --------
    >>> clqr.StationaryCost(Q=np.eye(2), R=[[0.1]])
    <StationaryCost: states 2, inputs 1, cross term no, discount 1>
    """

    Q: Float[Array, "*#batch d d"]
    R: Float[Array, "*#batch m m"]
    N: Float[Array, "*#batch d m"] | None
    discount: float
    constant: tuple[int, ...]
    _core = 2

    def __init__(
        self,
        Q: ArrayLike,
        R: ArrayLike,
        N: ArrayLike | None = None,
        discount: float = 1.0,
        *,
        constant: Sequence[int] = (),
    ) -> None:
        Q, R = as_numbers("Q", Q, "(..., d, d)", 2), as_numbers("R", R, "(..., m, m)", 2)
        d, m = Q.shape[-1], R.shape[-1]
        require(Q.shape[-2] == d and d > 0, f"Q must have shape (..., d, d), not {Q.shape}")
        require(R.shape[-2] == m and m > 0, f"R must have shape (..., m, m), not {R.shape}")
        Q, R = as_symmetric("Q", Q), as_symmetric("R", R)
        if N is not None:
            N = as_numbers("N", N, "(..., d, m)", 2)
            require(N.shape[-2:] == (d, m), f"N must have shape (..., {d}, {m}), not {N.shape}")
        self._batch(Q, R, N)
        _require_definite(R)
        stages = None if N is None else N[..., None, :, :]
        require_convex(np.stack((Q, Q), -3), R[..., None, :, :], stages, "")
        discount = as_number("discount", discount)
        require(0 < discount <= 1, f"discount must be above 0 and at most 1, not {discount!r}")
        N = None if N is None else frozen(N)
        still = tuple(sorted({as_count("constant", i, 0, d - 1) for i in constant}))
        require(len(still) < d, "every state is constant: there is nothing to control")
        record(self, Q=frozen(Q), R=frozen(R), N=N, discount=discount, constant=still)

    @property
    def moving(self) -> list[int]:
        """The indices of the states that are not constant."""
        return [i for i in range(self.state_size) if i not in self.constant]

    def floor(self, start: Float[Array, " d"], noise: Float[Array, "d d"]) -> float:
        """The least that any machine costs: the noise of a step, and with a discount the start."""
        if self.N is not None:
            return 0.0
        if self.discount == 1:
            places = np.ix_(self.moving, self.moving)
            return float(np.vdot(self.Q[places], noise[places]))
        more = self.discount / (1 - self.discount)
        return float(start @ self.Q @ start + more * np.vdot(self.Q, noise))

    def over(self, horizon: int) -> QuadraticCost:
        """The same weights for an episode of `horizon` states; a discount of 1 only."""
        require(self.discount == 1, "an episode has no discount: its cost must have discount 1")
        H = as_count("horizon", horizon)

        def at_each_step(M: Array, steps: int) -> Array:
            return np.repeat(M[..., None, :, :], steps, -3)

        N = None if self.N is None else at_each_step(self.N, H - 1)
        return QuadraticCost(at_each_step(self.Q, H), at_each_step(self.R, H - 1), N)

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"states": self.state_size, "inputs": self.input_size}
        facts["cross term"] = "no" if self.N is None else "yes"
        if self.constant:
            facts["constant"] = ", ".join(f"state {i + 1}" for i in self.constant)
        return {**facts, "discount": f"{self.discount:g}", **batch_fact(self.batch_shape)}


def _require_definite(R: Array) -> None:
    """Refuse an R that is not positive definite, in whatever units its inputs are."""
    sizes = np.sqrt(np.maximum(np.diagonal(R, axis1=-2, axis2=-1), 0))
    good = bool((sizes > 0).all())
    if good and R.size:
        scaled = R / sizes[..., :, None] / sizes[..., None, :]
        good = bool((np.linalg.eigvalsh(scaled)[..., 0] > _DEFINITE).all())
    require(good, "R must be positive definite: in the long run every input must cost something")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class StationaryPolicy(Displayed):
    """The input u = gain x at every step; `policy(state)` is that, and so is `policy(step, state)`.

    Parameters
    ----------
    gain : array_like, (..., m, d)
        With the sign of u = K x. (python-control writes u = -K x.)

    Raises
    ------
    InputError
        If there are fewer than two axes, or a number is not finite.

    Examples
    --------
    >>> policy = clqr.StationaryPolicy([[-0.5, -1.0]])
    >>> policy
    <StationaryPolicy: states 2, inputs 1>
    >>> policy([1.0, 0.2])
    array([-0.7])
    """

    gain: Float[Array, "*batch m d"]

    def __init__(self, gain: ArrayLike) -> None:
        record(self, gain=frozen(as_numbers("gain", gain, "(..., m, d)", 2)))

    def __call__(self, *step_and_state: Any) -> Float[Array, "*batch m"]:
        """The input in this state, (..., d); a step before it may be given, and is of no matter."""
        if not 1 <= len(step_and_state) <= 2:
            raise InputError("a policy is called with a state, or with a step and a state")
        return apply(self.gain, as_states("state", step_and_state[-1], self.gain.shape[-1]))

    def to_control(self) -> Float[Array, "*batch m d"]:
        """The gain with python-control's sign, u = -K x."""
        return -self.gain

    def over(self, steps: int) -> LinearPolicy:
        """The same gain at each of this many steps."""
        gains = np.repeat(self.gain[..., None, :, :], as_count("steps", steps, 0), -3)
        return record(object.__new__(LinearPolicy), gains=gains)

    def _facts(self) -> dict[str, object]:
        *batch, m, d = self.gain.shape
        return {"states": d, "inputs": m, **batch_fact(tuple(batch))}


Cost = QuadraticCost | StationaryCost
Policy = LinearPolicy | StationaryPolicy


def require_sizes(system: Dynamics, cost: Weights) -> None:
    """Refuse a cost that is not of the system's sizes."""
    d, m = system.state_size, system.input_size
    require(
        (cost.state_size, cost.input_size) == (d, m),
        f"the system has {d} states and {m} inputs, but the cost is for {cost.state_size} states "
        f"and {cost.input_size} inputs",
    )


def episode_cost(cost: Cost, steps: int) -> QuadraticCost:
    """The cost of an episode: itself, or that of so many steps of a machine that runs on and on."""
    return cost.over(steps + 1) if isinstance(cost, StationaryCost) else cost


def gains_of(policy: Policy) -> Array:
    """The gains of either kind of policy: (..., steps, m, d), or (..., m, d)."""
    return policy.gain if isinstance(policy, StationaryPolicy) else policy.gains


def policy_for(cost: Cost, gains: Array) -> Policy:
    """The policy of these gains, of the kind that this cost is for."""
    return StationaryPolicy(gains) if isinstance(cost, StationaryCost) else LinearPolicy(gains)
