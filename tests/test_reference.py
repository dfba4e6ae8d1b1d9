"""The reference of the site has every public name, as it is today."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
MODULES = ["contextual_lqr"] + [f"contextual_lqr.{name}" for name in ("fleets", "envs", "data")]


def test_the_pages_are_what_would_be_written_now() -> None:
    # In a process of its own: the types checked at run time change signatures here.
    ask = "import json, reference; print(json.dumps(reference.pages()))"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=ROOT / "benchmarks", capture_output=True, check=True
    )
    written = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    assert written == json.loads(done.stdout), "run python benchmarks/reference.py"


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_its_entry(name: str) -> None:
    page = (PAGES / f"{name.split('.')[-1]}.md").read_text(encoding="utf-8")
    entries = {line.split()[1] for line in page.splitlines() if line.startswith("### ")}
    assert entries == set(importlib.import_module(name).__all__)


def test_every_function_of_the_theory_has_its_entry() -> None:
    page = (PAGES / "theory.md").read_text(encoding="utf-8")
    source = (ROOT / "src/contextual_lqr/theory.py").read_text(encoding="utf-8")
    for line in source.splitlines():
        if line.startswith(("def ", "class ")) and not line.startswith("def _"):
            name = line.split()[1].split("(")[0].rstrip(":")
            assert f"### {name} {{" in page
