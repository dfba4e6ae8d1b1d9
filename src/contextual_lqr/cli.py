"""The command `contextual-lqr`: commands parse and call, nothing more."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Annotated

import cyclopts
from rich.console import Console
from rich.markup import escape

from contextual_lqr import kernels
from contextual_lqr.errors import ContextualLQRError

VERSION = version("contextual-lqr")

app = cyclopts.App(
    name="contextual-lqr",
    help="Learn one decoder over a fleet of machines; control a machine never tried.",
    version=VERSION,
)


@app.command
def info(
    *, as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False
) -> None:
    """Say which version this is, and how its kernels run on this machine.

    Parameters
    ----------
    as_json
        Print JSON, for a script to read.
    """
    facts = {
        "version": VERSION,
        "kernels": "NumPy reference" if kernels.compiled is None else "compiled",
        "processor": kernels.compiled,
        "threads": kernels.threads(),
    }
    console = Console()
    if as_json:
        console.print_json(json.dumps(facts))
        return
    for name, value in facts.items():
        console.print(f"{name:<10} {escape(str(value))}", highlight=False)


def main() -> None:
    """Run the command; an error raised on purpose is one sentence, not a traceback."""
    try:
        app()
    except ContextualLQRError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(1)
