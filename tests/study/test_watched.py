"""What watchers are shown, against what the log and the belief say one by one."""

import json
import threading
import time

import numpy as np
import pytest

from contextual_lqr import (
    Agent,
    FunctionContext,
    InputError,
    Study,
    Trajectory,
    optimal_cost,
    rank_candidates,
    trajectory_cost,
)
from contextual_lqr.fleets import chain
from contextual_lqr.study import shown_belief, shown_log, watch
from contextual_lqr.study.watch import Watch
from watched_study import MISLABELLED, watched_study

MACHINES, EPISODES = 8, 24


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('watch')}/fleet.db"
    with watched_study(url, MACHINES, EPISODES, asked=False) as made:
        yield made


@pytest.fixture(scope="module")
def shown(study) -> Watch:
    return Watch(study)


@pytest.fixture(scope="module")
def grid(shown) -> dict:
    return shown.map()


def told(study) -> list[dict]:
    return list(study.export())


def test_everything_is_json(shown, grid) -> None:
    look = shown.look({"mass": 2.0, "friction": 1.0})
    parts = (shown.overview(), shown.costs(), shown.theta(), shown.trust(), shown.next_runs())
    for one in (*parts, shown.alarm(), grid, look):
        json.dumps(one, allow_nan=False)
        assert one["episodes"] == EPISODES


def test_machines_are_those_that_told_or_asked(study, shown) -> None:
    found = shown.overview()
    counts = {one["machine"]: one["episodes"] for one in found["machines"]}
    labels = [one["machine"] for one in told(study)]
    assert counts == {label: labels.count(label) for label in labels}
    states = {one["machine"]: one["state"] for one in found["machines"]}
    assert states.pop("cart-02") == "late"
    assert states.pop("cart-03") == "running"
    assert set(states.values()) == {"idle"}
    assert found["sentence"] == "24 episodes of 8 machines; 2 out, 1 late"
    last = {one["machine"]: one for one in told(study)}
    for one in found["machines"]:
        assert one["context"] == last[one["machine"]]["context"]
        played = Trajectory(last[one["machine"]]["states"], last[one["machine"]]["inputs"])
        assert one["cost"] == trajectory_cost(played, study.cost)
    assert found["machines"][0]["worker"] == "bench-2"


def test_costs_and_regret_are_those_of_each_episode(study, shown) -> None:
    found, decoder = shown.costs(), study.decoder
    for k, one in enumerate(told(study)):
        paid = trajectory_cost(Trajectory(one["states"], one["inputs"]), study.cost)
        machine = decoder.machine(one["context"], one["machine"]).system
        least = optimal_cost(machine, study.cost, one["states"][0])
        assert found["number"][k] == k + 1
        assert found["cost"][k] == paid
        np.testing.assert_allclose(found["best"][k], least, rtol=1e-9)
        np.testing.assert_allclose(found["excess"][k], paid - least, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"a", "b"}, "7 episodes of 2 machines; 3 out, 1 late"),
        ({"a"}, "7 episodes of 1 machine; 3 out, 1 late"),
        ({"a", ""}, "7 episodes of 1 machine and machines without a label; 3 out, 1 late"),
        ({""}, "7 episodes of machines without a label; 3 out, 1 late"),
    ],
)
def test_how_it_stands_in_words(labels, said) -> None:
    assert shown_log.in_words(7, labels, 3, 1) == said


def test_an_episode_that_broke_off_has_no_excess(tmp_path) -> None:
    with watched_study(f"sqlite:///{tmp_path}/fleet.db", 2, 2, asked=False) as study:
        short = Trajectory([[1.0, 0.0], [1.0, 0.1]], [[0.5]])
        study.tell({"mass": 1.0, "friction": 1.0}, short)
        found = Watch(study).costs()
    assert found["steps"] == [29, 29, 1]
    assert found["machine"][-1] == shown_log.NO_LABEL
    assert found["excess"][-1] is None
    assert found["cost"][-1] == pytest.approx(1 + 0.01 * 0.25 + 1 + 0.1 * 0.01)


def test_errors_of_theta_are_those_of_draws(study, shown) -> None:
    found, decoder = shown.theta(), study.decoder
    drawn, _ = decoder.posterior.draw(4000, np.random.default_rng(0))
    np.testing.assert_array_equal(found["estimate"], decoder.estimate)
    np.testing.assert_allclose(found["error"], drawn.std(0), rtol=0.1)
    assert found["columns"][:3] == ["1 · position", "1 · velocity", "1 · force"]
    assert found["rows"] == ["position", "velocity"]
    assert found["dark"] == []


