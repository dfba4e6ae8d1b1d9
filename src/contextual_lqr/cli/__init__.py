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
app.command("contextual_lqr.cli.new:new", help="Write a fleet's description to start from.")
app.command("contextual_lqr.cli.check:check", help="Say what is wrong with a description or logs.")
app.command("contextual_lqr.cli.fit:fit", help="Learn a fleet's decoder from its logs.")
app.command("contextual_lqr.cli.merge:merge", help="Join decoders learnt at several sites.")
app.command("contextual_lqr.cli.design:design", help="Controllers for new machines, certified.")
app.command("contextual_lqr.cli.simulate:simulate", help="Show what a new machine's loop will do.")
app.command("contextual_lqr.cli.advise:advise", help="Say which machine to run next, and why.")


def main() -> None:
    """Run the command; an error raised on purpose is one sentence, not a traceback."""
    try:
        app()
    except ContextualLQRError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
