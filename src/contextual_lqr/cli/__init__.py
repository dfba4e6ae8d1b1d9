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
_COMMANDS = {
    "reproduce": "Run the paper's experiments; write figures and a report.",
    "verify": "Measure whether the paper's guarantees hold.",
    "play": "Watch an agent learn a fleet, in the terminal or as a GIF.",
    "new": "Write a fleet's description to start from.",
    "check": "Say what is wrong with a description or logs.",
    "fit": "Learn a fleet's decoder from its logs.",
    "merge": "Join decoders learnt at several sites.",
    "design": "Controllers for new machines, certified.",
    "simulate": "Show what a new machine's loop will do.",
    "advise": "Say which machine to run next, and why.",
    "info": "Say which version this is, and how it runs here.",
}
# Named by their place: a command imports what it needs when it is called, not before.
for _name, _help in _COMMANDS.items():
    app.command(f"contextual_lqr.cli.{_name}:{_name}", help=_help)


def main() -> None:
    """Run the command; an error raised on purpose is one sentence, not a traceback."""
    try:
        app()
    except ContextualLQRError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
