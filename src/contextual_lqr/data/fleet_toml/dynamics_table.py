"""The table [dynamics]: machines that are not linear, x' = Θ φ(context, x, u).

    [dynamics]
    features = ["angle", "speed", "sin(angle)/length", "torque/(mass*length**2)"]

or a list for each state, which then has these alone:

    [dynamics.features]
    angle = ["angle", "speed"]
    speed = ["speed", "sin(angle)/length", "torque/(mass*length**2)"]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import read_only, require
from contextual_lqr.context import FeatureDynamics
from contextual_lqr.context.expressions import parse
from contextual_lqr.context.variables import sampled_values, shown
from contextual_lqr.errors import ContextError

if TYPE_CHECKING:
    from contextual_lqr.data.fleet_toml.fleet_file import FleetFile

_SAMPLES = 8  # times the number of features: where a known row is fitted


def read_dynamics(
    file: FleetFile, bounds: Mapping[str, tuple[float, float]]
) -> FeatureDynamics | None:
    """The dynamics that [dynamics] describes, or None if something is wrong."""
    table = file.table("dynamics")
    if "context_map" in file.content:
        what = "[dynamics] already covers the features of contexts: leave [context_map] out"
        file.errors.add(("context_map",), what)
    if "prior" in file.content:
        what = "[prior] is about A and B, which machines of [dynamics] do not have: leave it out"
        file.errors.add(("prior",), what)
    if "features" not in table:
        file.errors.add(("dynamics",), "[dynamics] needs features, a list, or one for each state")
        return None
    made: FeatureDynamics | None = None
    with file.errors.at(("dynamics", "features")):
        made = FeatureDynamics(
            table["features"],
            states=[one.name for one in file.states],
            inputs=[one.name for one in file.inputs],
            bounds=bounds,
            allow_outside=True,
        )
    return made


def check_episode(
    file: FleetFile, dynamics: FeatureDynamics, horizon: int | None, start: Array
) -> None:
    """Whether a path can be planned: over a horizon, and from where features have values."""
    if horizon is None:
        what = "for machines of [dynamics] a path is planned: [task] needs a horizon"
        file.errors.add(("task",), f"{what}, the number of states in an episode")
    if "start" not in file.table("task") or len(file.errors):
        return
    bounds = {one.name: (one.low, one.high) for one in (*file.contexts, *file.inputs)}
    values = sampled_values(bounds, _SAMPLES, np.random.default_rng(0))
    begun = dict(zip(dynamics.state_names, file.made.at_rest(start).tolist(), strict=True))
    for feature in dynamics.expressions:
        if not np.isfinite(feature({**values, **begun})).any():
            own = {name: begun[name] for name in feature.names if name in begun}
            what = f"the feature '{feature.text}' has no value at this start, {shown(own)}"
            file.errors.add(("task", "start"), what)


def known_row_of(dynamics: FeatureDynamics, text: str, state: int) -> Array:
    """The row of Θ, (p,), for which the next value of a state is what `text` says.

    It is found by least squares at random places, and must be exact there.
    """
    expression, p = parse(text), dynamics.shape[0]
    moving, contexts = (*dynamics.state_names, *dynamics.input_names), dynamics.bounds or {}
    odd = [name for name in expression.names if name not in {*moving, *contexts}]
    require(not odd, f"'{text}' uses {', '.join(odd)}, which is not a state, input or context")
    rng = np.random.default_rng(0)
    n = _SAMPLES * (p + 1)
    values = sampled_values(contexts, n, rng)
    # Positive, where roots and logarithms have values.
    values |= dict(zip(moving, rng.uniform(0.1, 1.0, (len(moving), n)), strict=True))
    columns = [np.broadcast_to(feature(values), n) for feature in dynamics.expressions]
    phi, goal = np.stack(columns, 1), np.broadcast_to(expression(values), n)
    good = np.isfinite(phi).all(1) & np.isfinite(goal)
    if good.sum() <= p:
        raise ContextError(f"'{text}' or the features are undefined almost everywhere")
    phi, goal = phi[good], goal[good]
    own = np.ones(p, bool) if dynamics.used is None else dynamics.used[state]
    sizes = np.linalg.norm(phi[:, own], axis=0)
    sizes[sizes == 0] = 1
    found = np.linalg.lstsq(phi[:, own] / sizes, goal, rcond=1e-12)[0] / sizes
    scale = max(float(np.abs(goal).max()), 1e-300)
    require(
        np.abs(phi[:, own] @ found - goal).max() <= 1e-9 * scale,
        f"'{text}' is not a weighted sum of the features: a feature is missing",
    )
    found[np.abs(found) * sizes <= 1e-11 * np.linalg.norm(goal)] = 0.0  # rounding
    nearest = np.round(found, 12)
    row = np.zeros(p)
    row[own] = np.where(np.abs(nearest - found) <= 1e-12 * np.maximum(1, found), nearest, found)
    return read_only(row)
