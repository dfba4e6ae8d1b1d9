"""`contextual-lqr design`."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
import numpy as np
from numpy import ndarray as Array
from rich.markup import escape
from rich.table import Table

from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certify import certify_many
from contextual_lqr.certificates.limits import LOGGED
from contextual_lqr.cli.machines import Machines, beyond_logs, chosen_machines, own_data, shown
from contextual_lqr.cli.options import AsJson, Count, Fitted, Flag, OptionalFile, Seed
from contextual_lqr.cli.schedules import along_schedule
from contextual_lqr.cli.terminal import Console, Progress, percent, print_text
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write, require_writable

_COLOURS = {"trust": "green", "caution": "yellow", "do not use": "red"}
_ROWS_SHOWN = 20


def design(
    fleet: Fitted,
    /,
    *,
    context: Annotated[list[str] | None, cyclopts.Parameter(negative="")] = None,
    contexts: OptionalFile = None,
    schedule: OptionalFile = None,
    machine: str | None = None,
    horizon: int | None = None,
    beta: Literal["regression", "determinant"] = "regression",
    delta: float = 0.05,
    draws: Count = 200,
    quick: Annotated[bool, Flag] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    csv: Annotated[bool, Flag] = False,
    npz: Annotated[bool, Flag] = False,
    output: Annotated[Path | None, cyclopts.Parameter(name=["--output", "-o"])] = None,
) -> None:
    """Controllers, each with a certificate, for machines never tried or with data of their own.

    Parameters
    ----------
    fleet
        What `fit` wrote.
    context
        The machine, as name=value; several values with commas, or the option again.
    contexts
        A table (CSV or Parquet) with a machine a row; a column `machine` names them, and what was
        logged under that name and context counts.
    schedule
        A table with a step a row: one machine whose context changes during the episode; --context
        gives what stays.
    machine
        The label of a machine in the logs: what it has shown itself counts, too.
    horizon
        Another number of states of an episode than the fleet's.
    beta
        Which decoders are plausible; determinant, wider, allows for logs of agents that learnt.
    delta
        The probability with which the interval may miss the true cost.
    draws
        The number of posterior draws.
    quick
        Search for the ends of the interval, without proving them.
    seed
        Of the posterior draws.
    as_json
        Write JSON: certificates and gains.
    csv
        Write a table with a row a machine, gains included.
    npz
        Write NumPy arrays; needs --output.
    output
        The file to write; .json, .csv and .npz say their format.
    """
    form = _format(as_json, csv, npz, output)
    if output is not None:
        require_writable(output, [one for one in (fleet, contexts, schedule) if one is not None])
    fitted = FittedFleet.load(fleet)
    described = fitted.description if horizon is None else fitted.description.with_horizon(horizon)
    _require_logs(fitted, fleet)
    options: Any = {"beta": beta, "delta": delta, "draws": draws, "bounds": not quick}
    options["rng"] = np.random.default_rng(seed)
    if schedule is None:
        machines = chosen_machines(fitted, context, contexts, machine)
        certificates = _certified(fitted, described, machines, **options)
    else:
        if contexts is not None or machine is not None:
            raise InputError("--schedule is for one machine never seen: leave out the others")
        along = along_schedule(fitted, described, schedule, context, horizon, **options)
        described, machines, certificates = along
    certificates = _doubted(fitted, certificates)
    if form is None:
        _show(fitted, described, machines, certificates, beta, delta, quick)
        return
    content = _content(form, fitted, described, machines, certificates, beta, delta, quick)
    if output is None:
        print_text(content.decode())
    else:
        atomic_write(output, content)
        Console(stderr=True).print(_summary(certificates, f"{output}: "), highlight=False)


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


def _require_logs(fitted: FittedFleet, fleet: Path) -> None:
    if not fitted.decoder.rows:
        raise InputError(f"{fleet} has learnt from no log yet: `contextual-lqr fit` comes first")


def _certified(
    fitted: FittedFleet, described: FleetDescription, machines: Machines, **options: Any
) -> list[Certificate]:
    contexts: Any = machines.contexts or [{}]
    with Progress("certifying", len(machines), "machines") as progress:
        return certify_many(
            fitted.decoder,
            contexts,
            described.cost,
            described.start,
            machine=machines.own_labels,
            input_bounds=described.input_bounds,
            states=described.state_names,
            progress=progress.advance,
            **options,
        )


def _doubted(fitted: FittedFleet, found: list[Certificate]) -> list[Certificate]:
    """No trust where many machines stand out."""
    doubt = fitted.doubt
    return [
        replace(one, verdict="caution", reason=f"{doubt}; {one.reason}")
        if doubt and one.verdict == "trust"
        else one
        for one in found
    ]


def _content(
    form: str,
    fitted: FittedFleet,
    described: FleetDescription,
    machines: Machines,
    certificates: list[Certificate],
    beta: str,
    delta: float,
    quick: bool,
) -> bytes:
    gains = np.stack([one.policy.gains for one in certificates])
    rows = [
        _row(fitted, machines, i, one) | {"certified": not quick, "beta": beta, "delta": delta}
        for i, one in enumerate(certificates)
    ]
    if form == "json":
        for row, K in zip(rows, gains, strict=True):
            row["gains"] = K.tolist()
        whole = {
            "states": list(described.state_names),
            "inputs": list(described.input_names),
            "horizon": described.horizon,
            "machines": rows,
        }
        indent = 2 if len(rows) <= _ROWS_SHOWN else None  # no one reads thousands, and it is slow
        return (json.dumps(whole, allow_nan=False, indent=indent) + "\n").encode()
    flat = [_flat(row) for row in rows]
    if form == "npz":
        columns = {name: [row[name] for row in flat] for name in flat[0]}
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {name: _array(column) for name, column in columns.items()}
        arrays["states"] = np.array(described.state_names)
        arrays["inputs"] = np.array(described.input_names)
        np.savez_compressed(buffer, gains=gains, **arrays)
        return buffer.getvalue()
    import polars as pl

    table: dict[str, Any] = {name: [row[name] for row in flat] for name in flat[0]}
    for h in range(gains.shape[1]):
        for i, u in enumerate(described.input_names):
            for j, x in enumerate(described.state_names):
                table[f"K{h + 1}.{u}.{x}"] = gains[:, h, i, j]
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


def _show(
    fitted: FittedFleet,
    described: FleetDescription,
    machines: Machines,
    certificates: list[Certificate],
    beta: str,
    delta: float,
    quick: bool,
) -> None:
    console = Console()
    if len(certificates) == 1:
        _show_one(console, fitted, described, machines, certificates[0], beta, delta, quick)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, where in (
        ("machine", "left"),
        ("verdict", "left"),
        ("predicted", "right"),
        ("from", "right"),
        ("to", "right"),
        ("excess", "right"),
        ("score", "right"),
    ):
        table.add_column(name, justify=where, no_wrap=name != "machine")  # type: ignore[arg-type]
    for i, one in enumerate(certificates[:_ROWS_SHOWN]):
        label = shown(one.context) if machines.labels is None else machines.labels[i]
        table.add_row(
            escape(label),
            f"[{_COLOURS[one.verdict]}]{one.verdict}[/]",
            *(_number(x) for x in (one.predicted_cost, *_ends(one, quick))),
            percent(one.likely_excess),
            _number(one.extrapolation.score, 2),
        )
    console.print(table)
    if len(certificates) > _ROWS_SHOWN:
        more = len(certificates) - _ROWS_SHOWN
        console.print(f"… and {more} more; --output machines.csv writes all", highlight=False)
    console.print(_summary(certificates), highlight=False)
    if far := [one.reason for one in certificates if LOGGED in one.reason]:
        said = f"{len(far)} of them beyond the logs, such as: {escape(far[0].split('; ')[0])}"
        console.print(said, highlight=False)
    if own := sum(n > 0 for n in machines.own_rows):
        rows = sum(machines.own_rows)
        have = "has data of its own" if own == 1 else "have data of their own"
        console.print(f"{own} of them {have}, {rows:,} rows in all", highlight=False)
    console.print(_interval_note(beta, delta, quick), style="dim", highlight=False)


def _show_one(
    console: Console,
    fitted: FittedFleet,
    described: FleetDescription,
    machines: Machines,
    one: Certificate,
    beta: str,
    delta: float,
    quick: bool,
) -> None:
    (low, high), place = _ends(one, quick), one.extrapolation.score
    found = f"{_number(one.lower.searched)} to {_number(one.upper.searched)}"
    gaps = f"{percent(one.lower.gap)} and {percent(one.upper.gap)}"
    name = f"{machines.labels[0]}: " if machines.labels is not None else ""
    facts = [
        ("machine", escape(name + shown(one.context, described.units))),
        ("verdict", f"[bold {_COLOURS[one.verdict]}]{one.verdict}[/]"),
        ("because", escape(one.reason)),
        ("predicted cost", _number(one.predicted_cost)),
        ("true cost", f"{_number(low)} to {_number(high)}"),
        ("", "(searched, not proven)" if quick else f"(a search found {found}; gaps of {gaps})"),
        ("likely excess", f"{percent(one.likely_excess)} over the best possible, at 95 %"),
        ("instability", f"{one.instability:.1%} of the posterior draws"),
        ("extrapolation", f"{escape(str(one.extrapolation))} (score {place:.2g})"),
    ]
    if machines.labels is not None:
        facts.append(("own data", own_data(fitted.decoder, machines.own_rows[0])))
    for name, (least, most) in beyond_logs(fitted, one.context).items():
        facts.append(("beyond logs", f"{escape(name)}: the logs have {least:.4g} to {most:.4g}"))
    listed = Table.grid(padding=(0, 2))
    for name, text in facts:
        listed.add_row(name, text)
    console.print(listed, highlight=False)
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("gains, step 1")
    for name in described.state_names:
        table.add_column(escape(name), justify="right")
    for name, row in zip(described.input_names, one.policy.gains[0], strict=True):
        table.add_row(escape(name), *(f"{x:.4g}" for x in row))
    console.print(table)
    steps = len(one.policy.gains)
    console.print(
        f"u = K x; all {steps} steps are in --json, --csv and --npz.", style="dim", highlight=False
    )
    console.print(_interval_note(beta, delta, quick), style="dim", highlight=False)


def _ends(one: Certificate, quick: bool) -> tuple[float, float]:
    """The interval; what the search found of it, if nothing was to be proven."""
    return (one.lower.searched, one.upper.searched) if quick else one.interval


def _interval_note(beta: str, delta: float, quick: bool) -> str:
    if quick:
        return "--quick: the interval was searched for, and is not proven."
    return f"The interval holds for all decoders of the {beta} set, at 1 - delta = {1 - delta:g}."


def _summary(certificates: list[Certificate], prefix: str = "") -> str:
    counts = {verdict: 0 for verdict in _COLOURS}
    for one in certificates:
        counts[one.verdict] += 1
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    count = f"{len(certificates)} machine{'s' if len(certificates) > 1 else ''}"
    return f"{escape(prefix)}{count}: {said}"


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if np.isfinite(value) else "∞"
