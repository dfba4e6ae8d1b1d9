"""What the belief says to those who watch: Θ, whom to trust, who stands out, what to run next.

All of it is a function of what was learnt at one moment, and bounded: a map has at most 121
certificates, and their cost intervals are not proven (`bounds=False`), which the verdict does not
need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certify import certify_many
from contextual_lqr.certificates.experiment_design import rank_candidates, unexcited_directions
from contextual_lqr.certificates.prediction import predict_closed_loop
from contextual_lqr.checks import require, shown
from contextual_lqr.context.block import BlockContext
from contextual_lqr.context.columns import column_names
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.data.misfit import find_misfits
from contextual_lqr.errors import ContextualLQRError
from contextual_lqr.files import finite
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.study.fleets import description_of
from contextual_lqr.study.shown_log import NO_LABEL

Ranges = Mapping[str, tuple[float, float]]

SIDE, LINE = 11, 21  # cells of a map along each of two axes, or along one
TRIED = 20  # machines never tried, all over the range
MOST_STEPS = 400  # of an episode that are drawn
MOST_ALARM = 1000  # machines that are tested
MOST_KNOWN = 200  # machines that are thought of to be run next
_LISTED = 20


class NotYet(ContextualLQRError):
    """There is nothing to show, and why."""


@dataclass(frozen=True)
class Names:
    """What states and inputs are called, and the units of these and of contexts."""

    states: tuple[str, ...]
    inputs: tuple[str, ...]
    units: Mapping[str, str]
    contexts: dict[str, str]  # the units of their values, in the order of these
    drawn: tuple[bool, ...]  # of states and inputs: not what is constant, or past

    @classmethod
    def of(cls, description: str | None, d: int, m: int, contexts: Any) -> Names:
        """As the description has them; x1, …, u1, … where there is none."""
        states = tuple(f"x{i + 1}" for i in range(d))
        inputs = tuple(f"u{i + 1}" for i in range(m))
        fleet = description_of(description)
        if fleet is not None and (len(fleet.states), len(fleet.inputs)) == (d, m):
            drawn = tuple(one is not None for one in fleet.labels)
            own = {name: fleet.units.get(name, "") for name in fleet.context_names}
            return cls(fleet.state_names, fleet.input_names, fleet.units, own, drawn)
        return cls(states, inputs, {}, dict.fromkeys(contexts or (), ""), (True,) * (d + m))


@dataclass(frozen=True, eq=False)
class Seen:
    """What is believed at one moment, of which task, and which contexts machines have."""

    episodes: int
    decoder: Decoder
    cost: QuadraticCost
    start: Float[Array, " d"]
    input_bounds: tuple[Array, Array] | None
    names: Names
    machines: Mapping[str, Any]  # the context that each machine had last

    @property
    def ranges(self) -> Ranges:
        """The range of contexts: as declared or, where that is not bounded, as seen."""
        declared = self.decoder.context_map.bounds or {}
        contexts = [one for one in self.machines.values() if isinstance(one, Mapping)]
        found = {}
        for name in declared or dict.fromkeys(name for one in contexts for name in one):
            low, high = declared.get(name, (-math.inf, math.inf))
            seen = [one[name] for one in contexts if isinstance(one.get(name), Real)]
            if not math.isfinite(low):
                low = min((*seen, high))
            if not math.isfinite(high):
                high = max((*seen, low))
            if math.isfinite(low) and math.isfinite(high):
                found[name] = (float(low), float(high))
        if not found:
            raise NotYet("the contexts of this fleet have no named numbers to draw a map over")
        return found

    def require_rows(self) -> None:
        """There must be something to show."""
        if not self.decoder.rows:
            raise NotYet("no episode has been told yet")

    def certificates(self, contexts: Sequence[Any], labels: Any = None) -> list[Certificate]:
        """Of these machines; without proven intervals."""
        self.require_rows()
        none = np.full(len(self.names.inputs), np.inf)
        ends = zip(*(self.input_bounds or (-none, none)), strict=True)
        limits = dict(zip(self.names.inputs, ends, strict=True))
        options: Any = {"bounds": False, "input_bounds": limits}
        options |= {"states": self.names.states, "machine": labels, "beta": "regression"}
        return certify_many(self.decoder, contexts, self.cost, self.start, **options)


def theta(seen: Seen) -> dict[str, Any]:
    """Θ with its standard errors, and the directions that are still dark."""
    decoder, names = seen.decoder, (*seen.names.states, *seen.names.inputs)
    usual = column_names(decoder.context_map, decoder.estimate.shape[1], names)
    said = dict(zip(usual, _columns(decoder, usual, names), strict=True))
    dark = [
        replace(one, columns=tuple(said[name] for name in one.columns))
        for one in unexcited_directions(decoder, names)
    ]
    return {
        "rows": list(seen.names.states),
        "columns": list(said.values()),
        "estimate": finite(decoder.estimate),
        "error": finite(decoder.posterior.deviations),
        "known": list(decoder.known),
        "noise": finite(np.sqrt(np.diagonal(decoder.noise_estimate))),
        "steps": decoder.rows,
        "dark": [str(one) for one in dark],
    }


def _columns(decoder: Decoder, usual: Sequence[str], names: Sequence[str]) -> list[str]:
    """What each column of Θ multiplies; of the block form, by the one entry that its row has."""
    form = decoder.context_map
    if not isinstance(form, BlockContext) or form.C is None or callable(form.C) or callable(form.D):
        return list(usual)
    d, found = form.states or 0, []
    for part, offset in ((form.C, 0), (form.D, d)):
        for row in np.asarray(part, object):
            (entry, *more) = [f"{e} · {names[offset + j]}" for j, e in enumerate(row) if e != 0]
            if more:
                return list(usual)
            found.append(entry)
    return found


def spread(ranges: Ranges, count: int) -> list[dict[str, float]]:
    """So many contexts all over the range, always the same.

    Additive recurrence: point k is k (1/g, 1/g², …) modulo 1, with gⁿ⁺¹ = g + 1 for n names.
    """
    n, g = len(ranges), 2.0
    for _ in range(60):
        g = (1 + g) ** (1 / (n + 1))
    steps = g ** -np.arange(1.0, n + 1)
    shares = (0.5 + np.outer(np.arange(1, count + 1), steps)) % 1
    low, high = np.array(list(ranges.values())).T
    return one_by_one(dict(zip(ranges, (low + shares * (high - low)).T, strict=True)))


def trust(seen: Seen) -> dict[str, Any]:
    """How many of some machines never tried, all over the range, would be trusted."""
    verdicts = [one.verdict for one in seen.certificates(spread(seen.ranges, TRIED))]
    trusted = verdicts.count("trust")
    return {
        "trusted": trusted,
        "of": TRIED,
        "verdicts": {one: verdicts.count(one) for one in ("trust", "caution", "do not use")},
        "sentence": f"{trusted} of {TRIED} machines never tried would be trusted",
    }


def trust_map(
    seen: Seen, x: str | None = None, y: str | None = None, held: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Verdict and likely excess over one or two names of the context; the others are held.

    What is held is at the middle of its range, unless given.
    """
    ranges = seen.ranges
    names = list(ranges)
    x = names[0] if x is None else x
    y = next((one for one in names if one != x), None) if y is None else y
    for one in (one for one in (x, y, *(held or {})) if one is not None):
        require(one in ranges, f"no context is called {one!r}: there are {', '.join(names)}")
    require(x != y, f"a map needs two names, not {x!r} twice")
    at = {name: (low + high) / 2 for name, (low, high) in ranges.items() if name not in (x, y)}
    for name, value in (held or {}).items():
        require(isinstance(value, Real), f"{name} must be held at a number, not {shown(value)}")
        at |= {name: float(value)} if name in at else {}
    xs = np.linspace(*ranges[x], LINE if y is None else SIDE).tolist()
    ys: list[float | None] = [None] if y is None else np.linspace(*ranges[y], SIDE).tolist()
    contexts = [at | {x: i} | ({} if y is None else {y: j}) for j in ys for i in xs]
    found = seen.certificates(contexts)
    cells: list[dict[str, Any]] = [
        {"verdict": one.verdict, "excess": finite(one.likely_excess), "tried": 0} for one in found
    ]
    for context in seen.machines.values():
        place = _cell(context, (x, xs), (y, ys))
        if place is not None:
            cells[place]["tried"] += 1
    width = len(xs)
    return {
        "ranges": {name: list(pair) for name, pair in ranges.items()},
        "units": {name: seen.names.units.get(name, "") for name in ranges},
        "x": {"name": x, "values": xs},
        "y": None if y is None else {"name": y, "values": ys},
        "held": at,
        "cells": [cells[i : i + width] for i in range(0, len(cells), width)],
    }


