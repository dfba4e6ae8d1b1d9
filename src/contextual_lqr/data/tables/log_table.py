"""From the table of a log to frames with the names of the description.

headings, as they are written  ->  names, by [columns]
+ contexts of machines, from the table that `contexts` of [logs] names
+ steps from time stamps (`clock.py`), or rows on a grid (`resampling.py`)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from contextual_lqr.data.fleet_toml.layout import Column, Layout, TableOptions
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.clock import Clock
from contextual_lqr.data.tables.resampling import Resampler
from contextual_lqr.data.tables.table import kind_of, opened
from contextual_lqr.data.tables.table_report import TableReport, TimeReport
from contextual_lqr.data.tables.time_stamps import TimeStamps
from contextual_lqr.errors import InputError
from contextual_lqr.files import require_regular

if TYPE_CHECKING:
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
            frame = table.filled({"machine": Column(machine), **there}).collect()
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
    contexts = machine_contexts(about)
    known = dict.fromkeys(contexts["machine"])
    if report.contexts is None:
        report.contexts = os.path.basename(about.layout.contexts or "")
        report.unlogged = list(known)
    for frame in frames:
        frame = frame.with_columns(pl.col("machine").cast(pl.String).str.strip_chars())
        report.met(frame["machine"].drop_nulls().unique(maintain_order=True).to_list(), known)
        yield frame.join(contexts, on="machine", how="left", maintain_order="left")


def wanted_columns(headings: Sequence[str], about: FleetDescription) -> dict[str, Column]:
    """For each column that we need of a log, where it stands there."""
    layout = about.layout
    named = ["episode", "step"]
    if layout.time is not None:
        named = ["episode"] if layout.column("episode").heading in headings else []
        if "episode" in layout.columns:
            named = ["episode"]
    elsewhere = () if layout.contexts is None else machine_contexts(about).columns
    named += [one.name for one in about.logged if one.name not in elsewhere]
    wanted = {name: layout.column(name) for name in named}
    if layout.time is not None:
        wanted["time"] = Column(layout.time)
    if about.machine_column or "machine" in headings or layout.contexts is not None:
        wanted["machine"] = Column(about.machine_column or "machine")
    return wanted


def sorted_rows(
    rows: pl.LazyFrame, wanted: Mapping[str, Column], log: str, layout: Layout
) -> pl.LazyFrame:
    """The rows of a log by episode, or machine, and step or time; rows without one come last."""
    keys = [pl.col(name) for name in ("machine", "episode") if name in wanted]
    if layout.time is None:
        step = pl.col("step").cast(pl.Float64, strict=False)
        return rows.sort("episode", step, maintain_order=True)
    frame = rows.collect()
    time = pl.Series("\0time", TimeStamps(log, layout.time).seconds(frame["time"]))
    return frame.with_columns(time).sort(*keys, "\0time", maintain_order=True).drop("\0time").lazy()


def require_plain(log: str, layout: Layout) -> None:
    """Refuse what says something of headings, for logs that have none."""
    if layout.columns or layout.contexts or layout.time:
        raise InputError(
            f"{log} is a Minari dataset, which has no headings: [columns], and contexts and time "
            "of [logs], are for tables"
        )


def log_frames(
    log: str, frames: Iterator[pl.DataFrame], about: FleetDescription, report: TableReport
) -> Iterator[pl.DataFrame]:
    """The frames of a log with the contexts of its machines, and with steps from its times."""
    layout = about.layout
    if layout.contexts is not None:
        frames = joined(frames, about, report)
    if layout.time is not None:
        report.time = report.time or TimeReport()
        made = (Resampler if layout.resample else Clock)(about, log, report.time)
        frames = made.frames(frames)
    return frames
