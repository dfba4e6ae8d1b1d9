"""`contextual-lqr check`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

from contextual_lqr.cli.log_summary import say_description, say_report
from contextual_lqr.cli.options import AsJson, Description, Flag, Log
from contextual_lqr.cli.terminal import Console, Progress, print_json, say
from contextual_lqr.data import DescriptionError, FleetDescription, check_logs


def check(
    description: Description,
    /,
    *logs: Log,
    sort: Annotated[bool, Flag] = False,
    as_json: AsJson = False,
) -> None:
    """Say all that is wrong with a fleet's description, and with its logs.

    Parameters
    ----------
    description
        The fleet's description, fleet.toml.
    logs
        Parquet or CSV files, folders or globs of them, or minari:ID.
    sort
        Sort each log by episode and step first.
    as_json
        Print JSON, for a script to read.
    """
    console, report = Console(), None
    try:
        fleet = FleetDescription.read(description)
    except DescriptionError as error:
        if as_json:
            print_json({"faults": error.faults, "logs": None})
        else:
            count = len(error.faults)
            for line in (*error.faults, f"{count} fault{'s' if count > 1 else ''}"):
                say(console, line)
        sys.exit(1)
    if not as_json:
        say_description(console, fleet)
    if logs:
        with Progress("checking") as progress:
            report = check_logs(fleet, logs, sort=sort, progress=progress)
    if as_json:
        print_json({"faults": [], "logs": report and asdict(report)})
    elif report is not None:
        say_report(console, report)
    if report is not None and (report.bad_rows or not report.transitions):
        sys.exit(1)