def _cell(context: Any, *axes: tuple[str | None, Sequence[Any]]) -> int | None:
    """The cell of the map that a machine is nearest to, if it lies within."""
    place = 0
    for name, values in reversed(axes):
        if name is None:
            continue
        value = context.get(name) if isinstance(context, Mapping) else None
        if not isinstance(value, Real) or len(values) < 2:
            return None
        step = (values[-1] - values[0]) / (len(values) - 1) or 1.0
        k = round((float(value) - values[0]) / step)
        if not 0 <= k < len(values):
            return None
        place = place * len(values) + k
    return place


def look(seen: Seen, context: Any, machine: str | None = None) -> dict[str, Any]:
    """One machine in detail: verdict, gains, and the closed loop with the band of 90 %."""
    if seen.decoder.store is None:
        machine = None  # no machine has data of its own
    (one,) = seen.certificates([context], [machine])
    belief = seen.decoder.machine(context, machine)
    ran = predict_closed_loop(
        belief,
        seen.cost,
        seen.start,
        np.random.default_rng(0),
        policy=one.policy,
        input_bounds=seen.input_bounds,
        runs=300,
    )
    every = -(-seen.cost.horizon // MOST_STEPS)
    d = len(seen.names.states)
    lines = []
    for k, name in enumerate((*seen.names.states, *seen.names.inputs)):
        band, expected = ran.quantity(k)
        low, middle, high = finite(band[:, ::every])
        if seen.names.drawn[k]:
            unit, kind = seen.names.units.get(name, ""), "state" if k < d else "input"
            line = {"name": name, "unit": unit, "kind": kind}
            line |= {"low": low, "median": middle, "high": high}
            lines.append(line | {"expected": finite(expected[::every])})
    return {
        **one.as_dict(),
        "machine": machine,
        "every": every,
        "lines": lines,
        "states": list(seen.names.states),
        "inputs": list(seen.names.inputs),
        "gains": finite(np.asarray(ran.policy.gains)[::every]),
        "exploded": ran.exploded,
    }


def alarm(seen: Seen) -> dict[str, Any]:
    """Machines that stand out, the worst first."""
    seen.require_rows()
    store = seen.decoder.store
    if seen.decoder.population is None:
        return _silent("this study keeps no machines apart, so none can stand out")
    if store is not None and len(store) > MOST_ALARM:
        return _silent(f"the page tests at most {MOST_ALARM:,} machines; `fit` tests more")
    bounds = {name: pair for name, pair in seen.ranges.items() if pair[0] < pair[1]}
    found = find_misfits(
        seen.decoder, seen.cost, seen.start, states=seen.names.states, bounds=bounds
    )
    rows = [
        {
            "machine": one.label,
            "named": one.named,
            "reason": one.reason,
            "p_value": finite(one.p_value),
            "excess": finite(one.excess),
            "own_error": finite(one.local_error),
            "fleet_error": finite(one.fleet_error),
        }
        for one in found.machines[:_LISTED]
    ]
    named, count = len(found.named), len(found.machines)
    said = f"{named} of {count} machines stand{'s' if named == 1 else ''} out"
    return {"sentence": found.not_run or said, "named": named, "machines": rows}


def _silent(why: str) -> dict[str, Any]:
    return {"sentence": why, "named": 0, "machines": []}


def next_runs(seen: Seen) -> dict[str, Any]:
    """What one more run would save of the price of ignorance, on known machines and elsewhere."""
    seen.require_rows()
    anywhere = spread(seen.ranges, 50)
    known = list(seen.machines.items())[:MOST_KNOWN]
    everyone = [context for _, context in known] + anywhere
    ranked = rank_candidates(seen.decoder, everyone, seen.cost, seen.start, targets=anywhere)
    runs = [
        {
            "machine": (known[one.place][0] or NO_LABEL) if one.place < len(known) else None,
            "context": one.context,
            "saving": finite(one.saving),
        }
        for one in ranked
    ]
    return {
        "units": seen.names.contexts,
        "known": [one for one in runs if one["machine"] is not None][:5],
        "new": [one for one in runs if one["machine"] is None][:3],
    }
