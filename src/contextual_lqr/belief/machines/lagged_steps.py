"""Steps as tests want them: [y, y⁻, sign y, y |y|, |y|, 1, t y, sign (u - u⁻), u⁵, x'].

y⁻ is y of the step before or, at the start of an episode, of the step itself, as if the machine had
stood there: 0 would be a jump, and tell more than all other steps. t = 0, 1, … is the number of the
step in its episode, and u what of y comes after the states, or from the first state on that holds
an input of the past. Columns that are not linear in y, in any units, that age, or that turn with
the input, explain what no law does. u⁵ is next to nothing but at the largest inputs: it tells where
an actuator ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.factors import take_tables

_SQUARED = 1e75  # whose square has a square that is a number
_LEAST, _MOST = 1e-27, 1e27  # of an input whose fifth power has a square that is a number


class Columns(NamedTuple):
    """Which columns there are, of so many states.

    `held` says of each column of y which input it is, or was in the past; -1 if none, as features.
    """

    states: int
    held: tuple[int, ...]

    @classmethod
    def of(cls, states: int, inputs: int) -> Columns:
        """Of machines whose states hold no inputs."""
        return cls(states, (-1,) * states + tuple(range(inputs)))

    @classmethod
    def known(
        cls, states: int, known: Mapping[int, Array], matrices: Float[Array, "n p y"]
    ) -> Columns:
        """Of machines with these context matrices, where some rows of Θ are known."""
        rows = np.zeros((states, matrices.shape[2]))
        for r, row in known.items():
            each = row @ matrices
            if len(each) and (each == each[0]).all():
                rows[r] = each[0]
        return cls(states, held_inputs(rows))

    @property
    def y(self) -> int:
        """How many columns of y there are."""
        return len(self.held)

    @property
    def acting(self) -> int:
        """The first of y from which on there are sign (u - u⁻) and u⁵."""
        return next((c for c, j in enumerate(self.held) if j >= 0), self.y)

    @property
    def size(self) -> int:
        """How many there are in all."""
        return int(self.blocks[-1].stop)

    @property
    def blocks(self) -> list[slice]:
        """Where Y, Y⁻, sign Y, Y |Y|, [|Y|, 1], tY, sign (U - U⁻), U⁵ and X' stand."""
        y, own = self.y, self.y - self.acting
        ends = np.cumsum([0, y, y, y, y, y + 1, y, own, own, self.states]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]


def held_inputs(rows: Float[Array, "d y"]) -> tuple[int, ...]:
    """Of each column of y = [x; u] which input it is, or was: a row of [A, B] shifts it there."""
    d, y = rows.shape
    past = np.where((rows != 0).sum(1) == 1, rows.argmax(1), -1)
    past[rows.max(1) != 1] = -1
    held = np.append(np.full(d, -1), np.arange(y - d))
    for _ in range(d):
        held[:d] = np.where(past >= 0, held[past], -1)
    return tuple(held.tolist())


def lagged_rows(
    y: Float[Array, "*episodes steps y"],
    after: Float[Array, "*episodes steps d"],
    acting: int | None = None,
) -> Float[Array, "*episodes steps k"]:
    """The rows of episodes; without a word, inputs are what of y comes after the states."""
    before = np.concatenate((y[..., :1, :], y[..., :-1, :]), -2)
    first = after.shape[-1] if acting is None else acting
    return _rows(y, before, np.arange(y.shape[-2])[:, None], after, first)


def take_steps(
    packed: Float[Array, "n numbers"],
    moves: Sequence[Float[Array, " rows"]],
    next_states: Sequence[Float[Array, " rows"]],
    steps: Int64[Array, " rows"],
    rows: Int64[Array, " some"],
    ends: Int64[Array, " k"],
    limit: float,
    at: Int64[Array, " k"],
    acting: int,
) -> None:
    """Take steps, given by the columns of y and x', into packed triangles at some places.

    Into number s those that stand in `rows` from the end of the one before to ends[s], but steps
    with a number above the limit, or not finite. `steps` has the number of each row in its episode;
    inputs are the moves from `acting` on.
    """
    used = kernels.update_triangles(
        [*moves, *next_states], rows, ends, limit, packed, at, steps, len(moves), acting
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
        return _rows(y[good], before[good], step[good], after[good], acting)

    take_tables(packed, lagged, rows, ends, at, used)


def _rows(y: Array, before: Array, step: Array, after: Array, acting: int) -> Float[Array, "... k"]:
    size, one = np.abs(y), np.ones_like(y[..., :1])
    curves, turns = (np.sign(y), y * size, size, one), np.sign(y - before)[..., acting:]
    u = np.clip(y[..., acting:], -_MOST, _MOST)
    u = np.where(np.abs(u) < _LEAST, 0.0, u)
    fifths = u * u * (u * u) * u
    return np.concatenate((y, before, *curves, step * y, turns, fifths, after), -1)
