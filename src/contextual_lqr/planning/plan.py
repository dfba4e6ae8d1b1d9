"""The plan of one episode: what the agent answers when it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.lqr.problem import LinearPolicy


@dataclass(frozen=True, eq=False)
class Plan:
    """What to play: `input(step, state)`, the policy's input, dithered and within the bounds.

    `theta` is the decoder the policy comes from, the estimate if the strategy chose none;
    `promised_cost` is what it promises, `dither` the covariance of what is added to the inputs
    (None: nothing); `diagnostics` depend on the strategy. `estimate` is the ridge estimate at the
    time, `offsets` the dither that was drawn.
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
