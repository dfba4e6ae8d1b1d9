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
    "new": "Write a fleet.toml to start from.",
    "check": "Say all that is wrong with a fleet.toml, and with logs.",
    "fit": "Learn a decoder from the logs of a fleet.",
    "merge": "Join decoders of sites that cannot share their logs.",
    "design": "The controller of a machine never tried, with its certificate.",
    "simulate": "Draw what a machine will do under its controller.",
    "advise": "Say which machine, run next, would teach most.",
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
