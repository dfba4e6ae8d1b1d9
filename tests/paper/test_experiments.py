"""The paper's experiments: configuration, trials, storage, summary and claims."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy import ndarray as Array
from scipy import stats

from contextual_lqr import (
    Agent,
    ConfidenceSet,
    Decoder,
    FormatError,
    InputError,
    LinearPolicy,
    simulate,
    solve,
)
from contextual_lqr.belief.machine import as_system
from contextual_lqr.files import finite
from contextual_lqr.fleets import path_following, true_decoder, true_system
from contextual_lqr.lqr.solve import optimal_policy
from contextual_lqr.paper.play import Played, play
from contextual_lqr.paper.reproduce import trial as trials
from contextual_lqr.paper.reproduce.claims import (
    claims,
    growth_factors,
    late_exponent,
    number,
    unsaid,
)
from contextual_lqr.paper.reproduce.config import Config, Setting, Trial
from contextual_lqr.paper.reproduce.figures import examples
from contextual_lqr.paper.reproduce.run import run_missing
from contextual_lqr.paper.reproduce.store import Store, frame
from contextual_lqr.paper.reproduce.summary import (
    Measurements,
    described,
    interquartile_mean,
    median,
    summarise,
)
from contextual_lqr.paper.score import TrueMachines
from contextual_lqr.parallel import in_parallel
from numpy_experiment import same_trial

SMALL = Config(
    paths=("circle",), decays=(0.7,), episodes=3, seeds=2, strategies=("paper",), test_masses=5
)


def rows_of(config: Config) -> pl.DataFrame:
    return pl.concat([frame(trials.run(config, trial)) for trial in config.trials])


# -- configuration -------------------------------------------------------------------------------


def test_the_default_is_the_paper() -> None:
    config = Config()
    assert (config.horizon, config.episodes, config.test_masses) == (20, 100, 100)
    assert (config.beta, config.samples, config.noise, config.masses) == (
        1e4,
        100,
        1e-4,
        (0.1, 10),
    )
    assert {one.path for one in config.settings} == {"circle", "parabola", "lemniscate"}
    assert {one.decay for one in config.settings} == {1.0, 0.7}
    assert len(config.settings) == 6
    fleet, *_ = trials.bench(config, config.settings[0])
    agent, beta = trials.agent_for(config, config.trials[0], fleet)
    assert (agent.decoder.regularisation, beta(agent.decoder)) == (1.0, 1e4)
    assert {len(config.training_masses()), len(config.unseen_masses())} == {100}


def test_masses_are_fixed_and_a_longer_run_begins_like_a_shorter() -> None:
    long, short = Config(), dataclasses.replace(Config(), episodes=7, seeds=3, first_seed=9)
    assert np.array_equal(long.training_masses()[:7], short.training_masses())
    assert np.array_equal(long.unseen_masses(), short.unseen_masses())
    both = np.concatenate((long.training_masses(), long.unseen_masses()))
    assert len(set(both)) == 200
    assert stats.kstest(both, stats.uniform(0.1, 9.9).cdf).pvalue > 0.01


def test_a_configuration_survives_its_file(tmp_path: Path) -> None:
    config = Config(("circle",), (0.7, 0.1 + 0.2), 5, 3, ("paper", "thompson"), beta=1 / 3)
    (tmp_path / "config.json").write_text(config.written(), encoding="utf-8")
    assert Config.load(tmp_path / "config.json") == config


BAD: list[dict[str, Any]] = [
    {"paths": ("square",)},
    {"paths": ()},
    {"paths": ("circle", "circle")},
    {"strategies": ("bold",)},
    {"decays": (0.0,)},
    {"decays": (1.5,)},
    {"decays": (math.nan,)},
    {"decays": (0.7, 0.7)},
    {"episodes": 0},
    {"seeds": True},
    {"samples": -1},
    {"beta": 0.0},
    {"beta": math.inf},
    {"noise": 0.0},
    {"masses": (2.0, 1.0)},
    {"start": "here"},
    {"closed_curves": "twice"},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_bad_configuration_is_refused_by_name(bad: dict[str, Any], tmp_path: Path) -> None:
    name = next(iter(bad))
    with pytest.raises(InputError, match=name):
        Config(**bad)
    content = json.loads(Config().written()) | bad
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=name):
        Config.load(tmp_path / "config.json")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other"}'])
def test_a_file_that_is_no_configuration_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(FormatError, match=r"config\.json"):
        Config.load(tmp_path / "config.json")
    with pytest.raises(InputError, match="there is no file"):
        Config.load(tmp_path / "none.json")


# -- one trial -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "decay"), [("circle", 1.0), ("parabola", 0.7), ("lemniscate", 0.7)]
)
@pytest.mark.parametrize(("beta", "tolerance"), [(1.0, 1e-9), (100.0, 1e-6)])
def test_a_trial_agrees_with_plain_numpy(
    path: str, decay: float, beta: float, tolerance: float
) -> None:
    """The same random numbers, another program: all measurements of all episodes."""
    config = Config((path,), (decay,), episodes=5, beta=beta, samples=30, test_masses=7)
    trial = Trial(Setting(path, decay), "paper", 3)
    ours, theirs = trials.run(config, trial), same_trial(config, trial)
    for name, column in theirs.items():
        assert ours[name] == pytest.approx(column, rel=tolerance), name
    assert set(trials.MEASURED) - set(theirs) == {"seconds"}


def test_regret_of_a_dithered_plan_is_its_expected_cost_above_the_optimum() -> None:
    """Against the second moments of the closed loop, Σ tr M (K-K*) E[xxᵀ] (K-K*)ᵀ + tr M S."""
    config = dataclasses.replace(SMALL, strategies=("cautious",))
    left, failure = trials.learn(config, config.trials[0])
    fleet, training, _ = trials.bench(config, config.settings[0])
    regrets = training.regrets([one.played for one in left])
    assert not failure
    for i, one in enumerate(left):
        plan = one.played.plan
        assert plan is not None
        assert plan.dither is not None
        truth = true_system(fleet, {"mass": config.training_masses()[i]})
        best = solve(truth, fleet.cost)
        X, total = np.outer(fleet.start, fleet.start), 0.0
        for h, (K, S) in enumerate(zip(plan.policy.gains, plan.dither, strict=True)):
            M = fleet.cost.R[h] + truth.B.T @ best.value_matrices[h + 1] @ truth.B
            off, F = K - best.policy.gains[h], truth.A + truth.B @ K
            total += np.trace(M @ (off @ X @ off.T + S))
            X = F @ X @ F.T + truth.noise + truth.B @ S @ truth.B.T
        assert regrets[i] == pytest.approx(total, rel=1e-9)


def test_regret_along_what_was_played_has_the_expected_regret_as_its_mean() -> None:
    fleet = path_following("circle", 0.7, horizon=6)
    machines = TrueMachines(fleet, {"mass": np.array([0.5])})
    rng = np.random.default_rng(0)
    gains = machines.policies[0] + 0.05 * rng.standard_normal((5, 2, 5))
    machine = true_system(fleet, {"mass": 0.5})
    sums = []
    for _ in range(300):
        played = simulate(LinearPolicy(gains), machine, fleet.start, rng)
        sums.append(machines.regrets([Played(played, None)])[0])
    exact = machines.policy_regrets(gains[None])[0]
    error = np.std(sums) / np.sqrt(len(sums))
    assert exact > 10 * error
    assert abs(np.mean(sums) - exact) < 4 * error


def test_confidence_distances_are_those_of_the_sets_played_from() -> None:
    left, _ = trials.learn(SMALL, SMALL.trials[0])
    fleet, training, _ = trials.bench(SMALL, SMALL.settings[0])
    decoder, distances = Decoder(fleet.context_map, 1.0, noise_level=0.01), []
    for one, mass in zip(left, SMALL.training_masses(), strict=True):
        distances.append(ConfidenceSet(decoder, one.prior.beta).distance(true_decoder(fleet)))
        decoder.update({"mass": mass}, one.played.trajectory)
    beliefs = ([one.prior.estimate for one in left], [one.prior.factor for one in left])
    found = training.confidence_distances(*map(np.stack, beliefs))
    assert found == pytest.approx(distances, rel=1e-12)


def test_optimal_policy_is_that_of_solve() -> None:
    fleet = path_following("lemniscate")
    systems = TrueMachines(fleet, {"mass": np.linspace(0.1, 10, 9)}).systems
    gains = optimal_policy(systems, fleet.cost).gains
    assert gains.tobytes() == solve(systems, fleet.cost).policy.gains.tobytes()


def test_the_noise_is_the_same_for_every_strategy_and_another_for_every_seed() -> None:
    config = dataclasses.replace(SMALL, strategies=("paper-literal", "thompson"))
    shocks: dict[tuple[str, int], Array] = {}
    fleet = trials.bench(config, config.settings[0]).fleet
    for trial in config.trials:
        left, _ = trials.learn(config, trial, 1)
        played = left[0].played.trajectory
        states, inputs = played.states, played.inputs
        M = true_decoder(fleet) @ fleet.context_map.matrix({"mass": config.training_masses()[0]})
        shocks[trial.strategy, trial.seed] = states[1:] - np.hstack((states[:-1], inputs)) @ M.T
    size = 1e-9 * max(1.0, float(np.abs(states).max()))
    assert np.abs(shocks["thompson", 0] - shocks["paper-literal", 0]).max() < size + 1e-6
    assert np.abs(shocks["paper-literal", 0] - shocks["paper-literal", 1]).max() > 1e-3


@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_an_episode_that_overflows_ends_before_it(adapt: Any) -> None:
    fleet, training, _ = trials.bench(SMALL, SMALL.settings[0])
    agent = Agent(fleet.context_map, fleet.cost, fleet.start)
    shocks = np.zeros((19, 5))
    wild = as_system(1e40 * training.dynamics[0], fleet.noise)
    played = play(agent, {"mass": 1.0}, wild, shocks, adapt)
    assert 0 < len(played.trajectory) < 19
    assert np.isfinite(played.trajectory.states).all()
    assert agent.decoder.episodes == 1
    assert training.regrets([played._replace(plan=None)])[0] == np.inf


@pytest.mark.parametrize("strategy", Config().strategies)
def test_every_strategy_fills_every_column(strategy: str) -> None:
    config = dataclasses.replace(SMALL, strategies=(strategy,), episodes=2)
    rows = frame(trials.run(config, config.trials[0]))
    missing = {name for name in rows.columns if rows[name].null_count()}
    assert missing - {"failure"} == ({"promised_cost"} if strategy == "cautious-step" else set())
    assert rows["episode"].to_list() == [1, 2]
    total = rows["regret"].cum_sum().to_numpy()
    assert rows["cumulative_regret"].to_numpy() == pytest.approx(total, rel=1e-12)
    assert (rows["worst_control_error"] >= rows["control_error"]).all()


# -- failures are rows, and count ----------------------------------------------------------------


def fail_at(episode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = trials.play, [0]

    def play(*arguments: Any) -> Played:
        count[0] += 1
        if count[0] == episode:
            raise ArithmeticError("it broke")
        return real(*arguments)

    monkeypatch.setattr(trials, "play", play)


def test_a_failed_trial_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(SMALL, seeds=3)
    fail_at(5, monkeypatch)  # the second episode of the second seed
    measured = Measurements(config, rows_of(config))
    failed = measured.rows.filter(pl.col("failure").is_not_null())
    assert failed["failure"].to_list() == ["episode 2: ArithmeticError: it broke"]
    assert failed.select("seed", "episode", "mass").row(0) == (1, 2, config.training_masses()[1])
    assert failed["regret"].to_list() == [None]
    assert len(measured.rows) == 3 + 2 + 3
    error = measured.of("control_error", "paper")[0]
    assert np.isinf(error).tolist() == [[False] * 3, [False, True, True], [False] * 3]
    summary = finite(summarise(measured))
    assert (summary["failed"], summary["trials"]) == (1, 3)
    assert summary["settings"][0]["failed"] == summary["strategies"][0]["failed"] == 1
    last = summary["settings"][0]["after"][3]["control_error"]
    assert last["worst"] is None
    assert last["median"] == max(error[0, 2], error[2, 2])
    verdict = claims(measured)[-1]
    assert verdict.holds is False
    assert "1 of 3" in verdict.measured
    assert unsaid(measured)[1][-1] == "1"
    json.dumps(summary, allow_nan=False)


def test_a_trial_that_fails_at_once_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(1, monkeypatch)
    rows = frame(trials.run(SMALL, SMALL.trials[0]))
    assert rows["failure"].to_list() == ["episode 1: ArithmeticError: it broke"]


# -- storage -------------------------------------------------------------------------------------


def without_time(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop("seconds")


def test_the_number_of_jobs_changes_nothing_and_a_stopped_run_resumes(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, strategies=("paper", "cautious"))
    one, two = Store(tmp_path / "one", config), Store(tmp_path / "two", config)
    run_missing(one, 1, lambda trial: None)
    finished: list[Trial] = []

    def stop(trial: Trial) -> None:
        finished.append(trial)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_missing(two, 2, stop)
    again = Store(tmp_path / "two", config)
    assert set(again.missing()) == set(config.trials) - set(finished)
    run_missing(again, 2, finished.append)
    assert sorted(finished) == sorted(config.trials)
    assert without_time(one.rows()).equals(without_time(again.rows()))
    assert one.missing() == again.missing() == []
    assert Store(tmp_path / "two", config).rows().equals(again.rows())
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"config.json", "rows.parquet"}


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    Store(tmp_path, SMALL)
    other = dataclasses.replace(SMALL, seeds=7, strategies=("paper", "thompson"))
    with pytest.raises(InputError, match=r"seeds 2 instead of 7; strategies paper instead of"):
        Store(tmp_path, other)
    written = tmp_path / "config.json"
    older = json.loads(written.read_text()) | {"release": "0.0.1"}
    written.write_text(json.dumps(older, indent=2) + "\n")
    with pytest.raises(InputError, match=r"release 0\.0\.1"):
        Store(tmp_path, SMALL)
    written.unlink()
    (tmp_path / "rows.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"rows without a config\.json"):
        Store(tmp_path, SMALL)


@pytest.mark.parametrize("content", [b"", b"PAR1 nothing", b"text"])
def test_damaged_rows_are_refused(content: bytes, tmp_path: Path) -> None:
    store = Store(tmp_path, SMALL)
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(FormatError, match=r"rows\.parquet"):
        store.rows()


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        Store(tmp_path / "file", SMALL)


def test_no_jobs_no_results() -> None:
    assert list(in_parallel(partial(trials.run, SMALL), [], 2)) == []


# -- summary -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 20])
def test_averages_agree_with_scipy(n: int) -> None:
    values = np.random.default_rng(n).standard_cauchy((5, n))
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25, axis=1))
    assert median(values) == pytest.approx(np.median(values, axis=1))


def test_the_bootstrap_is_stratified_and_covers() -> None:
    rng = np.random.default_rng(0)
    apart = described(np.repeat([[1.0], [5.0], [9.0]], 10, axis=1), rng)
    assert apart["interquartile_mean_interval"] == [apart["interquartile_mean"]] * 2
    covered = {"median": 0, "interquartile_mean": 0}
    for _ in range(200):
        values = rng.normal(3.0, 1.0, (4, 15))
        found = described(values, rng, resamples=200)
        for name in covered:
            low, high = found[f"{name}_interval"]
            covered[name] += low <= 3.0 <= high
    assert all(175 <= count <= 200 for count in covered.values()), covered


def test_infinite_values_leave_averages_in_order() -> None:
    found = described(np.array([[1.0, 2, 3, 4, 5, 6, 7, np.inf]]), np.random.default_rng(0))
    assert found["median"] == 4.5
    assert found["interquartile_mean"] == 4.5
    assert found["worst"] == np.inf
    assert not any(math.isnan(x) for x in found["median_interval"])


# -- claims --------------------------------------------------------------------------------------


def invented(
    regret: Callable[[Array], Array], error: float = 1e-4, seeds: int = 10
) -> Measurements:
    """Rows of a run in which everything is known."""
    config = Config(("circle",), (0.7,), seeds=seeds, strategies=("paper",))
    k = np.arange(1.0, 101.0)
    one = {
        **dict.fromkeys(trials.MEASURED, np.ones(100)),
        "decoder_error": 1e-3 / np.sqrt(k),
        "control_error": error / k,
        "regret": regret(k),
        "cumulative_regret": np.cumsum(regret(k)),
    }
    shared = {"setting": "circle, k = 0.7", "path": "circle", "decay": 0.7, "strategy": "paper"}
    return Measurements(
        config,
        pl.concat(
            [
                frame(
                    {
                        **{name: [value] * 100 for name, value in shared.items()},
                        "seed": [seed] * 100,
                        "episode": list(range(1, 101)),
                        **one,
                        "steps": [19] * 100,
                        "failure": [None] * 100,
                    }
                )
                for seed in range(seeds)
            ]
        ),
    )


@pytest.mark.parametrize("power", [-1.0, -0.5, -0.2, 0.0])
def test_the_growth_of_regret_is_recovered(power: float) -> None:
    measured = invented(lambda k: 7.0 * k**power)
    assert late_exponent(measured) == pytest.approx(power)
    k = np.arange(1.0, 101.0) ** power
    assert growth_factors(measured, "paper") == pytest.approx(k.sum() / k[:10].sum())
    verdicts = {one.paper: one.holds for one in claims(measured)}
    total = verdicts["Regret grows as Õ(√K)."]
    late = verdicts["Regret grows as Õ(√K), from a tenth of the episodes on."]
    assert total is (power <= -0.5)
    assert late is (power <= -0.5)


def test_verdicts_follow_the_measurements() -> None:
    def verdicts(error: float, seeds: int) -> list[bool | None]:
        return [one.holds for one in claims(invented(lambda k: 1 / k, error, seeds))]

    assert verdicts(1e-4, 10) == [True] * 7
    assert verdicts(10.0, 10) == [False, True, True, True, False, True, True]
    assert verdicts(10.0, 3) == [None, True, True, True, None, True, True]  # may be chance


def test_too_little_is_not_judged() -> None:
    measured = Measurements(SMALL, rows_of(SMALL))
    judged = {one.paper: one.holds for one in claims(measured)}
    assert judged["Satisfactory accuracy after only 5 episodes."] is None
    assert judged["Regret grows as Õ(√K)."] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.01234, "0.012"),
        (123.4, "123"),
        (1.24e13, "1.2e+13"),
        (1.24e-7, "1.2e-07"),
        (math.inf, "infinite"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_example_trajectories_come_to_lie_on_the_optimal_one() -> None:
    config = dataclasses.replace(SMALL, episodes=10, seeds=3)
    shown = examples(Measurements(config, rows_of(config)))
    assert [one.mass for one in shown] == [0.1, 1.0]
    angle = 2 * np.pi * np.arange(1, 21) / 20
    for one in shown:
        assert one.targets == pytest.approx(np.stack((np.cos(angle), np.sin(angle)), 1))
        assert np.array_equal(one.optimal[0], one.targets[0])
        assert list(one.learnt) == [1, 3, 10]
        assert one.distance(10) < 0.05 < one.distance(1)
