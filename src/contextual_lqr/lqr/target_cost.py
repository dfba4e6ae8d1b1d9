"""What an episode costs that is to reach a target or to follow one: e = x - target, wrapped.

cost = Σ eᵀQe + rᵀRr + 2eᵀNr over the steps, and eᵀQe of the last state,   r = u - input target
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import altered, as_numbers, as_places, frozen, read_only, record, require
from contextual_lqr.lqr.problem import QuadraticCost

TURN = 2 * np.pi


def wrapped(off: Array, angles: tuple[int, ...]) -> Array:
    """Differences of states, those of angles the nearest way round, in [-π, π)."""
    if not angles:
        return off
    off, at = np.array(off, float), list(angles)
    off[..., at] -= TURN * np.floor(off[..., at] / TURN + 0.5)
    return off


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TargetCost(QuadraticCost):
    """The cost of an episode in which states and inputs should be at a target.

    For `solve_trajectory`, and for agents, plans and certificates of nonlinear machines;
    `solve` refuses it.

    Parameters
    ----------
    Q, R, N
        As for `QuadraticCost`: the weights of the distance of states and inputs from the target.
    target : array_like, (d,) or (..., H, d), optional
        Where states should be, always or at each step; 0 by default.
    input_target : array_like, (m,) or (..., H-1, m), optional
        What inputs should be; 0 by default.
    angles : iterable of int
        The states, counted from 0, that are angles in radians: a whole turn makes no difference.

    Raises
    ------
    InputError
        If a shape does not fit, or a number is not finite.

    Examples
    --------
    >>> upright = clqr.TargetCost(
    ...     Q=[np.diag([1.0, 0.1])] * 3, R=[[[0.01]]] * 2, target=[np.pi, 0.0], angles=[0]
    ... )
    >>> upright
    <TargetCost: states 2, inputs 1, steps 2, cross term no, angles 1>
    >>> turned = clqr.Trajectory([[3 * np.pi, 0.0]] * 3, [[0.0]] * 2)
    >>> float(clqr.trajectory_cost(turned, upright))
    0.0
    """

    target: Float[Array, "*#batch H d"]
    input_target: Float[Array, "*#batch steps m"]
    angles: tuple[int, ...]

    def __init__(
        self,
        Q: ArrayLike,
        R: ArrayLike,
        N: ArrayLike | None = None,
        *,
        target: ArrayLike = 0.0,
        input_target: ArrayLike = 0.0,
        angles: Iterable[int] = (),
    ) -> None:
        super().__init__(Q, R, N)
        d, m, H = self.state_size, self.input_size, self.horizon
        found = []
        for name, value, steps, size in (
            ("target", target, H, d),
            ("input_target", input_target, H - 1, m),
        ):
            array = as_numbers(name, value, f"({size},)", 0)
            good = array.ndim == 0 or array.shape[-1] == size
            good = good and (array.ndim < 2 or array.shape[-2] == steps)
            require(
                good,
                f"{name} must have shape ({size},) or (..., {steps}, {size}), not {array.shape}",
            )
            shape = np.broadcast_shapes(array.shape, (steps, size))
            found.append(frozen(np.broadcast_to(array, shape)))
        places = as_places("angles", angles, d)
        record(self, target=found[0], input_target=found[1], angles=places)

    def errors(
        self, states: Float[Array, "*batch H d"], inputs: Float[Array, "*batch steps m"]
    ) -> tuple[Float[Array, "*batch H d"], Float[Array, "*batch steps m"]]:
        """How far states and inputs are from the target, of the first steps if there are fewer."""
        e = states - self.target[..., : states.shape[-2], :]
        return wrapped(e, self.angles), inputs - self.input_target[..., : inputs.shape[-2], :]

    def rest(self, step: int) -> TargetCost:
        """The cost of what is left from this step on."""
        target, input_target = self.target[..., step:, :], self.input_target[..., step:, :]
        return altered(super().rest(step), target=target, input_target=input_target)

    def _facts(self) -> dict[str, object]:
        return {**super()._facts(), "angles": len(self.angles)}


def about_target(cost: QuadraticCost) -> TargetCost:
    """The same cost, about 0 unless it has a target."""
    if isinstance(cost, TargetCost):
        return cost
    d, m, H = cost.state_size, cost.input_size, cost.horizon
    return record(
        object.__new__(TargetCost),
        Q=cost.Q,
        R=cost.R,
        N=cost.N,
        indefinite=cost.indefinite,
        target=read_only(np.zeros((H, d))),
        input_target=read_only(np.zeros((H - 1, m))),
        angles=(),
    )
