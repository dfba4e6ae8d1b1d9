"""Gains for a context that is known only when the machine runs: a table over contexts.

The points of a grid over one to three values of the context hold the gains of the machine that is
there; between them gains are interpolated, linearly in each value. How good that is, is measured
where interpolation is worst: in the middle of every cell (a smooth function is missed most there,
in proportion to the square of the cell). Cells in which the interpolated gains cost too much more
than the best, on the machine expected there, are cut until there are none. Then the controller of
each middle, as interpolated, is certified like any other: the worst of these certificates is that
of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certification import CertificationTask
from contextual_lqr.certificates.certify import certify_many
from contextual_lqr.checks import as_count, as_number, require
from contextual_lqr.display import Displayed
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.lqr.solve import optimal_cost, policy_cost
from contextual_lqr.lqr.stationary import Cost, Policy, StationaryPolicy, gains_of, policy_for

_WORSE = {"trust": 0, "caution": 1, "do not use": 2}
_MOST_VARIABLES = 3


@dataclass(frozen=True, eq=False, repr=False)
class GainSchedule(Displayed):
    """A table of gains over contexts; called with a context, it is the controller there.

    Attributes
    ----------
    axes : dict of arrays
        The values of the context at which there are gains, by name, ascending.
    fixed : dict of floats
        The values of the context that are the same for all.
    gains : array, (n1, ..., H-1, m, d) or (n1, ..., m, d)
        At the points of the grid, in the order of `axes`: of an episode, or constant.
    cells : list of Certificate
        Of the interpolated controllers, one for the middle of every cell.
    interpolation_excess : float
        The most that interpolation costs in the middle of a cell, relative to the best on the
        machine expected there.
    """

    axes: Mapping[str, Float[Array, " n"]]
    fixed: Mapping[str, float]
    gains: Float[Array, "*grid m d"]
    cells: list[Certificate]
    interpolation_excess: float

    def __call__(self, context: Mapping[str, float]) -> Policy:
        """The controller for this context, interpolated; refused outside the table.

        Parameters
        ----------
        context : mapping
            The values that the table is over; others must be those it was made for.
        """
        for name, value in self.fixed.items():
            require(
                context.get(name, value) == value,
                f"the table is for {name} = {value:g}, not {context.get(name)!r}",
            )
        found = interpolated(self.axes, self.gains, _at(self.axes, context))
        return LinearPolicy(found) if found.ndim == 3 else StationaryPolicy(found)

    @property
    def worst(self) -> Certificate:
        """The certificate of the least trustworthy cell."""
        return max(self.cells, key=lambda one: (_WORSE[one.verdict], one.likely_excess))

    @property
    def verdict(self) -> str:
        """That of the worst cell."""
        return self.worst.verdict

    def _facts(self) -> dict[str, object]:
        shape = " x ".join(str(len(axis)) for axis in self.axes.values())
        return {
            **self.cells[0].policy._facts(),
            "grid": f"{shape} over {', '.join(self.axes)}",
            "interpolation": f"{self.interpolation_excess:.2%}",
            "verdict": self.verdict,
            "likely excess": f"{self.worst.likely_excess:.2%}",
        }


def gain_schedule(
    decoder: Decoder,
    contexts: Mapping[str, Any],
    cost: Cost,
    start: ArrayLike,
    *,
    tolerance: float = 0.01,
    most: int = 2000,
    **options: Any,
) -> GainSchedule:
    """Gains over a grid of contexts, fine enough to interpolate, with certificates in between.

    Parameters
    ----------
    decoder : Decoder
        What was learnt from the fleet.
    contexts : mapping
        For each value of the context its range (low, high), or one number if it stays: one to
        three of them have ranges.
    cost, start
        As for `certify`.
    tolerance : float
        What interpolation may cost in the middle of a cell, relative to the best there.
    most : int
        The number of points at which to give up.
    **options
        As for `certify_many`: noise, input_bounds, states, beta, delta, draws, bounds, rng.

    Returns
    -------
    GainSchedule

    Raises
    ------
    InputError
        If a range is not one, or the tolerance takes more points.

    Examples
    --------
    >>> table = clqr.gain_schedule(decoder, {"mass": (1, 5)}, cost, start)  # doctest: +SKIP
    >>> policy = table({"mass": 3.3})  # doctest: +SKIP
    """
    axes, fixed = _grid(contexts)
    tolerance, most = as_number("tolerance", tolerance), as_count("most", most)
    require(tolerance > 0, f"tolerance must be positive, not {tolerance!r}")
    defaults = dict.fromkeys(("noise", "input_bounds", "states", "rng"))
    usual = {"beta": "determinant", "delta": 0.05, "draws": 200, "bounds": True}
    task = CertificationTask(decoder, cost, start, **{**defaults, **usual, **options})
    known: dict[tuple[float, ...], Array] = {}  # gains, by the point
    quick = options | {"bounds": False}
    while True:
        points = list(product(*(axis.tolist() for axis in axes.values())))
        if len(points) > most:
            raise InputError(
                f"interpolating the gains within {tolerance:.2%} takes more than {most} points: "
                "allow more of them, a larger tolerance, or smaller ranges"
            )
        if fresh := [point for point in points if point not in known]:
            found = certify_many(decoder, _named(axes, fixed, fresh), cost, start, **quick)
            known |= {p: gains_of(one.policy) for p, one in zip(fresh, found, strict=True)}
        gains = np.array([known[point] for point in points])
        gains = gains.reshape(*(len(axis) for axis in axes.values()), *gains.shape[1:])
        table, middles = _Table(axes, fixed, gains), _middles(axes)
        above = table.excess(middles, decoder, cost, start)
        if not (above > tolerance).any():
            break
        edges = _edges(axes, middles[above > tolerance])
        worst = table.excess(edges.reshape(-1, len(axes)), decoder, cost, start)
        axes = _cut(axes, middles[above > tolerance], worst.reshape(edges.shape[:2]).argmax(1))
    cells = task.all_of(_named(axes, fixed, middles.tolist()), None, gains=table.at(middles))
    return GainSchedule(axes, fixed, gains, cells, float(above.max()))


class _Table(NamedTuple):
    """Gains over a grid of contexts, before it is known whether that is fine enough."""

    axes: dict[str, Array]
    fixed: dict[str, float]
    gains: Float[Array, "*grid m d"]

    def at(self, points: Float[Array, "n k"]) -> Float[Array, "n *steps m d"]:
        return np.array([interpolated(self.axes, self.gains, point) for point in points])

    def excess(
        self, points: Float[Array, "n k"], decoder: Decoder, cost: Cost, start: ArrayLike
    ) -> Float[Array, " n"]:
        """What interpolated gains cost above the best, on the machines expected at these points."""
        expected = decoder.machines(_named(self.axes, self.fixed, points.tolist())).system
        policy = policy_for(cost, self.at(points))
        with np.errstate(invalid="ignore", divide="ignore"):
            best = np.asarray(optimal_cost(expected, cost, start))
            above = np.asarray(policy_cost(policy, expected, cost, start)) / best - 1
        require(np.isfinite(best).all(), "a machine of the table has no optimal controller")
        return np.where(np.isfinite(above), above, np.inf)


def interpolated(
    axes: Mapping[str, Float[Array, " n"]],
    gains: Float[Array, "*grid m d"],
    point: Float[Array, " k"],
) -> Float[Array, "*steps m d"]:
    """The gains at a point of the grid's range, linear in each value between its neighbours."""
    for axis, value in zip(axes.values(), point, strict=True):
        i = int(np.clip(np.searchsorted(axis, value) - 1, 0, len(axis) - 2))
        share = (value - axis[i]) / (axis[i + 1] - axis[i])
        gains = (1 - share) * gains[i] + share * gains[i + 1]
    return gains


