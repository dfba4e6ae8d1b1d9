"""The misfit alarm: machines that are not what they say are named, and no others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from contextual_lqr import FeatureContext, InputError
from contextual_lqr.belief.machines.machine_factors import Belief
from contextual_lqr.data import FittedFleet, fit, fitting, misfit
from contextual_lqr.data.misfit import least_context
from contextual_lqr.data.outliers import Outliers, OutlierTest, Units, distances
from fleet_logs import CARTS, DESCRIPTION, TRUTH, cart_rows, write


def fitted(frame: pl.DataFrame, folder: Path, **options: object) -> FittedFleet:
    log = write(frame, folder / "log.parquet")
    return fit(DESCRIPTION, [log], **options)  # type: ignore[arg-type]


def masses(seed: int, n: int = 40) -> list[float]:
    return [float(m) for m in np.random.default_rng(seed).uniform(0.5, 5, n)]


def differing_carts(
    seed: int,
    swapped: bool = False,
    variation: float = 0.05,
    quantum: float = 0.02,
    t: bool = False,
) -> tuple[pl.DataFrame, list[float]]:
    """Forty carts, drag and strength off by 5 % each, seen by a coarse encoder."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.5, 5, 40)
    true[[7, 23]] = 1.4, 2.9
    labels = true.copy()
    if swapped:
        labels[[7, 23]] = true[[23, 7]]
    rows = []
    for i in range(40):
        drag, strength = (0.95, 0.1) * (1 + variation * rng.normal(size=2) * (0.2, 1))
        for k in range(3):
            x = rng.normal(size=2)
            for h in range(20):
                u = 3 * rng.normal()
                seen = np.round(x / quantum) * quantum if quantum else x
                rows.append((f"cart {i}", 3 * i + k, h, *seen.tolist(), u, labels[i]))
                w = rng.standard_t(3) / np.sqrt(3) if t else rng.normal()
                x = np.array([x[0] + 0.1 * x[1], drag * x[1] + strength / true[i] * u + 0.01 * w])
    names = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
    return pl.DataFrame(rows, schema=names, orient="row"), true.tolist()


def test_two_mislabelled_machines_of_forty_are_named_and_set_aside(tmp_path: Path) -> None:
    labels = masses(1)
    wrong = {7: 2 * labels[7], 23: labels[23] / 2}
    frame = cart_rows(labels, 2, steps=20, actual=wrong)
    done = fitted(frame, tmp_path, robust=True)
    assert done.alarm is not None
    named = {one.label: one for one in done.alarm.named}
    assert set(named) == set(done.alarm.set_aside) == set(done.stand_out) == {"cart 7", "cart 23"}
    for i, mass in wrong.items():
        one = named[f"cart {i}"]
        assert one.p_value < 1e-5
        assert one.local_is_better
        assert one.excess > 0.002
        assert one.context["mass"] == pytest.approx(labels[i], rel=1e-5)
        assert one.behaves_like["mass"] == pytest.approx(mass, rel=0.05)
        assert one.reason.startswith("behaves like mass ")
    # What was set aside left no trace.
    good = frame.filter(~pl.col("machine").is_in(["cart 7", "cart 23"]))
    alone = fitted(good, tmp_path, alarm=False).decoder
    assert (done.decoder.rows, done.decoder.episodes) == (alone.rows, alone.episodes)
    assert np.allclose(done.decoder.estimate, alone.estimate, rtol=1e-8, atol=1e-10)
    assert np.allclose(done.decoder.noise_estimate, alone.noise_estimate, rtol=1e-8)
    spoilt = fitted(frame, tmp_path, alarm=False).decoder
    assert spoilt.noise_estimate[1, 1] > 2 * alone.noise_estimate[1, 1]
    assert np.abs(alone.estimate - TRUTH).max() < 0.01
    done.save(tmp_path / "robust.decoder")
    assert FittedFleet.load(tmp_path / "robust.decoder").stand_out == done.stand_out


