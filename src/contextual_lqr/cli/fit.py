"""`contextual-lqr fit`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from contextual_lqr.certificates.backtest_records import Backtest
from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.cli.log_summary import facts, say_alarm, say_report
from contextual_lqr.cli.options import (
    HERE,
    AsJson,
    DecoderFile,
    DecoderOutput,
    Description,
    Flag,
    Log,
    Sorted,
    Where,
)
from contextual_lqr.cli.terminal import Console, Progress, print_json, say
from contextual_lqr.context import Dynamics
from contextual_lqr.data import FittedFleet, fitting
from contextual_lqr.data.contradictions import contradicted
from contextual_lqr.data.sources import find_sources
from contextual_lqr.errors import InputError
from contextual_lqr.files import locked, require_writable

_MOST = 100_000  # machines: their deviations take some six seconds to estimate


def fit(
    description: Description,
    /,
    *logs: Log,
    output: Annotated[Path | None, DecoderOutput] = None,
    into: DecoderFile | None = None,
    strict: Annotated[bool, Flag] = False,
    robust: Annotated[bool, Flag] = False,
    alarm: bool = True,
    sort: Sorted = False,
    only: str | None = None,
    allow_repeats: Annotated[bool, Flag] = False,
    where: Where = HERE,
    as_json: AsJson = False,
) -> None:
    """Learn a fleet's decoder from its logs.

    Parameters
    ----------
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
    only
        Learn from one machine alone: its label, or its context as mass=2.
    allow_repeats
        Learn again from logs that were learnt before, which then count twice.
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
                workers=where.workers,
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
    console.print(str(backtested))


class FitBacktest(NamedTuple):
    """Would the certificates of so many machines have been right? Or why that is not said."""

    found: Backtest | None
    machines: int
    not_run: str = ""

    def __str__(self) -> str:
        if self.found is None:
            return self.not_run
        tried = len(self.found.machines)
        drawn = "" if tried == self.machines else f" ({tried} drawn from {self.machines:,})"
        return f"backtest: {self.found}{drawn}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        if self.found is None:
            return {"backtest": None, "why_no_backtest": self.not_run}
        numbers = {
            "machines": len(self.found.machines),
            "of": self.machines,
            "trusted": self.found.trusted,
            "wrongly": self.found.wrongly,
            "counted": self.found.counted,
        }
        return {"backtest": numbers, "why_no_backtest": None}


def backtest_fit(fleet: FittedFleet) -> FitBacktest:
    """Leave some hundred of the machines out in turn, if there are two at least, kept apart."""
    store, described = fleet.decoder.store, fleet.description
    n = 0 if store is None else len(store)
    if isinstance(described.context_map, Dynamics):
        return FitBacktest(
            None, n, "no backtest of paths, which takes a while: run `contextual-lqr backtest`"
        )
    if n < 2:
        return FitBacktest(None, n, "no backtest: it takes two machines, to leave one out")
    if n > _MOST:
        why = f"no backtest of {n:,} machines, which takes a while: run `contextual-lqr backtest`"
        return FitBacktest(None, n, why)
    return FitBacktest(fleet_check(fleet.decoder, described.cost, described.start).backtest, n)