def test_what_is_dark_is_named() -> None:
    with Study.open("sqlite://", chain(2)) as study:
        d, m = study.cost.state_size, study.cost.input_size
        states = np.random.default_rng(0).normal(size=(8, d))
        context = chain(2).sample_context(np.random.default_rng(0))
        study.tell(context, Trajectory(states, np.zeros((7, m))))  # no input was ever played
        found = Watch(study).theta()
    assert len(found["dark"]) >= m
    assert "1/mass · u1 is never excited" in found["dark"]
    assert found["columns"][0] == "1 · x1"


def test_a_cell_is_the_certificate_of_its_context(study, shown, grid) -> None:
    agent = study._learner.agent
    assert (grid["x"]["name"], grid["y"]["name"]) == ("mass", "friction")
    assert np.shape(grid["cells"]) == (11, 11)
    for i, j in ((0, 0), (5, 3), (10, 10)):
        context = {"mass": grid["x"]["values"][j], "friction": grid["y"]["values"][i]}
        one = study.certify(context, bounds=False, input_bounds=agent.input_bounds)
        assert grid["cells"][i][j]["verdict"] == one.verdict
        np.testing.assert_allclose(grid["cells"][i][j]["excess"], one.likely_excess, rtol=1e-6)


def test_machines_are_counted_in_the_nearest_cell(shown, grid) -> None:
    tried = np.zeros((11, 11), int)
    for one in shown.overview()["machines"]:
        near = [
            int(np.abs(np.subtract(grid[axis]["values"], one["context"][name])).argmin())
            for axis, name in (("y", "friction"), ("x", "mass"))
        ]
        tried[tuple(near)] += 1
    assert [[one["tried"] for one in row] for row in grid["cells"]] == tried.tolist()


def test_a_map_of_what_is_not_there_is_refused(shown) -> None:
    for odd in ({"x": "colour"}, {"y": "colour"}, {"held": {"colour": 1.0}}, {"y": "mass"}):
        with pytest.raises(InputError, match=r"no context is called 'colour'|'mass' twice"):
            shown.map(**odd)


def test_one_machine_in_detail(study, shown) -> None:
    context = {"mass": 2.0, "friction": 1.0}
    found = shown.look(context)
    one = study.certify(context, bounds=False)
    np.testing.assert_allclose(found["gains"], one.policy.gains, rtol=1e-9)
    assert found["verdict"] == one.verdict
    names = [(line["name"], line["unit"], line["kind"]) for line in found["lines"]]
    assert names == [
        ("position", "m", "state"),
        ("velocity", "m/s", "state"),
        ("force", "N", "input"),
    ]
    # Of the estimated machine, without noise.
    system, x = study.decoder.machine(context).system, np.array([1.0, 0.0])
    for step, K in enumerate(found["gains"]):
        np.testing.assert_allclose([one["expected"][step] for one in found["lines"][:2]], x)
        x = system.A @ x + system.B @ (K @ x)
    for line in found["lines"]:
        low, middle, high = (np.array(line[k]) for k in ("low", "median", "high"))
        assert (low <= middle).all()
        assert (middle <= high).all()
    own = shown.look(told(study)[0]["context"], "cart-01")
    assert own["machine"] == "cart-01"
    with pytest.raises(InputError):
        shown.look({"colour": 1.0})


def test_who_stands_out_is_named(shown) -> None:
    found = shown.alarm()
    assert [one["machine"] for one in found["machines"] if one["named"]] == [MISLABELLED]
    assert found["sentence"] == "1 of 8 machines stands out"


def test_what_to_run_next_is_what_saves_most(study, shown) -> None:
    found, seen = shown.next_runs(), shown.seen()
    anywhere = shown_belief.spread(seen.ranges, 50)
    everyone = [*seen.machines.values(), *anywhere]
    ranked = rank_candidates(study.decoder, everyone, study.cost, [1.0, 0.0], targets=anywhere)
    first = next(one for one in ranked if one.place >= MACHINES)
    assert found["new"][0]["context"] == first.context
    assert found["new"][0]["saving"] == pytest.approx(first.saving)
    labels = list(seen.machines)
    assert (
        found["known"][0]["machine"]
        == labels[next(one.place for one in ranked if one.place < MACHINES)]
    )


