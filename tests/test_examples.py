"""The examples run, and say what they claim."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAID = {  # the arguments of a quick run, and what its last line must show
    "paper": ([], "     10"),
    "your_own_fleet": ([], "above the optimum"),
    "ask_tell": ([], "within 0.2 m/s after"),
    "mujoco_pendulum": (["6", "60"], "of 60 steps"),
    "pendulum_fleet": (["2", "3", "40"], "of 40 steps"),
    "compare_strategies": ([], "Thompson sampling"),
    "receding_horizon": ([], "0.17            inf              1.5"),
    "animate": (["heating", "room.gif", "2"], "room.gif: 60 pictures of 2 episodes"),
}


def test_none_is_forgotten() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    if name == "receding_horizon":
        pytest.importorskip("daqp")
    arguments, said = SAID[name]
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout.splitlines()[-1]
    if name == "receding_horizon":
        found = [line.split()[1:] for line in done.stdout.splitlines()[1:]]
        np.testing.assert_allclose(np.array(found, float), on_the_page(), rtol=0.01)


def on_the_page() -> list[list[float]]:
    """What the page about limits says a clipped gain costs, and one that plans with them."""
    page = (EXAMPLES.parent / "docs" / "how-to" / "limits.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| 1(?:/\d)? \| (\S+) \| (\S+) \|$", page, re.MULTILINE)
    return [[float(cost.replace("falls", "inf")) for cost in row] for row in rows]
