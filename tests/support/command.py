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
