"""Reading `fleet.toml`:

    [states], [inputs], [contexts]    names, in order, each with its unit and bounds
    [context_map]                     kind "features" or "block"
    [task]                            horizon, start
    [cost]                            Q, R, final_Q, target
    [learning]                        noise_level, regularisation
    [known]                           rows of [A, B] that need not be learnt

All that is wrong is said at once, with line numbers.
"""

from __future__ import annotations

import math
import re
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import as_symmetric, read_only, require, require_semi_definite
from contextual_lqr.context import BlockContext, ContextMap, FeatureContext
from contextual_lqr.context.expressions import RESERVED
from contextual_lqr.data.description import FleetDescription, Quantity
from contextual_lqr.data.known_dynamics import known_row
from contextual_lqr.data.toml_errors import Faults, parse_toml
from contextual_lqr.errors import ContextError

COLUMNS = ("episode", "step", "machine")
"""What other columns of a log are called."""

_TABLES = {
    "states": None,  # any names
    "inputs": None,
    "contexts": None,
    "context_map": ("kind", "features", "C", "D"),
    "task": ("horizon", "start"),
    "cost": ("Q", "R", "final_Q", "target"),
    "learning": ("noise_level", "regularisation"),
    "known": None,
}
_OPTIONAL = ("known",)


class Reader:
    """Reads one text, and collects what is wrong with it."""

    def __init__(self, text: str, name: str, folder: Path, targets: Array | None) -> None:
        self.text, self.folder, self.given_targets = text, folder, targets
        self.faults = Faults(name, text)
        self.content = parse_toml(text, name)

    def description(self, horizon: int | None) -> FleetDescription:
        """What the text describes, or all that is wrong with it."""
        self._check_tables()
        self.states, self.inputs, self.contexts = (
            self._quantities(kind) for kind in ("states", "inputs", "contexts")
        )
        self._check_names()
        self.d, self.m = len(self.states), len(self.inputs)
        context_map = self._context_map()
        horizon = horizon or self._whole("task", "horizon", 2)
        start = self._start()
        Q, R = self._weights("Q", self.states), self._weights("R", self.inputs)
        final_Q = Q
        if "final_Q" in self._table("cost"):
            final_Q = self._weights("final_Q", self.states)
        targets = self._targets(horizon)
        noise_level = self._positive("learning", "noise_level", None)
        regularisation = self._positive("learning", "regularisation", noise_level**2)
        known = {} if context_map is None else self._known(context_map)
        self.faults.raise_if_any()
        assert context_map is not None
        return FleetDescription(
            text=self.text,
            states=self.states,
            inputs=self.inputs,
            contexts=self.contexts,
            context_map=context_map,
            horizon=horizon,
            start=read_only(start),
            Q=read_only(Q),
            final_Q=read_only(final_Q),
            R=read_only(R),
            targets=None if targets is None else read_only(targets),
            noise_level=noise_level,
            regularisation=regularisation,
            known=known,
        )

    # -- names -------------------------------------------------------------------------------------

    def _table(self, name: str) -> dict[str, Any]:
        table = self.content.get(name, {})
        return table if isinstance(table, dict) else {}

    def _check_tables(self) -> None:
        for name in self.content:
            if name not in _TABLES:
                self.faults.add((name,), f"[{name}] is unknown; there are {', '.join(_TABLES)}")
        for name, fields in _TABLES.items():
            if name not in self.content:
                if name not in _OPTIONAL:
                    self.faults.add((name,), f"the table [{name}] is missing")
            elif not isinstance(self.content[name], dict):
                self.faults.add((name,), f"{name} must be a table, [{name}]")
            else:
                for key in self._table(name):
                    if fields is not None and key not in fields:
                        known = ", ".join(fields)
                        self.faults.add(
                            (name, key), f"{key} is unknown in [{name}]; it has {known}"
                        )

    def _quantities(self, kind: str) -> tuple[Quantity, ...]:
        table = self._table(kind)
        if not table and isinstance(self.content.get(kind), dict):
            self.faults.add((kind,), f"[{kind}] is empty: at least one is needed")
        return tuple(self._quantity(kind, name, about) for name, about in table.items())

    def _quantity(self, kind: str, name: str, about: Any) -> Quantity:
        place = (kind, name)
        fields = ("unit", "low", "high", *(("constant",) if kind == "states" else ()))
        if isinstance(about, str):  # position = "m" is short for { unit = "m" }
            about = {"unit": about}
        if not isinstance(about, dict) or not about.keys() <= set(fields):
            what = f"{name} must be a unit, or a table of {', '.join(fields)}, not {about!r}"
            self.faults.add(place, what)
            return Quantity(name)
        constant = about.get("constant", False)
        low, high = (
            self._number(place, f"{end} of {name}", about.get(end, default))
            for end, default in (("low", -math.inf), ("high", math.inf))
        )
        if not low <= high:
            self.faults.add(place, f"the bounds of {name} are not in order: {low:g} to {high:g}")
        if not isinstance(about.get("unit", ""), str):
            self.faults.add(place, f"the unit of {name} must be text, not {about['unit']!r}")
        if not isinstance(constant, bool):
            self.faults.add(place, f"constant must be true or false, not {constant!r}")
        return Quantity(name, str(about.get("unit", "")), low, high, constant is True)

    def _check_names(self) -> None:
        seen: dict[str, str] = dict.fromkeys(COLUMNS, "a column of every log")
        for kind in ("states", "inputs", "contexts"):
            for one in getattr(self, kind):
                place = (kind, one.name)
                if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", one.name):
                    what = "is no name: letters, digits and _, not beginning with a digit"
                    self.faults.add(place, f"'{one.name}' {what}")
                elif one.name in RESERVED:
                    self.faults.add(
                        place, f"'{one.name}' means something in expressions: rename it"
                    )
                elif one.name in seen:
                    self.faults.add(place, f"'{one.name}' is already {seen[one.name]}: rename it")
                seen[one.name] = f"one of the {kind}"

    # -- the map, and what is known of Θ -----------------------------------------------------------

    def _context_map(self) -> ContextMap | None:
        table, before = self._table("context_map"), len(self.faults)
        kind = table.get("kind")
        wanted: dict[Any, tuple[str, ...]] = {"features": ("features",), "block": ("C", "D")}
        if kind not in wanted:
            self.faults.add(
                ("context_map", "kind"), f'kind must be "features" or "block", not {kind!r}'
            )
            return None
        for key in {"features", "C", "D"} & table.keys() - set(wanted[kind]):
            self.faults.add(("context_map", key), f'{key} does not belong to kind = "{kind}"')
        for key in wanted[kind]:
            if key not in table:
                self.faults.add(("context_map", "kind"), f'kind = "{kind}" needs {key}')
        if len(self.faults) > before:
            return None
        bounds = {one.name: (one.low, one.high) for one in self.contexts if one.low <= one.high}
        # Logs are held to the bounds; a machine to be designed for may lie outside, and is told so.
        common: dict[str, Any] = {"bounds": bounds, "allow_outside": True}
        made: ContextMap | None = None
        if kind == "features":
            with self.faults.at(("context_map", "features")):
                made = FeatureContext(table["features"], states=self.d, inputs=self.m, **common)
        else:
            for key, size, word in (("C", self.d, "states"), ("D", self.m, "inputs")):
                rows = table[key]
                if not isinstance(rows, list) or not all(isinstance(r, list) for r in rows):
                    self.faults.add(("context_map", key), f"{key} must be a list of rows")
                elif any(len(row) != size for row in rows):
                    widths = ", ".join(sorted({str(len(row)) for row in rows}))
                    what = f"{key} has rows of {widths} entries, but there are {size} {word}"
                    self.faults.add(("context_map", key), what)
            if len(self.faults) == before:
                with self.faults.at(("context_map",)):
                    made = BlockContext(table["C"], table["D"], **common)
        if made is not None:
            self._try(made, ("context_map", "features" if kind == "features" else "D"))
        return made

    def _try(self, context_map: ContextMap, place: tuple[str, ...]) -> None:
        """The corners and the middle of the bounds: no feature may divide by zero there."""
        if len(self.contexts) > 10:
            return
        ends = [[e for e in (c.low, c.high) if math.isfinite(e)] for c in self.contexts]
        middles = [sum(end) / len(end) if end else 1.0 for end in ends]
        names = [one.name for one in self.contexts]
        corners = product(*(end or [middle] for end, middle in zip(ends, middles, strict=True)))
        for values in [tuple(middles), *islice(corners, 1024)]:
            try:
                context_map.matrix(dict(zip(names, values, strict=True)))
            except ContextError as error:
                self.faults.add(place, f"{error}, which is within the bounds")
                return

    def _known(self, context_map: ContextMap) -> dict[int, Array]:
        """The rows of Θ that [known] and the constant states give."""
        names = [one.name for one in self.states]
        rows: dict[int, Array] = {}
        equations = {one.name: one.name for one in self.states if one.constant}
        for name, text in self._table("known").items():
            if name not in names:
                what = f"there is no state '{name}'; the states are {', '.join(names)}"
                self.faults.add(("known", name), what)
            elif name in equations:
                self.faults.add(("known", name), f"'{name}' is constant: that is known already")
            elif not isinstance(text, str):
                what = f"{name} must be an equation as text, not {text!r}"
                self.faults.add(("known", name), what)
            else:
                equations[name] = text
        for name, text in equations.items():
            place = ("known", name) if name in self._table("known") else ("states", name)
            with self.faults.at(place, f"the next {name}: "):
                rows[names.index(name)] = known_row(
                    text, names, [one.name for one in self.inputs], self.contexts, context_map
                )
        if names and len(rows) == len(names):
            self.faults.add(("known",), "every state is known: nothing is left to learn")
        return rows

    # -- the task ----------------------------------------------------------------------------------

    def _start(self) -> Array:
        place, given = ("task", "start"), self._table("task").get("start", {})
        default = {one.name: float(one.constant) for one in self.states}
        start = self._vector(place, "start", given, default)
        for one, value in zip(self.states, start, strict=True):
            if one.constant and value != 1:
                self.faults.add(place, f"{one.name} is constant, 1, but starts at {value:g}")
            elif not one.low <= value <= one.high:
                what = f"{one.name} starts at {value:g}, outside its bounds"
                self.faults.add(place, f"{what} [{one.low:g}, {one.high:g}]")
        return start

    def _weights(self, key: str, over: tuple[Quantity, ...]) -> Array:
        """Q or R: a diagonal, by name or in order, or a matrix."""
        place, given, n = ("cost", key), self._table("cost").get(key), len(over)
        if given is None:
            if "cost" in self.content:
                self.faults.add(("cost",), f"{key} is missing from [cost]")
            return np.eye(n)
        if isinstance(given, list) and given and all(isinstance(row, list) for row in given):
            if len(given) != n or any(len(row) != n for row in given):
                shape = f"{len(given)} rows of {', '.join(sorted({str(len(r)) for r in given}))}"
                self.faults.add(place, f"{key} must be {n} by {n}, but has {shape} entries")
                return np.eye(n)
            matrix = np.array([[self._number(place, key, e) for e in row] for row in given])
        else:
            default = {one.name: 0.0 for one in over}
            matrix = np.diag(self._vector(place, key, given, default))
        with self.faults.at(place):
            matrix = as_symmetric(key, matrix.reshape(n, n))
            require_semi_definite(key, matrix)
            if key == "R" and n:
                scale = np.linalg.eigvalsh(matrix)
                require(
                    scale[0] > 1e-12 * scale[-1],
                    "R is singular: every input, and every mixture of them, must cost something",
                )
        return matrix

    def _targets(self, horizon: int) -> Array | None:
        file, place = self._table("cost").get("target"), ("cost", "target")
        if file is None:
            return None
        if not any(one.constant for one in self.states):
            what = "a target needs a state that is always 1: add one = { constant = true }"
            self.faults.add(place, f"{what} to [states]")
        targets = self.given_targets
        if targets is None:
            if not isinstance(file, str):
                self.faults.add(place, f"target must be the name of a file, not {file!r}")
                return None
            with self.faults.at(place):
                targets = _read_targets(self.folder / file, self.states)
        if targets is not None and len(targets) != horizon:
            self.faults.add(place, f"target has {len(targets)} rows, but the horizon is {horizon}")
        return targets

    # -- numbers -----------------------------------------------------------------------------------

    def _vector(
        self, place: tuple[str, ...], what: str, given: Any, default: dict[str, float]
    ) -> Array:
        """Numbers in order, or by name, the others then being as in `default`."""
        if isinstance(given, dict):
            values = dict(default)
            for name, value in given.items():
                if name not in default:
                    known = ", ".join(default)
                    self.faults.add(
                        place, f"{what} has an unknown name, '{name}'; there are {known}"
                    )
                else:
                    values[name] = self._number(place, f"{what} of {name}", value)
            return np.array(list(values.values()))
        if isinstance(given, list) and len(given) == len(default):
            return np.array([self._number(place, what, value) for value in given])
        shape = f"{len(default)} numbers, or a table of {', '.join(default)}"
        self.faults.add(place, f"{what} must be {shape}, not {given!r}")
        return np.array(list(default.values()))

    def _number(self, place: tuple[str, ...], what: str, value: Any) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        infinite_bound = number and math.isinf(value) and what.split()[0] in ("low", "high")
        if number and (math.isfinite(value) or infinite_bound):
            return float(value)
        self.faults.add(place, f"{what} must be a finite number, not {value!r}")
        return 0.0

    def _whole(self, table: str, key: str, least: int) -> int:
        value = self._table(table).get(key)
        if type(value) is int and value >= least:
            return value
        if table in self.content:
            said = "missing" if value is None else repr(value)
            what = f"{key} must be a whole number of at least {least}, and is {said}"
            self.faults.add((table, key), what)
        return least

    def _positive(self, table: str, key: str, default: float | None) -> float:
        value = self._table(table).get(key, default)
        if value is None:
            if table in self.content:
                self.faults.add((table,), f"{key} is missing from [{table}]")
            return 1.0
        number = self._number((table, key), key, value)
        if number <= 0:
            self.faults.add((table, key), f"{key} must be above 0, not {value!r}")
            return 1.0
        return number


def _read_targets(path: Path, states: tuple[Quantity, ...]) -> Array:
    """One row a step, a column for each state that has a target; 0 for the others."""
    from contextual_lqr.data.tables import read_table

    table = read_table(path)
    known = {one.name: i for i, one in enumerate(states) if not one.constant}
    names = [name for name in table if name != "step"]
    unknown = [name for name in names if name not in known]
    require(not unknown, f"{path} has columns that are no states: {', '.join(unknown)}")
    require(names, f"{path} has no column that is a state")
    targets = np.zeros((len(table[names[0]]), len(states)))
    for name in names:
        targets[:, known[name]] = table[name]
    return targets
