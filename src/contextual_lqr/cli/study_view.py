"""How plans and the state of a study are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from contextual_lqr.cli.terminal import Console, say
from contextual_lqr.study import Asked, StudyStatus

_STEPS = 5  # of a plan that are shown
_MACHINES = 20


def plan_facts(plan: Asked, states: Sequence[str], inputs: Sequence[str]) -> dict[str, Any]:
    """All that a machine needs to play it: u = gains[k] x + offsets[k], within low and high."""
    low, high = plan.input_bounds or (None, None)
    return {
        "key": plan.key,
        "machine": plan.machine,
        "context": plan.context,
        "promised_cost": plan.promised_cost,
        "states": list(states),
        "inputs": list(inputs),
        "gains": plan.policy.gains.tolist(),
        "offsets": plan.offsets.tolist(),
        "dither": None if plan.dither is None else plan.dither.tolist(),
        "low": None if low is None else low.tolist(),
        "high": None if high is None else high.tolist(),
    }


def plan_tables(
    console: Console, plan: Asked, states: Sequence[str], inputs: Sequence[str]
) -> None:
    """The first steps of a plan: a row an input, what each state is multiplied by, and the rest."""
    steps = len(plan.policy.gains)
    say(console, f"key            {plan.key}")
    if plan.machine is not None:
        say(console, f"machine        {plan.machine}")
    say(console, f"promised cost  {plan.promised_cost:.4g}")
    table = Table(title="u = K x + dither", title_justify="left")
    for name in ("step", "input", *states, "dither"):
        table.add_column(escape(name), justify="right" if name != "input" else "left")
    for step in range(min(steps, _STEPS)):
        for i, name in enumerate(inputs):
            gains = [f"{value:.3g}" for value in plan.policy.gains[step, i]]
            table.add_row(str(step), escape(name), *gains, f"{plan.offsets[step, i]:.3g}")
    console.print(table)
    if steps > _STEPS:
        say(console, f"and {steps - _STEPS} more steps; --json has them all")


def status_table(console: Console, status: StudyStatus) -> None:
    """Counts, and the machines that told most."""
    say(console, f"{status.episodes:,} episodes, {status.rows:,} steps learnt")
    say(console, f"asks: {status.waiting:,} out, {status.late:,} late")
    table = Table("machine", "episodes", "late asks", title_justify="left")
    table.columns[1].justify = table.columns[2].justify = "right"
    late = {name: status.late_machines.count(name) for name in set(status.late_machines)}
    told = sorted(status.machines.items(), key=lambda one: (-one[1], one[0]))
    told += [(name, 0) for name in sorted(late) if name not in status.machines]
    for name, count in told[:_MACHINES]:
        table.add_row(escape(name), f"{count:,}", f"{late.get(name, 0):,}")
    if told:
        console.print(table)
    if len(told) > _MACHINES:
        say(console, f"and {len(told) - _MACHINES:,} more machines; --json has them all")
