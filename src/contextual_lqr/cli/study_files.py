"""What the commands of a study read, addresses, contexts and episodes; and what they show."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from contextual_lqr.checks import require
from contextual_lqr.cli.machines import one_machine
from contextual_lqr.cli.terminal import Console, say
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.given_tables import read_table
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.errors import InputError
from contextual_lqr.files import read_whole, require_regular
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.study import Asked, Study, StudyStatus

_STEPS = 5  # of a plan that are shown
_MACHINES = 20


def address(store: str, *, must_exist: bool = False) -> str:
    """The address of a study; what is none is the name of an SQLite file."""
    if "://" in store:
        return store
    path = Path(store)
    if must_exist and not path.exists():
        hint = f"`contextual-lqr study create {store} fleet.toml` starts one"
        raise InputError(f"there is no file {store}; {hint}")
    if path.exists():
        require_regular(path)
    return f"sqlite:///{path}"


def names_of(study: Study) -> tuple[list[str], list[str]]:
    """The names of states and inputs; x1, x2, … and u1, u2, … if the fleet has no description."""
    if (text := study.description) is not None:
        about = FleetDescription.parse(text)
        return [one.name for one in about.states], [one.name for one in about.inputs]
    cost = study.cost
    return (
        [f"x{k + 1}" for k in range(cost.state_size)],
        [f"u{k + 1}" for k in range(cost.input_size)],
    )


def context_of(
    study: Study,
    pairs: Sequence[str] | None,
    names: Sequence[str] | None = None,
    what: str = "context",
) -> dict[str, float]:
    """The values in `name=value` pairs: a context, or, of other names, a start."""
    known = study.decoder.context_map.names if names is None else names
    require(known is not None, "the contexts of this study have no names: use it from Python")
    assert known is not None
    if not pairs and known:
        raise InputError(f"say which machine: --{what} {known[0]}=value")
    return one_machine(pairs or [], list(known), what)


def episode_from(path: Path, states: Sequence[str], inputs: Sequence[str]) -> Trajectory:
    """What was played: a table with a row a step, or JSON with "states" and "inputs"."""
    if path.suffix.lower() in (".json", ".jsonl"):
        record = _json(path, read_whole(path))
        if not (isinstance(record, dict) and {"states", "inputs"} <= set(record)):
            raise InputError(f'{path} must be JSON as {{"states": [[…], …], "inputs": [[…], …]}}')
        try:
            return Trajectory(record["states"], record["inputs"])
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    frame = read_table(path)
    if missing := [name for name in (*states, *inputs) if name not in frame.columns]:
        raise InputError(f"{path} lacks the column {', '.join(map(repr, missing))}")
    require(len(frame) >= 2, f"{path} has {len(frame)} rows, but an episode has at least two")
    columns = {}
    for name in (*states, *inputs):
        rows = len(frame) - (name in inputs)  # nothing is played in the last state
        values = frame[name][:rows].cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
        if not np.isfinite(values).all():
            row = int(np.isfinite(values).argmin())
            raise InputError(f"{path}: row {row + 1} of '{name}' is not a finite number")
        columns[name] = values
    return Trajectory(
        np.stack([columns[name] for name in states], 1),
        np.stack([columns[name] for name in inputs], 1),
    )


def records_in(path: Path) -> Iterator[tuple[int, Any]]:
    """The records of a file of JSON lines, each with the number of its line."""
    for number, line in enumerate(read_whole(path).splitlines(), 1):
        if line.strip():
            yield number, _json(f"{path}, line {number}", line)


def _json(name: object, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None


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
