"""Reading [columns], [table] and [logs] of `fleet.toml`: how logs are laid out.

[columns]   the heading under which a quantity stands, and a factor and offset for its unit:
            value = factor × what is written + offset
[table]     how text files and Excel sheets are written; what is not said is detected
[logs]      the column that names machines, a table of their contexts, time stamps
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextual_lqr.data.fleet_toml.fleet_file import FleetFile

LOGS_FIELDS = ("machine", "contexts", "time", "period", "resample")


@dataclass(frozen=True)
class Column:
    """Where a quantity stands in a table: its value is factor × what is written + offset."""

    heading: str
    factor: float = 1.0
    offset: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether values are as they are written."""
        return self.factor == 1 and self.offset == 0


@dataclass(frozen=True)
class TableOptions:
    """How tables are written, as far as [table] says; None is to be detected."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: int | None = None  # the line of the headings, counted from 1
    missing: tuple[str, ...] | None = None
    sheet: str | None = None


@dataclass(frozen=True)
class Layout:
    """How the logs of a fleet are laid out."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    table: TableOptions = field(default_factory=TableOptions)
    machine: str | None = None  # the heading of machines' labels, if it is said
    contexts: str | None = None  # the file of the machines' contexts, by its absolute path
    time: str | None = None  # the heading of time stamps
    period: float | str | None = None  # in seconds, or the context that says it
    resample: bool = False

    def column(self, name: str) -> Column:
        """Where a quantity, or episode, step, machine, stands."""
        return self.columns.get(name) or Column(name)


def read_layout(file: FleetFile) -> Layout:
    """The layout that a description gives; faults are added to those of the file."""
    logs = file.table("logs")
    contexts, period = logs.get("contexts"), logs.get("period")
    if contexts is not None and not (isinstance(contexts, str) and contexts):
        file.errors.wrong(("logs", "contexts"), "contexts", "the name of a file", contexts)
        contexts = None
    if isinstance(period, str):
        names = [one.name for one in file.contexts]
        if period not in names:
            wanted = f"in seconds, or one of the contexts, {', '.join(names)}"
            file.errors.wrong(("logs", "period"), "period", wanted, period)
    elif period is not None:
        period = file.number(("logs", "period"), "period", period, positive=True)
    time, resample = _time(file, logs), logs.get("resample", False)
    if not isinstance(resample, bool):
        file.errors.wrong(("logs", "resample"), "resample", "true or false", resample)
    if time is None and resample:
        file.errors.add(("logs", "resample"), "resample needs the column of time stamps: say time")
    columns = _columns(file)
    return Layout(
        columns=columns,
        table=_table(file),
        machine=columns["machine"].heading if "machine" in columns else _machine(file, logs),
        contexts=contexts and os.path.abspath(file.folder / contexts),
        time=time,
        period=period,
        resample=resample is True,
    )


def _machine(file: FleetFile, logs: Mapping[str, Any]) -> str | None:
    column = logs.get("machine")
    if column is None or (isinstance(column, str) and column not in ("", "episode", "step")):
        return column
    file.errors.wrong(("logs", "machine"), "machine", "the name of a column of its own", column)
    return None


def _time(file: FleetFile, logs: Mapping[str, Any]) -> str | None:
    time = logs.get("time")
    if time is None:
        return None
    place = ("logs", "time")
    if not isinstance(time, str) or not time:
        file.errors.wrong(place, "time", "the heading of a column", time)
        return None
    if "period" not in logs:
        file.errors.add(place, "time stamps need the period of a step in seconds: period = 0.01")
    if "step" in file.table("columns"):
        file.errors.add(("columns", "step"), "steps are counted from time stamps: leave step out")
    for kind in ("states", "inputs", "contexts"):
        if any(one.name == "time" for one in getattr(file, kind)):
            what = "'time' is the column of time stamps: give this another name, and [columns]"
            file.errors.add((kind, "time"), what)
    return time