def test_swapped_labels_among_machines_that_differ_anyway(tmp_path: Path) -> None:
    frame, true = differing_carts(0, swapped=True)
    done = fitted(frame, tmp_path)
    assert done.decoder.deviations.any()
    named = {one.label: one for one in done.alarm.named}
    assert set(named) == {"cart 7", "cart 23"}
    for i in (7, 23):
        assert named[f"cart {i}"].behaves_like["mass"] == pytest.approx(true[i], rel=0.15)


@pytest.mark.parametrize(
    "fleet",
    [
        dict(variation=0.05),
        dict(variation=0.2, quantum=0),
        dict(variation=0, quantum=0.2),  # of which nothing but a coarse encoder is seen
        dict(variation=0, quantum=0, t=True),
    ],
)
def test_good_machines_are_not_named(fleet: dict[str, float], tmp_path: Path) -> None:
    frame, _ = differing_carts(1, **fleet)
    done = fitted(frame, tmp_path, robust=True)
    assert done.alarm.named == done.alarm.set_aside == ()
    assert done.decoder.rows == 40 * 57


def test_a_good_fleet_beats_local_fits(tmp_path: Path) -> None:
    done = fitted(cart_rows(masses(3, 12), 4, steps=20), tmp_path, robust=True)
    assert done.alarm is not None
    assert done.alarm.named == done.alarm.set_aside == ()
    local, fleet = (
        np.mean([getattr(one, name) ** 2 for one in done.alarm.machines])
        for name in ("local_error", "fleet_error")
    )
    assert abs(fleet - 1) < 0.15  # nothing but the noise
    assert local > 1.02 * fleet  # 3 numbers from 38 rows cost 3/38 in theory
    assert all(one.excess < 0.01 for one in done.alarm.machines)


def test_without_labels_every_episode_is_a_machine(tmp_path: Path) -> None:
    labels = masses(5, 12)
    frame = cart_rows(labels, 6, steps=20, actual={3: 2 * labels[3]}).drop("machine")
    done = fitted(frame, tmp_path, robust=True)
    assert len(done.alarm.machines) == 24
    assert {one.label for one in done.alarm.named} == {"#7", "#8"}
    assert all(
        one.context["mass"] == pytest.approx(labels[3], rel=1e-5) for one in done.alarm.named
    )
    assert (done.decoder.rows, done.decoder.episodes) == (22 * 19, 22)


def test_one_machine_alone(tmp_path: Path) -> None:
    frame = cart_rows(masses(10, 5), 11)
    alone = fitted(frame, tmp_path, only="cart 2")
    assert alone.decoder.rows == 22
    assert "at least 4 machines" in alone.alarm.not_run
    with pytest.raises(InputError, match="no machine in the logs is called 'cart 9'"):
        fitted(frame, tmp_path, only="cart 9")
    with pytest.raises(InputError, match="no machine can be set aside"):
        fitted(frame, tmp_path, only="cart 2", robust=True)


def test_too_many_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misfit, "MOST_MACHINES", 10)
    done = fitted(cart_rows(masses(12, 20), 13), tmp_path)
    assert done.alarm.machines == ()
    assert "too many" in done.alarm.not_run
    assert done.decoder.rows == 20 * 22


def test_the_model_is_wrong_where_too_many_would_be_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "MOST_SET_ASIDE", 0.04)
    labels = masses(1)
    wrong = {7: 2 * labels[7], 23: labels[23] / 2}
    with pytest.raises(InputError, match="2 of 40 machines stand out, too many to be set aside"):
        fitted(cart_rows(labels, 2, steps=20, actual=wrong), tmp_path, robust=True)


