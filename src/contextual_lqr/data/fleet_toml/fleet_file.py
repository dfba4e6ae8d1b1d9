"""Reading `fleet.toml`:

    [states], [inputs], [contexts]    names, in order, each with its unit and bounds
    [outputs], [measured]             what is measured instead of a state, and disturbances
    [context_map]                     kind "features" or "block"
    [dynamics]                        features of machines that are not linear, instead
    [task]                            horizon (none: machines run on and on), start
    [cost]                            Q, R, final_Q, target, integral, angles
    [learning]                        noise_level, regularisation
    [known]                           rows of [A, B] that need not be learnt, and integrals
    [prior]                           a nominal machine, and entries of [A, B] that are known
    [logs], [columns], [table]        how logs are laid out

Everything that is wrong is reported at once, with line numbers.
"""

from __future__ import annotations

import math
import re
from importlib.resources import files
from itertools import islice, product
from pathlib import Path
from reprlib import repr as shown  # short, however long or deep a value is
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import as_symmetric, read_only, require, require_semi_definite
from contextual_lqr.context import BlockContext, ContextMap, FeatureContext, FeatureDynamics
from contextual_lqr.context.expressions import RESERVED, as_float
from contextual_lqr.data.description import LONGEST_HORIZON, FleetDescription, Quantity
from contextual_lqr.data.fleet_toml.dynamics_table import check_episode, known_row_of, read_dynamics
from contextual_lqr.data.fleet_toml.layout import LOGS_FIELDS, TABLE_FIELDS, read_layout
from contextual_lqr.data.fleet_toml.outputs_table import read_states
from contextual_lqr.data.fleet_toml.prior_table import read_prior, read_scales
from contextual_lqr.data.fleet_toml.set_point import read_angles, read_integral, read_target
from contextual_lqr.data.fleet_toml.toml_errors import Place, TomlErrors, parse_toml
from contextual_lqr.data.histories.history import History
from contextual_lqr.data.known_dynamics import integrated, known_row
from contextual_lqr.errors import ContextError

TEMPLATE = files(__package__).joinpath("template.toml").read_text(encoding="utf-8")
"""What `contextual-lqr new` writes: a description of a cart, with every field explained."""

_TABLES: dict[str, tuple[str, ...] | None] = {
    "states": None,  # any names
    "outputs": None,
    "measured": None,
    "inputs": None,
    "contexts": None,
    "context_map": ("kind", "features", "C", "D"),
    "dynamics": ("features",),
    "task": ("horizon", "start"),
    "cost": ("Q", "R", "final_Q", "target", "integral", "angles"),
    "learning": ("noise_level", "regularisation"),
    "known": None,
    "prior": ("context", "A", "B", "off", "entries"),
    "logs": LOGS_FIELDS,
    "columns": None,
    "table": TABLE_FIELDS,
}
_OPTIONAL = {*_TABLES} - {"inputs", "contexts", "context_map", "task", "cost", "learning"}
_KINDS = {"features": ("features",), "block": ("C", "D")}