def _columns(file: FleetFile) -> dict[str, Column]:
    quantities = [*file.declared, *file.inputs, *file.contexts]
    names = ["episode", "step", "machine", *(one.name for one in quantities if not one.constant)]
    found: dict[str, Column] = {}
    for name, about in file.table("columns").items():
        place = ("columns", name)
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f" (is it '{near[0]}'?)" if near else ""
            what = f"'{name}'{hint} is not a state, input or context, nor episode, step or machine"
            file.errors.add(place, what)
            continue
        if isinstance(about, str):  # angle = "angle [rad]" is short for { column = ... }
            about = {"column": about}
        fields = ("column", "factor", "offset")
        if not isinstance(about, dict) or not about.keys() <= set(fields):
            file.errors.wrong(place, name, f"a heading, or a table of {', '.join(fields)}", about)
            continue
        heading = about.get("column", name)
        if not isinstance(heading, str) or not heading.strip():
            file.errors.wrong(place, f"the column of {name}", "a heading", heading)
            continue
        if name in names[:3] and len(about) > 1:
            file.errors.add(place, f"{name} is a label, which has no factor or offset")
        factor, offset = (
            file.number(place, f"{key} of {name}", about.get(key, default))
            for key, default in (("factor", 1.0), ("offset", 0.0))
        )
        if factor == 0:
            file.errors.add(place, f"factor of {name} is 0: every value would be the same")
        found[name] = Column(heading.strip(), factor, offset)
    if "machine" in found and "machine" in file.table("logs"):
        what = "machine is in [logs] already: give it only once"
        file.errors.add(("columns", "machine"), what)
    _refuse_twice(file, found, names)
    return found


def _refuse_twice(file: FleetFile, found: Mapping[str, Column], names: list[str]) -> None:
    """A heading is one quantity; what is not mapped has the heading of its name."""
    owner: dict[str, str] = {}
    for name in (*found, *(name for name in names if name not in found)):
        heading = found[name].heading if name in found else name
        if heading in owner and (name in found or name not in ("episode", "step", "machine")):
            what = f"the column '{heading}' is {owner[heading]} already: a column is one quantity"
            place = ("columns", name if name in found else owner[heading])
            file.errors.add(place, f"{what}, and {name} needs another")
        owner.setdefault(heading, name)


def _table(file: FleetFile) -> TableOptions:
    table, kept = file.table("table"), dict[str, Any]()
    for key, (good, wanted) in _RULES.items():
        if (value := table.get(key)) is None:
            continue
        if good(value):
            kept[key] = tuple(value) if isinstance(value, list) else value
        else:
            file.errors.wrong(("table", key), key, wanted, value)
    if kept.get("separator", 0) == kept.get("decimal"):
        file.errors.add(("table", "decimal"), "decimal and separator are the same character")
    return TableOptions(**kept)


def _is_encoding(value: Any) -> bool:
    """Some codecs of Python are between bytes, or between texts: these decode no file."""
    try:
        return isinstance(value, str) and isinstance(b"a".decode(value, "replace"), str)
    except (LookupError, ValueError):  # ValueError: a null character
        return False


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "separator": (
        lambda mark: (
            isinstance(mark, str) and len(mark) == 1 and mark.isascii() and mark not in '"\n\r\0'
        ),
        'one character, such as ";", other than a quotation mark or a line break',
    ),
    "decimal": (lambda mark: mark in (".", ","), '"." or ","'),
    "encoding": (_is_encoding, '"utf-8" or "latin-1"'),
    "header": (lambda line: type(line) is int and line >= 1, "the line of the headings, from 1"),
    "missing": (
        lambda marks: isinstance(marks, list) and all(isinstance(one, str) for one in marks),
        'a list of marks, such as ["NA"]',
    ),
    "sheet": (lambda name: isinstance(name, str) and name != "", "the name of a sheet"),
}
TABLE_FIELDS = tuple(_RULES)
