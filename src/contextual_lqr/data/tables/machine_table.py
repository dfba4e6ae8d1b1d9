"""The contexts of machines in a table of their own, which `contexts` of [logs] names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from contextual_lqr.data.fleet_toml.layout import Column, TableOptions
from contextual_lqr.data.tables.table import kind_of, opened
from contextual_lqr.data.tables.table_report import TableReport
from contextual_lqr.errors import InputError
from contextual_lqr.files import require_regular

if TYPE_CHECKING:
    import polars as pl

    from contextual_lqr.data.description import FleetDescription


def machine_contexts(about: FleetDescription) -> pl.DataFrame:
    """What the table has of the contexts, by `machine`."""
    path = about.layout.contexts
    assert path is not None
    if not os.path.exists(path):
        raise InputError(f"there is no file {path}, which contexts of [logs] names")
    require_regular(path)
    wanted = tuple((name, about.layout.column(name)) for name in about.context_names)
    stat = os.stat(path)
    changed = stat.st_mtime_ns, stat.st_size
    return read_contexts(path, about.machine_column or "machine", wanted, changed)


@lru_cache(8)  # each frame of the logs is joined with it
def read_contexts(
    path: str, machine: str, wanted: tuple[tuple[str, Column], ...], changed: tuple[int, int]
) -> pl.DataFrame:
    """A table of contexts, all of them finite, and each machine's the same wherever it stands."""
    import polars as pl

    name = os.path.basename(path)
    try:
        with opened(name, path, kind_of(path), TableOptions()) as table:
            there = {one: column for one, column in wanted if column.heading in table.headings}
            if not there:
                raise InputError(
                    f"{name}, the table of contexts, has none of them: it has no column "
                    f"{' or '.join(one.heading for _, one in wanted)}, "
                    f"but {', '.join(table.headings)}"
                )
            frame = table.select({"machine": Column(machine), **there}).collect()
    except pl.exceptions.NoDataError:
        raise InputError(f"{name}, the table of contexts, is empty") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}") from None
    frame = frame.with_columns(pl.col("machine").cast(pl.String).str.strip_chars())
    if frame["machine"].null_count():
        row = int(frame["machine"].is_null().arg_max() or 0) + 1
        raise InputError(f"{name}, row {row}: the machine is missing")
    numbers = frame.with_columns(
        pl.col(one).cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        for one in there
    )
    for one in there:
        bad = ~numbers[one].is_finite().fill_null(False)
        if bad.any():
            row = int(bad.arg_max() or 0)
            said = frame[one][row]
            what = "missing" if said is None else f"'{said}', which is not a finite number"
            raise InputError(f"{name}: '{one}' of machine {frame['machine'][row]} is {what}")
    each = numbers.unique(maintain_order=True)
    twice = each.filter(each["machine"].is_duplicated())
    if len(twice):
        label = twice["machine"][0]
        of_it = twice.filter(pl.col("machine") == label).iter_rows(named=True)
        said = "; ".join(", ".join(f"{one} {row[one]:g}" for one in there) for row in of_it)
        raise InputError(f"{name} has machine {label} twice, with different contexts: {said}")
    return each


def joined(
    frames: Iterator[pl.DataFrame], about: FleetDescription, report: TableReport
) -> Iterator[pl.DataFrame]:
    """The frames with the contexts of their machines; null for a machine without any."""
    import polars as pl

    contexts = machine_contexts(about)
    known = dict.fromkeys(contexts["machine"])
    if report.contexts is None:
        report.contexts = os.path.basename(about.layout.contexts or "")
        report.unlogged = list(known)
    for frame in frames:
        frame = frame.with_columns(pl.col("machine").cast(pl.String).str.strip_chars())
        report.met(frame["machine"].drop_nulls().unique(maintain_order=True).to_list(), known)
        yield frame.join(contexts, on="machine", how="left", maintain_order="left")
