"""[outputs] in a description: what is learnt from columns is what `OutputHistory` makes of them."""

import numpy as np
import polars as pl
import pytest

import contextual_lqr as clqr
from contextual_lqr.data import check_logs, sources, transitions
from contextual_lqr.data.contradictions import contradicted
from contextual_lqr.data.histories import history_choice
from contextual_lqr.data.histories.history import History
from contextual_lqr.data.histories.history_choice import CANDIDATES, HistoryChoice
from contextual_lqr.data.histories.history_scores import Scores
from fleet_logs import CARTS

TEXT = """
[outputs]
angle = "rad"
{keys}
[inputs]
current = {{ unit = "A", low = -50.0, high = 50.0 }}
[contexts]
inertia = {{ unit = "kg cm²", low = 1.0, high = 5.0 }}
[context_map]
kind = "features"
features = ["1", "1/inertia"]
[task]
horizon = 30
start = {{ angle = 1.0 }}
[cost]
Q = {{ angle = 1.0 }}
R = [0.1]
[learning]
noise_level = 0.01
"""
FIXED = TEXT.format(keys="history = 3\ndelay = 1")


def motor_log(rng, episodes=8, steps=40, delay=0, noise=0.01, inputs=0.3):
    """A table of motors, four of them, and the episodes as arrays."""
    rows, arrays = [], []
    for k in range(episodes):
        machine = k % 4
        inertia = 1.0 + machine
        angle, speed, late = rng.normal(), 0.0, [0.0] * delay
        y, u = [], []
        for t in range(steps):
            y.append(angle + noise * rng.normal())
            current = -inputs * y[-1] + rng.normal() if t < steps - 1 else None
            rows.append((f"m{machine}", k, t, y[-1], current, inertia))
            if current is None:
                break
            u.append(current)
            late.append(current)
            push = 0.5 * late.pop(0) / inertia + 0.05 * rng.normal()
            angle, speed = angle + 0.1 * speed + 0.05 * push, 0.9 * speed + push
        arrays.append((f"m{machine}", inertia, np.array(y)[:, None], np.array(u)[:, None]))
    names = ["machine", "episode", "step", "angle", "current", "inertia"]
    return pl.DataFrame(rows, names, orient="row"), arrays


def by_hand(about, arrays):
    history = about.output_history
    decoder = about.new_decoder()
    for label, inertia, y, u in arrays:
        decoder.update({"inertia": inertia}, history.trajectory(y, u), machine=label)
    return decoder


def test_a_description_of_outputs_is_an_output_history():
    about = clqr.FleetDescription.parse(FIXED)
    assert about.state_names == (
        *("angle", "angle_1", "angle_2"),
        *("current_1", "current_2", "current_3"),
    )
    history = about.output_history
    assert history == clqr.OutputHistory(1, 1, 3, 1, 3)
    known = history.known(about.context_map)
    assert all(np.array_equal(about.known[i], row) for i, row in known.items())
    assert np.array_equal(about.start, history.at_rest([1.0]))
    assert np.array_equal(about.cost.Q, history.cost([[1.0]], [[0.1]], 30).Q)
    assert [one.name for one in about.logged] == ["angle", "current", "inertia"]


@pytest.mark.parametrize(("batch", "part"), [(1 << 16, 1 << 20), (7, 1 << 20), (30, 64)])
def test_wherever_a_log_is_cut_it_teaches_the_same(batch, part, tmp_path, monkeypatch):
    table, arrays = motor_log(np.random.default_rng(0))
    table.write_csv(tmp_path / "motors.csv")
    monkeypatch.setattr(sources, "BATCH", batch)
    monkeypatch.setattr(sources, "PART", part)
    about = clqr.FleetDescription.parse(FIXED)
    fitted = clqr.fit(about, tmp_path / "motors.csv", alarm=False)
    same = by_hand(about, arrays)
    assert fitted.decoder.rows == same.rows == 8 * (40 - 1 - 3)
    assert fitted.decoder.episodes == 8
    assert np.allclose(fitted.decoder.estimate, same.estimate, atol=1e-9)
    mine, its = fitted.decoder.store.own_factors(), same.store.own_factors()
    assert np.allclose(mine.swapaxes(1, 2) @ mine, its.swapaxes(1, 2) @ its)
    saved = fitted.decoder.state()[1]["machine_own_factors"]
    assert saved.shape[1] == 8 * 9 // 2  # of 7 columns of y and the one output that is new
    both = fitted.decoder.copy()
    both.merge(same, allow_repeats=True)  # which has kept all columns
    assert np.allclose(both.estimate, same.estimate, atol=1e-4)
    assert both.rows == 2 * same.rows
    fitted.save(tmp_path / "fleet.decoder")
    again = clqr.FittedFleet.load(tmp_path / "fleet.decoder")
    assert again.description.history == about.history
    grown = clqr.fit(about, tmp_path / "motors.csv", into=again, alarm=False)
    assert grown.decoder.rows == same.rows
    assert grown.decoder.repeats == 8


