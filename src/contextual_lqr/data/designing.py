"""Controllers from a fitted fleet: for its task, or for another without fitting anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.certificates.certificate import Certificate, counted, judge
from contextual_lqr.certificates.certify import certify_many
from contextual_lqr.certificates.extrapolation import extrapolations
from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.checks import as_numbers, as_symmetric, require, require_semi_definite
from contextual_lqr.context import Dynamics
from contextual_lqr.data.description import FleetDescription, Quantity
from contextual_lqr.data.forecast import as_forecast, with_measured
from contextual_lqr.deployment.controller import Controller
from contextual_lqr.deployment.task import Task
from contextual_lqr.deployment.trial import tried
from contextual_lqr.errors import InputError, UnsolvableError
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.stationary import Cost, StationaryCost

if TYPE_CHECKING:
    from contextual_lqr.data.fitted_fleet import FittedFleet

Weights = Mapping[str, float] | ArrayLike

BESIDE = 1e-3  # of a target: what may be off by less is not worth a word
_DRAWS = 200  # on which a loop with integrators is tried


def design_many(
    fitted: FittedFleet,
    contexts: Sequence[Any] | Mapping[str, Any],
    description: FleetDescription | None = None,
    cost: Cost | None = None,
    start: ArrayLike | None = None,
    measured: Mapping[str, float] | None = None,
    forecast: Mapping[str, ArrayLike] | None = None,
    **options: Any,
) -> list[Certificate]:
    """Certificates for machines of a fitted fleet; where too many stand out, none is trusted.

    `measured` and `forecast` are of disturbances: what they are now, or at each step.
    """
    task = fitted.description if description is None else description
    if start is not None:
        task = replace(task, start=as_numbers("start", start, "(d,)", 1))
    if isinstance(cost, QuadraticCost):
        task = task.with_horizon(cost.horizon)
    ahead = as_forecast(forecast, task)
    if twice := sorted({*(measured or ())} & {*(ahead or ())}):
        raise InputError(f"{twice[0]} is both measured and forecast: a forecast begins with now")
    task = with_measured(task, measured or {})
    if not fitted.decoder.rows:
        raise InputError("the fleet has learnt from no log yet: fit one first")
    limits = task.input_bounds
    if task.runs_to_a_set_point and cost is None:  # `_held` counts them: here they are but names
        limits = dict.fromkeys(limits, (-np.inf, np.inf))
    found = certify_many(
        fitted.decoder,
        contexts,
        task.cost if cost is None else cost,
        task.start,
        forecast=ahead,
        **{"beta": "regression", "input_bounds": limits, "states": task.state_names} | options,
    )
    if cost is None and task.runs_to_a_set_point:
        duty, labels = task.control_task(), options.get("machine") or [None] * len(found)
        pairs, hedge = zip(found, labels, strict=True), hedge_of(fitted, task)
        found = [_held(fitted, duty, hedge, one, label, task.start) for one, label in pairs]
    return doubted(fitted, found)


def doubted(fitted: FittedFleet, found: list[Certificate]) -> list[Certificate]:
    """No trust where many machines stand out."""
    doubt = fitted.doubt
    return [
        replace(one, verdict="caution", reason=f"{doubt}; {one.reason}")
        if doubt and one.verdict == "trust"
        else one
        for one in found
    ]


def hedge_of(
    fitted: FittedFleet, task: FleetDescription, cost: StationaryCost | None = None
) -> float:
    """By how much of what is unknown the constant gains of a task hedge, as certificates do."""
    weights = task.long_run_cost if cost is None else cost
    return fleet_check(fitted.decoder, weights, task.start).hedge


def _held(
    fitted: FittedFleet, task: Task, hedge: float, one: Certificate, label: str | None, start: Array
) -> Certificate:
    """With what set-point, integrators and limits do, on posterior draws."""
    belief = fitted.decoder.machine(one.context, label)
    try:
        made = Controller.of(belief, task, hedge)
    except (InputError, UnsolvableError) as error:
        return replace(one, verdict="do not use", reason=f"{error}; {one.reason}")
    rng = np.random.default_rng(0)
    found = tried(made, belief.draw(_DRAWS, rng), start, rng)
    # Both the plain gain and that with integrators are in doubt: the sum is never too little.
    excess = one.likely_excess + found.excess
    grows = max(found.growing, one.instability)
    verdict, reason = judge(True, excess, grows, one.extrapolation)
    order = ("trust", "caution", "do not use")
    if order.index(verdict) > order.index(one.verdict):
        one = replace(one, verdict=verdict, reason=f"with its integrators: {reason}; {one.reason}")
    one = replace(one, likely_excess=excess, instability=grows)
    return _beside(counted(one, found.saturation, ""), task, found.missed)


def _beside(one: Certificate, task: Task, missed: Array) -> Certificate:
    """How far beside its target the machine may rest, said where there is no integral."""
    far = [
        f"{name} may settle {off:.2g} away from {target:.4g}"
        for name, off, target in zip(task.held_names, missed, task.target, strict=True)
        if off > BESIDE * abs(target)
    ]
    if not far:
        return one
    said = f"without an integral {', '.join(far)}"
    return replace(one, reason=f"{one.reason}; {said}")


def controller_for(
    fitted: FittedFleet,
    context: Any,
    machine: str | None,
    cost: StationaryCost | None = None,
    target: Any = None,
    integral: Any = None,
) -> Controller:
    """The controller that runs on and on on a machine within the bounds and the data."""
    decoder = fitted.decoder
    belief, outside = decoder.machine(context, machine), decoder.context_map.outside(context)
    require(not outside, f"{outside}: no controller is made for it")
    task = fitted.description.control_task(cost, target=target, integral=integral)
    made = Controller.of(belief, task, hedge_of(fitted, fitted.description, cost))
    G, moments = decoder.context_map.matrix(context), made.moments(decoder.noise_estimate)
    (far,) = extrapolations(decoder, G[None], moments[None])
    require(far.place != "outside the data", f"{far}: no controller is made for it")
    return made


def retuned(
    task: FleetDescription,
    Q: Weights | None = None,
    R: Weights | None = None,
    target: Mapping[str, float] | Array | None = None,
    horizon: int | None = None,
    integral: Sequence[str] | Mapping[str, float] | None = None,
) -> FleetDescription:
    """The same fleet with other weights, another target or another horizon.

    Weights are numbers in order, by name (the others are then 0), or a matrix. A target is by name,
    held throughout, or a row a step of an episode, which needs a state that is always 1. Integrals
    are of states by name, with weights if they are given.
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
    if integral is not None:
        weights = integral if isinstance(integral, Mapping) else dict.fromkeys(integral)
        task = replace(task, integral=dict(weights))
    if target is None:
        return task
    if isinstance(target, Mapping):
        task = replace(task, set_point=dict(target))
    if task.horizon is None:
        require(isinstance(target, Mapping), "a target with one row per step needs a horizon")
        return task
    require(
        isinstance(task.context_map, Dynamics) or any(one.constant for one in task.states),
        "the target of an episode needs a state that is always 1",
    )
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
