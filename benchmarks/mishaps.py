"""The campaigns of tests/fuzz at full size; writes a section of docs/measured/accuracy.md.

    python benchmarks/mishaps.py               # all of them, about an hour
    python benchmarks/mishaps.py damage kills  # some

Every run draws new cases. A campaign stops at the first failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pages import read_section, write_section

ROOT = Path(__file__).parent.parent
HEAD = "| campaign | what is tried | cases | failures | minutes |\n|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Campaign:
    """Some tests of tests/fuzz, and how many cases they are to try."""

    tried: str
    tests: str
    cases: int
    times: int = 1  # counted for each case

    def row(self, name: str) -> str:
        """Run it; one row of the table."""
        began = time.monotonic()
        file, _, chosen = self.tests.partition("::")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"tests/fuzz/{file}", "-k", chosen],
            cwd=ROOT,
            env=os.environ | {"CASES": str(self.cases), "HYPOTHESIS_PROFILE": "fuzz"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stdout[-5000:])
        failures = "0" if done.returncode == 0 else "1 or more"
        minutes = f"{(time.monotonic() - began) / 60:.1f}"
        return f"| {name} | {self.tried} | {self.cases * self.times:,} | {failures} | {minutes} |\n"


CAMPAIGNS = {
    "arguments": Campaign(
        "calls of the public API with odd arguments: an answer or a sentence", "test_api.py", 10_000
    ),
    "commands": Campaign(
        "command lines with odd words and damaged files: no traceback, nothing left behind",
        "test_command_line.py",
        10_000,
    ),
    "damage": Campaign(
        "decoder, agent and fleet files, bits flipped, pieces cut, doubled or replaced: refused",
        "test_mishaps.py::damage",
        30_000,
    ),
    "kills": Campaign(
        "`kill -9` of a process that saves: a whole file, and no temporary after the next run",
        "test_mishaps.py::kill",
        1000,
    ),
    "disks": Campaign(
        "a disk full after any number of bytes: the old file, and a sentence",
        "test_mishaps.py::disk",
        1000,
    ),
    "threads": Campaign(
        "episodes taught to one decoder by eight threads, in three ways: none lost, none twice",
        "test_mishaps.py::threads",
        1000,
        24,
    ),
    "signals": Campaign(
        "Ctrl-C at a random moment of every command: one word, exit code 130, nothing half written",
        "test_interrupts.py::random",
        200,
    ),
}


def main(names: list[str]) -> None:
    """Run the campaigns, and put their rows in the page beside those of earlier runs."""
    for name in names or CAMPAIGNS:
        row = CAMPAIGNS[name].row(name)
        print(row, end="", flush=True)
        written = read_section("accuracy", "campaigns").splitlines(keepends=True)
        rows = {line.split(" | ")[0].strip("| "): line for line in written}
        rows[name] = row
        table = "".join(rows[one] for one in CAMPAIGNS if one in rows)
        write_section("accuracy", "campaigns", f"\n{HEAD}{table}")


if __name__ == "__main__":
    main(sys.argv[1:])
