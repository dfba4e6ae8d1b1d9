"""`contextual-lqr check`."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from contextual_lqr.cli.findings import Progress, say_description, say_report
from contextual_lqr.logs import DescriptionError, FleetDescription
from contextual_lqr.logs.reading import LogReader


def check(description: Path, /, *logs: str, sort: bool = False) -> None:
    """Say all that is wrong with a fleet's description, and with its logs.

    Parameters
    ----------
    description
        The fleet's description, fleet.toml.
    logs
        Parquet or CSV files, folders or globs of them, or minari:ID.
    sort
        Sort each log by episode and step first.
    """
    console = Console()
    try:
        fleet = FleetDescription.read(description)
    except DescriptionError as error:
        for fault in error.faults:
            console.print(fault, highlight=False, markup=False)
        count = len(error.faults)
        console.print(f"{count} fault{'s' if count > 1 else ''}", highlight=False)
        sys.exit(1)
    say_description(console, fleet)
    if not logs:
        return
    reader = LogReader(fleet, logs, sort=sort)
    with Progress("checking") as progress:
        for _ in reader.batches(progress):
            pass
    say_report(console, reader.report)
    if reader.report.bad_rows or not reader.report.transitions:
        sys.exit(1)
