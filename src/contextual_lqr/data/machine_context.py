"""Which contexts a machine of a fitted fleet has been logged with.

A decoder keeps of a context what the map makes of it, φ(c). The context is found again by solving
φ(c) = φ for c, within the range that the logs have, from several starts: it is known if all that
arrive agree, and if the solution is isolated.
"""

from __future__ import annotations

import math
from itertools import islice, product

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.data.fitted_fleet import FittedFleet
from contextual_lqr.errors import ContextError

_FITS, _APART = 1e-10, 1e-6  # relative: residuals of a solution, and solutions that differ
_STARTS = 32


def logged_contexts(fitted: FittedFleet, label: str) -> list[dict[str, float] | None]:
    """The contexts with which a machine of this label was logged; None where it cannot be told."""
    store, context_map = fitted.decoder.store, fitted.decoder.context_map
    if store is None:
        return []
    if isinstance(context_map, Dynamics):  # what is kept of a context is the context
        names = context_map.names or ()
        each = [one.context.tolist() for _, one in store.of_label(label)]
        return [dict(zip(names, values, strict=True)) for values in each]
    ranges = dict(fitted.context_range)
    return [
        context_of(context_map, context_map.expanded(one.context[None])[0], ranges)
        for _, one in store.of_label(label)
    ]


def context_of(
    context_map: ContextMap, G: Float[Array, "p y"], ranges: dict[str, tuple[float, float]]
) -> dict[str, float] | None:
    """The one context within these ranges that has this matrix, or None."""
    from scipy.optimize import least_squares

    names, ends = list(ranges), np.array(list(ranges.values())).reshape(-1, 2)
    low, width = ends[:, 0], ends[:, 1] - ends[:, 0]
    free = width > 0
    n = int(free.sum())

    def context(c: Float[Array, " n"]) -> dict[str, float]:
        whole = low.copy()
        whole[free] = c
        return dict(zip(names, whole.tolist(), strict=True))

    def matrix(c: Float[Array, " n"]) -> Float[Array, "p y"]:
        try:
            return context_map.matrix(context(c))
        except ContextError:  # a step of the search to where a feature has no value
            return np.full(G.shape, np.inf)

    steps = max(2, math.floor(_STARTS ** (1 / max(n, 1))))
    grid = islice(product(np.linspace(0, 1, steps), repeat=n), _STARTS)
    starts = [low[free] + np.array(t) * width[free] for t in grid]
    tried = np.abs([matrix(c) for c in starts])
    most = np.where(np.isfinite(tried), tried, 0.0).max(0)
    size = np.where(G != 0, np.abs(G), np.where(most > 0, most, 1.0))

    def residual(c: Float[Array, " n"]) -> Float[Array, " k"]:
        off = (matrix(c) - G) / size
        return np.asarray(np.nan_to_num(off, posinf=1e6, neginf=-1e6)).ravel()

    found: list[Array] = []
    for c in starts:
        if n:
            options = {"x_scale": width[free], "max_nfev": 200}
            solved = least_squares(residual, c, xtol=1e-15, ftol=1e-15, gtol=1e-15, **options)
            c = solved.x
            slopes = np.linalg.svd(solved.jac * width[free], compute_uv=False)
            if slopes[-1] <= _APART * slopes[0]:
                continue  # a direction of the context that the map does not see
        off = np.abs((c - low[free]) / width[free] - 0.5).max(initial=0.0)
        if off <= 0.5 + _APART and np.abs(residual(c)).max() <= _FITS:
            found.append(c)
    if not found or (np.ptp(found, axis=0) > _APART * width[free]).any():
        return None
    short = np.array([float(f"{value:.13g}") for value in found[0]])  # 2.5, not 2.4999999999999996
    return context(short)
