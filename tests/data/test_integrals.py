"""`position = "exact: velocity integrates"`: learnt as it is, and held against the logs."""

import numpy as np
import polars as pl
import pytest
from scipy.linalg import expm

import contextual_lqr as clqr
from contextual_lqr.data import TEMPLATE, DescriptionError
from contextual_lqr.data.contradictions import contradicted
from contextual_lqr.data.survey import survey_logs

NAMES = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
LINE = '"exact: velocity integrates"'


def system(mass, friction, spring, period):
    """A cart on a spring, its force held for a period: exact, by the matrix exponential."""
    E = expm(period * np.array([[0, 1, 0], [-spring / mass, -friction / mass, 1 / mass], [0] * 3]))
    return E[:2, :2], E[:2, 2]


def logs(path, seed, *, period=0.1, friction=0.5, spring=0.0, noise=0.0, factor=1.0, steps=40):
    """Eight carts; `noise` is of the measurement, `factor` is in the unit of the velocity."""
    rng, rows = np.random.default_rng(seed), []
    for k in range(8):
        mass = round(rng.uniform(0.6, 4.5), 3)
        A, B = system(mass, friction, spring, period)
        x = rng.normal(size=2)
        for step in range(steps):
            force = 3 * rng.normal()
            p, v = x + noise * rng.normal(size=2)
            rows.append((f"cart {k}", k, step, p, factor * v, force, mass))
            x = A @ x + B * force + 0.01 * rng.normal() * np.array([period / 2, 1])
    pl.DataFrame(rows, NAMES, orient="row").write_parquet(path)
    return path


def described(period=None):
    logged = "" if period is None else f"[logs]\nperiod = {period}\n"
    return clqr.FleetDescription.parse(TEMPLATE + logged)


def fitted(path, period=None):
    return clqr.fit(described(period), path, alarm=False, workers=1)


TRUE = {
    "plain": {},
    "friction": {"friction": 40.0},
    "spring": {"spring": 100.0},
    "noise": {"noise": 0.5},
    "fast": {"period": 0.001, "noise": 0.01},
    "short": {"steps": 4, "noise": 0.3},
}


@pytest.mark.parametrize("kind", TRUE)
@pytest.mark.parametrize("told", [True, False])
def test_a_true_integral_is_never_contradicted(kind, told, tmp_path):
    period = TRUE[kind].get("period", 0.1)
    for seed in range(2):
        fleet = fitted(logs(tmp_path / "a.parquet", seed, **TRUE[kind]), period if told else None)
        assert contradicted(fleet.description, fleet.decoder) == []


@pytest.mark.parametrize("factor", [3.6, -1.0])
def test_a_wrong_unit_or_sign_is_named_with_its_size(factor, tmp_path):
    path = logs(tmp_path / "a.parquet", 5, factor=factor)
    fleet = fitted(path, 0.1)
    (said,) = contradicted(fleet.description, fleet.decoder)
    assert said.startswith("position is not the integral of velocity: off by")
    log = pl.read_parquet(path).partition_by("episode")
    moves, means = (
        np.concatenate(
            [make(one["position"].to_numpy(), one["velocity"].to_numpy()) for one in log]
        )
        for make in (lambda p, v: np.diff(p), lambda p, v: 0.1 * (v[1:] + v[:-1]) / 2)
    )
    off = np.sqrt(np.mean((moves - means) ** 2))
    assert float(said.split("off by ")[1].split(" m ")[0]) == pytest.approx(off, rel=0.01)
    times = moves @ means / (means @ means)
    assert f" {times:.3g} times what velocity makes of 0.1 s; are units" in said
    assert survey_logs(described(0.1), path).contradicted == [said]
    # Without a period a unit cannot be wrong, but a sign is.
    assert bool(survey_logs(described(), path).contradicted) == (factor < 0)


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, False), (57.3, True), (1 / 57.3, True)])
def test_units_are_tested_where_the_period_is_a_context(factor, wrong, tmp_path):
    """Carts that are sampled at different rates: their period is known, if not a number."""
    features = '["1", "dt", "dt/mass"]'
    text = TEMPLATE.replace('["1", "1/mass"]', features).replace(
        "[contexts]", '[contexts]\ndt = { unit = "s", low = 0.02, high = 0.1 }'
    )
    parts = [
        pl.read_parquet(logs(tmp_path / "a.parquet", k, period=dt, factor=factor)).with_columns(
            pl.format("{}-{}", "machine", pl.lit(k)).alias("machine"),
            pl.col("episode") + 100 * k,
            dt=pl.lit(dt),
        )
        for k, dt in enumerate((0.02, 0.05, 0.1))
    ]
    pl.concat(parts).write_parquet(tmp_path / "rates.parquet")
    about = clqr.FleetDescription.parse(text + '[logs]\nperiod = "dt"\n')
    fleet = clqr.fit(about, tmp_path / "rates.parquet", alarm=False, workers=1)
    said = contradicted(fleet.description, fleet.decoder)
    assert bool(said) == wrong
    assert not wrong or "times what velocity makes of dt; are units and period right?" in said[0]


def test_the_row_is_learnt_and_its_interval_holds_the_truth(tmp_path):
    """Euler's rule forgot that a force moves the position within a step."""
    inside = []
    for seed in range(10, 20):
        fleet = fitted(logs(tmp_path / "a.parquet", seed))
        assert fleet.description.known == {}
        A, B = system(2.0, 0.5, 0.0, 0.1)
        truth = clqr.LinearSystem(A, B[:, None], 1e-4 * np.outer([0.05, 1], [0.05, 1]))
        task = fleet.description
        one = fleet.design({"mass": 2.0})
        cost = clqr.policy_cost(one.policy, truth, task.cost, task.start)
        inside.append(one.lower.certified <= cost <= one.upper.certified)
    assert np.mean(inside) >= 0.9


def test_a_known_row_that_the_logs_contradict_is_not_trusted(tmp_path):
    """Euler's rule for carts on stiff springs: their controllers are 17 % above the best."""
    text = TEMPLATE.replace(LINE, '"position + 0.1 * velocity"')
    fleet = clqr.fit(
        clqr.FleetDescription.parse(text),
        logs(tmp_path / "a.parquet", 3, spring=50.0),
        alarm=False,
        workers=1,
    )
    one, task = fleet.design({"mass": 2.0}, bounds=False), fleet.description
    A, B = system(2.0, 0.5, 50.0, 0.1)
    truth = clqr.LinearSystem(A, B[:, None], 1e-4 * np.outer([0.05, 1], [0.05, 1]))
    paid = clqr.policy_cost(one.policy, truth, task.cost, task.start)
    assert paid > 1.1 * clqr.optimal_cost(truth, task.cost, task.start)
    assert one.verdict != "trust"
    assert "the known row of position is contradicted" in one.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"exact: velocity"', 'must be written as "exact: velocity integrates"'),
        ('"exact: speed integrates"', "'speed' cannot integrate to it"),
        ('"exact: position integrates"', "'position' cannot integrate to it"),
        ('"exact: force integrates"', "'force' cannot integrate to it"),
    ],
)
def test_what_is_no_integral_is_refused(text, words):
    with pytest.raises(DescriptionError, match=words) as error:
        clqr.FleetDescription.parse(TEMPLATE.replace(LINE, text))
    assert error.value.faults[0].startswith("fleet.toml:28: the next position: ")
