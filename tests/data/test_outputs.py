"""[outputs] in a description: what is learnt from columns is what `OutputHistory` makes of them."""

import numpy as np
import polars as pl
import pytest

import contextual_lqr as clqr
from contextual_lqr.data import sources, transitions

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
    with pytest.raises(clqr.InputError, match="all 8 episodes are shorter than the history"):
        clqr.fit(clqr.FleetDescription.parse(FIXED), tmp_path / "none.csv")