def test_long_episodes_are_taken_in_pieces_and_grown_ones_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(transitions, "STRETCH", 16)
    table, _ = motor_log(np.random.default_rng(1), episodes=4)
    about = clqr.FleetDescription.parse(FIXED)
    table.write_csv(tmp_path / "all.csv")
    table.filter(pl.col("step") < 25).write_csv(tmp_path / "some.csv")
    whole = clqr.fit(about, tmp_path / "all.csv", alarm=False)
    monkeypatch.setattr(sources, "BATCH", 5)
    cut = clqr.fit(about, tmp_path / "all.csv", alarm=False)
    first = clqr.fit(about, tmp_path / "some.csv", alarm=False)
    grown = clqr.fit(about, tmp_path / "all.csv", into=first, alarm=False)
    assert whole.decoder.rows == cut.decoder.rows == grown.decoder.rows == 4 * (39 - 3 * 3)
    for one in (cut, grown):
        assert np.allclose(one.decoder.estimate, whole.decoder.estimate, atol=1e-9)


def test_an_episode_shorter_than_the_history_is_counted(tmp_path):
    table, _ = motor_log(np.random.default_rng(2))
    brief = table.filter((pl.col("episode") != 3) | (pl.col("step") < 4))
    brief.write_csv(tmp_path / "brief.csv")
    fitted = clqr.fit(clqr.FleetDescription.parse(FIXED), tmp_path / "brief.csv", alarm=False)
    assert fitted.report.short == 1
    assert fitted.decoder.episodes == 7
    table.filter(pl.col("step") < 4).write_csv(tmp_path / "none.csv")
    with pytest.raises(clqr.InputError, match="all episodes are shorter than the history") as error:
        clqr.fit(clqr.FleetDescription.parse(FIXED), tmp_path / "none.csv")
    assert "3 outputs, 3 inputs and delay 1 take 5 steps in a row, and there are 4" in str(error)
    table.filter(pl.col("step") < 5).write_csv(tmp_path / "some.csv")
    clqr.fit(clqr.FleetDescription.parse(FIXED), tmp_path / "some.csv", alarm=False)


def test_a_history_of_a_thousand_is_parsed_and_refused_at_once(tmp_path):
    """Its rows of Θ are thousands, of which each but one shifts; none needs a large matrix."""
    table, _ = motor_log(np.random.default_rng(2))
    table.write_csv(tmp_path / "log.csv")
    long = clqr.FleetDescription.parse(FIXED.replace("history = 3", "history = 1000"))
    assert len(long.states) == len(long.known) + 1 > 1000
    names = long.state_names
    row = long.known[names.index("angle_999")]
    assert np.flatnonzero(row).tolist() == [names.index("angle_998")]
    with pytest.raises(clqr.InputError, match="take 1002 steps in a row, and there are 40"):
        check_logs(long, tmp_path / "log.csv")


AUTO = TEXT.format(keys="")


@pytest.mark.parametrize("delay", [0, 3])
def test_delay_and_history_are_found_and_kept(delay, tmp_path):
    table, _ = motor_log(np.random.default_rng(3), episodes=12, steps=60, delay=delay)
    table.write_parquet(tmp_path / "motors.parquet")
    fitted = clqr.fit(clqr.FleetDescription.parse(AUTO), tmp_path / "motors.parquet", alarm=False)
    assert fitted.report.history.delays == {"current": delay}
    assert fitted.description.history.delay == delay
    errors = fitted.report.history.errors
    n = fitted.description.history.outputs
    assert n >= 2
    assert errors[n] <= 1.05 * min(errors.values()) < errors[1]
    fitted.save(tmp_path / "fleet.decoder")
    again = clqr.FittedFleet.load(tmp_path / "fleet.decoder")
    assert again.description.state_names == fitted.description.state_names
    more = clqr.fit(
        clqr.FleetDescription.parse(AUTO), tmp_path / "motors.parquet", into=again, alarm=False
    )
    assert more.decoder.rows == fitted.decoder.rows
    assert check_logs(auto_file(tmp_path), tmp_path / "motors.parquet").history.delay == delay


