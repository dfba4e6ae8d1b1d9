"""Reading [prior] of `fleet.toml`: what is known beforehand of one machine, and of all.

An entry of [A, B] that is known for every machine, g(c) for the context c, is a condition on Θ:
θ_r G(c)[:, j] = g(c) at all contexts, of which a few tell a basis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.logged import middle_of, range_of
from contextual_lqr.belief.prior import Prior
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap
from contextual_lqr.context.expressions import parse
from contextual_lqr.data.known_dynamics import sampled_contexts

if TYPE_CHECKING:
    from contextual_lqr.data.fleet_toml.fleet_file import FleetFile

_NEEDS = "give its scale, such as scale = 0.1, or finite bounds"


def read_scales(file: FleetFile, regularisation: float | None) -> Float[Array, " y"] | None:
    """The typical sizes of states and inputs, if one is given or a prior needs them."""
    moving = [("states", one) for one in file.states] + [("inputs", one) for one in file.inputs]
    given = [(kind, one.name) for kind, one in moving if one.scale is not None]
    if not given and "prior" not in file.content:
        return None
    if regularisation is not None:
        what = "regularisation says what a prior or scales say in natural sizes: leave it out"
        file.errors.add(("learning", "regularisation"), what)
    for kind, one in moving:
        if one.size is None:
            why = "[prior] needs" if not given else "one scale is given, which needs"
            what = f"{why} the typical size of {one.name} too: {_NEEDS}"
            file.errors.add((kind, one.name), what)
    return np.array([one.size or 1.0 for _, one in moving])


def read_prior(
    file: FleetFile, context_map: ContextMap, scales: Float[Array, " y"] | None
) -> Prior | None:
    """The prior that [prior] describes, if there is such a table."""
    table, d, m = file.table("prior"), len(file.states), len(file.inputs)
    if "prior" not in file.content or scales is None or not d or not m:
        return None
    if "dynamics" in file.content:
        return None  # which was refused
    before = len(file.errors)
    given = [key for key in ("A", "B", "context") if key in table]
    if given and len(given) < 3:
        lacks = ", ".join(key for key in ("A", "B", "context") if key not in given)
        file.errors.add(("prior",), f"a nominal machine is A, B and context: {lacks} is missing")
    if not given and "entries" not in table:
        file.errors.add(("prior",), "[prior] needs A, B and context of a machine, or entries")
    if not given and "off" in table:
        file.errors.add(("prior", "off"), "off is how far A and B may be off, but there are none")
    off = file.number(("prior", "off"), "off", table.get("off", 0.3), positive=True)
    A, B = (_matrix(file, key, table.get(key), d, n) for key, n in (("A", d), ("B", m)))
    if len(file.errors) > before:
        return None
    prior: Prior | None = None
    with file.errors.at(("prior",)):
        if given:
            prior = Prior.nominal(context_map, A, B, table["context"], scales, off)
        else:
            matrices = context_map.matrices(sampled_contexts(file.contexts))
            law = context_map.persistence
            law = np.zeros((d, matrices.shape[1])) if law is None else law
            prior = Prior.natural(middle_of(*range_of(matrices)), scales, law)
    if prior is None:
        return None
    return _with_entries(file, prior, context_map)


def _matrix(file: FleetFile, key: str, rows: Any, d: int, n: int) -> Float[Array, "d n"]:
    if rows is None:
        return np.zeros((d, n))
    place = ("prior", key)
    if (
        not isinstance(rows, list)
        or len(rows) != d
        or any(not isinstance(row, list) or len(row) != n for row in rows)
    ):
        file.errors.add(place, f"{key} must be a list of {d} rows, each of {n} numbers")
        return np.zeros((d, n))
    return np.array([[file.number(place, f"an entry of {key}", x) for x in row] for row in rows])


def _with_entries(file: FleetFile, prior: Prior, context_map: ContextMap) -> Prior:
    states = [one.name for one in file.states]
    moving = states + [one.name for one in file.inputs]
    entries = file.table("prior").get("entries", {})
    shape = "a table by next state, such as velocity = { position = 0.0 }"
    if not isinstance(entries, dict):
        file.errors.add(("prior", "entries"), f"entries must be {shape}")
        return prior
    for state, row in entries.items():
        place = ("prior", "entries", state)
        if state not in states or not isinstance(row, dict):
            file.errors.add(place, f"entries must be {shape}; the states are {', '.join(states)}")
            continue
        for name, value in row.items():
            if name not in moving:
                known = ", ".join(moving)
                file.errors.add(place, f"there is no state or input '{name}'; there are {known}")
                continue
            with file.errors.at(place, f"{name}: "):
                text = value if isinstance(value, str) else repr(file.number(place, name, value))
                at = states.index(state), moving.index(name)
                prior = _knowing(file, prior, context_map, *at, text)
    return prior


def _knowing(
    file: FleetFile, prior: Prior, context_map: ContextMap, r: int, j: int, text: str
) -> Prior:
    """The prior once entry (r, j) of [A, B] is what the text says, at every context."""
    expression = parse(text)
    names = [one.name for one in file.contexts]
    odd = [name for name in expression.names if name not in names]
    require(not odd, f"'{text}' uses {', '.join(odd)}, which is not a context")
    contexts = sampled_contexts(file.contexts)
    G = context_map.matrices(contexts)[:, :, j]
    wanted = np.broadcast_to(expression(contexts), len(G)).astype(float)
    require(np.isfinite(wanted).all(), f"'{text}' is not finite everywhere within the bounds")
    sizes = np.sqrt(np.square(G).sum(0))
    sizes = np.where(sizes > 0, sizes, 1.0)
    U, q, directions = np.linalg.svd(G / sizes, full_matrices=False)
    real = q > 1e-9 * q[0]
    values = U[:, real].T @ wanted
    require(
        np.abs(U[:, real] @ values - wanted).max() <= 1e-9 * max(np.abs(wanted).max(), 1e-300),
        f"'{text}' cannot be written as Θ G(context) with this context map: a feature is missing",
    )
    for direction, value in zip(directions[real], values / q[real], strict=True):
        prior = prior.knowing(r, direction * sizes, value)
    return prior
