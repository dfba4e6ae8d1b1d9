"""Inputs beyond their limits: would the expected run ask for more than an actuator gives?

A controller u = K x is linear, and its cost is that of a linear loop: what is said about a run that
meets a limit of an input is not to be trusted. Along the run x' = M [x; u] + w, u has the mean K x̄,
and a variance that the noise alone makes: the moments of a run that starts at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import as_input_bounds
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.moments import step_moments

InputBounds = tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]]

DEVIATIONS = 2.0  # standard deviations about the mean that a limit must leave room for
_ROUNDING = 1e-9  # relative: what an input at its very limit may be beyond it


class InputLimits:
    """What each input may be: a pair (low, high), or one for each of their names, in order."""

    def __init__(self, bounds: Any, m: int) -> None:
        self.names = [f"input {i + 1}" for i in range(m)]
        pair: Any = bounds
        if isinstance(bounds, Mapping):
            self.names, ends = list(bounds), list(bounds.values())
            if len(ends) != m or not all(isinstance(e, tuple | list) and len(e) == 2 for e in ends):
                raise InputError(
                    f"input_bounds must have a pair (low, high) for each of {m} inputs, not "
                    f"{bounds!r}"
                )
            pair = tuple(zip(*ends, strict=True))
        self.low, self.high = as_input_bounds(pair, m)

    def beyond(
        self,
        M: Float[Array, "n d y"],
        noise: Float[Array, "d d"],
        gains: Float[Array, "n steps m d"],
        start: Float[Array, " d"],
    ) -> list[str]:
        """What the inputs of each of n machines would reach beyond their limits; "" if nothing."""
        reached = input_range(M, noise, gains, start)
        return [self._sentence(low, high) for low, high in zip(*reached, strict=True)]

    def _sentence(self, lowest: Float[Array, " m"], highest: Float[Array, " m"]) -> str:
        said = []
        for name, low, high, least, most in zip(
            self.names, lowest, highest, self.low, self.high, strict=True
        ):
            for reached, limit, sign in ((high, most, 1), (low, least, -1)):
                if sign * (reached - limit) > _ROUNDING * abs(limit):
                    said.append(f"{name} would reach {reached:.3g}, its limit is {limit:.3g}")
        return "; ".join(said)


def input_range(
    M: Float[Array, "n d y"],
    noise: Float[Array, "d d"],
    gains: Float[Array, "n steps m d"],
    start: Float[Array, " d"],
) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
    """The lowest and the highest that each input is along the run: its mean ± two deviations."""
    n, d, _ = M.shape
    x = np.broadcast_to(start, (n, d))
    low, high = np.full((2, n, gains.shape[2]), np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        about_mean = step_moments(M, noise, gains, np.zeros(d))
        for K, moment in zip(gains.swapaxes(0, 1), about_mean, strict=True):
            u = (K @ x[..., None])[..., 0]
            spread = DEVIATIONS * np.sqrt(np.diagonal(moment[:, d:, d:], axis1=1, axis2=2))
            low, high = np.fmin(low, u - spread), np.fmax(high, u + spread)
            x = (M @ np.concatenate((x, u), 1)[..., None])[..., 0]
    return low, high
