"""The misfit alarm: machines that are not what they say are named, and no others."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from contextual_lqr import InputError
from contextual_lqr.data import FittedFleet, fit, machine_factors
from contextual_lqr.data.misfit import _holm, _log_upper_tail
from fleet_logs import DESCRIPTION, TRUTH, cart_rows, write


def fitted(frame: pl.DataFrame, folder: Path, **options: object) -> FittedFleet:
    log = write(frame, folder / "log.parquet")
    return fit(DESCRIPTION, [log], **options)  # type: ignore[arg-type]


def masses(seed: int, n: int = 40) -> list[float]:
    return [float(m) for m in np.random.default_rng(seed).uniform(0.5, 5, n)]


@pytest.mark.slow
def test_two_mislabelled_machines_of_forty_are_named_and_set_aside(tmp_path: Path) -> None:
    labels = masses(1)
    wrong = {7: 2 * labels[7], 23: labels[23] / 2}
    frame = cart_rows(labels, 2, steps=20, actual=wrong)
    done = fitted(frame, tmp_path, robust=True)
    assert done.alarm is not None
    assert (
        {one.label for one in done.alarm.named}
        == set(done.alarm.set_aside)
        == {"cart 7", "cart 23"}
    )
    assert all("velocity" in one.reason for one in done.alarm.named)
    assert all(one.p_value < 1e-20 for one in done.alarm.named)
    assert all(one.local_is_better for one in done.alarm.named)
    # What was set aside left no trace.
    good = frame.filter(~pl.col("machine").is_in(["cart 7", "cart 23"]))
    alone = fitted(good, tmp_path, alarm=False).decoder
    assert (done.decoder.rows, done.decoder.episodes) == (alone.rows, alone.episodes)
    assert np.allclose(done.decoder.estimate, alone.estimate, rtol=1e-8, atol=1e-10)
    spoilt = fitted(frame, tmp_path, alarm=False).decoder
    assert spoilt.noise_estimate[1, 1] > 2 * alone.noise_estimate[1, 1]
    assert np.abs(alone.estimate - TRUTH).max() < 0.01


def test_a_good_fleet_is_left_alone_and_beats_local_fits(tmp_path: Path) -> None:
    done = fitted(cart_rows(masses(3, 12), 4, steps=20), tmp_path, robust=True)
    assert done.alarm is not None
    assert done.alarm.named == done.alarm.set_aside == ()
    local, fleet = (
        np.mean([getattr(one, name) ** 2 for one in done.alarm.machines])
        for name in ("local_error", "fleet_error")
    )
    assert abs(fleet - 1) < 0.15  # nothing but the noise
    assert local > 1.03 * fleet  # 3 numbers from 19 rows cost 3/19 in theory
    assert all(0.7 < one.fleet_error < 1.4 for one in done.alarm.machines)


def test_without_labels_equal_contexts_are_one_machine(tmp_path: Path) -> None:
    labels = masses(5, 12)
    frame = cart_rows(labels, 6, steps=20, actual={3: 2 * labels[3]}).drop("machine")
    done = fitted(frame, tmp_path)
    assert done.alarm is not None
    assert len(done.alarm.machines) == 12
    assert [one.label for one in done.alarm.named] == [f"mass={labels[3]:.15g}"]


def test_noise_and_memory_of_one_machine_are_found(tmp_path: Path) -> None:
    frame = cart_rows(masses(7, 10), 8, steps=40, episodes=3)
    rng = np.random.default_rng(9)
    own = (pl.col("machine") == "cart 4").cast(pl.Float64)
    rough = frame.with_columns(
        velocity=pl.col("velocity") + own * pl.Series(0.05 * rng.normal(size=len(frame)))
    )
    done = fitted(rough, tmp_path)
    assert done.alarm is not None
    assert [one.label for one in done.alarm.named] == ["cart 4"]


def test_one_machine_alone(tmp_path: Path) -> None:
    frame = cart_rows(masses(10, 5), 11)
    alone = fitted(frame, tmp_path, only="cart 2")
    assert alone.decoder.rows == 22
    assert "at least 4 machines" in alone.alarm.not_run
    with pytest.raises(InputError, match="no machine in the logs is called 'cart 9'"):
        fitted(frame, tmp_path, only="cart 9")
    with pytest.raises(InputError, match="no machine can be set aside"):
        fitted(frame, tmp_path, only="cart 2", robust=True)


def test_too_many_machines_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_factors, "MOST_MACHINES", 10)
    frame = cart_rows(masses(12, 20), 13)
    done = fitted(frame, tmp_path)
    assert done.alarm.machines == ()
    assert "too many" in done.alarm.not_run
    assert done.decoder.rows == 20 * 22


def test_tails_against_scipy_and_beyond_its_range() -> None:
    F = np.array([1e-3, 0.5, 1.0, 3.0, 40.0])
    for above, below in ((1, 5), (6, 300), (40, 2000)):
        assert np.allclose(_log_upper_tail(F, above, below), stats.f.logsf(F, above, below))
    # Where a probability is no double any more, the logarithm still falls smoothly.
    far = _log_upper_tail(np.array([100.0, 110.0, 120.0, 130.0]), 6, 5000)
    assert np.isfinite(far).all()
    assert (np.diff(far) < 0).all()
    slope = np.diff(far)
    assert np.allclose(slope, slope[0], rtol=0.1)


def test_holm_by_hand() -> None:
    p = np.array([0.01, 0.9, 0.02, 0.02])
    assert np.allclose(np.exp(_holm(np.log(p))), [0.04, 0.9, 0.06, 0.06])
