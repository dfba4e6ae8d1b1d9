"""Disturbances at design time: what they are now, and how they will change over an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import as_number, as_numbers, read_only, require, shown
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.errors import InputError


def read_forecast(path: Path, task: FleetDescription) -> tuple[dict[str, Array], list[str]]:
    """Disturbances by name, from a table with a row a step; and what was made of their units."""
    from contextual_lqr.data.given_tables import read_given

    table = read_given(path, task.layout, ("step", *task.measured_names))
    found = dict(table.columns)
    steps = found.pop("step", np.arange(1.0))
    require(
        bool((np.diff(steps) == 1).all()),
        f"{path} needs a row for each step, in order, but its column 'step' does not rise by 1",
    )
    for name in table.others:
        raise InputError(
            f"{path} has the column '{name}', which is not a disturbance; {_there_are(task)}"
        )
    require(found, f"{path} has no column that is a disturbance; {_there_are(task)}")
    return found, table.said


def as_forecast(given: Any, task: FleetDescription) -> dict[str, Array] | None:
    """A forecast by names of disturbances, for the steps of the task."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise InputError(
            f"a forecast has values by name: {{'outdoor': [5.0, 4.5, ...]}}, not {shown(given)}"
        )
    require(
        task.horizon is not None,
        "a forecast is for the steps of an episode, but the task has no horizon: a constant gain "
        "uses what is measured now, and ignores what is to come; give a horizon",
    )
    assert task.horizon is not None
    steps, found = task.horizon - 1, {}
    for name, values in given.items():
        require(
            name in task.measured_names,
            f"there is no disturbance {shown(name)} to forecast; {_there_are(task)}",
        )
        found[name] = column = as_numbers(f"the forecast of {name}", values, "(steps,)", 1)
        require(
            column.shape in ((steps,), (steps + 1,)),
            f"the forecast of {name} has {len(column)} values, but an episode of horizon "
            f"{task.horizon} has {steps} steps: one for each (an extra one at the end is allowed)",
        )
    require(
        any(one.constant for one in task.states),
        "a forecast needs a state that is always 1: add one = { constant = true } to [outputs] or "
        "[states]",
    )
    return found


def with_measured(task: FleetDescription, values: Mapping[str, float]) -> FleetDescription:
    """The same task, where disturbances start at these values."""
    start = task.start.copy()
    for name, value in values.items():
        require(
            name in task.measured_names,
            f"there is no disturbance {shown(name)}; {_there_are(task)}",
        )
        start[task.state_names.index(name)] = as_number(name, value)
    return replace(task, start=read_only(start))


def _there_are(task: FleetDescription) -> str:
    names = ", ".join(task.measured_names)
    return f"there is {names}" if names else "the fleet has none: they are declared in [measured]"
