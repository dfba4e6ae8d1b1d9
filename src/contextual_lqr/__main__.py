"""The command `contextual-lqr`, or `python -m contextual_lqr`, if its packages are installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_NEEDED = ("cyclopts", "jinja2", "joblib", "matplotlib", "polars", "rich")


def main() -> None:
    """Run the command, or say what to install: the library itself does without these packages."""
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        remedy = "pip install 'contextual-lqr[cli]'"
        sys.exit(f"contextual-lqr: the command needs {', '.join(missing)}: {remedy}")
    from contextual_lqr.cli import main as command

    command(last=True)


if __name__ == "__main__":
    main()
