"""What the tests of the model say names states and inputs as the fleet does, in every command."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.random import default_rng

from contextual_lqr.cli.backtest import backtest
from contextual_lqr.cli.check import check
from contextual_lqr.cli.design import design
from contextual_lqr.cli.fit import fit
from contextual_lqr.data import FittedFleet
from fleet_logs import CARTS, write

NUMBERED = re.compile(r"\b(state|input) \d")
ENDLESS = re.sub(r"(?m)^horizon.*\n|.*# out for machines.*\n", "", CARTS)
HELD = ENDLESS.replace("Q = {", "target = { position = 0.5 }\nQ = {", 1)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Carts whose force acts a step late."""
    rng, rows = default_rng(3), []
    for i, mass in enumerate(np.linspace(0.7, 4.4, 8)):
        x, before = rng.normal(size=2), 0.0
        for k in range(100):
            u = float(rng.normal() * 3)
            rows.append((f"cart {i}", i, k, *map(float, x), u, float(mass)))
            push = 0.1 * before / mass + 0.02 * rng.normal()
            x, before = np.array([x[0] + 0.1 * x[1], 0.95 * x[1] + push]), u
    names = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
    folder = tmp_path_factory.mktemp("late")
    return write(pl.DataFrame(rows, names, orient="row"), folder / "log.parquet")


@pytest.mark.parametrize("text", [CARTS, ENDLESS, HELD], ids=["episode", "endless", "set-point"])
def test_a_late_force_is_called_force(
    text: str, log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fleet.toml").write_text(text)
    decoder = tmp_path / "fleet.decoder"
    check(tmp_path / "fleet.toml", Path(log))
    fit(tmp_path / "fleet.toml", Path(log), output=decoder)
    said = capsys.readouterr().out
    assert "force acts late" in said
    design(decoder, context=["mass=2"], as_json=True, draws=20, quick=True)
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    assert re.search(r"\bforce (acts late|has a play)", machine["reason"])
    backtest(decoder)
    found = " ".join(capsys.readouterr().out.split())
    assert "Against the model: force acts late" in found
    backtest(decoder, as_json=True)
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert any(one.startswith("force acts late") for one in findings)
    one = FittedFleet.load(decoder).design({"mass": 2.0}, bounds=False)
    for words in (said, machine["reason"], found, *findings, one.reason):
        assert not NUMBERED.search(words), words