def test_many_that_stand_out_leave_doubt() -> None:
    fleet = FittedFleet(DESCRIPTION, DESCRIPTION.new_decoder())
    assert fleet.doubt == ""
    several = cart_rows(masses(3, 12), 4)
    for i, mass in enumerate(masses(3, 12)):
        own = several.filter(pl.col("machine") == f"cart {i}", pl.col("episode") == 2 * i)
        x = own["position", "velocity"].to_numpy()
        u = own["force"].to_numpy()[:-1, None]
        contexts = {"mass": np.full(len(u), mass)}
        fleet.decoder.update_rows(contexts, x[:-1], u, x[1:], machine=f"cart {i}")
    assert replace(fleet, stand_out=("cart 3",)).doubt == ""  # one may
    assert "2 of 12 machines" in replace(fleet, stand_out=("cart 3", "cart 4")).doubt
    assert "2 of 14 machines" in replace(fleet, stand_out=("set", "aside")).doubt


def test_design_does_not_trust_where_many_stand_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from contextual_lqr.cli import main

    (tmp_path / "fleet.toml").write_text(CARTS)
    done = fitted(cart_rows(masses(3, 20), 4, steps=20), tmp_path)
    for stand_out, verdict in (((), "trust"), (("cart 3", "cart 4"), "caution")):
        replace(done, stand_out=stand_out).save(tmp_path / "fleet.decoder")
        main(["design", str(tmp_path / "fleet.decoder"), "--context", "mass=2", "--quick"])
        said = capsys.readouterr().out
        assert verdict in said
        assert ("2 of 20 machines stand out" in said) == (verdict == "caution")


def test_distances_against_the_plain_formula() -> None:
    rng = np.random.default_rng(0)
    done = fit_frame(cart_rows(masses(3, 12), 4))
    fleet = Outliers(done, done.population.factors)
    n, y, _ = fleet.factors.F.shape
    root = rng.normal(size=(n, 1, y, y))
    belief = Belief(rng.normal(size=(n, 1, y)), root @ root.swapaxes(-1, -2))
    noise = rng.uniform(0.1, 2, n)
    delta, size = distances(fleet.factors.R, fleet.factors.F[..., 1], belief, noise)
    for i in range(n):
        R = fleet.factors.R[i]
        cov = noise[i] * np.eye(y) + R @ belief.covariances[i, 0] @ R.T
        off = fleet.factors.F[i, :, 1] - R @ belief.means[i, 0]
        assert delta[i] == pytest.approx(off @ np.linalg.solve(cov, off), rel=1e-6)
        expected = np.linalg.slogdet(cov / noise[i])[1]
        assert size[i] == pytest.approx(expected, rel=1e-6)
    test = fleet.tested(np.ones(n, bool))
    deviating = [row.population.deviating.any() for row in test.rows]
    free = np.where(deviating, n - y, 10.0)  # few machines; heavy tails
    assert np.allclose(test.p, stats.f.sf(test.F, y, free))
    assert np.allclose(test.F, np.stack([row.delta for row in test.rows], 1) / y)


def test_units_are_what_the_context_contributes_over_the_usual() -> None:
    carts = FeatureContext(["1", "1/mass"], states=1, inputs=1)
    maps = carts.matrices({"mass": [1.0, 2.0, 4.0]})
    units = Units.of(maps, np.array([0.9, 0.0, -0.3, 5.0]))  # 1 and 1/mass times [x; u]
    usual = np.sqrt((1 + 1 / 4 + 1 / 16) / 3)
    expected = np.maximum(np.array([1, 1 / 2, 1 / 4]) / usual, 0.25)
    assert np.allclose(units(maps), expected[:, None])
    assert np.allclose(units(carts.matrices({"mass": [0.5, 100.0]})), [[2 / usual] * 2, [0.25] * 2])
    assert np.allclose(Units.of(maps, np.zeros(4))(maps), 1)  # alike


