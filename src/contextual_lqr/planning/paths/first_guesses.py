"""Where to begin a search for a path: first arrive, then stay.

A cost that is paid all along the way has valleys in which a machine swings for ever. So a first
guess is found in two easier parts: a path that need only be at the target after some of the steps,
from one side or the other where the target is an angle, at almost any cost; and one that begins at
the target, and stays. The search with the whole cost begins from the one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.kernels import Features, Guess, PathProblem

_ARRIVALS = (0.4, 0.2, 0.1, 0.6, 0.3, 1.0)  # after which share of the steps
_ON_THE_WAY = 0.01  # of the cost, while it only has to arrive
_ROUGH: dict[str, Any] = {"iterations": 150, "tolerance": 1e-5}


def first_guesses(
    count: int, problem: PathProblem, features: Features, start: Float[Array, "n d"]
) -> Iterator[Guess]:
    """So many of them, for each member; fewer if all have been tried."""
    T = problem.R.shape[1]
    turns = [np.zeros_like(problem.period)]
    for i in np.flatnonzero(problem.period):
        one = np.where(np.arange(len(problem.period)) == i, problem.period, 0.0)
        turns += [one, -one]
    arrivals = dict.fromkeys(max(round(share * T), 1) for share in _ARRIVALS)
    tried = [(steps, turn) for steps in arrivals for turn in turns] if T else []
    for steps, turn in tried[:count]:
        yield _arriving(problem, features, start, steps, turn)


def _arriving(
    problem: PathProblem, features: Features, start: Array, steps: int, turn: Float[Array, " d"]
) -> Guess:
    """A path that arrives after so many steps, and stays."""
    n, (T, m), d = len(start), problem.R.shape[1:3], start.shape[1]
    shares = np.full(steps + 1, _ON_THE_WAY)
    Q = problem.Q[:, : steps + 1] * shares[:, None, None]
    Q[:, steps] = problem.Q.sum(1)  # as if it were there from the beginning to the end
    near = _nearest(start, problem.target[:, steps], problem.period) + turn
    way = problem._replace(
        Q=Q,
        R=_ON_THE_WAY * problem.R[:, :steps],
        N=None,
        target=np.repeat(near[:, None], steps + 1, 1),
        input_target=problem.input_target[:, :steps],
        period=np.zeros(d),
    )
    options = {**_ROUGH, "threads": kernels.threads()}
    there = kernels.ilqr(way, features, start, Guess(np.zeros((n, steps, m))), **options)
    if steps == T:
        return Guess(there.inputs)
    stay = _staying(problem, features, near, steps)
    return Guess(
        np.concatenate((there.inputs, stay.inputs), 1),
        np.concatenate((there.states[:, :-1], stay.states), 1),
        np.concatenate((there.gains, stay.gains), 1),
    )


def _staying(
    problem: PathProblem, features: Features, place: Float[Array, "n d"], step: int
) -> kernels.Paths:
    """The path that begins at the target at this step, and stays to the end.

    Where the target is unstable, rounding alone would throw a long path off it. So the path grows:
    each is twice as long as the one before, whose first gains hold it.
    """
    T, n = problem.R.shape[1], len(place)
    options = {**_ROUGH, "threads": kernels.threads()}
    length, gain = 1, np.zeros((n, *problem.R.shape[2:3], place.shape[1]))
    while True:
        length = min(length, T - step)
        end = step + length
        part = problem._replace(
            Q=problem.Q[:, step : end + 1],
            R=problem.R[:, step:end],
            N=None if problem.N is None else problem.N[:, step:end],
            target=problem.target[:, step : end + 1],
            input_target=problem.input_target[:, step:end],
        )
        guess = Guess(
            np.repeat(part.input_target, n // len(part.input_target), 0),
            np.repeat(place[:, None], length + 1, 1),
            np.repeat(gain[:, None], length, 1),
        )
        found = kernels.ilqr(part, features, place, guess, **options)
        if end == T:
            return found
        length, gain = 2 * length, found.gains[:, 0]


def _nearest(start: Array, target: Array, period: Array) -> Float[Array, "n d"]:
    """The target by the shortest way from the start."""
    turn = np.where(period > 0, period, 1.0)
    off = np.where(period > 0, turn * np.floor((start - target) / turn + 0.5), 0.0)
    return np.asarray(target + off)
