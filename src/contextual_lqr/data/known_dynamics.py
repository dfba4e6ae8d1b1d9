"""Rows of Θ that need not be learnt, such as coordinates that are constant; and integrals.

The user writes what the next value is, such as `position + 0.1 * velocity`. It must be linear in
states and inputs, g(c)ᵀ [x; u], with coefficients that the context map can express: then there is
a row θ with θ G(c) = g(c)ᵀ at every context c, and it is found by least squares at a few.

That one state is the integral of another, `exact: velocity integrates`, is a law of continuous
time. What it makes of a step depends on all that moves the velocity meanwhile: such a row is
learnt, and the law is held against the logs (`contradictions.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import read_only, require
from contextual_lqr.context import ContextMap, FeatureContext
from contextual_lqr.context.expressions import parse
from contextual_lqr.context.variables import sampled_values
from contextual_lqr.data.description import Quantity
from contextual_lqr.errors import ContextError

_CONTEXTS = 64  # where the row is fitted


def known_row(
    text: str,
    states: Sequence[str],
    inputs: Sequence[str],
    contexts: Sequence[Quantity],
    context_map: ContextMap,
) -> Array:
    """The row of Θ, (p,), for which the next value of a state is what `text` says."""
    expression = parse(text)
    moving = [*states, *inputs]
    names = {*moving, *(one.name for one in contexts)}
    odd = [name for name in expression.names if name not in names]
    require(not odd, f"'{text}' uses {', '.join(odd)}, which is not a state, input or context")
    rng = np.random.default_rng(0)
    values = sampled_contexts(contexts, rng)
    used = [j for j, name in enumerate(moving) if name in expression.names]  # the others have 0

    def at(points: Array) -> Array:
        """The expression at (contexts, used) points."""
        given = values | {moving[j]: points[:, i] for i, j in enumerate(used)}
        return np.broadcast_to(expression(given), _CONTEXTS).astype(float)

    n = len(used)
    coefficients = np.zeros((_CONTEXTS, n))
    for i in range(n):
        coefficients[:, i] = at(np.broadcast_to(np.eye(n)[i], (_CONTEXTS, n)))
    require(np.isfinite(coefficients).all(), f"'{text}' is not finite everywhere within the bounds")
    scale = max(float(np.abs(coefficients).max(initial=0.0)), 1e-300)
    require(
        np.abs(at(np.zeros((_CONTEXTS, n)))).max() <= 1e-12 * scale,
        f"'{text}' is not 0 where states and inputs are 0: multiply its constant by a state that "
        "is constant",
    )
    points = rng.normal(size=(_CONTEXTS, n))
    with np.errstate(invalid="ignore"):
        off = np.abs(at(points) - (coefficients * points).sum(1))
    require(bool((off <= 1e-9 * scale * n).all()), f"'{text}' is not linear in states and inputs")
    try:
        row, left = _row(context_map, values, coefficients, used, len(moving))
    except ContextError as error:
        raise ContextError(f"the context map fails within the bounds: {error}") from None
    require(
        left <= 1e-9 * scale,
        f"'{text}' cannot be written as Θ G(context) with this context map: a feature is missing",
    )
    return read_only(_short(row))


def _row(
    context_map: ContextMap, values: dict[str, Array], goal: Array, used: list[int], n: int
) -> tuple[Array, float]:
    """The row θ for which θ G is `goal` in the columns used, 0 in others; how far off that is."""
    if isinstance(context_map, FeatureContext):  # G = φ ⊗ I: column by column, be there thousands
        phi = context_map.feature_rows(values)
        found, left = _solved(phi, goal)
        row = np.zeros((phi.shape[1], n))
        row[:, used] = found
        return row.ravel(), left
    # θ [G(c1), G(c2), …] = [g(c1)ᵀ, g(c2)ᵀ, …]
    G = context_map.matrices(values)
    whole = np.zeros((len(goal), n))
    whole[:, used] = goal
    found, left = _solved(G.transpose(0, 2, 1).reshape(-1, G.shape[1]), whole.reshape(-1, 1))
    return found[:, 0], left


def _solved(factors: Array, goal: Array) -> tuple[Array, float]:
    """What is multiplied by these factors, both scaled to one size; the largest error."""
    sizes, scale = np.linalg.norm(factors, axis=0), np.abs(goal).max(0)
    sizes[sizes == 0] = 1
    scale[scale == 0] = 1
    found = np.linalg.lstsq(factors / sizes, goal / scale, rcond=1e-12)[0]
    left = np.abs(factors / sizes @ found - goal / scale) * scale
    found = np.where(np.abs(found) < 1e-12 * len(found), 0.0, found)  # rounding
    return _short(found / sizes[:, None]) * scale, float(left.max(initial=0.0))


def _short(values: Array) -> Array:
    """Without what rounding has added at the end: 1, not 1.0000000000000002."""
    nearest = np.round(values, 12)
    exact = np.abs(nearest - values) <= 1e-13 * np.maximum(np.abs(values), 1)
    return np.where(exact, nearest, values)


def integrated(name: str, text: str, states: Sequence[Quantity]) -> str | None:
    """The state whose integral `name` is said to be; None if the text is an equation."""
    if not text.lstrip().startswith("exact"):
        return None
    found = re.fullmatch(r"\s*exact\s*:\s*(\w+)\s+integrates\s*", text)
    others = [one.name for one in states if not one.constant and one.name != name]
    require(
        found is not None,
        f"'{text}' must be written as \"exact: {others[0] if others else 'velocity'} integrates\"",
    )
    assert found is not None
    require(
        found[1] in others,
        f"'{found[1]}' cannot integrate to it: that must be another state that is not constant: "
        f"{', '.join(others) or 'there is none'}",
    )
    return found[1]


def sampled_contexts(
    contexts: Sequence[Quantity], rng: np.random.Generator | None = None
) -> dict[str, Array]:
    """Values within the bounds of each."""
    bounds = {one.name: (one.low, one.high) for one in contexts}
    return sampled_values(bounds, _CONTEXTS, np.random.default_rng(0) if rng is None else rng)
