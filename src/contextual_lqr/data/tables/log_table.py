"""From the table of a log to frames with the names of the description.

headings, as they are written  ->  names, by [columns]
+ contexts of machines, from a table of their own (`machine_table.py`)
+ steps from time stamps (`clock.py`), or rows on a grid (`resampling.py`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from contextual_lqr.data.fleet_toml.layout import Column, Layout
from contextual_lqr.data.tables.clock import Clock
from contextual_lqr.data.tables.machine_table import joined, machine_contexts
from contextual_lqr.data.tables.resampling import Resampler
from contextual_lqr.data.tables.table_report import TableReport, TimeReport
from contextual_lqr.data.tables.time_stamps import TimeStamps
from contextual_lqr.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from contextual_lqr.data.description import FleetDescription


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
    import polars as pl

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
