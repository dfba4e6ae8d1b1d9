"""`contextual-lqr export`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from rich.markup import escape
from rich.table import Table

from contextual_lqr.cli.machines import chosen_machines
from contextual_lqr.cli.options import AsJson, Fitted, Flag
from contextual_lqr.cli.terminal import Console, print_json
from contextual_lqr.context.columns import column_names
from contextual_lqr.data import FittedFleet
from contextual_lqr.deployment.c_file import CFile, believed_law, c_file
from contextual_lqr.errors import InputError
from contextual_lqr.files import atomic_write, require_writable


def export(
    fleet: Fitted,
    /,
    *,
    output: Annotated[Path, cyclopts.Parameter(name=["--output", "-o"])],
    header: Annotated[bool, Flag] = False,
    single: Annotated[
        bool, cyclopts.Parameter(name="--float", negative="", show_default=False)
    ] = False,
    context: Annotated[list[str] | None, cyclopts.Parameter(negative="")] = None,
    as_json: AsJson = False,
) -> None:
    """A controller as one C file that takes the context at run time, or the model as JSON.

    Parameters
    ----------
    fleet
        What `fit` wrote.
    output
        The file to write: .c for the controller, .json for the decoder and one machine's model.
    header
        Write the declarations to a header of the same name, beside the C file.
    single
        Compute in floats instead of doubles.
    context
        For .json: the machine, as name=value; several values with commas, or the option again.
    as_json
        Print what it takes as JSON.
    """
    kind = output.suffix.lower()
    if kind not in (".c", ".json"):
        raise InputError(f"say what to write: -o controller.c or -o model.json, not {output}")
    if kind == ".json" and (header or single):
        raise InputError("--header and --float are for C, and the output is JSON")
    if kind == ".c" and context is not None:
        raise InputError("the C file takes the context at run time: --context is for -o model.json")
    named = output.with_suffix(".h")
    for path in (output, named) if header else (output,):
        require_writable(path, [fleet])
    fitted = FittedFleet.load(fleet)
    if not fitted.decoder.rows:
        raise InputError(f"{fleet} has learnt from no log yet: `contextual-lqr fit` comes first")
    if kind == ".json":
        model = _model(fitted, context)
        text = json.dumps(model, allow_nan=False, indent=2) + "\n"
        atomic_write(output, text.encode())
        said: dict[str, Any] = {"written": [str(output)]}
        facts = [("written", f"{output}: Θ, A, B and the gain")]
    else:
        made = c_file(
            fitted.decoder,
            fitted.description.control_task(),
            single=single,
            header=named.name if header else None,
        )
        atomic_write(output, made.source.encode())
        if made.header is not None:
            atomic_write(named, made.header.encode())
        files = [str(output), str(named)] if header else [str(output)]
        sizes = {k: v for k, v in asdict(made).items() if k not in ("source", "header")}
        said, facts = {"written": files, **sizes}, _facts(files, made)
    if as_json:
        print_json(said)
        return
    table = Table.grid(padding=(0, 2))
    for name, text in facts:
        table.add_row(name, escape(text))
    Console().print(table, highlight=False)


def _facts(files: list[str], made: CFile) -> list[tuple[str, str]]:
    facts = [
        ("written", " and ".join(files)),
        ("constants", f"{made.data_bytes:,} bytes"),
        ("a controller", f"{made.state_bytes:,} bytes"),
        ("stack", f"at most about {made.stack_bytes:,} bytes"),
        ("a context", f"at most {made.context_operations:,} multiplications and divisions"),
        ("a step", f"{made.step_operations:,}"),
    ]
    if made.target_operations:
        facts.insert(5, ("a target", f"at most {made.target_operations:,}"))
    return facts


def _model(fitted: FittedFleet, context: list[str] | None) -> dict[str, Any]:
    """Θ with what its columns multiply, and one machine: A, B, its gain and where it rests."""
    described = fitted.description
    (values,) = chosen_machines(fitted, context, None).rows
    theta = believed_law(fitted.decoder)
    names = [*described.state_names, *described.input_names]
    controller, system = fitted.controller(values), fitted.decoder.machine(values).system
    state, given = controller.rest
    return {
        "states": list(described.state_names),
        "inputs": list(described.input_names),
        "theta": theta.tolist(),
        "theta_columns": column_names(fitted.decoder.context_map, theta.shape[1], names),
        "context": values,
        "A": system.A.tolist(),
        "B": system.B.tolist(),
        "gain": controller.gain.tolist(),
        "gain_columns": controller.gain_columns,
        "target": controller.target,
        "rest_state": state.tolist(),
        "rest_input": given.tolist(),
    }