class FleetFile:
    """The text of one description, and what is wrong with it."""

    def __init__(self, text: str, name: str, folder: Path, targets: Array | None) -> None:
        self.text, self.folder, self.given_targets = text, folder, targets
        self.errors = TomlErrors(name, text)
        self.content = parse_toml(text, name)

    def description(self, horizon: int | None, history: History | None = None) -> FleetDescription:
        """What the text describes; everything that is wrong with it is raised as one error."""
        self._check_tables()
        self.inputs, self.contexts = (self.quantities(kind) for kind in ("inputs", "contexts"))
        self.made = read_states(self, history)
        self.states, self.declared = self.made.states, self.made.declared
        layout = read_layout(self)
        self._check_names(layout.machine or "machine")
        if len({one.name for one in self.declared}) < len(self.declared):
            self.errors.raise_if_any()  # what follows goes by names
        context_map = self._context_map()
        horizon = self._horizon(horizon)
        noise_level, regularisation = self._learning()
        Q, R = self._weights("Q", self.declared), self._weights("R", self.inputs)
        final_Q = self._weights("final_Q", self.declared) if "final_Q" in self.table("cost") else Q
        Q, final_Q = self.made.spread(Q), self.made.spread(final_Q)
        start, (targets, set_point) = self._start(), read_target(self, horizon)
        integral, angles = read_integral(self), read_angles(self)
        if isinstance(context_map, FeatureDynamics):
            check_episode(self, context_map, horizon, start)
        self.rates: dict[str, str] = {}
        known = {} if context_map is None else self._known(context_map)
        scales = read_scales(self, regularisation)
        prior = None if context_map is None else read_prior(self, context_map, scales)
        self.errors.raise_if_any()
        assert context_map is not None
        return FleetDescription(
            text=self.text,
            states=self.states,
            inputs=self.inputs,
            contexts=self.contexts,
            context_map=context_map,
            horizon=horizon,
            start=read_only(self.made.at_rest(start)),
            Q=read_only(Q),
            final_Q=read_only(final_Q),
            R=read_only(R),
            targets=None if targets is None else read_only(targets),
            noise_level=noise_level,
            regularisation=regularisation,
            known=known,
            rates=self.rates,
            machine_column=layout.machine,
            prior=prior,
            scales=scales,
            set_point=set_point,
            integral=integral,
            angles=angles,
            lags=self.made.lags,
            history=self.made.history,
            layout=layout,
        )

    # -- tables and names --------------------------------------------------------------------------

    def table(self, name: str) -> dict[str, Any]:
        """A table of the file; an empty one if it is none."""
        table = self.content.get(name, {})
        return table if isinstance(table, dict) else {}

    def _check_tables(self) -> None:
        for name in self.content.keys() - _TABLES:
            self.errors.add((name,), f"[{name}] is unknown; there are {', '.join(_TABLES)}")
        for name, fields in _TABLES.items():
            if name not in self.content:
                instead = name == "context_map" and "dynamics" in self.content
                if name not in _OPTIONAL and not instead:
                    self.errors.add((name,), f"the table [{name}] is missing")
            elif not isinstance(self.content[name], dict):
                self.errors.add((name,), f"{name} must be a table, [{name}]")
            elif fields is not None:
                for key in self.table(name).keys() - set(fields):
                    what = f"{key} is unknown in [{name}]; it has {', '.join(fields)}"
                    self.errors.add((name, key), what)

    def quantities(self, kind: str, but: tuple[str, ...] = ()) -> tuple[Quantity, ...]:
        """What a table declares, but for these keys of it."""
        table = {name: about for name, about in self.table(kind).items() if name not in but}
        if not table and isinstance(self.content.get(kind), dict):
            self.errors.add((kind,), f"[{kind}] is empty: at least one is needed")
        return tuple(self._quantity(kind, name, about) for name, about in table.items())

    def _quantity(self, kind: str, name: str, about: Any) -> Quantity:
        place = (kind, name)
        more = {"states": ("scale", "constant"), "inputs": ("scale",), "measured": ("scale",)}
        more["outputs"] = ("scale", "constant", "wraps")
        more["contexts"] = ("varies",)
        fields = ("unit", "low", "high", *more.get(kind, ()))
        if isinstance(about, str):  # position = "m" is short for { unit = "m" }
            about = {"unit": about}
        if not isinstance(about, dict) or not about.keys() <= set(fields):
            self.errors.wrong(place, name, f"a unit, or a table of {', '.join(fields)}", about)
            return Quantity(name)
        unit, constant = about.get("unit", ""), about.get("constant", False)
        low, high = (
            self.number(place, f"{end} of {name}", about.get(end, default), infinite=True)
            for end, default in (("low", -math.inf), ("high", math.inf))
        )
        if not low <= high:
            self.errors.add(place, f"the bounds of {name} are not in order: {low:g} to {high:g}")
        if not isinstance(unit, str):
            self.errors.wrong(place, f"the unit of {name}", "text", unit)
        varies = about.get("varies", False)
        for field, value in (("constant", constant), ("varies", varies)):
            if not isinstance(value, bool):
                self.errors.wrong(place, field, "true or false", value)
        scale, wraps = (
            None
            if (x := about.get(key)) is None
            else self.number(place, f"{key} of {name}", x, positive=True)
            for key in ("scale", "wraps")
        )
        return Quantity(name, str(unit), low, high, constant is True, scale, wraps, varies is True)

    def _check_names(self, machine_column: str) -> None:
        columns = ("episode", "step", "machine", machine_column)
        seen: dict[str, str] = dict.fromkeys(columns, "a column of every log")
        for kind in ("states", "inputs", "contexts"):
            for one in getattr(self, kind):
                table = self.made.tables.get(one.name, kind) if kind == "states" else kind
                place = (table, one.name)
                if not re.fullmatch(r"[^\W\d]\w*", one.name):
                    what = "is not a name: use letters, digits and _"
                    self.errors.add(place, f"{one.name!r} {what}")
                elif one.name in RESERVED:
                    what = "already means something in expressions: rename it"
                    self.errors.add(place, f"'{one.name}' {what}")
                elif one.name in seen:
                    self.errors.add(place, f"'{one.name}' is already {seen[one.name]}: rename it")
                seen[one.name] = f"one of the {kind}"

    # -- the map, and what is known of Θ -----------------------------------------------------------

    def _context_map(self) -> ContextMap | None:
        bounds = {one.name: (one.low, one.high) for one in self.contexts if one.low <= one.high}
        if "dynamics" in self.content:
            return read_dynamics(self, bounds)
        table, before = self.table("context_map"), len(self.errors)
        kind = table.get("kind")
        made: ContextMap | None = None
        if not isinstance(kind, str) or kind not in _KINDS:
            self.errors.wrong(("context_map", "kind"), "kind", '"features" or "block"', kind)
            return None
        for key in {"features", "C", "D"} & table.keys() - set(_KINDS[kind]):
            self.errors.add(("context_map", key), f'{key} does not belong to kind = "{kind}"')
        for key in set(_KINDS[kind]) - table.keys():
            self.errors.add(("context_map", "kind"), f'kind = "{kind}" needs {key}')
        if len(self.errors) > before:
            return None
        # Logs are held to the bounds; a machine to be designed for may lie outside, and is told so.
        common: dict[str, Any] = {"bounds": bounds, "allow_outside": True}
        d, m = len(self.states), len(self.inputs)
        if kind == "features":
            with self.errors.at(("context_map", "features")):
                made = FeatureContext(table["features"], states=d, inputs=m, **common)
        else:
            for key, size, word in (("C", d, "states"), ("D", m, "inputs")):
                rows = table[key]
                if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
                    self.errors.add(("context_map", key), f"{key} must be a list of rows")
                elif any(len(row) != size for row in rows):
                    what = f"{key} has rows of {_widths(rows)} entries, but there are"
                    self.errors.add(("context_map", key), f"{what} {size} {word}")
            if len(self.errors) == before:
                with self.errors.at(("context_map",)):
                    made = BlockContext(table["C"], table["D"], **common)
        if made is not None:
            self._try(made, ("context_map", _KINDS[kind][-1]))
        return made

    def _try(self, context_map: ContextMap, place: Place) -> None:
        """The corners and the middle of the bounds: no feature may divide by zero there."""
        if len(self.contexts) > 10:
            return
        ends = [[e for e in (c.low, c.high) if math.isfinite(e)] for c in self.contexts]
        middles = [sum(e / len(end) for e in end) if end else 1.0 for end in ends]
        names = [one.name for one in self.contexts]
        corners = product(*(end or [middle] for end, middle in zip(ends, middles, strict=True)))
        for values in [tuple(middles), *islice(corners, 1024)]:
            try:
                context_map.matrix(dict(zip(names, values, strict=True)))
            except ContextError as error:
                self.errors.add(place, f"{error}, which is within the bounds")
                return

    def _known(self, context_map: ContextMap) -> dict[int, Array]:
        """The rows of Θ that [known] and the constant states give; what integrates is `rates`."""
        names = [one.name for one in self.states]
        table, rows = self.table("known"), {}
        equations = dict(self.made.equations)
        for name, text in table.items():
            place = ("known", name)
            if name not in names:
                what = f"there is no state '{name}'; the states are {', '.join(names)}"
                self.errors.add(place, what)
            elif name in equations:
                self.errors.add(place, f"the next '{name}' is already known")
            elif not isinstance(text, str):
                self.errors.wrong(place, name, "an equation as text", text)
            else:
                equations[name] = text
        inputs = [one.name for one in self.inputs]
        for name, text in equations.items():
            place = ("known" if name in table else self.made.tables.get(name, "outputs"), name)
            with self.errors.at(place, f"the next {name}: "):
                if (rate := integrated(name, text, self.states)) is not None:
                    self.rates[name] = rate
                    continue
                at = names.index(name)
                if isinstance(context_map, FeatureDynamics):
                    rows[at] = known_row_of(context_map, text, at)
                else:
                    rows[at] = known_row(text, names, inputs, self.contexts, context_map)
        if names and len(rows) == len(names):
            self.errors.add(("known",), "every state is known: nothing is left to learn")
        return rows

    # -- the task ----------------------------------------------------------------------------------

    def _horizon(self, given: int | None) -> int | None:
        value = self.table("task").get("horizon") if given is None else given
        if type(value) is int and 2 <= value <= LONGEST_HORIZON:
            return value
        if value is None:  # one constant gain, for machines that run on and on
            if "final_Q" in self.table("cost"):
                what = "final_Q is for the last state of an episode: add horizon to [task]"
                self.errors.add(("cost", "final_Q"), what)
            return None
        what = f"a whole number of at least 2 and at most {LONGEST_HORIZON:,}"
        self.errors.add(("task", "horizon"), f"horizon must be {what}, and is {shown(value)}")
        return 2

    def _start(self) -> Array:
        place, given = ("task", "start"), self.table("task").get("start", {})
        default = {one.name: float(one.constant) for one in self.declared}
        start = self._vector(place, "start", given, default)
        for one, value in zip(self.declared, start, strict=True):
            if one.constant and value != 1:
                self.errors.add(place, f"{one.name} is constant, 1, but starts at {value:g}")
            elif not one.low <= value <= one.high:
                what = f"{one.name} starts at {value:g}, outside its bounds"
                self.errors.add(place, f"{what} [{one.low:g}, {one.high:g}]")
        return start

    def _weights(self, key: str, over: tuple[Quantity, ...]) -> Array:
        """Q or R: a diagonal, by name or in order, or a matrix."""
        place, given, n = ("cost", key), self.table("cost").get(key), len(over)
        if given is None:
            if "cost" in self.content:
                self.errors.add(("cost",), f"{key} is missing from [cost]")
            return np.eye(n)
        if isinstance(given, list) and given and all(isinstance(row, list) for row in given):
            if len(given) != n or any(len(row) != n for row in given):
                shape = f"{len(given)} rows of {_widths(given)}"
                self.errors.add(place, f"{key} must be {n} by {n}, but has {shape} entries")
                return np.eye(n)
            matrix = np.array([[self.number(place, key, e) for e in row] for row in given])
        else:
            default = {one.name: 0.0 for one in over}
            matrix = np.diag(self._vector(place, key, given, default))
        with self.errors.at(place):
            matrix = as_symmetric(key, matrix.reshape(n, n))
            require_semi_definite(key, matrix)
            if key == "R" and n:
                scale = np.linalg.eigvalsh(matrix)
                require(
                    scale[0] > 1e-12 * scale[-1],
                    "R is singular: every input, and combination of inputs, must cost something",
                )
        return matrix

    def _learning(self) -> tuple[float, float | None]:
        """The noise level, and the regularisation if it is given."""
        table = self.table("learning")
        if "noise_level" not in table and "learning" in self.content:
            self.errors.add(("learning",), "noise_level is missing from [learning]")
        noise_level, given = (
            self.number(("learning", key), key, table.get(key, 1), positive=True)
            for key in ("noise_level", "regularisation")
        )
        if "regularisation" in table:
            return noise_level, given
        if not 1e-150 < noise_level < 1e150:
            what = (
                f"noise_level is {noise_level:g}, whose square is out of range: choose other units"
            )
            self.errors.add(("learning", "noise_level"), what)
        return noise_level, None

    # -- numbers -----------------------------------------------------------------------------------

    def _vector(self, place: Place, what: str, given: Any, default: dict[str, float]) -> Array:
        """Numbers in order, or by name, the others then being as in `default`."""
        if isinstance(given, dict):
            if odd := given.keys() - default.keys():
                names = ", ".join(f"'{name}'" for name in sorted(odd))
                known = ", ".join(default)
                self.errors.add(place, f"{what} has an unknown name, {names}; there are {known}")
            given = [given.get(name, value) for name, value in default.items()]
        if isinstance(given, list) and len(given) == len(default):
            named = zip(default, given, strict=True)
            return np.array([self.number(place, f"{what} of {n}", value) for n, value in named])
        shape = f"{len(default)} numbers, or a table of {', '.join(default)}"
        self.errors.wrong(place, what, shape, given)
        return np.array(list(default.values()))

    def number(
        self, place: Place, what: str, value: Any, *, infinite: bool = False, positive: bool = False
    ) -> float:
        """The value as a float; a fault, and 1, if it is not such a number."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = as_float(value)  # infinite, if it has hundreds of digits
            allowed = math.isfinite(number) or (infinite and math.isinf(number))
            if allowed and (number > 0 or not positive):
                return number
        wanted = "a finite number above 0" if positive else "a finite number"
        self.errors.wrong(place, what, wanted, value)
        return 1.0


def _widths(rows: list[Any]) -> str:
    return ", ".join(sorted({str(len(row)) for row in rows}))
