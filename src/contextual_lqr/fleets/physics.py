"""What physical fleets share: equations of motion, made a fleet by exact discretisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.linalg import expm

from contextual_lqr.checks import require
from contextual_lqr.context import BlockContext, ContextMap
from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.lqr.problem import QuadraticCost

Ranges = Mapping[str, tuple[float, float]]


def discretised(
    A: Float[Array, "d d"], B: Float[Array, "d m"], dt: float
) -> tuple[Float[Array, "d d"], Float[Array, "d m"]]:
    """The exact step of x' = A x + B u when u is held for dt: exp([[A, B], [0, 0]] dt)."""
    d, m = B.shape
    step = expm(dt * np.block([[A, B], [np.zeros((m, d + m))]]))
    return step[:d, :d], step[:d, d:]


def evenly(ranges: Ranges) -> Callable[[np.random.Generator], dict[str, float]]:
    """Draws every name of a context uniformly from its range."""

    def sample(rng: np.random.Generator) -> dict[str, float]:
        return {name: float(rng.uniform(*pair)) for name, pair in ranges.items()}

    return sample


def checked_ranges(given: Ranges, positive: bool = True) -> dict[str, tuple[float, float]]:
    """The ranges of a context, refused if one is empty or, where it matters, not positive."""
    for name, (low, high) in given.items():
        good = low < high < np.inf and (low > 0 if positive else low >= 0)
        wanted = "0 < low < high" if positive else "0 <= low < high"
        require(good, f"{name} must be a range {wanted}, not {(low, high)!r}")
    return dict(given)


def require_steps(dt: float, horizon: int, noise: float) -> None:
    """Refuse steps that take no time, an episode without any, and noise that is none."""
    require(0 < dt < np.inf, f"dt must be a positive number, not {dt!r}")
    require(horizon >= 2, f"horizon must be at least 2, not {horizon!r}")
    good = 0 <= noise < np.inf
    require(good, f"noise must be a standard deviation of at least 0, not {noise!r}")


def by_column(
    states: Sequence[Sequence[str]], inputs: Sequence[Sequence[str]], bounds: Ranges
) -> BlockContext:
    """A column of [A, B] as a sum over its own features: fewer unknowns than all features for all.

    C and D have one row for each feature of each column, with that feature in that column.
    """
    blocks = []
    for columns in (states, inputs):
        named = [(j, text) for j, features in enumerate(columns) for text in features]
        block: list[list[float | str]] = [[0] * len(columns) for _ in named]
        for row, (j, text) in zip(block, named, strict=True):
            row[j] = 1 if text == "1" else text
        blocks.append(block)
    return BlockContext(*blocks, bounds=bounds)


def steady_cost(
    horizon: int, state: Float[Array, " d"], inputs: Float[Array, " m"]
) -> QuadraticCost:
    """The same weights at every step: Σ state · x² + inputs · u²."""
    require(horizon >= 2, f"horizon must be at least 2, not {horizon!r}")
    return QuadraticCost(
        np.broadcast_to(np.diag(state), (horizon, len(state), len(state))),
        np.broadcast_to(np.diag(inputs), (horizon - 1, len(inputs), len(inputs))),
    )


def physical_fleet(
    equations: Callable[[Mapping[str, float]], tuple[Array, Array]],
    context_map: ContextMap,
    dt: float,
    horizon: int,
    noise: float,
    *,
    weights: tuple[ArrayLike, ArrayLike],
    start: ArrayLike,
    states: Sequence[str],
    inputs: Sequence[str],
    units: Mapping[str, str],
    state_limit: tuple[float, ...],
) -> Fleet:
    """The machines that obey x' = A x + B u, where `equations` gives A and B for a context.

    `noise` is the standard deviation of each state; one that is called "constant" has none.
    """
    require_steps(dt, horizon, noise)
    return Fleet(
        context_map=context_map,
        cost=steady_cost(horizon, *map(np.asarray, weights)),
        start=np.array(start, float),
        noise=np.diag([0.0 if name == "constant" else noise**2 for name in states]),
        sample_context=evenly(context_map.bounds or {}),
        _truth=lambda context: discretised(*equations(context), dt),
        states=tuple(states),
        inputs=tuple(inputs),
        units=units,
        state_limit=state_limit,
    )
