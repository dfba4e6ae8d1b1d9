"""Reading [outputs] and [measured] of `fleet.toml`: what is measured, and the state made of it.

The columns of a log are those that are declared: states, disturbances, outputs. The states are
these and, of outputs and inputs, what they were some steps ago: `angle_2` is the angle two steps
before, or, with a spacing above 1, the mean of the past two spacings old. The next value of what is
past is known, and a disturbance is expected to stay as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.fading import keep_of
from contextual_lqr.data.description import Quantity
from contextual_lqr.data.histories.history import History

if TYPE_CHECKING:
    from contextual_lqr.data.fleet_toml.fleet_file import FleetFile

_KEYS = ("history", "input_history", "delay", "spacing")
_COUNTS = _KEYS[:3]
_MOST = 1000  # steps
AUTO = "auto"
_PROVISIONAL = 4  # outputs, until the logs say how many


class States(NamedTuple):
    """The states of a description, and which of them are columns of a log."""

    states: tuple[Quantity, ...]
    lags: tuple[tuple[str, int], ...]  # of each state its column, and how many stages ago
    tables: dict[str, str]  # where what is declared stands in the file
    equations: dict[str, str]  # what is known of the next values
    history: History | None

    @property
    def declared(self) -> tuple[Quantity, ...]:
        """Those that are what they are now: the first."""
        now = zip(self.states, self.lags, strict=True)
        return tuple(one for one, (_, lag) in now if lag == 0)

    def at_rest(self, declared: Array) -> Array:
        """The whole state, of a machine that has stood there for long without inputs."""
        values = dict(zip((one.name for one in self.declared), declared, strict=True))
        return np.array([values.get(column, 0.0) for column, _ in self.lags])

    def spread(self, weights: Array) -> Array:
        """Weights of what is declared as weights of all states: the past costs nothing."""
        k, d = len(weights), len(self.states)
        whole = np.zeros((d, d))
        whole[:k, :k] = weights
        return whole


def read_states(file: FleetFile, given: History | None) -> States:
    """[states], [measured] and [outputs]; the history `given`, if any, is the one."""
    plain = file.quantities("states")
    disturbances = tuple(replace(one, measured=True) for one in file.quantities("measured"))
    outputs = file.quantities("outputs", but=_KEYS)
    fixed = tuple(one for one in outputs if one.constant)
    outputs = tuple(one for one in outputs if not one.constant)
    declared = plain + fixed + disturbances + outputs
    if not declared:
        what = "the table [states] is missing, or [outputs] if the whole state is not measured"
        file.errors.add(("states",), what)
    tables = dict.fromkeys((one.name for one in plain), "states")
    tables |= dict.fromkeys((one.name for one in disturbances), "measured")
    tables |= dict.fromkeys((one.name for one in fixed + outputs), "outputs")
    equations = {one.name: one.name for one in declared if one.constant}
    equations |= {one.name: one.name for one in disturbances}
    states, lags = list(declared), [(one.name, 0) for one in declared]
    history = None
    if "outputs" in file.content:
        history = _history(file, given)
        past = history.input_history - 1 + history.delay
        fades = keep_of(history.spacing)
        sizes = (outputs, history.outputs - 1, 0), (file.inputs, past, history.delay)
        for many, steps, late in sizes:
            for lag in range(1, steps + 1):
                keep = 0.0 if lag <= late else fades  # what is on its way does not fade
                for one in many:
                    now, before = f"{one.name}_{lag}", f"{one.name}_{lag - 1}"
                    before = one.name if lag == 1 else before
                    states.append(replace(one, name=now, wraps=None))
                    lags.append((one.name, lag))
                    mixed = f"{keep!r} * {now} + {1 - keep!r} * {before}"
                    equations[now] = mixed if keep else before
    return States(tuple(states), tuple(lags), tables, equations, history)


def _history(file: FleetFile, given: History | None) -> History:
    table = file.table("outputs")
    asked = {key: _count(file, key, table.get(key), 0 if key == "delay" else 1) for key in _COUNTS}
    spacing = _spacing(file, table.get("spacing", AUTO if asked["history"] == AUTO else 1))
    if given is not None:
        return given
    auto = tuple(key for key in ("history", "delay") if asked[key] == AUTO)
    auto += ("spacing",) * (spacing is None)
    n = _PROVISIONAL if asked["history"] == AUTO else int(asked["history"])
    r = n if asked["input_history"] == AUTO else int(asked["input_history"])
    delay = 0 if asked["delay"] == AUTO else int(asked["delay"])
    return History(n, r, delay, auto, asked["input_history"] != AUTO, spacing or 1.0)


def _spacing(file: FleetFile, value: Any) -> float | None:
    """As given; None if the logs are to tell."""
    if value == AUTO:
        return None
    if type(value) in (int, float) and 1 <= value <= _MOST:
        return float(value)
    wanted = f'a number from 1 to {_MOST} or "auto"'
    file.errors.wrong(("outputs", "spacing"), "spacing", wanted, value)
    return None


def _count(file: FleetFile, key: str, value: Any, least: int) -> int | str:
    if value is None or (value == AUTO and key != "input_history"):
        return AUTO
    if type(value) is int and least <= value <= _MOST:
        return value
    words = "" if key == "input_history" else ' or "auto"'
    wanted = f"a whole number from {least} to {_MOST}{words}"
    file.errors.wrong(("outputs", key), key, wanted, value)
    return AUTO