def _grid(contexts: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, float]]:
    """Three points for each range, and the numbers."""
    axes: dict[str, Array] = {}
    fixed: dict[str, float] = {}
    for name, value in contexts.items():
        if np.ndim(value) == 0:
            fixed[name] = as_number(name, value)
            continue
        require(np.shape(value) == (2,), f"{name} must be a number or (low, high), not {value!r}")
        low, high = (as_number(name, end) for end in value)
        require(low < high, f"{name} must be a range low < high, not {value!r}")
        axes[name] = np.linspace(low, high, 3)
    require(
        1 <= len(axes) <= _MOST_VARIABLES,
        f"one to three values of the context must have a range (low, high), not {len(axes)}",
    )
    return axes, fixed


def _at(axes: Mapping[str, Array], context: Mapping[str, float]) -> Float[Array, " k"]:
    point = []
    for name, axis in axes.items():
        require(name in context, f"the context lacks {name}")
        value = as_number(name, context[name])
        require(
            axis[0] <= value <= axis[-1],
            f"{name} = {value:g} is outside the table, {axis[0]:g} to {axis[-1]:g}",
        )
        point.append(value)
    return np.array(point)


def _named(
    axes: Mapping[str, Array], fixed: Mapping[str, float], points: Iterable[Iterable[float]]
) -> list[dict[str, float]]:
    return [dict(fixed) | dict(zip(axes, point, strict=True)) for point in points]


def _middles(axes: Mapping[str, Array]) -> Float[Array, "cells k"]:
    between = [[(a + b) / 2 for a, b in pairwise(axis.tolist())] for axis in axes.values()]
    return np.array(list(product(*between)))


def _edges(axes: Mapping[str, Array], middles: Float[Array, "n k"]) -> Float[Array, "n k k"]:
    """Half-way along an edge of each cell, for each value: where it alone is interpolated."""
    edges = np.repeat(middles[:, None], len(axes), 1)
    for j, axis in enumerate(axes.values()):
        below = axis[np.searchsorted(axis, middles[:, j]) - 1]
        others = np.arange(len(axes)) != j
        edges[:, others, j] = below[:, None]
    return edges


def _cut(axes: Mapping[str, Array], middles: Float[Array, "n k"], along: Array) -> dict[str, Array]:
    """The grid with more points: cells with these middles are cut, each along one value."""
    named = enumerate(axes.items())
    return {name: np.union1d(axis, middles[along == j, j]) for j, (name, axis) in named}