def test_machines_never_tried_are_all_over_the_range(shown) -> None:
    ranges = {"a": (0.0, 1.0), "b": (-5.0, 5.0), "c": (1.0, 1.0)}
    points = shown_belief.spread(ranges, 64)
    for name, (low, high) in ranges.items():
        values = [one[name] for one in points]
        assert low <= min(values)
        assert max(values) <= high
    cells = {(int(4 * one["a"]), int((one["b"] + 5) / 2.5)) for one in points}
    assert len(cells) == 16  # every one of 4 by 4 has some
    found = shown.trust()
    assert found["of"] == 20 == sum(found["verdicts"].values())
    assert found["sentence"].startswith(f"{found['verdicts']['trust']} of 20")


def test_ten_watchers_cost_what_one_costs(tmp_path, monkeypatch) -> None:
    made, clock = [], [0.0]

    def slow(seen) -> dict:
        made.append(seen.episodes)
        time.sleep(0.05)
        clock[0] += 1.0
        return {}

    monkeypatch.setattr(shown_belief, "trust", slow)
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock[0])
    with watched_study(f"sqlite:///{tmp_path}/fleet.db", 2, 2, asked=False) as study:
        shown = Watch(study)
        threads = [threading.Thread(target=shown.trust) for _ in range(10)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert made == [2]
        study.tell({"mass": 1.0, "friction": 1.0}, Trajectory([[1, 0], [1, 0]], [[0]]))
        assert shown.trust()["episodes"] == 2  # it took 1, and stands for 10
        clock[0] += 10.5
        assert shown.trust()["episodes"] == 3
        clock[0] += 100
        assert shown.trust()["episodes"] == 3
        assert made == [2, 3]  # nothing has come since


def test_a_mark_changes_with_every_ask_and_episode(tmp_path) -> None:
    with watched_study(f"sqlite:///{tmp_path}/fleet.db", 2, 0) as study:
        shown, marks = Watch(study), []
        marks.append(shown.mark())
        asked = study.ask({"mass": 1.0, "friction": 1.0})
        marks.append(shown.mark())
        study.tell(asked, Trajectory([[1, 0], [1, 0]], [[0]]))
        marks.append(shown.mark())
    assert [(one["episodes"], one["out"]) for one in marks] == [(0, 0), (0, 1), (1, 0)]


def test_before_the_first_episode_there_is_a_reason() -> None:
    with Study.open("sqlite://", chain(2)) as study:
        shown = Watch(study)
        for one in (shown.trust(), shown.map(), shown.next_runs(), shown.alarm()):
            assert one["missing"] == "no episode has been told yet"
        assert shown.overview()["sentence"] == "0 episodes of 0 machines; 0 out, 0 late"
        assert shown.costs()["number"] == []
        assert len(shown.theta()["dark"]) > 0


def test_contexts_without_names_have_no_map() -> None:
    cost = chain(2).cost
    d, m = cost.state_size, cost.input_size
    own = FunctionContext(lambda c: np.kron([[1.0], [c]], np.eye(d + m)))
    rng = np.random.default_rng(0)
    with Study.open("sqlite://", Agent(own, cost, np.ones(d))) as study:
        study.tell(2.0, Trajectory(rng.normal(size=(9, d)), rng.normal(size=(8, m))), "M-1")
        shown = Watch(study)
        assert "no named numbers" in shown.map()["missing"]
        assert shown.overview()["machines"][0]["context"] == 2.0
        assert shown.look(2.0)["verdict"]


def test_a_range_that_is_not_declared_is_as_seen(study, shown) -> None:
    seen = shown.seen()
    assert dict(seen.ranges) == {"mass": (0.5, 5.0), "friction": (0.0, 2.0)}
    cost = chain(2).cost
    open_map = FunctionContext(
        lambda c: np.kron([[1.0], [c["a"]]], np.eye(cost.state_size + cost.input_size)),
        bounds={"a": (1.0, None)},
    )
    rng = np.random.default_rng(0)
    with Study.open("sqlite://", Agent(open_map, cost, np.ones(cost.state_size))) as other:
        for a in (2.0, 7.0):
            states = rng.normal(size=(9, cost.state_size))
            played = Trajectory(states, rng.normal(size=(8, cost.input_size)))
            other.tell({"a": a}, played, f"M-{a}")
        shown = Watch(other)
        assert dict(shown.seen().ranges) == {"a": (1.0, 7.0)}
        line = shown.map()  # over the one name that there is
        assert line["y"] is None
        assert np.shape(line["cells"]) == (1, shown_belief.LINE)
        assert [k for k, one in enumerate(line["cells"][0]) if one["tried"]] == [3, 20]
