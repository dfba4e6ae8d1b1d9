"""`contextual-lqr info`."""

from __future__ import annotations

import json
from importlib.metadata import version

from rich.console import Console
from rich.markup import escape

from contextual_lqr import kernels
from contextual_lqr.cli.options import AsJson


def info(*, as_json: AsJson = False) -> None:
    """Say which version this is, and how its kernels run on this machine.

    Parameters
    ----------
    as_json
        Print JSON, for a script to read.
    """
    facts = {
        "version": version("contextual-lqr"),
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
