"""Disturbances at design time: measured now, or forecast for the episode."""

import numpy as np
import polars as pl
import pytest

import contextual_lqr as clqr
from command import COMMAND, output, run

H = 12
TEXT = f"""
[outputs]
one = {{ constant = true }}
room = "°C"
history = 1
delay = 0
[measured]
outdoor = "°C"
[inputs]
heat = "kW"
[contexts]
size = {{ low = 0.5, high = 2.0 }}
[context_map]
kind = "features"
features = ["1", "size"]
[task]
horizon = {H}
start = {{ room = 17.0, outdoor = 5.0 }}
[cost]
Q = {{ room = 0.01 }}
final_Q = {{ room = 10.0 }}
R = [0.1]
target = {{ room = 20.0 }}
[learning]
noise_level = 0.05
"""
FORECAST = np.where(np.arange(H - 1) < 5, 5.0, -20.0)  # a cold snap
NOISE = 0.03


def step(room, heat, outdoor, size):
    """Half an hour of a room."""
    return room + 0.05 * size * (outdoor - room) + (0.4 - 0.1 * size) * heat


def table(rng, houses=8, steps=80):
    rows = []
    for k in range(houses):
        size, room, phase = 0.6 + 0.15 * k, 18.0, rng.uniform(0, 20)
        for t in range(steps):
            outdoor = -5 + 9 * np.sin((t + phase) / 4) + 2 * rng.normal()
            heat = 2.0 * (19 - room) + 2 + 2 * rng.normal()
            rows.append((f"h{k}", k, t, room, outdoor, heat, size))
            room = step(room, heat, outdoor, size) + NOISE * rng.normal()
    names = ["machine", "episode", "step", "room", "outdoor", "heat", "size"]
    return pl.DataFrame(rows, names, orient="row")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    table(np.random.default_rng(0)).write_csv(folder / "logs.csv")
    (folder / "fleet.toml").write_text(TEXT)
    about = clqr.FleetDescription.read(folder / "fleet.toml")
    fleet = clqr.fit(about, [str(folder / "logs.csv")], workers=1)
    fleet.save(folder / "fleet.decoder")
    return fleet, folder


def cost_of(policy, weather, size=1.1, runs=4000):
    """What it costs on the true house, and the weather as it comes: over so many runs."""
    rng = np.random.default_rng(7)
    room, total = np.full(runs, 17.0), np.zeros(runs)
    for h in range(H - 1):
        x = np.stack([np.ones(runs), np.full(runs, weather[h]), room])
        heat = (policy.gains[h] @ x)[0]
        total += 0.01 * (room - 20) ** 2 + 0.1 * heat**2
        room = step(room, heat, weather[h], size) + NOISE * rng.normal(size=runs)
    return float((total + 10 * (room - 20) ** 2).mean())


def test_a_forecast_is_acted_on_and_certified(fitted):
    fleet, _ = fitted
    assert fleet.description.measured_names == ("outdoor",)
    weather = FORECAST
    ahead = fleet.design({"size": 1.1}, forecast={"outdoor": weather})
    stays = fleet.design({"size": 1.1}, measured={"outdoor": weather[0]})
    paid, blind = cost_of(ahead.policy, weather), cost_of(stays.policy, weather)
    assert paid < 0.95 * blind
    assert ahead.verdict == "trust"
    low, high = ahead.interval
    assert low < paid < high
    assert ahead.predicted_cost == pytest.approx(paid, rel=0.05)
    # It is the best there is, to what is known: that of the truth, which is told of everything.
    truth = np.array([[1, 0, 0], [0, 1, 0], [0, 0.055, 0.945]])
    x = np.array([1.0, weather[0], 17.0])
    rows = np.repeat(truth[None], H - 1, 0)
    rows[:-1, 1, 0] = np.diff(weather)
    system = clqr.TimeVaryingSystem(
        rows, np.repeat([[[0], [0], [0.29]]], H - 1, 0), NOISE**2 * np.diag([0, 0, 1.0])
    )
    best = clqr.optimal_cost(system, fleet.description.cost, x)
    assert best <= paid * 1.001
    assert paid < 1.01 * best


