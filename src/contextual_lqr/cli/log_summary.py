"""How the commands on logs say what they found."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from contextual_lqr.cli.terminal import say
from contextual_lqr.data import FleetDescription
from contextual_lqr.data.misfit import MisfitReport
from contextual_lqr.data.report import Report

_SHOWN = 8  # machines in the table


def say_description(console: Console, fleet: FleetDescription) -> None:
    """What a description describes, in a few lines."""
    p, d, _ = fleet.context_map.shape or (0, 0, 0)
    known = [fleet.state_names[i] for i in sorted(fleet.known)]
    say(console, f"states    {', '.join(fleet.state_names)}")
    say(console, f"inputs    {', '.join(fleet.input_names)}")
    say(console, f"contexts  {', '.join(fleet.context_names)}")
    learnt = d - len(known)
    say(console, f"to learn  {learnt} × {p} numbers")
    if known:
        say(console, f"known     the next {', '.join(known)}")


def say_report(console: Console, report: Report) -> None:
    """What was found in the logs."""
    say(
        console,
        f"{report.rows:,} rows in {_count(report.files, 'log')}: "
        f"{report.transitions:,} transitions of {_count(report.episodes, 'episode')}",
    )
    for name, (low, high) in report.context_range.items():
        say(console, f"{name} from {low:g} to {high:g}")
    if report.unused:
        say(console, f"columns not used: {', '.join(report.unused)}")
    if report.empty:
        say(console, f"without rows: {', '.join(report.empty)}")
    if report.splits:
        say(console, f"{_count(report.splits, 'gap')} of missing steps, which split episodes:")
        for place in report.first_splits:
            say(console, f"  {place}")
    if report.bad:
        say(console, f"{_count(report.bad_rows, 'bad row')}, set aside:")
        for reason, count in sorted(report.bad.items(), key=lambda one: -one[1]):
            say(console, f"  {count:,}: {reason}, first in {report.first_bad[reason][0]}")
    if report.quarantine:
        say(console, f"they are in {report.quarantine}")


def say_misfit(console: Console, misfit: MisfitReport | None, why: str, aside: Any) -> None:
    """Which machines do not fit in, and where a fit of one machine alone is better."""
    if misfit is None:
        say(console, why)
        return
    named = misfit.named
    if not named:
        say(console, f"none of {len(misfit.machines)} machines stands out")
    elif 2 * len(named) > len(misfit.machines):
        say(
            console,
            f"{len(named)} of {len(misfit.machines)} machines stand out: the description, not the "
            "machines, is likely wrong; is a feature missing?",
        )
    else:
        verb = "does" if len(named) == 1 else "do"
        what = f"{len(named)} of {len(misfit.machines)} machines {verb} not obey the fleet's model"
        say(console, what + (", and set aside" if aside else "") + ":")
    if named:
        table = Table(box=None, pad_edge=False)
        for column in ("machine", "p-value", "why"):
            table.add_column(column, justify="left", overflow="fold")
        for one in named[:_SHOWN]:
            table.add_row(escape(one.label), _p(one.log_p_value), escape(one.reason))
        console.print(table)
        if len(named) > _SHOWN:
            say(console, f"and {len(named) - _SHOWN} more")
    kept = [one for one in misfit.machines if not one.named]
    local = [one for one in kept if one.local_is_better]
    say(
        console,
        f"held-out steps: the fleet's fit is better than a machine's own for "
        f"{len(kept) - len(local)} of {len(kept)}",
    )
    if local:
        worst = sorted(local, key=lambda one: one.local_error / one.fleet_error)[:_SHOWN]
        names = "; ".join(f"{one.label} ({one.local_error / one.fleet_error:.2f})" for one in worst)
        say(console, f"not for, with the ratio of the errors: {names}")


def facts(report: Report, misfit: MisfitReport | None, why: str, aside: tuple[str, ...]) -> Any:
    """The same for JSON."""
    from dataclasses import asdict

    machines = None
    if misfit is not None:
        machines = [
            asdict(one) | {"local_is_better": one.local_is_better} for one in misfit.machines
        ]
    return {
        "logs": asdict(report),
        "machines": machines,
        "why_no_alarm": why or None,
        "set_aside": list(aside),
    }


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _p(log_p: float) -> str:
    """A p-value, however small."""
    exponent = log_p / 2.302585092994046
    return f"{10**exponent:.2g}" if exponent > -300 else f"1e{exponent:.0f}"
