"""The command as a user calls it."""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).parent / "contextual-lqr"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with a terminal's width of 80 columns, and no colours."""
    plain = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    inherited = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    return subprocess.run(
        command,
        env=inherited | plain | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def output(*arguments: str, **environment: str) -> str:
    done = run(COMMAND, *arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def command(*arguments: str) -> int:
    """In this process, which is quicker; `main` adds but the sentence."""
    from contextual_lqr.cli import app

    try:
        app(arguments)
    except SystemExit as left:
        return int(left.code or 0)
    return 0
