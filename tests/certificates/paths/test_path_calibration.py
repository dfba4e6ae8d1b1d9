"""What paths claim is held against the fleet's own runs, each machine left out in turn."""

from typing import Any

import numpy as np
import pytest

import contextual_lqr as clqr
from contextual_lqr.certificates.paths.path_calibration import calibrate, calibration_of

STEPS, NOISE = 30, 1e-3
NAMES: dict[str, Any] = {"states": ["level"], "inputs": ["pump"], "bounds": {"area": (1.0, 2.0)}}
TANK = clqr.FeatureDynamics(["level", "sqrt(max(level, 0.01))/area", "pump/area"], **NAMES)
COST = clqr.TargetCost([[[1.0]]] * (STEPS + 1), [[[0.1]]] * STEPS, target=[1.0], input_target=[0.3])
LIMITS = (0.0, 1.0)


def learnt(
    machines: int, *, leak: float = 0.0, labels: bool = True, unit: float = 1.0, **options: Any
) -> clqr.Decoder:
    """Two runs of each tank, of which some leak; with `unit`, levels and pumps in other units."""
    rng = np.random.default_rng(0)
    dynamics = TANK
    if unit != 1:
        texts = ["level", f"sqrt(max(level/{unit}, 0.01))*{unit}/area", "pump/area"]
        dynamics = clqr.FeatureDynamics(texts, **NAMES)
    decoder = clqr.Decoder(dynamics, noise_level=unit * NOISE, **options)
    for i in range(machines):
        area = float(rng.uniform(1, 2))
        for _ in range(2):
            x, u = [rng.uniform(0.2, 2.0)], np.repeat(rng.uniform(0, 1, (6, 1)), 5, 0)
            for pump in u[:, 0]:
                flow = pump - 0.3 * np.sqrt(max(x[-1], 0.01)) - leak * np.sin(3 * x[-1])
                x.append(x[-1] + 0.5 * flow / area + NOISE * rng.standard_normal())
            played = clqr.Trajectory(unit * np.array(x)[:, None], unit * u)
            decoder.update({"area": area}, played, machine=f"tank {i}" if labels else None)
    return decoder


def test_exact_features_are_as_far_off_as_claimed() -> None:
    found = calibrate(learnt(20), STEPS)
    assert len(found.scores) == 20
    assert 0.6 < np.median(list(found.scores.values())) < 1.4
    assert found.stretch < 2
    assert found.shows == 0.95


def test_a_missing_feature_stretches_the_draws() -> None:
    exact, missing = (
        calibrate(learnt(6, leak=leak, deviations=None), STEPS) for leak in (0.0, 0.05)
    )
    assert missing.stretch > 1.5 * exact.stretch


def test_few_machines_show_no_more_than_they_can() -> None:
    found = calibrate(learnt(3), STEPS)
    assert found.shows == 0.75
    assert found.stretch >= max(found.scores.values())
    assert "3 machines left out" in str(found)
    assert "shows 75%" in str(found)


def test_without_labels_each_run_is_left_out() -> None:
    assert len(calibrate(learnt(3, labels=False), STEPS).scores) == 6


def test_one_machine_has_no_backtest() -> None:
    decoder = learnt(1)
    assert calibrate(decoder, STEPS).shows == 0
    said = clqr.certify(decoder, {"area": 1.5}, COST, [0.5], input_bounds=LIMITS, draws=8)
    assert "no backtest" in said.reason
    with pytest.raises(clqr.InputError, match="at least two"):
        clqr.backtest(decoder, COST, [0.5])


def test_scores_are_the_same_in_all_units() -> None:
    one, other = (calibrate(learnt(4, unit=unit), STEPS) for unit in (1.0, 1024.0))
    assert np.allclose(list(one.scores.values()), list(other.scores.values()), rtol=1e-6)


def test_a_certificate_says_what_the_backtest_showed_and_is_widened_by_it() -> None:
    decoder = learnt(6, leak=0.05, deviations=None)
    task: Any = ({"area": 1.5}, COST, [0.5])
    wide = clqr.certify(decoder, *task, input_bounds=LIMITS, draws=32)
    assert isinstance(wide, clqr.PathCertificate)
    assert wide.calibration is calibration_of(decoder, STEPS)
    assert "6 machines left out" in wide.reason
    decoder.kept["path calibration", STEPS, False] = clqr.PathCalibration({}, 1.0, 0.0)
    narrow = clqr.certify(decoder, *task, input_bounds=LIMITS, draws=32)
    assert wide.likely_excess > narrow.likely_excess
    assert np.diff(wide.interval) > np.diff(narrow.interval)


def test_new_data_are_calibrated_anew() -> None:
    decoder = learnt(3)
    assert len(calibration_of(decoder, STEPS).scores) == 3
    decoder.merge(learnt(5, leak=0.01))
    assert len(calibration_of(decoder, STEPS).scores) == 5


def test_of_a_known_machine_its_runs_are_left_out() -> None:
    decoder = learnt(4)
    assert set(calibration_of(decoder, STEPS, known=True).scores) == {f"tank {i}" for i in range(4)}
    context = decoder.logged_runs.runs[0].context
    said = clqr.certify(decoder, context, COST, [0.5], machine="tank 0", draws=8)
    assert isinstance(said, clqr.PathCertificate)
    assert said.calibration is calibration_of(decoder, STEPS, known=True)


def test_backtest_takes_dynamics() -> None:
    found = clqr.backtest(learnt(3), COST, [0.5], input_bounds=LIMITS)
    assert isinstance(found, clqr.PathBacktest)
    assert [one.machine for one in found.machines] == ["tank 0", "tank 1", "tank 2"]
    assert found.trusted == 3
    assert found.wrongly == 0
    assert not found.counted
    assert set(found.as_dict()["scores"]) == {"tank 0", "tank 1", "tank 2"}
    with pytest.raises(clqr.InputError, match="own_steps"):
        clqr.backtest(learnt(3), COST, [0.5], own_steps=[3])
    with pytest.raises(clqr.InputError, match="are planned for episodes"):
        clqr.backtest(learnt(3), clqr.StationaryCost(np.eye(1), np.eye(1)), [0.5])
