"""The context at which a function of its matrix G is least: few numbers, within bounds.

From many points that fill the bounds evenly, the best three are refined by Nelder and Mead's
simplex. A value whose bounds are positive, such as a mass, is searched by its logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context import ContextMap
from contextual_lqr.errors import ContextError

_POINTS = 256  # a power of two, as Sobol's sequence wants it
_REFINED = 3
_STEPS = 300  # of the simplex, for each value


def least_context(
    context_map: ContextMap,
    objective: Callable[[Float[Array, "k p y"]], Float[Array, " k"]],
    bounds: Mapping[str, tuple[float, float]],
) -> dict[str, float]:
    """The context within finite bounds; where the map has no value, nor has the objective."""
    from scipy.optimize import minimize
    from scipy.stats import qmc  # takes a second to import

    names, size = list(bounds), len(bounds)
    low, high = np.array([bounds[name] for name in names], float).T
    by_ratio = low > 0
    base = np.where(by_ratio, low, 1.0)

    def contexts(points: Float[Array, "k n"]) -> dict[str, Array]:
        along = base * np.where(by_ratio, high / base, 1.0) ** points
        x = np.where(by_ratio, along, low + points * (high - low))
        return dict(zip(names, np.clip(x, low, high).T, strict=True))

    def values(points: Float[Array, "k n"]) -> Float[Array, " k"]:
        try:
            found = objective(context_map.matrices(contexts(points)))
        except ContextError:
            if len(points) == 1:
                return np.array([np.inf])
            return np.concatenate([values(point[None]) for point in points])
        return np.where(np.isfinite(found), found, np.inf)

    points = qmc.Sobol(size, scramble=False).random(_POINTS)
    tried = values(points)
    options = {"xatol": 1e-9, "fatol": 1e-9, "maxiter": _STEPS * size}
    refined = [
        minimize(
            lambda point: float(values(np.asarray(point)[None])[0]),
            points[k],
            method="Nelder-Mead",
            bounds=[(0, 1)] * size,
            options=options,
        )
        for k in np.argsort(tried, kind="stable")[:_REFINED]
    ]
    best = min(refined, key=lambda one: float(one.fun))
    return {name: float(x[0]) for name, x in contexts(best.x[None]).items()}
