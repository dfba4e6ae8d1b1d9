"""Fleets without a horizon: constant gains from design and simulate; other tasks by options."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    InputError,
    LinearSystem,
    QuadraticCost,
    StationaryCost,
    Trajectory,
    solve,
)
from contextual_lqr.cli.advise import advise
from contextual_lqr.cli.design import design
from contextual_lqr.cli.simulate import simulate
from contextual_lqr.data import TEMPLATE, FittedFleet, FleetDescription

ENDLESS = "".join(
    line
    for line in TEMPLATE.splitlines(True)
    if not line.startswith("horizon") and "# out for machines" not in line
)
MACHINE = {"context": ["mass=2"], "draws": 20}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fitted = FittedFleet.new(FleetDescription.parse(ENDLESS))
    rng, n = default_rng(0), 25
    masses = rng.uniform(1, 4, n)
    x, u = np.zeros((n, 30, 2)), np.zeros((n, 29, 1))
    x[:, 0] = [1, 0]
    for h in range(29):
        u[:, h, 0] = -x[:, h].sum(-1) / 2 + 0.5 * rng.standard_normal(n)
        x[:, h + 1, 0] = x[:, h, 0] + 0.1 * x[:, h, 1]
        x[:, h + 1, 1] = 0.98 * x[:, h, 1] + 0.1 / masses * u[:, h, 0]
        x[:, h + 1] += 0.01 * rng.standard_normal((n, 2))
    fitted.decoder.update_many({"mass": masses}, Trajectory(x, u))
    path = tmp_path_factory.mktemp("endless") / "fleet.decoder"
    fitted.save(path)
    return path


def test_a_constant_gain_in_all_forms(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design(fleet, **MACHINE)
    said = " ".join(capsys.readouterr().out.split())
    for words in (
        "constant gain",
        "has no horizon",
        "stabilised",
        "deviations halve",
        "not proven",
    ):
        assert words in said
    design(fleet, **MACHINE, as_json=True)
    whole = json.loads(capsys.readouterr().out)
    (machine,) = whole["machines"]
    assert (whole["horizon"], machine["certified"], machine["upper_cost"]) == (None, False, None)
    K = np.array(machine["gain"])
    design(fleet, **MACHINE, csv=True)
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [float(row[f"K.force.{x}"]) for x in ("position", "velocity")] == K[0].tolist()
    design(fleet, **MACHINE, output=tmp_path / "gain.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "gain.npz")["gain"], K[None])
    truth = LinearSystem([[1, 0.1], [0, 0.98]], [[0], [0.05]])
    best = solve(truth, StationaryCost(np.diag([1, 0.1]), [[0.01]])).policy.gain
    np.testing.assert_allclose(K, best, rtol=0.05)


def test_other_tasks_need_no_other_fit(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = FittedFleet.load(fleet)
    dear = StationaryCost(np.diag([2.0, 0.0]), [[0.5]])
    own = fitted.design({"mass": 2.0}, cost=dear, draws=20)
    capsys.readouterr()
    design(fleet, **MACHINE, Q="position=2", R="0.5", as_json=True)
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    np.testing.assert_array_equal(machine["gain"], own.policy.gain)
    design(fleet, **MACHINE, horizon=12, R="force=0.5", as_json=True, quick=True)
    whole = json.loads(capsys.readouterr().out)
    assert (whole["horizon"], np.shape(whole["machines"][0]["gains"])) == (12, (11, 1, 2))
    Q = np.repeat(np.diag([1.0, 0.1])[None], 12, 0)
    episode = QuadraticCost(Q, np.full((11, 1, 1), 0.5))
    expected = fitted.design({"mass": 2.0}, cost=episode, draws=20, bounds=False)
    np.testing.assert_array_equal(whole["machines"][0]["gains"], expected.policy.gains)


def test_a_sweep_is_a_picture_and_a_table(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design(fleet, **MACHINE, sweep="R", output=tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "R times" in capsys.readouterr().out
    design(fleet, **MACHINE, sweep="R", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["effort"] == sorted(found["effort"], reverse=True)
    with pytest.raises(InputError, match=r"must be a \.png or \.svg file"):
        design(fleet, **MACHINE, sweep="R", output=tmp_path / "sweep.csv")


def test_the_constant_gain_is_simulated_for_as_long_as_asked(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for horizon, states in ((None, 100), (30, 30)):
        simulate(fleet, context=["mass=2"], runs=20, as_json=True, horizon=horizon)
        seen = json.loads(capsys.readouterr().out)["quantities"]["position [m]"]
        assert len(seen["expected"]) == states
    table = tmp_path / "candidates.csv"
    table.write_text("mass\n2\n3\n")
    advise(fleet, candidates=table, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["candidates"]) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"Q": "colour=1"}, "Q has an unknown name"),
        ({"Q": "1,2,3"}, "Q must be 2 numbers"),
        ({"R": "0"}, "R is singular"),
        ({"R": "cheap"}, "where a number belongs"),
        ({"Q": "position=1,position=2"}, "name=value,name=value"),
        ({"target": "colour=1"}, "target: there is no state 'colour' that moves"),
        ({"horizon": 1}, "the horizon must be"),
    ],
)
def test_tasks_that_are_refused(fleet: Path, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        design(fleet, **MACHINE, **options)


def test_what_only_an_episode_has_needs_a_horizon() -> None:
    assert FleetDescription.parse(ENDLESS).horizon is None
    assert "a constant gain" in repr(FleetDescription.parse(ENDLESS))
    for old, new, sentence in (
        ("# final_Q =", "final_Q =", "final_Q is for the last state of an episode: add horizon"),
        ('# target = "path.csv"', 'target = "path.csv"', "changes step by step needs a horizon"),
    ):
        with pytest.raises(InputError, match=sentence):
            FleetDescription.parse(ENDLESS.replace(old, new))
    one = FleetDescription.parse(ENDLESS.replace("# one = { constant", "one = { constant"))
    assert one.cost.constant == (2,)  # type: ignore[union-attr]
