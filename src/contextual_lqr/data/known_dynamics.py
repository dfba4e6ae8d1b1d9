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
from contextual_lqr.context import ContextMap
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

    def at(points: Array) -> Array:
        """The expression at (contexts, d+m) points."""
        given = values | {name: points[:, j] for j, name in enumerate(moving)}
        return np.broadcast_to(expression(given), len(points)).astype(float)

    n = len(moving)
    coefficients = np.stack(
        [at(np.broadcast_to(np.eye(n)[j], (_CONTEXTS, n))) for j in range(n)], axis=1
    )
    require(np.isfinite(coefficients).all(), f"'{text}' is not finite everywhere within the bounds")
    scale = max(float(np.abs(coefficients).max()), 1e-300)
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
        G = context_map.matrices(values)
    except ContextError as error:
        raise ContextError(f"the context map fails within the bounds: {error}") from None
    # θ [G(c1), G(c2), …] = [g(c1)ᵀ, g(c2)ᵀ, …], its rows scaled to one size
    p = G.shape[1]
    stacked = G.transpose(0, 2, 1).reshape(-1, p)
    sizes = np.linalg.norm(stacked, axis=0)
    sizes[sizes == 0] = 1
    row = np.linalg.lstsq(stacked / sizes, coefficients.ravel(), rcond=1e-12)[0] / sizes
    require(
        np.abs(stacked @ row - coefficients.ravel()).max() <= 1e-9 * scale,
        f"'{text}' cannot be written as Θ G(context) with this context map: a feature is missing",
    )
    row[np.abs(row) * sizes < 1e-12 * scale * len(row)] = 0.0  # rounding
    nearest = np.round(row, 12)
    exact = np.abs(nearest - row) <= 1e-13 * np.maximum(np.abs(row), 1)
    return read_only(np.where(exact, nearest, row))


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
