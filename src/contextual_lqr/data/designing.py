"""Controllers from a fitted fleet: for its task, or for another without fitting anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certify import certify_many
from contextual_lqr.checks import as_numbers, as_symmetric, require, require_semi_definite
from contextual_lqr.data.description import FleetDescription, Quantity
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.stationary import Cost

if TYPE_CHECKING:
    from contextual_lqr.data.fitting import FittedFleet

Weights = Mapping[str, float] | ArrayLike


def design_many(
    fitted: FittedFleet,
    contexts: Sequence[Any] | Mapping[str, Any],
    description: FleetDescription | None = None,
    cost: Cost | None = None,
    start: ArrayLike | None = None,
    **options: Any,
) -> list[Certificate]:
    """Certificates for machines of a fitted fleet; where too many stand out, none is trusted."""
    task = fitted.description if description is None else description
    if not fitted.decoder.rows:
        raise InputError("the fleet has learnt from no log yet: fit one first")
    found = certify_many(
        fitted.decoder,
        contexts,
        task.cost if cost is None else cost,
        task.start if start is None else start,
        **{"beta": "regression", "input_bounds": task.input_bounds, "states": task.state_names}
        | options,
    )
    doubt = fitted.doubt
    return [
        replace(one, verdict="caution", reason=f"{doubt}; {one.reason}")
        if doubt and one.verdict == "trust"
        else one
        for one in found
    ]


def retuned(
    task: FleetDescription,
    Q: Weights | None = None,
    R: Weights | None = None,
    target: Mapping[str, float] | Array | None = None,
    horizon: int | None = None,
) -> FleetDescription:
    """The same fleet with other weights, another target or another horizon.

    Weights are numbers in order, by name (the others are then 0), or a matrix. A target is by name,
    held throughout, or a row a step; it needs a horizon, and a state that is always 1.
    """
    changes: dict[str, Any] = {}
    if Q is not None:
        changes["Q"] = changes["final_Q"] = _matrix("Q", Q, task.states)
    if R is not None:
        changes["R"] = R_new = _matrix("R", R, task.inputs)
        scale = np.linalg.eigvalsh(R_new)
        require(scale[0] > 1e-12 * scale[-1], "R is singular: every input must cost something")
    task = replace(task, **changes)
    if horizon is not None:
        task = task.with_horizon(horizon)
    if target is None:
        return task
    require(
        task.horizon is not None and any(one.constant for one in task.states),
        "a target needs a horizon, and a state that is always 1",
    )
    assert task.horizon is not None
    if isinstance(target, Mapping):
        known = {one.name for one in task.states if not one.constant}
        require(target.keys() <= known, f"a target is for states: {', '.join(sorted(known))}")
        rows = [[float(target.get(one.name, 0.0)) for one in task.states]]
    else:
        rows = as_numbers("target", target, "(H, d)", 2).tolist()
    targets = np.array(rows)[np.minimum(np.arange(task.horizon), len(rows) - 1)]
    return replace(task, targets=targets)


def _matrix(name: str, given: Weights, over: tuple[Quantity, ...]) -> Array:
    names = [one.name for one in over]
    if isinstance(given, Mapping):
        odd = [one for one in given if one not in names]
        require(not odd, f"{name} has an unknown name, {odd[:1]}; there are {', '.join(names)}")
        given = [float(given.get(one, 0.0)) for one in names]
    weights = as_numbers(name, given, "(n,) or (n, n)", 1)
    weights = np.diag(weights) if weights.ndim == 1 else weights
    n = len(over)
    listed = f"{n} numbers ({', '.join(names)})"
    require(weights.shape == (n, n), f"{name} must be {listed}, or a matrix of {n} by {n}")
    weights = as_symmetric(name, weights)
    require_semi_definite(name, weights)
    return weights
