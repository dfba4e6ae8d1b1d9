"""What is to be held, of [cost] in `fleet.toml`:

target = { angle = 1.0 }      some states at a value; a list is for all, a number for the only one
target = "path.csv"           a row a step, a column a state
integral = ["angle"]          states without a steady error; or { angle = 0.01 }, with weights
angles = ["angle"]            states of [dynamics], in radians, that wrap
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.data.description import Quantity

if TYPE_CHECKING:
    from contextual_lqr.data.fleet_toml.fleet_file import FleetFile

_TARGET, _INTEGRAL = ("cost", "target"), ("cost", "integral")


def read_target(file: FleetFile, horizon: int | None) -> tuple[Array | None, dict[str, float]]:
    """The targets of an episode's states, (H, d), and what is held at a constant value."""
    given = file.table("cost").get("target")
    if given is None:
        return None, {}
    linear = "dynamics" not in file.content
    if horizon is not None and linear and not any(one.constant for one in file.states):
        what = "a target needs a state that is always 1: add one = { constant = true }"
        file.errors.add(_TARGET, f"{what} to [states]")
    if not isinstance(given, str):
        held = _held(file, given)
        rows = 1 if horizon is None else horizon
        values = np.array([[held.get(one.name, 0.0) for one in file.states]] * rows)
        return None if horizon is None else values, held
    targets = file.given_targets
    if horizon is None:
        what = "a target that changes step by step needs a horizon in [task]"
        file.errors.add(_TARGET, f"{what}; a constant one is written target = {{ name = 1.0 }}")
    elif targets is None:
        with file.errors.at(_TARGET):
            targets = read_targets(file.folder / given, file.declared)
    if targets is None:
        return None, {}
    if len(targets) != horizon:
        what = f"target has {len(targets)} rows, but the horizon is {horizon}"
        file.errors.add(_TARGET, what)
    return np.pad(targets, ((0, 0), (0, len(file.states) - targets.shape[1]))), {}


def read_integral(file: FleetFile) -> dict[str, float | None]:
    """The states whose distance to the target is summed up, and their weights where given."""
    given = file.table("cost").get("integral", [])
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        found: dict[str, float | None] = dict.fromkeys(given)
    elif isinstance(given, dict):
        found = {
            name: file.number(_INTEGRAL, f"integral of {name}", weight, positive=True)
            for name, weight in given.items()
        }
    else:
        wanted = "a list of names of states, or their weights"
        file.errors.wrong(_INTEGRAL, "integral", wanted, given)
        return {}
    _require_moving(file, _INTEGRAL, "integral", found)
    return found


def read_angles(file: FleetFile) -> tuple[int, ...]:
    """The states, counted from 0, that are angles which wrap."""
    place, given = ("cost", "angles"), file.table("cost").get("angles", [])
    if not (isinstance(given, list) and all(isinstance(name, str) for name in given)):
        file.errors.wrong(place, "angles", "a list of names of states", given)
        return ()
    if given and "dynamics" not in file.content:
        what = "angles wrap for machines of [dynamics]; a linear machine has no turns"
        file.errors.add(place, what)
    _require_moving(file, place, "angles", dict.fromkeys(given))
    return tuple(i for i, one in enumerate(file.states) if one.name in given)


def _held(file: FleetFile, given: Any) -> dict[str, float]:
    names = [one.name for one in file.declared if not one.constant]
    if not isinstance(given, dict):
        values = given if isinstance(given, list) else [given]
        if len(values) != len(names):
            what = f"the name of a file, some states by name, or {len(names)} numbers"
            file.errors.wrong(_TARGET, "target", what, given)
            return {}
        given = dict(zip(names, values, strict=True))
    _require_moving(file, _TARGET, "target", given)
    return {n: file.number(_TARGET, f"target of {n}", value) for n, value in given.items()}


def _require_moving(
    file: FleetFile, place: tuple[str, str], what: str, given: dict[str, Any]
) -> None:
    names = [one.name for one in file.declared if not one.constant]
    for name in given:
        if name not in names:
            said = f"{what}: there is no state '{name}' that moves; there are {', '.join(names)}"
            file.errors.add(place, said)


def read_targets(path: Path, states: tuple[Quantity, ...]) -> Array:
    """One row a step, a column for each state that has a target; 0 for the others."""
    from contextual_lqr.data.given_tables import read_numbers

    table = read_numbers(path)
    known = {one.name: i for i, one in enumerate(states) if not one.constant}
    names = [name for name in table if name != "step"]
    unknown = [name for name in names if name not in known]
    require(not unknown, f"{path} has columns that are not states: {', '.join(unknown)}")
    require(names, f"{path} has no column that is a state")
    targets = np.zeros((len(table[names[0]]), len(states)))
    for name in names:
        targets[:, known[name]] = table[name]
    return targets
