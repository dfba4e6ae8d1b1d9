"""benchmarks/served_study.py, in small: kills of the service and of clients lose nothing."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "served_study.py"


def test_what_was_acknowledged_survives_kills() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "3", "5"],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told, judged = done.stdout.splitlines()[-2:]
    assert int(told.split()[0]) >= 4
    assert judged == "lost 0, doubled 0, unasked 0, belief True"
