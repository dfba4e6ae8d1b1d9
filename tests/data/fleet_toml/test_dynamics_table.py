"""[dynamics] in fleet.toml: read, fitted, checked, and what is wrong with it told with its line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import contextual_lqr as clqr
from contextual_lqr.cli import app
from contextual_lqr.data import DescriptionError, FleetDescription, fit, survey_logs
from contextual_lqr.data.designing import retuned

TEXT = """
[states]
angle = "rad"
speed = "rad/s"
[inputs]
torque = "N m"
[contexts]
mass = { unit = "kg", low = 0.5, high = 2 }
length = { unit = "m", low = 0.5, high = 2 }
[dynamics.features]
angle = ["angle", "speed"]
speed = ["speed", "sin(angle)/length", "torque/(mass*length**2)"]
[task]
horizon = 30
start = [0.1, 0.0]
[cost]
Q = [1.0, 0.1]
R = [0.1]
[learning]
noise_level = 0.001
"""
TRUE = np.array([[1, 0.05, 0, 0], [0, 0.995, 0.49, 0.05]])


def write_logs(folder: Path, torque: float = 1.0, machines: int = 5) -> Path:
    dynamics, rng, rows = FleetDescription.parse(TEXT).context_map, np.random.default_rng(0), []
    assert isinstance(dynamics, clqr.FeatureDynamics)
    for i in range(machines):
        context = dict(zip(("mass", "length"), rng.uniform(0.5, 2, 2).tolist(), strict=True))
        x = rng.normal(size=2)
        for k in range(40):
            u = torque * rng.normal(size=1)
            moving = {"angle": x[0], "speed": x[1], "torque": u[0]}
            rows.append({"episode": i, "step": k, "machine": f"m{i}", **moving, **context})
            x = TRUE @ dynamics.features(context, x, u) + 1e-3 * rng.normal(size=2)
    pl.DataFrame(rows).write_csv(folder / "log.csv")
    return folder / "log.csv"


def test_it_is_read_for_all_states_or_for_each() -> None:
    each = FleetDescription.parse(TEXT).context_map
    assert isinstance(each, clqr.FeatureDynamics)
    assert each.used is not None
    assert each.used.sum() == 5
    for_all = '[dynamics]\nfeatures = ["angle", "speed", "torque"]\n[task]'
    text = TEXT[: TEXT.index("[dynamics")] + for_all + TEXT[TEXT.index("[task]") + 6 :]
    found = FleetDescription.parse(text).context_map
    assert isinstance(found, clqr.FeatureDynamics)
    assert found.feature_names == ("angle", "speed", "torque")


def test_logs_are_fitted_saved_and_merged(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(TEXT)
    log = write_logs(tmp_path)
    fitted = fit(tmp_path / "fleet.toml", [log])
    np.testing.assert_allclose(fitted.decoder.estimate, TRUE, atol=2e-3)
    fitted.save(tmp_path / "a.decoder")
    loaded = clqr.FittedFleet.load(tmp_path / "a.decoder")
    np.testing.assert_array_equal(loaded.decoder.estimate, fitted.decoder.estimate)
    context = {"mass": 1.0, "length": 1.0}
    x, u = np.array([0.1, 0.2]), np.array([0.3])
    features = loaded.decoder.context_map.features(context, x, u)  # type: ignore[attr-defined]
    np.testing.assert_allclose(loaded.decoder.predict(context, x, u), TRUE @ features, atol=1e-3)
    with pytest.raises(clqr.InputError, match="learnt from the same data"):
        loaded.merge(fitted)


def test_check_names_what_no_log_excites(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(TEXT)
    survey = survey_logs(tmp_path / "fleet.toml", [write_logs(tmp_path, torque=0.0)])
    assert survey.unexcited == ["torque/(mass*length**2) is never excited"]
    assert survey.delay is None
    command = [sys.executable, "-m", "contextual_lqr", "check", "fleet.toml", "log.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "torque/(mass*length**2) is never excited" in done.stdout.replace("\n", " ")
    assert "5 numbers, of 4 features" in done.stdout


def test_advise_names_it_too_and_paths_are_backtested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.toml").write_text(TEXT)
    write_logs(tmp_path, torque=0.0)
    app(["fit", "fleet.toml", "log.csv", "-o", "still.decoder"], result_action="return_value")
    assert "no backtest of paths" in capsys.readouterr().out
    app(["advise", "still.decoder"], result_action="return_value")
    assert "torque/(mass*length**2) is never excited" in capsys.readouterr().out.replace("\n", " ")
    write_logs(tmp_path)
    app(["fit", "fleet.toml", "log.csv", "-o", "a.decoder"], result_action="return_value")
    capsys.readouterr()
    app(["backtest", "a.decoder", "--json"], result_action="return_value")
    found = json.loads(capsys.readouterr().out)
    assert set(found["scores"]) == {f"m{i}" for i in range(5)}
    assert found["shows"] == pytest.approx(5 / 6)
    assert (found["trusted"], found["wrongly"]) == (5, 0)


def test_a_target_and_angles_that_wrap_are_written_too() -> None:
    aim = 'target = { angle = 3.0 }\nangles = ["angle"]\n[learning]'
    described = FleetDescription.parse(TEXT.replace("[learning]", aim))
    cost = described.cost
    assert isinstance(cost, clqr.TargetCost)
    assert cost.angles == (0,)
    assert cost.target.tolist() == [[3.0, 0.0]] * 30
    turned = clqr.Trajectory([[3.0 + 2 * np.pi, 0.0]] * 30, [[0.0]] * 29)
    assert clqr.trajectory_cost(turned, cost) == pytest.approx(0.0, abs=1e-20)
    other = retuned(described, target={"angle": 1.0}, horizon=10).cost
    assert isinstance(other, clqr.TargetCost)
    assert other.target.tolist() == [[1.0, 0.0]] * 10
    linear = (
        TEXT[: TEXT.index("[dynamics")] + '[context_map]\nkind = "features"\nfeatures = ["1"]\n'
    )
    text = linear + TEXT[TEXT.index("[task]") :].replace(
        "[learning]", 'angles = ["angle"]\n[learning]'
    )
    with pytest.raises(DescriptionError, match="a linear machine has no turns"):
        FleetDescription.parse(text)


def test_a_path_needs_a_horizon_and_a_start_where_features_have_values() -> None:
    with pytest.raises(DescriptionError, match=r"\[dynamics\] a path is planned: \[task\] needs"):
        FleetDescription.parse(TEXT.replace("horizon = 30\n", ""))
    rooted = TEXT.replace("sin(angle)/length", "sqrt(angle)/length")
    FleetDescription.parse(rooted)
    fault = r"'sqrt\(angle\)/length' has no value at this start, angle=-0.1"
    with pytest.raises(DescriptionError, match=fault):
        FleetDescription.parse(rooted.replace("[0.1, 0.0]", "[-0.1, 0.0]"))
    dependent = rooted.replace("sqrt(angle)", "sqrt(angle - 1 + mass)")  # has one for some
    FleetDescription.parse(dependent)


def test_a_known_row_is_a_sum_of_features(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(TEXT + '[known]\nangle = "angle + 0.05*speed"\n')
    fitted = fit(tmp_path / "fleet.toml", [write_logs(tmp_path)])
    assert fitted.decoder.known[0].tolist() == [1.0, 0.05, 0.0, 0.0]
    assert fitted.decoder.estimate[0].tolist() == [1.0, 0.05, 0.0, 0.0]
    np.testing.assert_allclose(fitted.decoder.estimate[1], TRUE[1], atol=2e-3)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("sin(angle)/length", "sin(angle"), r"fleet.toml:1\d: .*cannot be read"),
        (("sin(angle)/length", "sin(angle)/width"), "the features use width"),
        (('angle = ["angle", "speed"]\n', ""), "missing or unknown: angle"),
        (("[task]", '[context_map]\nkind = "features"\n[task]'), "leave .context_map. out"),
        (("[task]", "[prior]\noff = 1\n[task]"), "is about A and B"),
        (("[dynamics.features]", "[dynamics.fe]"), "fe is unknown in .dynamics."),
        (("[learning]", '[known]\nangle = "angle**2"\n[learning]'), "is not a weighted sum"),
        (
            ("[learning]", '[known]\nangle = "angel"\n[learning]'),
            "uses angel, which is not a state",
        ),
        (("[learning]", 'angles = ["angel"]\n[learning]'), "there is no state 'angel'"),
        (("[learning]", 'angles = "angle"\n[learning]'), "must be a list of names"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(change: Any, complaint: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(DescriptionError, match=complaint):
        FleetDescription.parse(TEXT.replace(*change))
