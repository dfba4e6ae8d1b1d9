"""How the commands on logs say what they found."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap
from typing import Any

from rich.markup import escape
from rich.table import Table

from contextual_lqr.cli.terminal import Console, percent, say
from contextual_lqr.context.dynamics import used_entries
from contextual_lqr.data import FleetDescription, LogReport, MachineReport, MisfitReport
from contextual_lqr.data.fitting import MOST_SET_ASIDE
from contextual_lqr.data.histories.history_choice import HistoryChoice

_SHOWN = 8  # machines in the table


def say_description(console: Console, fleet: FleetDescription) -> None:
    """What a description describes, in a few lines."""
    p, d, _ = fleet.context_map.shape or (0, 0, 0)
    declared = [one.name for one in fleet.declared]
    known = [declared[i] for i in sorted(fleet.known) if i < len(declared)]
    unknown = d - len(fleet.known)
    if fleet.history is None:
        say(console, f"states    {', '.join(declared)}")
    else:
        outputs = [one for one in declared if one not in known]
        say(console, f"outputs   {', '.join(outputs)}; {fleet.history}")
    say(console, f"inputs    {', '.join(fleet.input_names)}")
    say(console, f"contexts  {', '.join(fleet.context_names)}")
    used = used_entries(fleet.context_map)
    if used is not None:
        free = [i for i in range(d) if i not in fleet.known]
        say(console, f"to learn  {used[free].sum()} numbers, of {p} features")
    elif fleet.history is None or "history" not in fleet.history.auto:
        say(console, f"to learn  {unknown} × {p} numbers")
    if known:
        say(console, f"known     the next {', '.join(known)}")
    for name, rate in fleet.rates.items():
        say(console, f"to test   {name} is the integral of {rate}")
    say(console, f"prior     {fleet.prior_in_words}")


def say_report(console: Console, report: LogReport) -> None:
    """What was found in the logs; of outputs, how late inputs act comes first."""
    if report.history is not None:
        _say_history(console, report.history)
    say(
        console,
        f"{report.rows:,} rows in {_count(report.files, 'log')}: "
        f"{report.transitions:,} transitions of {_count(report.episodes, 'episode')}",
    )
    for name, (low, high) in report.context_range.items():
        say(console, f"{name} from {low:g} to {high:g}")
    for sentence in report.tables.sentences():
        say(console, sentence)
    if report.unused:
        say(console, f"columns not used: {', '.join(report.unused)}")
    if report.empty:
        say(console, f"without rows: {', '.join(report.empty)}")
    if report.splits:
        say(console, f"{_count(report.splits, 'gap')} in steps, which split episodes:")
        for place in report.first_splits:
            say(console, f"  {place}")
    if report.short:
        short = _count(report.short, "episode")
        say(console, f"{short} shorter than the history, from which nothing is learnt")
    if report.repeated:
        say(console, f"{_count(report.repeated, 'transition')} learnt before, and left out")
    if report.copied:
        what = f"{_count(report.copied, 'transition')} of stretches that appear twice, left out"
        say(console, f"{what} once, the first from {report.first_copies[0]}")
    if report.bad:
        say(console, f"{_count(report.bad_rows, 'bad row')}, set aside:")
        for reason, count in sorted(report.bad.items(), key=lambda one: -one[1]):
            say(console, f"  {count:,}: {reason}, first in {report.first_bad[reason][0]}")
    if report.quarantine:
        say(console, f"they are in {report.quarantine}")


def _say_history(console: Console, found: HistoryChoice) -> None:
    for sentence in found.sentences:
        say(console, sentence)
    say(console, f"history   {found.words}, delay {found.delay}")
    if found.errors:
        curve = ", ".join(f"{n}: {error:.3g}" for n, error in found.errors.items())
        ahead = f"errors up to {found.steps} steps ahead, relative to predicting no change"
        for line in wrap(f"{ahead}: {curve}", 68):
            say(console, f"          {line}")


def say_alarm(console: Console, alarm: MisfitReport) -> None:
    """Which machines stand out, by how much, and where a machine's own fit is better."""
    if alarm.not_run:
        say(console, alarm.not_run)
        return
    named, count = alarm.named, len(alarm.machines)
    if not named:
        say(console, f"none of {count} machines stands out")
    else:
        aside = ", and set aside" if alarm.set_aside else ""
        wrong = ""
        if len(named) > MOST_SET_ASIDE * count:
            wrong = ": the description, not the machines, is likely wrong; is a feature missing?"
        verb = "stands" if len(named) == 1 else "stand"
        say(console, f"{len(named)} of {count} machines {verb} out{aside}{wrong or ':'}")
        table = Table(box=None, pad_edge=False)
        for column in ("machine", "p-value", "costs more by", "why"):
            table.add_column(column, justify="left", overflow="fold")
        for one in named[:_SHOWN]:
            p = f"{one.p_value:.1g}" if one.p_value > 1e-99 else "< 1e-99"
            table.add_row(escape(one.label), p, percent(one.excess), escape(one.reason))
        console.print(table)
        if len(named) > _SHOWN:
            say(console, f"and {len(named) - _SHOWN} more")
    kept = [one for one in alarm.machines if not one.named]
    local = sorted((one for one in kept if one.local_is_better), key=_ratio)
    better = f"{len(kept) - len(local)} of {len(kept)}"
    say(console, f"new steps: the fleet's fit is better than a machine's own for {better}")
    if local:
        names = "; ".join(f"{one.label} ({_ratio(one):.2f})" for one in local[:_SHOWN])
        say(console, f"not for, with the ratio of the errors: {names}")


def facts(report: LogReport, alarm: MisfitReport) -> dict[str, Any]:
    """The same for JSON."""
    machines = [asdict(one) | {"local_is_better": one.local_is_better} for one in alarm.machines]
    return {
        "logs": asdict(report),
        "machines": None if alarm.not_run else machines,
        "why_no_alarm": alarm.not_run or None,
        "set_aside": list(alarm.set_aside),
    }


def _ratio(one: MachineReport) -> float:
    return one.local_error / one.fleet_error


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
