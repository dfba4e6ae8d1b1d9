"""`design --schedule`: the controller of a machine whose context changes during the episode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certify import certify
from contextual_lqr.cli.machines import Machines, one_machine, read_machines
from contextual_lqr.context import Schedule
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.data.designing import doubted
from contextual_lqr.errors import InputError


def read_schedule(path: Path, context: Sequence[str] | None, names: Sequence[str]) -> Schedule:
    """A step a row, from CSV or Parquet; what stays may be given as name=value instead."""
    given = {text.split("=")[0].strip() for part in context or () for text in part.split(",")}
    fixed = one_machine(context or [], [name for name in names if name in given])
    changing = [name for name in names if name not in fixed]
    if not changing:
        raise InputError("--context gives every value, so --schedule adds nothing")
    return Schedule(fixed | dict(read_machines(path, changing).contexts))


def along_schedule(
    fitted: FittedFleet,
    described: FleetDescription,
    path: Path,
    context: Sequence[str] | None,
    horizon: int | None,
    **options: Any,
) -> tuple[FleetDescription, Machines, list[Certificate]]:
    """The task, as long as the schedule; the machine, and its certificate."""
    schedule = read_schedule(path, context, described.context_names)
    steps = len(schedule)
    if horizon not in (None, steps + 1):
        raise InputError(
            f"{path} has {steps} rows, one for each step, so the horizon is {steps + 1}: leave "
            "--horizon out"
        )
    task = described.with_horizon(steps + 1)
    found = certify(
        fitted.decoder,
        schedule,
        task.cost,
        task.start,
        input_bounds=task.input_bounds,
        states=task.state_names,
        **options,
    )
    return task, Machines({}, None, (0,)), doubted(fitted, [found])
