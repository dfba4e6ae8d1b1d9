"""The plan of one episode: what the agent answers when it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.lqr.problem import LinearPolicy, Trajectory


@dataclass(frozen=True, eq=False)
class Plan:
    """What to play: `input(step, state)`, the policy's input, dithered and within the bounds.

    `theta` is the decoder the policy comes from, `promised_cost` what it promises, `dither` the
    covariance of what is added to the inputs (None: nothing); `diagnostics` depend on the strategy.
    `estimate` is the ridge estimate at the time, `offsets` the dither that was drawn.
    """

    context: Any
    policy: LinearPolicy
    theta: Float[Array, "d p"]
    promised_cost: float
    dither: Float[Array, "steps m m"] | None
    diagnostics: dict[str, Any]
    estimate: Float[Array, "d p"]
    offsets: Float[Array, "steps m"]
    input_bounds: tuple[Array, Array] | None

    def input(self, step: int, state: ArrayLike) -> Float[Array, " m"]:
        """The input for the state at this step, counted from 0."""
        u = self.policy.gains[step] @ np.asarray(state, float) + self.offsets[step]
        return np.asarray(u if self.input_bounds is None else np.clip(u, *self.input_bounds))

    def was_played(self, trajectory: Trajectory) -> bool:
        """Whether these are the plan's inputs for these states, with its dither or without."""
        x, u = trajectory.states[:-1], trajectory.inputs
        if len(u) > len(self.offsets):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            meant = (self.policy.gains[: len(u)] @ x[..., None])[..., 0]
            offsets = self.offsets[: len(u)]
            inputs = [meant, meant + offsets] if offsets.any() else [meant]
            if self.input_bounds is not None:
                inputs = [np.clip(one, *self.input_bounds) for one in inputs]
            off = [u - one for one in inputs]
        room = 1e-18 * max(float(np.vdot(u, u)), 1e-6)  # squares
        return room < np.inf and any(float(np.vdot(one, one)) <= room for one in off)