def test_a_row_in_other_units_is_the_same_test() -> None:
    """With one unit for all machines, whatever it is, nothing changes."""
    frame, _ = differing_carts(2, quantum=0)
    done = fit_frame(frame)
    fleet, everyone = Outliers(done, done.population.factors), np.ones(40, bool)
    alike = fleet._row(1, everyone, Units.of(fleet.factors.maps, np.zeros(6)))

    class Thirty(Units):
        def __call__(self, maps):  # type: ignore[no-untyped-def]
            return np.full((len(maps), maps.shape[2]), 30.0)

    scaled = fleet._row(1, everyone, Thirty.of(fleet.factors.maps, np.zeros(6)))
    assert alike.population.deviating.all()
    assert np.allclose(alike.delta, scaled.delta, rtol=1e-4)
    assert np.allclose(alike.others.covariances, scaled.others.covariances, rtol=1e-3, atol=1e-12)


def fit_frame(frame: pl.DataFrame):  # type: ignore[no-untyped-def]
    """A decoder of a frame, without files."""
    decoder = DESCRIPTION.new_decoder()
    for own in frame.partition_by("episode", maintain_order=True):
        x, u = own["position", "velocity"].to_numpy(), own["force"].to_numpy()[:-1, None]
        mass = own["mass"].to_numpy()[:-1]
        decoder.update_rows({"mass": mass}, x[:-1], u, x[1:], machine=own["machine"][0])
    return decoder


@pytest.mark.parametrize("unit", [1e-8, 30.0])
def test_units_change_nothing(unit: float, tmp_path: Path) -> None:
    """The same fleet, its velocity and position in other units, names the same machines."""
    frame, _ = differing_carts(2, swapped=True)
    here = fitted(frame, tmp_path)
    scaled = frame.with_columns(pl.col("position", "velocity") * unit)
    there = fit(
        replace(
            DESCRIPTION,
            noise_level=DESCRIPTION.noise_level * unit,
        ),
        [write(scaled, tmp_path / "scaled.parquet")],
    )
    assert {one.label for one in here.alarm.named} == {one.label for one in there.alarm.named}
    for a, b in zip(here.alarm.named, there.alarm.named, strict=True):
        assert a.p_value == pytest.approx(b.p_value, rel=0.05)


def test_holm_and_cauchy_by_hand() -> None:
    each = np.array([0.005, 0.45, 0.01, 0.01])
    test = OutlierTest((), np.ones((4, 1)), each[:, None])
    assert np.allclose(test.each, each)
    assert np.allclose(test.corrected, [0.02, 0.45, 0.03, 0.03])
    # Of d states, one small p-value counts d times as large, two alike half of that.
    both = OutlierTest(
        (), np.ones((2, 4)), np.array([[1e-6, 0.9, 0.5, 0.7], [1e-6, 1e-6, 1.0, 0.0]])
    )
    assert np.allclose(both.each[0], 4e-6)
    assert both.each[1] == pytest.approx(0, abs=1e-200)
    two = OutlierTest((), np.ones((1, 4)), np.array([[1e-6, 1e-6, 1.0, 0.7]]))
    assert np.allclose(two.each, 2e-6)


def test_the_least_context() -> None:
    bounds = {"mass": (0.1, 10.0), "length": (-1.0, 2.0)}
    springs = FeatureContext(
        ["1", "1/mass", "length/mass", "length"], states=1, inputs=1, bounds=bounds
    )
    G = springs.matrix({"mass": 0.37, "length": -0.4})
    found = least_context(springs, lambda maps: np.square(maps - G).sum((1, 2)), bounds)
    assert found == pytest.approx({"mass": 0.37, "length": -0.4}, rel=1e-3)
    # At the end of the bounds, and where the map has no value at one of them.
    from_zero = FeatureContext(["1", "1/mass"], states=1, inputs=1, bounds={"mass": (0.0, 10.0)})
    found = least_context(from_zero, lambda maps: maps[:, 2, 0], {"mass": (0.0, 10.0)})
    assert found["mass"] == pytest.approx(10.0)
