"""The command `contextual-lqr`: one file a command; commands parse and call, nothing more."""

from __future__ import annotations

import sys
from importlib.metadata import version

import cyclopts
from rich.console import Console
from rich.markup import escape

from contextual_lqr.errors import ContextualLQRError

app = cyclopts.App(
    name="contextual-lqr",
    help="Learn one decoder over a fleet of machines; control a machine never tried.",
    version=version("contextual-lqr"),
)
# Named by their place: a command imports what it needs when it is called, not before.
app.command("contextual_lqr.cli.info:info", help="Say which version this is, and how it runs here.")
app.command(
    "contextual_lqr.cli.reproduce:reproduce",
    help="Run the paper's experiments; write figures and a report.",
)


def main() -> None:
    """Run the command; an error raised on purpose is one sentence, not a traceback."""
    try:
        app()
    except ContextualLQRError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