def auto_file(folder):
    path = folder / "fleet.toml"
    path.write_text(AUTO, encoding="utf-8")
    return path


def test_a_delay_beyond_what_is_declared_takes_the_trust_away(tmp_path):
    table, _ = motor_log(np.random.default_rng(4), episodes=16, steps=80, delay=3)
    table.write_parquet(tmp_path / "motors.parquet")
    short = clqr.FleetDescription.parse(TEXT.format(keys="history = 2\ndelay = 0"))
    fitted = clqr.fit(short, tmp_path / "motors.parquet", alarm=False)
    assert fitted.doubt == "current acts 3 samples late, but delay = 0 is declared"
    long = clqr.FleetDescription.parse(TEXT.format(keys="history = 4\ndelay = 0"))
    assert clqr.fit(long, tmp_path / "motors.parquet", alarm=False).doubt == ""


def test_outputs_that_tell_nothing_are_refused_and_an_encoder_that_wraps_is_seen(tmp_path):
    table, _ = motor_log(np.random.default_rng(5), steps=80)
    two = AUTO.replace('angle = "rad"', 'angle = "rad"\nother = "deg"')
    for column, said in ((pl.lit(3.0), "'other' is 3"), (57.3 * pl.col("angle") + 1, "a copy of")):
        table.with_columns(other=column).write_csv(tmp_path / "two.csv")
        with pytest.raises(clqr.InputError, match=said):
            clqr.fit(clqr.FleetDescription.parse(two), tmp_path / "two.csv")
    slow = table.with_columns(angle=pl.col("angle") + 0.2 * pl.col("step"))
    turned = slow.with_columns(angle=pl.col("angle") % 6.28)
    slow.write_csv(tmp_path / "slow.csv")
    turned.write_csv(tmp_path / "turned.csv")
    about = clqr.FleetDescription.parse(FIXED)
    wrong = clqr.fit(about, tmp_path / "turned.csv", alarm=False)
    assert "like an encoder that starts over" in wrong.doubt
    told = FIXED.replace('angle = "rad"', 'angle = { unit = "rad", wraps = 6.28 }')
    right = clqr.fit(clqr.FleetDescription.parse(told), tmp_path / "turned.csv", alarm=False)
    degrees = clqr.FleetDescription.parse(told.replace("wraps = 6.28", "wraps = 360"))
    other = clqr.fit(degrees, tmp_path / "turned.csv", alarm=False)
    assert "like an encoder that starts over, but never by its wraps = 360: if" in other.doubt
    assert right.doubt == ""
    true = clqr.fit(about, tmp_path / "slow.csv", alarm=False)
    context = {"inertia": 2.0}
    rows = [one.decoder.system(context).A[0] for one in (right, true, wrong)]
    assert np.abs(rows[0] - rows[1]).max() < 0.1 < np.abs(rows[2] - rows[1]).max()


def test_a_large_step_within_the_range_is_no_encoder_that_begins_anew(tmp_path):
    """As a room that is aired: over half of the range at once, but not from end to end."""
    table, _ = motor_log(np.random.default_rng(6), steps=80)
    spread = float(table["angle"].max() - table["angle"].min())
    aired = pl.when(pl.col("step") == 40).then(1.5 * spread).otherwise(0.0)
    table.with_columns(angle=pl.col("angle") + aired).write_csv(tmp_path / "aired.csv")
    about = clqr.FleetDescription.parse(FIXED)
    assert "begins anew" not in clqr.fit(about, tmp_path / "aired.csv", alarm=False).doubt