def test_a_forecast_that_says_nothing_changes_nothing_but_the_doubt(fitted):
    fleet, _ = fitted
    flat = fleet.design({"size": 1.1}, forecast={"outdoor": [3.0] * H})
    stays = fleet.design({"size": 1.1}, measured={"outdoor": 3.0})
    np.testing.assert_allclose(flat.policy.gains, stays.policy.gains, rtol=1e-9, atol=1e-12)
    assert flat.predicted_cost < stays.predicted_cost  # that it may change costs something


def test_the_same_by_places_of_states_and_in_other_units(fitted):
    fleet, _ = fitted
    task = fleet.description
    named = fleet.design({"size": 1.1}, forecast={"outdoor": FORECAST}, bounds=False)
    placed = clqr.certify(
        fleet.decoder,
        {"size": 1.1},
        task.cost,
        task.start,
        beta="regression",
        input_bounds=task.input_bounds,
        bounds=False,
        forecast={1: FORECAST},
    )
    np.testing.assert_array_equal(named.policy.gains, placed.policy.gains)
    assert named.likely_excess == placed.likely_excess
    found = clqr.backtest(fleet.decoder, task.cost, task.start, forecast={1: FORECAST})
    plain = clqr.backtest(fleet.decoder, task.cost, task.start)
    assert len(found.machines) == 8
    assert found.machines[0].predicted_cost != plain.machines[0].predicted_cost


@pytest.mark.parametrize(
    ("forecast", "said"),
    [
        ({"outdoor": FORECAST[:-2]}, "has 9 values, but an episode of horizon 12 has 11 steps"),
        ({"outdor": FORECAST}, "there is no disturbance 'outdor' to forecast; there is outdoor"),
        ({"room": FORECAST}, "there is no disturbance 'room'"),
        ({"outdoor": [np.nan] * (H - 1)}, "the forecast of outdoor"),
    ],
)
def test_what_is_no_forecast_is_refused(fitted, forecast, said):
    with pytest.raises(clqr.InputError, match=said.replace("(", r"\(")):
        fitted[0].design({"size": 1.0}, forecast=forecast)


def test_what_cannot_be_had_together_is_refused(fitted):
    fleet, task = fitted[0], fitted[0].description
    with pytest.raises(clqr.InputError, match="both measured and forecast"):
        fleet.design({"size": 1.0}, measured={"outdoor": 1}, forecast={"outdoor": FORECAST})
    cost = clqr.StationaryCost(task.Q, task.R)
    with pytest.raises(clqr.InputError, match="a constant gain ignores the future"):
        clqr.certify(fleet.decoder, {"size": 1.0}, cost, task.start, forecast={1: FORECAST})
    with pytest.raises(clqr.InputError, match="its next value is learnt"):
        clqr.certify(fleet.decoder, {"size": 1.0}, task.cost, task.start, forecast={2: FORECAST})
    with pytest.raises(clqr.InputError, match="needs a state that is always 1"):
        clqr.certify(fleet.decoder, {"size": 1.0}, task.cost, np.zeros(3), forecast={1: FORECAST})


def test_the_command(fitted):
    _, folder = fitted
    pl.DataFrame({"step": range(H - 1), "outdoor": FORECAST}).write_csv(folder / "weather.csv")
    common = ("design", str(folder / "fleet.decoder"), "--context", "size=1.1", "--quick")
    ahead = output(*common, "--forecast", str(folder / "weather.csv"))
    assert "trust" in ahead
    warm = output(*common, "--measured", "outdoor=15")
    assert warm != output(*common, "--measured", "outdoor=5")
    for name, columns, said in (
        ("short.csv", {"outdoor": FORECAST[:5]}, "has 5 values"),
        ("other.csv", {"wind": FORECAST}, "the column 'wind', which is not a disturbance"),
        ("gap.csv", {"outdoor": [*FORECAST[:-1], None]}, "row 11 of 'outdoor' is missing"),
    ):
        pl.DataFrame(columns).write_csv(folder / name)
        done = run(COMMAND, *common, "--forecast", str(folder / name))
        assert done.returncode == 2
        assert done.stdout == ""
        assert said in " ".join(done.stderr.split()), done.stderr
    done = run(COMMAND, *common, "--measured", "outdor=5")
    assert done.returncode == 2
    assert "no disturbance 'outdor'" in " ".join(done.stderr.split())
