"""Steps as tests want them: [y, y⁻, sign y, y |y|, |y|, 1, t y, sign (u - u⁻), u⁵, x'].

y⁻ is y of the step before or, at the start of an episode, of the step itself, as if the machine had
stood there: 0 would be a jump, and tell more than all other steps. t = 0, 1, … is the number of the
step in its episode, and u what of y comes after the states. Columns that are not linear in y, in
any units, that age, or that turn with the input, explain what no law does. u⁵ is next to nothing
but at the largest inputs: it tells where an actuator ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.factors import take_tables

_SQUARED = 1e75  # whose square has a square that is a number
_LEAST, _MOST = 1e-27, 1e27  # of an input whose fifth power has a square that is a number


def lagged_size(y: int, d: int) -> int:
    """How many columns there are; of features, which may be fewer than states, none is an input."""
    return 6 * y + 1 + 2 * max(y - d, 0) + d


def lagged_rows(
    y: Float[Array, "*episodes steps y"], after: Float[Array, "*episodes steps d"]
) -> Float[Array, "*episodes steps k"]:
    """The rows of episodes."""
    before = np.concatenate((y[..., :1, :], y[..., :-1, :]), -2)
    return _rows(y, before, np.arange(y.shape[-2])[:, None], after)


def take_steps(
    packed: Float[Array, "n numbers"],
    moves: Sequence[Float[Array, " rows"]],
    next_states: Sequence[Float[Array, " rows"]],
    steps: Int64[Array, " rows"],
    rows: Int64[Array, " some"],
    ends: Int64[Array, " k"],
    limit: float,
    at: Int64[Array, " k"],
) -> None:
    """Take steps, given by the columns of y and x', into packed triangles at some places.

    Into number s those that stand in `rows` from the end of the one before to ends[s], but steps
    with a number above the limit, or not finite. `steps` has the number of each row in its episode.
    """
    used = kernels.update_triangles(
        [*moves, *next_states], rows, ends, limit, packed, at, steps, len(moves)
    )

    def lagged(some: Int64[Array, " few"]) -> Float[Array, "few k"]:
        y, before, after = (
            np.stack([column[places] for column in columns], 1)
            for columns, places in ((moves, some), (moves, some - 1), (next_states, some))
        )
        step = steps[some, None]
        before = np.where(step > 0, before, y)
        most = np.abs(np.concatenate((y, before, after), 1)).max(1)
        good = most <= min(limit, _SQUARED)
        return _rows(y[good], before[good], step[good], after[good])

    take_tables(packed, lagged, rows, ends, at, used)


def _rows(y: Array, before: Array, step: Array, after: Array) -> Float[Array, "... k"]:
    size, one, d = np.abs(y), np.ones_like(y[..., :1]), after.shape[-1]
    curves, turns = (np.sign(y), y * size, size, one), np.sign(y - before)[..., d:]
    u = np.clip(y[..., d:], -_MOST, _MOST)
    u = np.where(np.abs(u) < _LEAST, 0.0, u)
    fifths = u * u * (u * u) * u
    return np.concatenate((y, before, *curves, step * y, turns, fifths, after), -1)
