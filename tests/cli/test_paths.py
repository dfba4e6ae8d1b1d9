"""`design`, `simulate` and `export` of machines that are not linear."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import contextual_lqr as clqr
from contextual_lqr.cli import app
from contextual_lqr.data import FleetDescription

TEXT = """
[states]
angle = "rad"
speed = "rad/s"
[inputs]
torque = { unit = "N m", low = -12, high = 12 }
[contexts]
mass = { unit = "kg", low = 0.8, high = 1.2 }
[dynamics]
features = ["angle", "speed", "sin(angle)", "torque/mass"]
[task]
horizon = 40
start = [0.0, 0.0]
[cost]
Q = [1.0, 0.1]
R = [0.01]
target = { angle = 3.141592653589793 }
angles = ["angle"]
[learning]
noise_level = 0.001
"""
TANK = """
states = { level = "m" }
inputs = { pump = "l/s" }
contexts = { area = "m2" }
[dynamics]
features = ["level", "pump/area", "sqrt(level)/area"]
[task]
horizon = 20
start = [0.01]
[cost]
Q = [1.0]
R = [0.01]
target = { level = 1e-5 }
[learning]
noise_level = 0.001
"""
TRUE = np.array([[1, 0.05, 0, 0], [0, 1.0, -0.49, 0.05]])
NEW = ["--context", "mass=1.1", "--draws", "20"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of five pendulums that were swung all round, fitted."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "fleet.toml").write_text(TEXT)
    dynamics: Any = FleetDescription.parse(TEXT).context_map
    rng, rows = np.random.default_rng(0), []
    for i in range(5):
        context, x = {"mass": float(rng.uniform(0.8, 1.2))}, np.array([0.0, 9.0])
        for k in range(60):
            u = 12 * rng.uniform(-1, 1, size=1)
            moving = {"angle": x[0], "speed": x[1], "torque": u[0]}
            rows.append({"episode": i, "step": k, "machine": f"m{i}", **moving, **context})
            x = TRUE @ dynamics.features(context, x, u) + 1e-3 * rng.normal(size=2)
    pl.DataFrame(rows).write_csv(folder / "log.csv")
    clqr.FittedFleet.save(
        clqr.fit(folder / "fleet.toml", [folder / "log.csv"]), folder / "a.decoder"
    )
    return folder / "a.decoder"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    app(list(words), result_action="return_value")
    return capsys.readouterr().out


def test_design_shows_the_path_and_claims_no_proof(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(said(capsys, "design", str(fleet), *NEW).split())
    assert "(sampled, not proven)" in text
    assert "the path, at step 1 14 27 40" in text
    assert "u = u of the path + K (x - x of the path)" in text
    assert "is not proven" in text
    assert "no horizon" not in text


def test_design_writes_the_path(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(said(capsys, "design", str(fleet), *NEW, "--json"))["machines"][0]
    assert found["certified"] is False
    x, u, K = (np.array(found[name]) for name in ("path_states", "path_inputs", "gains"))
    assert (x.shape, u.shape, K.shape) == ((40, 2), (39, 1), (39, 1, 2))
    # As it stands it is a policy, that swings the machine up.
    policy = clqr.TrajectoryPolicy(x, u, K, angles=[0], input_bounds=(-12, 12))
    state = np.zeros(2)
    dynamics: Any = FleetDescription.parse(TEXT).context_map
    for h in range(39):
        state = TRUE @ dynamics.features({"mass": 1.1}, state, policy(h, state))
    assert np.cos(state[0]) < -0.98
    table = pl.read_csv(io.StringIO(said(capsys, "design", str(fleet), *NEW, "--csv")))
    assert table["x40.angle"].item() == pytest.approx(x[-1, 0])
    assert table["u39.torque"].item() == pytest.approx(u[-1, 0])
    said(capsys, "design", str(fleet), *NEW, "-o", str(tmp_path / "a.npz"))
    np.testing.assert_allclose(np.load(tmp_path / "a.npz")["path_states"], x[None])


def test_another_target_needs_no_state_that_is_one(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--target", "angle=0.2", "--horizon", "20", "--json"]
    found = json.loads(said(capsys, "design", str(fleet), *NEW, *given))
    x = np.array(found["machines"][0]["path_states"])
    assert len(x) == 20
    assert x[-1, 0] == pytest.approx(0.2, abs=0.1)


def test_without_a_path_design_says_why_and_writes_nulls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a tank that runs dry on the way."""
    (tmp_path / "fleet.toml").write_text(TANK)
    lines, level = ["episode,step,area,level,pump"], 1.0
    for k, pump in enumerate(np.random.default_rng(0).uniform(0, 2, 60)):
        lines.append(f"1,{k},1,{level},{pump}")
        level += 0.1 * (pump - np.sqrt(level))
    (tmp_path / "log.csv").write_text("\n".join(lines))
    fleet = tmp_path / "a.decoder"
    clqr.FittedFleet.save(clqr.fit(tmp_path / "fleet.toml", [tmp_path / "log.csv"]), fleet)
    asked = ["design", str(fleet), "--context", "area=1"]
    assert "no path was found" in " ".join(said(capsys, *asked).split())
    found = json.loads(said(capsys, *asked, "--json"))["machines"][0]
    assert found["verdict"] == "do not use"
    assert found["path_states"][0] == [0.01]
    assert [None] in found["path_states"]


def test_simulate_plays_the_path(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--context", "mass=1.1", "--runs", "40"]
    found = json.loads(said(capsys, "simulate", str(fleet), *options, "--json"))
    assert found["exploded"] == 0
    assert found["saturated_steps"] > 0
    angle = found["quantities"]["angle [rad]"]
    assert angle["low"][-1] <= angle["median"][-1] <= angle["high"][-1]
    assert np.cos(angle["median"][-1]) < -0.98
    said(capsys, "simulate", str(fleet), *options, "-o", str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_what_is_for_one_gain_is_refused(fleet: Path, tmp_path: Path) -> None:
    for name in ("a.c", "a.json"):
        with pytest.raises(clqr.InputError, match="each start has its own path and gains"):
            app(["export", str(fleet), "-o", str(tmp_path / name)], result_action="return_value")
