"""`contextual-lqr design`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter
from numpy import ndarray as Array

from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certify import certify
from contextual_lqr.certificates.paths.path_certificate import PathCertificate
from contextual_lqr.cli.design_view import ROWS_SHOWN, Designed, proven, show, summary
from contextual_lqr.cli.machines import (
    Machines,
    beyond_logs,
    chosen_machines,
    load_learnt,
    one_machine,
    read_machines,
)
from contextual_lqr.cli.options import (
    AsJson,
    Context,
    Count,
    Fitted,
    Flag,
    Machine,
    OptionalFile,
    Output,
    Seed,
)
from contextual_lqr.cli.retuning import retuned_task, show_tradeoff
from contextual_lqr.cli.terminal import Console, Progress, print_text, say
from contextual_lqr.context import Schedule
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.data.designing import design_many, doubted
from contextual_lqr.data.forecast import read_forecast
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write, finite, require_writable
from contextual_lqr.lqr.stationary import gains_of


def design(
    fleet: Fitted,
    /,
    *,
    context: Context = None,
    contexts: OptionalFile = None,
    schedule: OptionalFile = None,
    machine: Machine = None,
    horizon: int | None = None,
    Q: Annotated[str | None, Parameter(name="--Q")] = None,
    R: Annotated[str | None, Parameter(name="--R")] = None,
    target: str | None = None,
    integral: str | None = None,
    measured: str | None = None,
    forecast: OptionalFile = None,
    sweep: Literal["R"] | None = None,
    beta: Literal["regression", "determinant"] = "regression",
    delta: float = 0.05,
    draws: Count = 200,
    quick: Annotated[bool, Flag] = False,
    seed: Seed = 0,
    as_json: Annotated[AsJson, Parameter(help="Write JSON: certificates and gains.")] = False,
    csv: Annotated[bool, Flag] = False,
    npz: Annotated[bool, Flag] = False,
    output: Annotated[Path | None, Output] = None,
) -> None:
    """Controllers, each with a certificate, for machines never tried or with data of their own.

    Parameters
    ----------
    contexts
        A table with one row per machine, in the units of its headings; with a column `machine`,
        what was logged under that name and context counts.
    schedule
        A table with one row per step: one machine whose context changes during the episode;
        --context gives what is constant.
    horizon
        The number of states in an episode, if not the fleet's; without any horizon there is one
        constant gain, for machines that run continuously.
    Q
        Other weights for the states: name=value, with commas, the rest being 0; or all in order.
    R
        Other weights for the inputs, likewise.
    target
        Another target: name=value, or for an episode a table with one row per step.
    integral
        States without a steady error, where there is no horizon: names, name=weight, or none.
    measured
        The current values of [measured] disturbances, name=value; expected to stay as they are.
    forecast
        A table with one row per step: how they will change. The controller acts on it ahead.
    sweep
        R: try it 0.01 to 100 times as large, and plot the trade-off to --output, a .png or .svg.
    beta
        Which decoders are plausible; determinant is wider, and allows for logs of learning agents.
    delta
        The probability that the interval may miss the true cost.
    draws
        The number of posterior draws.
    quick
        Search for the ends of the interval, without proving them.
    seed
        The seed of the posterior draws.
    csv
        Write a table with one row per machine, gains included.
    npz
        Write NumPy arrays; needs --output.
    output
        The file to write; .json, .csv and .npz say their format.
    """
    form = None if sweep else _format(as_json, csv, npz, output)
    if output is not None:
        require_writable(
            output, [one for one in (fleet, contexts, schedule, forecast) if one is not None]
        )
    fitted = load_learnt(fleet)
    described = retuned_task(fitted.description, Q, R, target, horizon, integral, measured)
    if integral is not None and described.horizon is not None:
        raise InputError("--integral is for machines that run continuously, without a horizon")
    options: Any = {"beta": beta, "delta": delta, "draws": draws, "bounds": not quick}
    options["rng"] = np.random.default_rng(seed)
    if schedule is not None:
        if any(one is not None for one in (contexts, machine, sweep, forecast)):
            raise InputError("--schedule is for one machine never seen: leave out the others")
        along = along_schedule(fitted, described, schedule, context, horizon, **options)
        described, machines, certificates = along
    else:
        machines = chosen_machines(fitted, context, contexts, machine)
        if sweep is not None:
            if forecast is not None:
                raise InputError("--sweep and --forecast cannot be combined: leave one of them out")
            show_tradeoff(fitted, described, machines, draws, seed, as_json, output)
            return
        if forecast is not None:
            options["forecast"], said = read_forecast(forecast, described)
            for sentence in said:
                say(Console(stderr=True), sentence)
        certificates = _certified(fitted, described, machines, **options)
    designed = Designed(fitted, described, machines, certificates, beta, delta, quick)
    if form is None:
        show(designed)
        return
    content = _content(form, designed)
    if output is None:
        print_text(content.decode())
    else:
        atomic_write(output, content)
        Console(stderr=True).print(summary(certificates, f"{output}: "))


def _format(as_json: bool, csv: bool, npz: bool, output: Path | None) -> str | None:
    asked = [name for name, on in (("json", as_json), ("csv", csv), ("npz", npz)) if on]
    if len(asked) > 1:
        raise InputError(f"one format at a time, not --{' and --'.join(asked)}")
    if asked == ["npz"] and output is None:
        raise InputError("--npz writes arrays to a file: say which with --output")
    if asked or output is None:
        return asked[0] if asked else None
    suffix = output.suffix.lower().lstrip(".")
    if suffix not in ("json", "csv", "npz"):
        raise InputError(f"say the format of {output}: --json, --csv or --npz")
    return suffix


def _certified(
    fitted: FittedFleet, described: FleetDescription, machines: Machines, **options: Any
) -> list[Certificate]:
    contexts: Any = machines.contexts or [{}]
    own = machines.own_labels
    with Progress("certifying", len(machines), "machines") as progress:
        told: dict[str, Any] = {"machine": own, "progress": progress.advance}
        return design_many(fitted, contexts, described, **told, **options)


def _content(form: str, designed: Designed) -> bytes:
    fitted, described, machines, certificates, beta, delta, quick = designed
    constant = described.horizon is None
    paths = [one.path for one in certificates if isinstance(one, PathCertificate) and one.path]
    gains = np.stack([path.gains for path in paths] or [gains_of(c.policy) for c in certificates])
    names: Sequence[str] = described.state_names
    if made := designed.controllers:
        names, gains = made[0].gain_columns, np.stack([one.gain for one in made])
    called = "gain" if constant else "gains"
    rows = [
        _row(fitted, machines, i, one)
        | {"certified": not quick and proven(one), "beta": beta, "delta": delta}
        for i, one in enumerate(certificates)
    ]
    planned = {
        f"path_{what}": np.stack([getattr(path, what) for path in paths])
        for what in ("states", "inputs")
        if paths
    }
    if form == "json":
        for i, (row, K) in enumerate(zip(rows, gains, strict=True)):
            row[called] = finite(K)
            row |= {name: finite(values[i]) for name, values in planned.items()}
        whole = {
            "states": list(described.state_names),
            "inputs": list(described.input_names),
            "gain_columns": list(names),
            "horizon": described.horizon,
            "machines": rows,
        }
        indent = 2 if len(rows) <= ROWS_SHOWN else None  # no one reads thousands, and it is slow
        return (json.dumps(whole, allow_nan=False, indent=indent) + "\n").encode()
    flat = [_flat(row) for row in rows]
    if form == "npz":
        columns = {name: [row[name] for row in flat] for name in flat[0]}
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {name: _array(column) for name, column in columns.items()}
        arrays["states"] = np.array(described.state_names)
        arrays["inputs"] = np.array(described.input_names)
        arrays |= {called: gains, **planned}
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()
    table: dict[str, Any] = {name: [row[name] for row in flat] for name in flat[0]}
    for h in range(1 if constant else gains.shape[1]):
        K, number = (gains, "") if constant else (gains[:, h], h + 1)
        for i, u in enumerate(described.input_names):
            for j, x in enumerate(names):
                table[f"K{number}.{u}.{x}"] = K[:, i, j]
    for letter, values in zip("xu", planned.values(), strict=False):
        own = described.state_names if letter == "x" else described.input_names
        for h, i in np.ndindex(*values.shape[1:]):
            table[f"{letter}{h + 1}.{own[i]}"] = values[:, h, i]
    return pl.DataFrame(table, strict=False).write_csv().encode()


def _array(column: list[Any]) -> Array:
    """Numbers as numbers, what is missing as NaN, the rest as text."""
    if all(x is None or isinstance(x, float) for x in column):
        return np.array([np.nan if x is None else x for x in column])
    return np.array(column)


def _row(
    fitted: FittedFleet, machines: Machines, i: int, certificate: Certificate
) -> dict[str, Any]:
    named = {} if machines.labels is None else {"machine": machines.labels[i]}
    beyond = beyond_logs(fitted, certificate.context)
    own = {"own_rows": machines.own_rows[i]}
    return named | certificate.as_dict() | own | {"beyond_logs": sorted(beyond)}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a table: a column for each value of the context."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "context":
            flat |= value if isinstance(value, dict) else {}
        else:
            flat[name] = " ".join(value) if name == "beyond_logs" else value
    return flat


def read_schedule(path: Path, context: Sequence[str] | None, about: FleetDescription) -> Schedule:
    """A step a row; what stays may be given as name=value instead."""
    names = about.context_names
    given = {text.split("=")[0].strip() for part in context or () for text in part.split(",")}
    fixed = one_machine(context or [], [name for name in names if name in given])
    changing = [name for name in names if name not in fixed]
    if not changing:
        raise InputError("--context gives every value, so --schedule adds nothing")
    return Schedule(fixed | dict(read_machines(path, about, changing).contexts))


def along_schedule(
    fitted: FittedFleet,
    described: FleetDescription,
    path: Path,
    context: Sequence[str] | None,
    horizon: int | None,
    **options: Any,
) -> tuple[FleetDescription, Machines, list[Certificate]]:
    """The task, as long as the schedule; the machine, and its certificate."""
    schedule = read_schedule(path, context, described)
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
