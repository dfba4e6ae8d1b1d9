"""`contextual-lqr check`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from contextual_lqr.checks import require
from contextual_lqr.cli.check_page import say_survey, write_page
from contextual_lqr.cli.log_summary import say_description, say_report
from contextual_lqr.cli.options import AsJson, Description, Log, Output, Sorted
from contextual_lqr.cli.terminal import Console, Progress, print_json, say
from contextual_lqr.data import DescriptionError, FleetDescription, LogReport, survey_logs
from contextual_lqr.data.sources import find_sources
from contextual_lqr.files import require_writable


def check(
    description: Description,
    /,
    *logs: Log,
    output: Annotated[Path | None, Output] = None,
    sort: Sorted = False,
    as_json: AsJson = False,
) -> None:
    """Say all that is wrong with a fleet's description, and with its logs.

    Parameters
    ----------
    output
        A page to write, check.html: what is in the logs, with a plot.
    """
    console, survey = Console(), None
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
    if output is not None:
        require(logs, "a page needs logs: give some")
        sources = find_sources([str(log) for log in logs])
        require_writable(output, [description, *(source.path for source in sources)])
    if not as_json:
        say_description(console, fleet)
    if logs:
        with Progress("checking") as progress:
            survey = survey_logs(fleet, logs, sort=sort, progress=progress)
    if survey is not None and output is not None:
        write_page(survey, output)
    if as_json:
        report = survey and asdict(survey.report)
        print_json({"faults": [], "logs": report, "survey": survey and survey.as_dict()})
    elif survey is not None:
        say_report(console, survey.report)
        say_survey(console, survey)
    if survey is not None and _is_odd(survey.report):
        sys.exit(1)


def _is_odd(report: LogReport) -> bool:
    """Whether a user must do something about logs."""
    time = report.tables.time
    return bool(report.bad_rows or not report.transitions or (time and time.other_rates))
