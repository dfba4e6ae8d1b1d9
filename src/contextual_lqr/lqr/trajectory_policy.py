"""A policy about a planned path: u = inputs + gains (x - states), angles wrapped, within limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import (
    altered,
    as_input_bounds,
    as_numbers,
    as_places,
    frozen,
    record,
    require,
)
from contextual_lqr.display import Displayed, batch_fact
from contextual_lqr.lqr.problem import apply, as_states
from contextual_lqr.lqr.target_cost import wrapped


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TrajectoryPolicy(Displayed):
    """The inputs u[h] = inputs[h] + gains[h] (x[h] - states[h]); `policy(step, state)` is one.

    Parameters
    ----------
    states : array_like, (..., H, d)
        The planned path.
    inputs : array_like, (..., H-1, m)
        The inputs along it.
    gains : array_like, (..., H-1, m, d)
        How inputs respond to the distance of states from it.
    angles : iterable of int
        The states, counted from 0, that are angles in radians: a whole turn away is on the path.
    input_bounds : pair of array_like, () or (m,), optional
        The lowest and the highest inputs.

    Raises
    ------
    InputError
        If shapes do not fit together, or a number is not finite.

    Examples
    --------
    >>> policy = clqr.TrajectoryPolicy([[1.0], [0.5]], [[-0.5]], [[[-2.0]]])
    >>> policy(0, [1.1])
    array([-0.7])
    """

    states: Float[Array, "*batch H d"]
    inputs: Float[Array, "*batch steps m"]
    gains: Float[Array, "*batch steps m d"]
    angles: tuple[int, ...]
    input_bounds: tuple[Array, Array] | None

    def __init__(
        self,
        states: ArrayLike,
        inputs: ArrayLike,
        gains: ArrayLike,
        angles: Iterable[int] = (),
        input_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        x = as_numbers("states", states, "(..., H, d)", 2)
        u = as_numbers("inputs", inputs, "(..., H-1, m)", 2)
        K = as_numbers("gains", gains, "(..., H-1, m, d)", 3)
        d, (T, m) = x.shape[-1], u.shape[-2:]
        require(
            x.shape[-2] == T + 1
            and K.shape[-3:] == (T, m, d)
            and x.shape[:-2] == u.shape[:-2] == K.shape[:-3],
            "states, inputs and gains must have shapes (..., H, d), (..., H-1, m) and "
            f"(..., H-1, m, d), not {x.shape}, {u.shape} and {K.shape}",
        )
        places = as_places("angles", angles, d)
        limits = None if input_bounds is None else as_input_bounds(input_bounds, m)
        path = {"states": frozen(x), "inputs": frozen(u), "gains": frozen(K)}
        record(self, **path, angles=places, input_bounds=limits)

    def __call__(self, step: int, state: ArrayLike) -> Float[Array, "*batch m"]:
        """The input in this state, (..., d), at this step, counted from 0."""
        steps, _, d = self.gains.shape[-3:]
        require(0 <= step < steps, f"the policy has steps 0 to {steps - 1}, not {step!r}")
        off = wrapped(as_states("state", state, d) - self.states[..., step, :], self.angles)
        u = self.inputs[..., step, :] + apply(self.gains[..., step, :, :], off)
        return np.asarray(u if self.input_bounds is None else np.clip(u, *self.input_bounds))

    def rest(self, step: int) -> TrajectoryPolicy:
        """What is left of it from this step on."""
        states, inputs = self.states[..., step:, :], self.inputs[..., step:, :]
        return altered(self, states=states, inputs=inputs, gains=self.gains[..., step:, :, :])

    def _facts(self) -> dict[str, object]:
        *batch, steps, m, d = self.gains.shape
        return {"states": d, "inputs": m, "steps": steps, **batch_fact(tuple(batch))}
