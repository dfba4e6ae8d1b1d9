"""`contextual-lqr fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from contextual_lqr.cli.findings import Progress, facts, say, say_misfit, say_report
from contextual_lqr.cli.options import AsJson, chosen_workers
from contextual_lqr.errors import InputError
from contextual_lqr.logs import FittedFleet, FleetDescription, fitting


def fit(
    description: Path,
    /,
    *logs: str,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    into: Path | None = None,
    strict: bool = False,
    robust: bool = False,
    alarm: bool = True,
    sort: bool = False,
    only: str | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Learn a fleet's decoder from its logs.

    Parameters
    ----------
    description
        The fleet's description, fleet.toml.
    logs
        Parquet or CSV files, folders or globs of them, or minari:ID.
    output
        The decoder file to write.
    into
        A decoder file to add to; it is written anew unless -o names another.
    strict
        Refuse logs with bad rows, instead of setting these aside.
    robust
        Set machines aside that do not obey the fleet's model.
    alarm
        Look for such machines.
    sort
        Sort each log by episode and step first.
    only
        Learn from one machine alone: its label, or its context as mass=2.
    jobs
        Threads that read and learn at once; as many as there are cores unless given.
    cluster
        Let the workers of this Dask scheduler, tcp://host:8786, do it: they read the same paths.
    as_json
        Print JSON, for a script to read.
    """
    target = output or into
    if target is None:
        raise InputError("where to? Give -o fleet.decoder, or --into a decoder to add to")
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"cannot write {target}: it must be a file in a folder that exists")
    fleet = FleetDescription.read(description)
    earlier = None if into is None else FittedFleet.load(into)
    with Progress("fitting") as progress:
        done = fitting.fit(
            fleet,
            logs,
            into=earlier,
            strict=strict,
            robust=robust,
            alarm=alarm,
            sort=sort,
            only=only,
            quarantine=target.with_name(f"{target.name}.quarantine.csv"),
            progress=progress,
            workers=chosen_workers(jobs, cluster),
        )
    done.fleet.save(target)
    console = Console()
    if as_json:
        found = facts(done.report, done.misfit, done.why_no_alarm, done.set_aside)
        console.print_json(json.dumps({"written": str(target), **found}))
        return
    say_report(console, done.report)
    say_misfit(console, done.misfit, done.why_no_alarm, done.set_aside)
    decoder = done.fleet.decoder
    if decoder.ignored_rows:
        say(console, f"{decoder.ignored_rows:,} rows are so large that rounding drowns the noise")
    say(console, f"{target} is written: {decoder.rows:,} rows of {decoder.episodes:,} episodes")
