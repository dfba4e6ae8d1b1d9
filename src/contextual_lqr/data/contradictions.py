"""What [known] says and the logs contradict, and by how much: equations and integrals.

If p is the integral of v, then over a period T, whatever moves v meanwhile,

    p' - p = T (v + v')/2 + e,    |e| ≤ T |v' - v|/2    as long as v only rises or only falls in it

so e, as far as it follows from [x; u], is held against that bound and the noise of p. Euler's rule,
p' = p + T v, is the extreme of what is allowed: v jumps at the end of the period.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machines.machine_store import MachineStore
from contextual_lqr.certificates.model_tests.unmodelled import findings_of
from contextual_lqr.context import Dynamics
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.known_dynamics import known_row
from contextual_lqr.errors import InputError

CHANCE = 1.25  # how far beyond its bound the error of an integral may be in few rows
ROUNDING = 1e-12  # of a position that may be far from 0


def contradicted(about: FleetDescription, decoder: Decoder) -> list[str]:
    """In words, for all that was written down; shifts and disturbances were not."""
    stay, said = about.context_map.persistence, _no_integrals(about, decoder)
    for one in findings_of(decoder):
        if one.kind != "known row" or about.states[one.state].constant:
            continue
        row = about.known[one.state]
        if stay is not None and np.allclose(row, stay[one.state], rtol=0, atol=1e-12):
            continue  # a disturbance, which is only expected to stay
        state = about.states[one.state]
        unit = f" {state.unit}" if state.unit else ""
        said.append(
            f"the known equation of {state.name} is contradicted: off by {one.size:.3g}{unit} "
            f"in a step (root mean square), {one.effect:.0%} of what it leaves; is it exact?"
        )
    return said


def _no_integrals(about: FleetDescription, decoder: Decoder) -> list[str]:
    store, said = decoder.store, list[str]()
    if store is None or not store.rows or not about.rates:
        return said
    if isinstance(about.context_map, Dynamics):
        return said  # whose factors are of features
    factors, rows = store.own_factors(), store.rows  # of [x, u, x']
    y = len(about.states) + len(about.inputs)
    noise = np.sqrt(np.diagonal(decoder.noise_estimate))
    for name, rate in about.rates.items():
        i, j = about.state_names.index(name), about.state_names.index(rate)
        p, v = factors[..., i], factors[..., j]
        move, mean = factors[..., y + i] - p, v / 2 + factors[..., y + j] / 2
        period, T = about.layout.period, _periods(about, store, rate)
        told = T is not None
        if T is None:  # it is what fits best: of each machine, if they differ in it
            axes = 1 if isinstance(period, str) else (0, 1)
            size = np.square(mean).sum(axes, keepdims=True)
            fits = (move * mean).sum(axes, keepdims=True) / np.where(size > 0, size, 1.0)
            T = np.maximum(fits, 0.0)
        # The rows of [x, u] in a triangular factor hold what follows from them.
        off = _rms((move - T * mean)[:, :y], rows)
        bend = _rms(T * (factors[..., y + j] - v) / 2, rows)
        if off <= CHANCE * (bend + noise[i]) + ROUNDING * _rms(p, rows):
            continue
        unit = f" {about.states[i].unit}" if about.states[i].unit else ""
        by = "whatever the period"
        if told:
            size = float(np.square(T * mean).sum())
            times = float((move * T * mean).sum()) / size if size else 0.0
            of = period if isinstance(period, str) else f"{period:g} s"
            by = f"{times:.3g} times what {rate} makes of {of}; are units and period right?"
        said.append(
            f"{name} is not the integral of {rate}: off by {off:.3g}{unit} in a step (root mean "
            f"square); it moves {_rms(move, rows):.3g}{unit}, {by}"
        )
    return said


def _periods(
    about: FleetDescription, store: MachineStore, rate: str
) -> float | Float[Array, "n 1"] | None:
    """A period in seconds, of all machines or of each; None if it is not known."""
    period = about.layout.period
    if not isinstance(period, str):
        return period
    # Contexts are kept as G: of which what the period makes of the rate is linear, if it can be.
    columns = about.state_names, about.input_names
    try:
        row = known_row(f"{period} * {rate}", *columns, about.contexts, about.context_map)
    except InputError:
        return None
    made = row @ store.matrices(about.context_map)
    return np.asarray(made[:, about.state_names.index(rate), None])


def _rms(values: Float[Array, "n k"], rows: int) -> float:
    """Over the rows of logs, by factors of them."""
    return float(np.linalg.norm(values) / np.sqrt(rows))
