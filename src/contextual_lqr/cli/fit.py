"""`contextual-lqr fit`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from contextual_lqr.cli.fit_backtest import backtest_fit
from contextual_lqr.cli.log_summary import facts, say_alarm, say_report
from contextual_lqr.cli.options import (
    AsJson,
    Certificates,
    DecoderOutput,
    Description,
    Fitted,
    Flag,
    Log,
    chosen_workers,
)
from contextual_lqr.cli.terminal import Console, Progress, print_json, say
from contextual_lqr.data import FittedFleet, fitting
from contextual_lqr.data.contradictions import contradicted
from contextual_lqr.data.sources import find_sources
from contextual_lqr.errors import InputError
from contextual_lqr.files import locked, require_writable


def fit(
    description: Description,
    /,
    *logs: Log,
    output: Annotated[Path | None, DecoderOutput] = None,
    into: Fitted | None = None,
    strict: Annotated[bool, Flag] = False,
    robust: Annotated[bool, Flag] = False,
    alarm: bool = True,
    sort: Annotated[bool, Flag] = False,
    only: str | None = None,
    allow_repeats: Annotated[bool, Flag] = False,
    jobs: int | None = None,
    cluster: str | None = None,
    certificates: Certificates | None = None,
    as_json: AsJson = False,
) -> None:
    """Learn a fleet's decoder from its logs.

    Parameters
    ----------
    description
        The fleet's description, fleet.toml.
    logs
        Parquet, CSV or Excel files, folders or globs of them, or minari:ID.
    output
        The decoder file to write.
    into
        A decoder file to add to; it is overwritten unless -o names another.
    strict
        Refuse logs with bad rows, instead of setting these aside.
    robust
        Leave out machines that do not obey the fleet's model.
    alarm
        Look for such machines.
    sort
        Sort each log by episode and step first.
    only
        Learn from one machine alone: its label, or its context as mass=2.
    allow_repeats
        Learn again from logs that were learnt before, which then count twice.
    jobs
        Threads that read and learn at once; by default as many as there are cores.
    cluster
        Let the workers of this Dask scheduler, tcp://host:8786, do it: they read the same paths.
    as_json
        Print JSON, for a script to read.
    """
    target = output or into
    if target is None:
        raise InputError("where to? Give -o fleet.decoder, or --into a decoder to add to")
    sources = find_sources([str(log) for log in logs])
    require_writable(target, [description, *(source.path for source in sources)])
    with nullcontext() if into is None else locked(target):
        earlier = None if into is None else FittedFleet.load(into)
        with Progress("fitting") as progress:
            fleet = fitting.fit(
                description,
                logs,
                into=earlier,
                strict=strict,
                robust=robust,
                alarm=alarm,
                sort=sort,
                only=only,
                allow_repeats=allow_repeats,
                quarantine=target.with_name(f"{target.name}.quarantine.csv"),
                progress=progress,
                workers=chosen_workers(jobs, cluster, certificates),
            )
        fleet.save(target)
    assert fleet.report is not None and fleet.alarm is not None  # noqa: PT018 - it is no test
    backtested = backtest_fit(fleet)
    if as_json:
        found = facts(fleet.report, fleet.alarm) | backtested.as_dict()
        found["contradicted"] = contradicted(fleet.description, fleet.decoder)
        print_json({"written": str(target), **found})
        return
    console, decoder = Console(), fleet.decoder
    say_report(console, fleet.report)
    for sentence in contradicted(fleet.description, decoder):
        say(console, sentence)
    say_alarm(console, fleet.alarm)
    if decoder.ignored_rows:
        say(console, f"{decoder.ignored_rows:,} rows are so large that rounding swamps the noise")
    say(console, f"{target} is written: {decoder.rows:,} rows of {decoder.episodes:,} episodes")
    console.print(str(backtested), highlight=False)