def test_a_sensor_too_noisy_for_any_history_is_said():
    falling = {1.0: {n: 1 / n for n in CANDIDATES[1.0]}, 3.0: {3: 0.3, 4: 0.1}}
    late = {"current": 0}
    (said,) = HistoryChoice(4, 3.0, 0, late, falling, 20, 4).sentences
    assert "still fall at the last 4 outputs, about 3 samples apart, the longest history" in said
    (said,) = HistoryChoice(16, 1.0, 0, late, falling, 20, 4).sentences
    assert "still fall at the last 16 outputs, the longest history" in said
    assert HistoryChoice(12, 1.0, 0, late, falling, 20, 4).sentences == []
    assert HistoryChoice(16, 1.0, 0, late, {}, 0, 4).sentences == []  # which was declared
    spaced = {3.0: falling[3.0]}
    assert HistoryChoice(4, 3.0, 0, late, spaced, 20, 4).sentences == []  # as was its spacing


def test_errors_of_rounding_do_not_ask_for_a_longer_history():
    """Of logs without noise they still fall with more outputs, which says nothing of sensors."""
    many = [History(n, n, 1) for n in (1, 2, 3, 8, 16)]
    relative = np.array([0.9, 3e-13, 1e-13, 4e-14, 3e-14])
    errors = np.log(relative)[:, None] + np.zeros(6)
    for still in (np.zeros(6), np.full(6, 9.0)):  # in whatever units
        scores = Scores(errors + still, errors + still, still, np.ones((6, 1)), 20)
        assert many[history_choice._chosen(scores, relative, many)].outputs == 2


def test_a_past_that_fades_teaches_what_the_output_history_does(tmp_path, monkeypatch):
    table, arrays = motor_log(np.random.default_rng(8))
    table.write_csv(tmp_path / "motors.csv")
    about = clqr.FleetDescription.parse(TEXT.format(keys="history = 3\ndelay = 1\nspacing = 2.5"))
    assert about.output_history == clqr.OutputHistory(1, 1, 3, 1, 3, spacing=2.5)
    known = about.output_history.known(about.context_map)
    assert all(np.allclose(about.known[i], row, atol=1e-12) for i, row in known.items())
    fitted, same = clqr.fit(about, tmp_path / "motors.csv", alarm=False), by_hand(about, arrays)
    assert fitted.decoder.rows == same.rows == 8 * (39 - about.history.reach)
    assert np.allclose(fitted.decoder.estimate, same.estimate, atol=1e-9)
    monkeypatch.setattr(sources, "BATCH", 7)
    cut = clqr.fit(about, tmp_path / "motors.csv", alarm=False)
    assert np.allclose(cut.decoder.estimate, same.estimate, atol=1e-9)
    fitted.save(tmp_path / "fleet.decoder")
    again = clqr.FittedFleet.load(tmp_path / "fleet.decoder")
    assert again.description.history == about.history
    grown = clqr.fit(about, tmp_path / "motors.csv", into=again, alarm=False)
    assert grown.decoder.rows == same.rows


def test_a_past_that_fades_leaves_nearly_every_machine_something_of_its_own(tmp_path):
    """Half of the machines have run for a tenth of the time only, and come last in the log."""
    table, _ = motor_log(np.random.default_rng(9), episodes=16, steps=400, noise=0.1)
    short = table.filter(pl.col("step") < 40).with_columns(machine="short " + pl.col("machine"))
    both = pl.concat([table, short.with_columns(pl.col("episode") + 100)])
    both.write_parquet(tmp_path / "both.parquet")
    fitted = clqr.fit(clqr.FleetDescription.parse(AUTO), tmp_path / "both.parquet", alarm=False)
    assert list(fitted.report.history.curves) == [1.0]
    assert fitted.report.short == 0


