"""`contextual-lqr verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import cyclopts
from rich.markup import escape
from rich.table import Table

from contextual_lqr.cli.options import HERE, AsJson, Count, Where
from contextual_lqr.cli.terminal import Console, Progress, print_json
from contextual_lqr.paper.reproduce.config import PathName
from contextual_lqr.paper.verify.checks import Check
from contextual_lqr.paper.verify.runs import FLEETS, VerifySettings
from contextual_lqr.paper.verify.verification import verification


def verify(
    *,
    fleet: Annotated[list[PathName] | None, cyclopts.Parameter(negative="")] = None,
    seeds: Count = 200,
    delta: float = 0.1,
    runs: Count = 4,
    episodes: Count = 10_000,
    out: Path = Path("verify-report"),
    where: Where = HERE,
    beta_factor: float = 1.0,
    as_json: AsJson = False,
) -> None:
    """Measure whether the paper's guarantees hold; exit 1 if one does not.

    Parameters
    ----------
    fleet
        A path to follow; may be repeated. By default all three.
    seeds
        Short runs per fleet, for coverage; and random fleets, for beliefs about machines.
    delta
        The probability that the guarantees may fail.
    runs
        Long runs per fleet, for the rates.
    episodes
        Episodes in a long run.
    out
        Folder for the report, its figures and the rows they are made from.
    beta_factor
        Multiply β by this; below 1, the guarantees may fail, and the checks should say so.
    """
    settings = VerifySettings(
        fleets=tuple(dict.fromkeys(fleet or FLEETS)),
        seeds=seeds,
        delta=delta,
        long_runs=runs,
        long_episodes=episodes,
        beta_factor=beta_factor,
    )
    workers = where.workers
    with Progress("playing", settings.total_episodes, "episodes") as progress:
        found = verification(settings, out, workers, progress.advance)
    if as_json:
        print_json(found.plain())
    else:
        console = Console()
        console.print(_table(found.checks))
        console.print(f"report: {escape(str(out / 'report.html'))}")
    failed = [check for check in found.checks if not check.holds]
    for check in failed:
        sentence = f"{check.name} fails on {check.fleet}: {check.finding}"
        Console(stderr=True).print(f"[red]failed:[/red] {escape(sentence)}")
    if failed:
        sys.exit(1)


def _table(checks: list[Check]) -> Table:
    table = Table("check", "fleet", "", "found", box=None, pad_edge=False)
    for check in checks:
        verdict = "[green]holds[/green]" if check.holds else "[red]fails[/red]"
        table.add_row(check.name, check.fleet, verdict, escape(check.finding))
    return table
