"""`contextual-lqr export`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from contextual_lqr.cli.machines import chosen_machines, load_learnt, shown
from contextual_lqr.cli.options import AsJson, Context, Fitted, Flag, Machine, Output
from contextual_lqr.cli.terminal import Console, print_json
from contextual_lqr.context import Dynamics
from contextual_lqr.context.columns import column_names
from contextual_lqr.data import FittedFleet
from contextual_lqr.deployment.c_file import CFile, believed_law, c_file
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write, require_writable

_CONTEXT = (
    "One machine, as name=value; several values with commas, or the option again. Its C file holds "
    "its gain, and takes no context at run time."
)


def export(
    fleet: Fitted,
    /,
    *,
    output: Annotated[Path, Output],
    header: Annotated[bool, Flag] = False,
    single: Annotated[bool, Flag, Parameter(name="--float")] = False,
    context: Annotated[Context, Parameter(help=_CONTEXT)] = None,
    machine: Machine = None,
    prefix: str | None = None,
    as_json: Annotated[AsJson, Parameter(help="Print what it takes as JSON.")] = False,
) -> None:
    """A controller as one C file that takes the context at run time, or the model as JSON.

    Parameters
    ----------
    output
        The file to write: .c for the controller, .json for the decoder and one machine's model.
    header
        Write the declarations to a header of the same name, beside the C file.
    single
        Compute in floats instead of doubles.
    prefix
        What names in C begin with, for several files in one program; by default controller.
    """
    kind = output.suffix.lower()
    if kind not in (".c", ".json"):
        raise InputError(f"say what to write: -o controller.c or -o model.json, not {output}")
    if kind == ".json" and (header or single or prefix is not None):
        raise InputError("--header, --float and --prefix are for C, and the output is JSON")
    named = output.with_suffix(".h")
    for path in (output, named) if header else (output,):
        require_writable(path, [fleet])
    fitted = load_learnt(fleet)
    if isinstance(fitted.decoder.context_map, Dynamics):
        what = "these machines are nonlinear: each start has its own path and gains"
        raise InputError(f"{what}, which `contextual-lqr design --json` writes")
    if kind == ".json":
        model = _model(fitted, context, machine)
        text = json.dumps(model, allow_nan=False, indent=2) + "\n"
        atomic_write(output, text.encode())
        said: dict[str, Any] = {"written": [str(output)]}
        facts = [("written", f"{output}: Θ, A, B and the gain")]
    else:
        one = None
        if context is not None or machine is not None:
            values, label = _chosen(fitted, context, machine)
            where = shown(values, fitted.description.units)
            name = where if label is None else f"{label}: {where}"
            one = (fitted.controller(values, label), name)
        made = c_file(
            fitted.decoder,
            fitted.description.control_task(),
            hedge=fitted.hedge(),
            machine=one,
            single=single,
            header=named.name if header else None,
            prefix="controller" if prefix is None else prefix,
        )
        atomic_write(output, made.source.encode())
        if made.header is not None:
            atomic_write(named, made.header.encode())
        files = [str(output), str(named)] if header else [str(output)]
        about = {"hedge": fitted.hedge()}
        said, facts = (
            {"written": files, **about, **asdict(made.counts)},
            _facts(files, fitted, made),
        )
    if as_json:
        print_json(said)
        return
    table = Table.grid(padding=(0, 2))
    for name, text in facts:
        table.add_row(name, escape(text))
    Console().print(table)


def _facts(files: list[str], fitted: FittedFleet, made: CFile) -> list[tuple[str, str]]:
    counts, hedge = made.counts, fitted.hedge()
    against = f"hedges against {hedge:g} times what is unknown, as machines left out require"
    facts = [
        ("written", " and ".join(files)),
        ("the gain", against if hedge else "is optimal for the expected machine"),
        ("constants", f"{counts.data_bytes:,} bytes"),
        ("a controller", f"{counts.state_bytes:,} bytes"),
        ("stack", f"at most about {counts.stack_bytes:,} bytes"),
    ]
    most = "at most {:,} multiplications and divisions"
    if counts.context_operations:
        facts.append(("a context", most.format(counts.context_operations)))
    if counts.target_operations:
        facts.append(("a target", most.format(counts.target_operations)))
    return [*facts, ("a step", f"{counts.step_operations:,}")]


def _chosen(
    fitted: FittedFleet, context: list[str] | None, machine: str | None
) -> tuple[dict[str, float], str | None]:
    """The context of one machine, and its label if it has data of its own."""
    found = chosen_machines(fitted, context, None, machine)
    return found.rows[0], found.own_labels[0]


def _model(fitted: FittedFleet, context: list[str] | None, machine: str | None) -> dict[str, Any]:
    """Θ with what its columns multiply, and one machine: A, B, its gain and where it rests."""
    described = fitted.description
    values, label = _chosen(fitted, context, machine)
    theta = believed_law(fitted.decoder)
    names = [*described.state_names, *described.input_names]
    controller = fitted.controller(values, label)
    system = fitted.decoder.machine(values, label).system
    state, given = controller.rest
    return {
        "states": list(described.state_names),
        "inputs": list(described.input_names),
        "theta": theta.tolist(),
        "theta_columns": column_names(fitted.decoder.context_map, theta.shape[1], names),
        "context": values,
        **({} if label is None else {"machine": label}),
        "hedge": fitted.hedge(),
        "A": system.A.tolist(),
        "B": system.B.tolist(),
        "gain": controller.gain.tolist(),
        "gain_columns": controller.gain_columns,
        "target": controller.target,
        "rest_state": state.tolist(),
        "rest_input": given.tolist(),
    }
