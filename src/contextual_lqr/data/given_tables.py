"""Tables that are given beside the logs: machines, schedules, forecasts, targets, an episode.

They are small, and read whole. How they are written is detected, as of logs. What stands under the
heading that [columns] gives a quantity is in the units of the logs, what stands under its own name
in those of the description. Where both are one name, a table is read as the logs are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.data.fleet_toml.layout import Column, Layout, TableOptions
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.table import KINDS, Table, opened
from contextual_lqr.data.tables.table_format import format_of
from contextual_lqr.errors import InputError
from contextual_lqr.files import require_regular

PathLike = str | os.PathLike[str]


class GivenTable(NamedTuple):
    """Quantities by name, and what was made of their units, in words."""

    columns: dict[str, Array]
    labels: list[str] | None  # of machines, if there is a column of them
    rows: int
    others: list[str]  # the headings of what is none of these
    said: list[str]


def read_table(path: PathLike) -> pl.DataFrame:
    """All columns that have a heading."""
    with _opened(path) as table:
        return table.select({one: Column(one) for one in table.headings if one}).collect()


def read_numbers(path: PathLike) -> dict[str, Array]:
    """The same of finite numbers, by their headings."""
    return {column.name: _finite(path, column) for column in read_table(path)}


def read_given(
    path: PathLike, layout: Layout, names: Sequence[str], machine: str | None = None
) -> GivenTable:
    """Those of the named quantities that the table has; machines, if wanted, by their heading."""
    with _opened(path) as table:
        found = _located(table, layout, names)
        either = () if machine is None else (machine, "machine")
        label = next((one for one in either if one in table.headings), None)
        labelled = {} if label is None else {"machine": Column(label)}
        frame = table.select(found | labelled).collect()
        rows = int(table.rows.select(pl.len()).collect().item())
        known = {label, *(one.heading for one in found.values())}
        others = [one for one in table.headings if one and one not in known]
    said = [
        f"{path}: the column '{one.heading}' is in the unit of the logs: {name} is "
        f"{_formula(one)}, as [columns] says"
        for name, one in found.items()
        if not one.plain
    ]
    columns = {name: _finite(path, frame[name]) for name in found}
    labels = None if label is None else frame["machine"].cast(pl.String).fill_null("").to_list()
    return GivenTable(columns, labels, rows, others, said)


def _located(table: Table, layout: Layout, names: Sequence[str]) -> dict[str, Column]:
    taken = {one.heading for one in layout.columns.values()}
    found = {}
    for name in names:
        column = layout.column(name)
        logged = column.heading in table.headings
        own = name not in taken and name in table.headings
        require(
            not (logged and own and column.heading != name),
            f"{table.name} has the columns '{column.heading}', as the logs call {name}, and "
            f"'{name}': leave one of them out",
        )
        if logged or own:
            found[name] = column if logged else Column(name)
    return found


def _formula(column: Column) -> str:
    sign = "-" if column.offset < 0 else "+"
    times = f"{column.factor:g} times it"
    return f"{times} {sign} {abs(column.offset):g}" if column.offset else times


@contextmanager
def _opened(path: PathLike) -> Iterator[Table]:
    require_regular(path)
    name, kind, options = str(path), KINDS.get(Path(path).suffix.lower(), "csv"), TableOptions()
    try:
        if kind == "csv" and len(format_of(name, options).headings) == 1:
            options = TableOptions(separator=";")  # its commas are decimal: it has one column
        with opened(name, name, kind, options) as table:
            yield table
    except pl.exceptions.NoDataError:
        raise InputError(f"{path} is empty") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot read {path}: {first}") from None


def _finite(path: PathLike, raw: pl.Series) -> Array:
    if not (raw.dtype.is_numeric() or raw.dtype in (pl.String, pl.Null)):
        raise InputError(f"{path}: the column '{raw.name}' must hold numbers, not {raw.dtype}")
    column = raw.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    if not np.isfinite(column).all():
        row = int(np.isfinite(column).argmin())
        what = "missing" if raw[row] is None else f"{raw[row]!r}, which is not a finite number"
        raise InputError(f"{path}: row {row + 1} of '{raw.name}' is {what}")
    return np.asarray(column)
