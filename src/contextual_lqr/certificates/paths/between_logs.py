"""States of a planned path that no logged run has had: between the logs, or beyond them.

Leverage does not see a gap: where a state was logged from -3 to -1 and from 1 to 3, what is linear
at both ends is, for all it knows, linear in between. So each state is looked at on its own. From
one step to the next, a logged run has all values in between. A path is too far from the logs if its
distance from the nearest value that a run has had is, over the range of all values,

    between the logs   more than 1/20: a gap may be a tenth wide
    beyond them        more than 1/8: a quarter of the largest, as for linear machines, if the
                       logs are as large on both sides of 0

Inputs are left out: many machines are logged with two or three levels of them, and none in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.extrapolation import Place
from contextual_lqr.context import Dynamics
from contextual_lqr.lqr.target_cost import TURN, wrapped

_BETWEEN, _BEYOND = 1 / 20, 1 / 8
_STEP = (slice(None, -1), slice(1, None))  # of a run: where its steps begin, and end


@dataclass(frozen=True)
class Gap:
    """Where a state of a path is farthest from the logs, which end below and above it.

    Beyond the logs, one end is infinite. `distance` is 1 where it becomes too far.
    """

    state: str
    value: float
    below: float
    above: float
    distance: float

    @property
    def place(self) -> Place:
        """Where the path is there."""
        beyond = np.isinf(self.below) or np.isinf(self.above)
        return "outside the data" if beyond else "in a gap of the data"

    def __str__(self) -> str:
        where = f"between {self.below:.3g} and {self.above:.3g}"
        if np.isinf(self.below):
            where = f"below {self.above:.3g}"
        elif np.isinf(self.above):
            where = f"above {self.below:.3g}"
        return f"{self.state} {where} (the path has {self.value:.3g})"


class _Had(NamedTuple):
    """The values of one state that runs have had: intervals that are apart, in order."""

    low: Float[Array, " n"]
    high: Float[Array, " n"]
    size: float  # from the least to the most; of an angle, a turn at most


def gaps_of(
    decoder: Decoder, states: Float[Array, "steps d"], angles: tuple[int, ...]
) -> list[Gap]:
    """The states that a path takes far from all logged runs, the farthest first.

    Of `angles`, a turn less or more is as good.
    """
    assert isinstance(decoder.context_map, Dynamics)
    runs, key = decoder.logged_runs.runs, ("logged states", angles)
    if not runs:
        return []
    if key not in decoder.kept:  # until data come
        decoder.kept[key] = _had([run.trajectory.states for run in runs], angles)
    every = zip(
        decoder.context_map.state_names,
        decoder.kept[key],
        wrapped(states, angles).T,
        strict=True,
    )
    gaps = [gap for name, had, x in every if (gap := _farthest(name, had, x)).distance > 1]
    return sorted(gaps, key=lambda one: -one.distance)


def told(gaps: Sequence[Gap], decoder: Decoder) -> str:
    """What no run has had, in words."""
    kept = sum(len(run.trajectory) for run in decoder.logged_runs.runs)
    run = "logged run" if kept >= decoder.rows else "run that the decoder keeps"
    return f"no {run} has had {' or '.join(map(str, gaps))}"


def _had(runs: Sequence[Float[Array, "_ d"]], angles: tuple[int, ...]) -> list[_Had]:
    """What runs have had of each state."""
    begun, ended = (np.concatenate([x[part] for x in runs]) for part in _STEP)
    least, most = np.minimum(begun, ended), np.maximum(begun, ended)
    turned, found = wrapped(least, angles), []
    for i, size in enumerate((most.max(0) - least.min(0)).tolist()):
        low, high = turned[:, i], turned[:, i] + (most - least)[:, i]
        if i in angles:
            low, high = (np.concatenate((end - TURN, end, end + TURN)) for end in (low, high))
        order = np.argsort(low)
        low, high = low[order], np.maximum.accumulate(high[order])
        apart = low[1:] > high[:-1]
        ends = low[np.append(True, apart)], high[np.append(apart, True)]
        found.append(_Had(*ends, min(size, TURN) if i in angles else size))
    return found


def _farthest(state: str, had: _Had, x: Float[Array, " steps"]) -> Gap:
    """Where a state is farthest from what runs have had."""
    after = np.searchsorted(had.low, x, side="right")
    below, above = np.append(-np.inf, had.high)[after], np.append(had.low, np.inf)[after]
    # Of a state that is always the same, rounding errors are no distance.
    size = max(had.size, 1e-6 * float(np.abs(had.high).max()), 1e-300)
    limits = size * np.where(np.isinf(below - above), _BEYOND, _BETWEEN)
    far = np.minimum(x - below, above - x) / limits
    at = int(far.argmax())
    return Gap(state, float(x[at]), float(below[at]), float(above[at]), float(far[at]))