def test_a_noisy_sensor_is_given_a_long_history(tmp_path):
    """Least squares on the last outputs is biased by its noise; on a past that fades it is not."""
    table, _ = motor_log(np.random.default_rng(9), episodes=16, steps=400, noise=0.1)
    table.write_parquet(tmp_path / "noisy.parquet")

    def fitted(keys):
        about = clqr.FleetDescription.parse(TEXT.format(keys=keys))
        return clqr.fit(about, tmp_path / "noisy.parquet", alarm=False)

    def answer(fleet):
        """The angle under a constant current."""
        system, x, angles = fleet.decoder.system({"inertia": 2.0}), fleet.description.start * 0, []
        for _ in range(60):
            x = system.A @ x + system.B[:, 0]
            angles.append(x[0])
        return np.array(angles)

    long = fitted("")
    kept, found = long.description.history, long.report.history
    assert kept.spacing > 1
    assert kept.delay == 0  # though noise hides the newest current
    assert found.errors[kept.outputs] < 0.7 * found.curves[1.0][kept.outputs]
    declared = f"history = {kept.outputs}\nspacing = {kept.spacing}\ndelay = 0"
    assert np.array_equal(fitted(declared).decoder.estimate, long.decoder.estimate)
    angle, speed, truth = 0.0, 0.0, []
    for _ in range(60):
        angle, speed = angle + 0.1 * speed + 0.05 * 0.25, 0.9 * speed + 0.25
        truth.append(angle)
    assert np.abs(answer(long) / truth - 1)[20:].max() < 0.05
    assert np.abs(answer(fitted("history = 4\ndelay = 0")) / truth - 1)[20:].max() > 0.5


def test_what_is_wrong_with_outputs_is_said_with_its_line():
    with pytest.raises(clqr.InputError, match="delay must be a whole number from 0 to 1000"):
        clqr.FleetDescription.parse(TEXT.format(keys="delay = -1"))
    with pytest.raises(clqr.InputError, match="the next 'angle_1' is already known"):
        clqr.FleetDescription.parse(FIXED + '[known]\nangle_1 = "2 * angle"\n')


def test_a_known_equation_that_the_logs_contradict_is_named_with_its_size(tmp_path):
    """A position integrates the force, too, which Euler's rule forgets."""
    rng, rows = np.random.default_rng(6), []
    for k in range(12):
        mass, x, v = 1.0 + k % 4, rng.normal(), rng.normal()
        for t in range(40):
            force = rng.normal()
            rows.append((f"c{k % 4}", k, t, x, v, force, mass))
            x, v = x + 0.1 * v + 0.05 * force / mass, 0.95 * v + force / mass + 0.01 * rng.normal()
            x += 0.001 * rng.normal()
    names = ["machine", "episode", "step", "position", "velocity", "force", "mass"]
    pl.DataFrame(rows, names, orient="row").write_csv(tmp_path / "carts.csv")
    fitted = clqr.fit(clqr.FleetDescription.parse(CARTS), tmp_path / "carts.csv", alarm=False)
    (said,) = contradicted(fitted.description, fitted.decoder)
    off = 0.05 * np.sqrt(np.mean([row[5] ** 2 / row[6] ** 2 for row in rows]))
    assert said.startswith("the known equation of position is contradicted: off by")
    assert np.isclose(float(said.split("off by ")[1].split(" m")[0]), off, rtol=0.05)


@pytest.mark.parametrize("stuck", [False, True])
def test_the_delay_is_found_without_noise_and_beside_a_stuck_sensor(stuck):
    from contextual_lqr.data.histories.history_choice import _parts

    rng = np.random.default_rng(0)
    u, y = rng.normal(size=200), np.zeros(201)
    for k in range(1, 200):
        y[k + 1] = 0.9 * y[k] + u[k - 1]  # a step late
    y = np.full(201, 0.1234) if stuck else y
    X = np.column_stack((y[3:200], u[3:200], u[2:199], u[1:198], np.ones(197)))
    part, _ = _parts(X, y[4:201, None], 1, 1, 3)
    assert np.isfinite(part).all()
    assert stuck or part[0].argmax() == 1
    assert not stuck or part.max() < 1


def test_a_name_in_two_tables_is_one_sentence():
    from contextual_lqr.data import TEMPLATE, DescriptionError, FleetDescription

    text = TEMPLATE + '\n[measured]\nposition = "m"\n'
    with pytest.raises(DescriptionError, match="'position' is already one of the states"):
        FleetDescription.parse(text)


def test_a_forecast_whose_steps_are_in_no_order_is_refused(tmp_path):
    from contextual_lqr.data import TEMPLATE, FleetDescription
    from contextual_lqr.data.forecast import read_forecast
    from contextual_lqr.errors import InputError

    (tmp_path / "weather.csv").write_text("step,outdoor\n1,5\n0,4\n")
    with pytest.raises(InputError, match="'step' does not rise by 1"):
        read_forecast(tmp_path / "weather.csv", FleetDescription.parse(TEMPLATE))
