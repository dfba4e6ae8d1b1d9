"""Limits of inputs, and how far a run goes.

A controller u = K x is linear, and its cost is that of a linear loop: what is said about a run that
meets a limit of an input is not to be trusted.

Along the run x' = M [x; u] + w, u has the mean K x̄, and a variance that the noise alone makes: the
moments of a run that starts at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
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

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    @property
    def finite(self) -> Bool[Array, " m"]:
        """Which inputs have limits both ways."""
        return np.asarray(np.isfinite(self.low) & np.isfinite(self.high))

    def beyond(self, lowest: Float[Array, "n y"], highest: Float[Array, "n y"]) -> list[str]:
        """What inputs of n runs of this range would reach beyond their limits; "" if nothing."""
        inputs = slice(-len(self.names), None)
        ends = zip(lowest[:, inputs], highest[:, inputs], strict=True)
        return [self._sentence(*own) for own in ends]

    def _sentence(self, lowest: Float[Array, " m"], highest: Float[Array, " m"]) -> str:
        said = []
        for name, low, high, least, most in zip(
            self.names, lowest, highest, self.low, self.high, strict=True
        ):
            for reached, limit, sign in ((high, most, 1), (low, least, -1)):
                if sign * (reached - limit) > _ROUNDING * abs(limit):
                    said.append(f"{name} would reach {reached:.3g}, its limit is {limit:.3g}")
        return "; ".join(said)


def run_range(
    M: Float[Array, "n *steps d y"],
    noise: Float[Array, "d d"],
    gains: Float[Array, "n steps m d"],
    start: Float[Array, " d"],
) -> tuple[Float[Array, "n y"], Float[Array, "n y"]]:
    """The lowest and the highest of each state and input along the run: mean ± two deviations."""
    n, (d, width) = len(M), M.shape[-2:]
    M = np.broadcast_to(M if M.ndim == 4 else M[:, None], (n, gains.shape[1], d, width))
    x = np.broadcast_to(start, (n, d))
    low, high = np.full((2, n, width), np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        about_mean = step_moments(M, noise, gains, np.zeros(d))
        for h, moment in enumerate(about_mean):
            K = gains[:, h]
            y = np.concatenate((x, (K @ x[..., None])[..., 0]), 1)
            spread = DEVIATIONS * np.sqrt(np.diagonal(moment, axis1=1, axis2=2))
            low, high = np.fmin(low, y - spread), np.fmax(high, y + spread)
            x = (M[:, h] @ y[..., None])[..., 0]
    return low, high
