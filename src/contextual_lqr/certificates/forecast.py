"""Forecasts of disturbances as they are given: checked, and turned into a `Preview`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import as_numbers, require, shown
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.preview import Preview
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.stationary import Cost

Forecast = Mapping[int, ArrayLike]
"""By the place of its state, what a disturbance will be: H-1 values, a step each, or H."""


def previewed(
    decoder: Decoder, cost: Cost, start: Float[Array, " d"], forecast: Forecast | None
) -> tuple[Float[Array, " d"], Preview | None]:
    """The start, its disturbances as the forecast begins; and what the forecast does."""
    if not forecast:
        return start, None
    if not isinstance(cost, QuadraticCost):
        raise InputError(
            "a forecast is for one episode, so its cost must be a QuadraticCost: a constant gain "
            "ignores the future, and uses what is measured now"
        )
    steps, x = cost.horizon - 1, start.copy()
    changes = np.zeros((steps, len(x)))
    for i, given in forecast.items():
        require(
            type(i) is int and 0 <= i < len(x),
            f"a forecast is for a state, by its index from 0 to {len(x) - 1}, not {shown(i)}",
        )
        require(
            i in decoder.known,
            f"state {i + 1} has a forecast, but its next value is learnt: a forecast is for a "
            "disturbance, which is known to stay as it is except for what the forecast says",
        )
        values = as_numbers(f"the forecast of state {i + 1}", given, "(H,)", 1)
        require(
            values.shape in ((steps,), (steps + 1,)),
            f"the forecast of state {i + 1} has {values.size} values, but an episode of horizon "
            f"{steps + 1} has {steps} steps: it must have one for each (an extra one, at the end, "
            "is allowed)",
        )
        x[i] = values[0]
        # That of the last step of all is not seen any more: there is no input after it.
        changes[: len(values) - 1, i] = np.diff(values)
    return x, Preview(changes, tuple(forecast), _constant(decoder, x, forecast))


def by_place(
    forecast: Forecast | Mapping[str, ArrayLike] | None, names: Sequence[str]
) -> dict[int, ArrayLike]:
    """The forecast by the places of states, even if it is given by their names."""
    found: dict[int, ArrayLike] = {}
    require(
        forecast is None or isinstance(forecast, Mapping),
        f"a forecast has the names or indices of states as keys: it cannot be {shown(forecast)}",
    )
    for name, values in (forecast or {}).items():
        require(
            isinstance(name, int) or name in names,
            f"there is no state {shown(name)} to forecast; there are {', '.join(names)}",
        )
        found[name if isinstance(name, int) else list(names).index(name)] = values
    return found


def require_staying(decoder: Decoder, G: Float[Array, "n p y"], preview: Preview) -> None:
    """A disturbance, and the state that is 1, must be known to stay as they are."""
    y = G.shape[2]
    for i in (preview.one, *preview.states):
        require(
            np.allclose(decoder.known[i] @ G, np.eye(y)[i], rtol=0, atol=1e-9),
            f"a forecast is for a disturbance that is known to stay as it is, but state {i + 1} is "
            "known to change",
        )


def _constant(decoder: Decoder, x: Float[Array, " d"], forecast: Forecast) -> int:
    """The place of the state that is always 1: the first that is known, and starts there."""
    for i in sorted(decoder.known):
        if i not in forecast and x[i] == 1:
            return i
    raise InputError(
        "a forecast needs a state that is always 1: add one = { constant = true } to the outputs "
        "or states, or OutputHistory(..., constant=True)"
    )
