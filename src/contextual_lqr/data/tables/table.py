"""Tables in files, whatever they are written in: Parquet, text, Excel.

Missing marks, decimal commas, factors and offsets are Polars' expressions, so that reading stays
lazy. Text that is no number stays as it is: it is found, and reported with its row, later. In a
table with decimal commas, comma and point change places, so that a point is as wrong there as a
comma elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from contextual_lqr.data.fleet_toml.layout import Column, TableOptions
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.excel import SUFFIXES, read_sheet, unique
from contextual_lqr.data.tables.table_format import MISSING, TableFormat, format_of, too_wide
from contextual_lqr.errors import InputError

_NAMES = ("episode", "machine")
_LABELS = (*_NAMES, "time")  # which are read as they are
KINDS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv"} | dict.fromkeys(SUFFIXES, "excel")


def kind_of(path: str) -> str:
    """Which kind of table a file is, by its name."""
    suffix = Path(path).suffix.lower()
    if suffix not in KINDS:
        raise InputError(
            f"{path} is not a log: a log is a .parquet, .csv or .xlsx file, or minari:ID"
        )
    return KINDS[suffix]


@dataclass(frozen=True)
class Table:
    """A table that is open: its rows, its headings in their order, and how its text is written."""

    name: str
    rows: pl.LazyFrame
    headings: tuple[str, ...]
    decimal: str = "."
    marks: tuple[str, ...] = ()
    words: str = ""  # how it is written, if not plainly

    def select(self, wanted: Mapping[str, Column]) -> pl.LazyFrame:
        """The columns that are wanted, under the names that they are wanted by."""
        self._require([one.heading for one in wanted.values()])
        types = dict(self.rows.collect_schema())
        return self.rows.select(
            self._column(name, column, types[column.heading]) for name, column in wanted.items()
        )

    def filled(self, wanted: Mapping[str, Column]) -> pl.LazyFrame:
        """The same without blank lines, which a Parquet file has not."""
        rows = self.select(wanted)
        return rows.filter(~pl.all_horizontal(pl.all().is_null())) if self.marks else rows

    def _column(self, name: str, column: Column, dtype: Any) -> pl.Expr:
        value = pl.col(column.heading)
        if dtype == pl.String and (self.marks or self.decimal == ","):
            value = value.str.strip_chars()
            if name not in _LABELS:
                value = pl.when(value.is_in(list(self.marks))).then(None).otherwise(value)
                if self.decimal == ",":
                    value = value.str.replace_many([",", "."], [".", ","])
        if name in _NAMES and dtype.is_float():
            value = _name_of(value)
        if not column.plain:
            number = value.str.strip_chars() if dtype == pl.String else value
            number = number.cast(pl.Float64, strict=False) * column.factor + column.offset
            if dtype == pl.String:  # what is no number stays to be found
                number = pl.coalesce(number.cast(pl.String), value)
            value = number
        return value.alias(name)

    def _require(self, needed: Sequence[str]) -> None:
        """Refuse a table that lacks columns, with the headings that they may have instead."""
        columns = [one for one in self.headings if one]
        if twice := [one for one in needed if columns.count(one) > 1]:
            places = [i + 1 for i, one in enumerate(self.headings) if one == twice[0]]
            said = " and ".join(map(str, places))
            raise InputError(
                f"{self.name} has the heading '{twice[0]}' twice, in columns {said}: "
                "which one is meant? Rename the other in the file"
            )
        if not (missing := [one for one in dict.fromkeys(needed) if one not in columns]):
            return
        others = [one for one in columns if one not in needed]
        named = []
        for one in missing:
            near = get_close_matches(one, others, 1) or [
                other for other in others if one.lower() in other.lower()
            ]
            named.append(f"'{one}'" + (f" (is it '{near[0]}'?)" if near else ""))
        has = [one if len(one) <= 40 else f"{one[:40]}…" for one in columns[:20]]
        has += [f"{len(columns) - 20} more"] if len(columns) > 20 else []
        raise InputError(
            f"{self.name} has no column {', '.join(named)}; it has {', '.join(has) or 'none'}"
        )


def _name_of(number: pl.Expr) -> pl.Expr:
    """What a number is called: 7.0, as Excel and Pandas may store it, is 7; NaN is missing."""
    whole = number.cast(pl.Int64, strict=False)
    return (
        pl.when(number == whole)
        .then(whole.cast(pl.String))
        .otherwise(number.fill_nan(None).cast(pl.String))
    )


@contextmanager
def opened(name: str, path: str, kind: str, options: TableOptions) -> Iterator[Table]:
    """A Parquet file, a text file or an Excel sheet; one that is empty has no headings."""
    if kind == "parquet":
        rows = pl.scan_parquet(path, glob=False)
        yield Table(name, rows, tuple(rows.collect_schema()))
    elif kind == "excel":
        frame, words = read_sheet(path, options)
        if not frame.width:
            raise pl.exceptions.NoDataError(f"{path}: an empty sheet")
        headings = tuple(one.partition("\0")[0] for one in frame.columns)
        marks = ("", *(MISSING if options.missing is None else options.missing))
        yield Table(name, frame.lazy(), headings, options.decimal or ".", marks, words)
    else:
        how = format_of(path, options)
        with how.as_utf8(path) as readable:
            # The path is that of one file: a bracket or a star in it means itself.
            rows = pl.scan_csv(
                readable,
                glob=False,
                infer_schema=False,
                null_values=[""],
                separator=how.separator,
                truncate_ragged_lines=how.trailing,
                skip_lines=how.header - 1,  # skip_rows does not count blank lines at the top
            )
            columns = list(rows.collect_schema())
            _require_agreement(name, columns, how)
            renamed = unique(list(how.headings))
            changed = {old: new for old, new in zip(columns, renamed, strict=True) if old != new}
            rows = rows.rename(changed) if changed else rows
            try:
                yield Table(name, rows, how.headings, how.decimal, how.marks, how.words)
            except pl.exceptions.ComputeError:
                _require_width(name, readable, how)
                raise


def _require_agreement(name: str, columns: Sequence[str], how: TableFormat) -> None:
    """Refuse a table whose headings Polars cuts otherwise, by a quotation mark out of place."""
    theirs = [one.partition("_duplicated_")[0].strip() for one in columns]
    if theirs != [one.partition("_duplicated_")[0] for one in how.headings]:
        raise InputError(
            f"{name}: the headings in line {how.header} cannot be told apart; is a quotation mark "
            "out of place, or are they in another line? Then say header in [table]"
        )


def _require_width(name: str, path: str, how: TableFormat) -> None:
    """Refuse a line with more fields than there are headings; Polars does not say where it is."""
    found = too_wide(path, how.separator, how.header, len(how.headings))
    if found is not None:
        line, fields = found
        raise InputError(
            f"{name}, line {line}: {len(fields)} fields, but there are {len(how.headings)} "
            f"headings; it begins with '{fields[0][:40]}'. Correct the line, or delete it"
        )


def headings_of(name: str, path: str, kind: str, options: TableOptions) -> tuple[str, ...]:
    """The headings alone."""
    if kind == "csv":
        return format_of(path, options).headings
    try:
        with opened(name, path, kind, options) as table:
            return table.headings
    except pl.exceptions.NoDataError:
        return ()
