"""Sheets of Excel files, read by Polars."""

from __future__ import annotations

import os
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from contextual_lqr.data.fleet_toml.layout import TableOptions
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.table_format import header_line
from contextual_lqr.errors import InputError, MissingExtraError

SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_LOOKED_AT = 50  # rows, for the one with the headings


def read_sheet(path: str, options: TableOptions) -> tuple[pl.DataFrame, str]:
    """The table of one sheet, with its headings, and what was detected, in words."""
    about = os.stat(path)
    return _read_sheet(path, options, about.st_size, about.st_mtime_ns)


@lru_cache(2)  # the headings are asked for before the rows
def _read_sheet(
    path: str, options: TableOptions, size: int, changed: int
) -> tuple[pl.DataFrame, str]:
    try:
        import fastexcel
    except ImportError as error:
        raise MissingExtraError("fastexcel", "excel") from error
    try:
        book = fastexcel.read_excel(path)
        sheet = _sheet(path, book.sheet_names, options.sheet)
        header = options.header
        if header is None:
            # Without skip_rows, blank rows at the top would not count.
            top = book.load_sheet(
                sheet, header_row=None, skip_rows=0, n_rows=_LOOKED_AT, dtypes="string"
            )
            header = header_line(top.to_polars().rows()) if top.height else 1
        found = book.load_sheet(sheet, header_row=header - 1, schema_sample_rows=None)
        names = [str(name) for name in _headings(book, sheet, header, found.width)]
        frame = found.to_polars()
        frame.columns = [str(i) for i in range(frame.width)]
    except fastexcel.FastExcelError as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot read {path}: {first}") from None
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null())) if frame.width else frame
    said = [f"sheet {sheet}"] if len(book.sheet_names) > 1 else []
    said += [f"headings in row {header}"] if header != 1 else []
    return frame.rename(dict(zip(frame.columns, unique(names), strict=True))), ", ".join(said)


def unique(names: list[str]) -> list[str]:
    """The headings, those that came before made different; Polars needs it so."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        count = seen[name] = seen.get(name, 0) + 1
        made.append(name if count == 1 else f"{name}\0{count}")
    return made


def _headings(book: Any, sheet: str, header: int, width: int) -> list[str]:
    """As they are written: fastexcel renames one that comes twice."""
    row = book.load_sheet(sheet, header_row=None, skip_rows=header - 1, n_rows=1, dtypes="string")
    cells = row.to_polars().rows()
    written = [("" if one is None else str(one).strip()) for one in cells[0]] if cells else []
    return (written + [""] * width)[:width]


def _sheet(path: str, names: list[str], wanted: str | None) -> str:
    if wanted is None or wanted in names:
        return wanted or names[0]
    near = get_close_matches(wanted, names, 1)
    hint = f" (is it '{near[0]}'?)" if near else ""
    raise InputError(f"{path} has no sheet '{wanted}'{hint}; it has {', '.join(names)}")
