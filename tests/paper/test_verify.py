"""The verification: what it records, that every check can fail, and the command."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta as beta_distribution
from scipy.stats import t as student

from command import COMMAND
from command import run as run_command
from contextual_lqr import InputError, LinearPolicy, LinearSystem, Optimism, simulate
from contextual_lqr.fleets import path_following, true_decoder
from contextual_lqr.paper.verify import checks, runs
from contextual_lqr.paper.verify.bounded import play_within
from contextual_lqr.paper.verify.machine_beliefs import belief_coverage, run_machines
from contextual_lqr.paper.verify.runs import Job, VerifySettings, constants_of, run
from contextual_lqr.paper.verify.verification import supervision
from problems import seeds

SMALL = VerifySettings(
    fleets=("circle",), seeds=6, short_episodes=10, long_runs=2, long_episodes=100, unseen=3
)
CONSTANTS = constants_of("circle", SMALL.margin)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """Short runs as they are, and long ones whose rates are known."""
    short = [run(Job(SMALL, "circle", False, seed)) for seed in range(SMALL.seeds)]
    return runs.joined([*short, *(long_rows(seed) for seed in range(4))])


def long_rows(seed: int, K: int = 1000, regret: float = -0.8, unseen: float = -0.9) -> pl.DataFrame:
    """A long run with powers of k for its rates, and nothing else amiss."""
    k = np.arange(1.0, K + 1)
    scatter = np.exp(0.3 * np.random.default_rng(seed).standard_normal((2, K)))
    ones = np.ones(K)
    return pl.DataFrame(
        {
            "fleet": ["circle"] * K, "long": True, "seed": seed, "episode": k.astype(int),
            "rows": (19 * (k - 1)).astype(int), "distance": 0.1 * ones, "beta": ones,
            "paper_radius": 2 * ones, "promised": 0.9 * ones, "optimal": ones,
            "regret": 30 * k**regret * scatter[0], "unseen": k**unseen * scatter[1],
            "unseen_estimate": 1e-3 / k, "log_det": np.log(k), "log_det_bound": 9 * np.log1p(k),
            "log_det_after": np.log(k + 1), "potential": np.log1p(1 / k), "steps": 19,
            "steps_violated": 0, "step_ratio": 0.1 * ones, "played_ratio": ones,
            "scaled": 0, "stopped": False, "value_norm": ones, "largest": ones,
        }
    ).with_columns(pl.col(pl.Int32).cast(pl.Int64))  # fmt: skip


def verdicts(rows: pl.DataFrame) -> dict[str, checks.Check]:
    found = checks.all_checks(rows, {"circle": CONSTANTS}, SMALL.delta, 100)
    return {check.name: check for check in found}


def failing(rows: pl.DataFrame) -> set[str]:
    return {name for name, check in verdicts(rows).items() if not check.holds}


# -- play within the bound -----------------------------------------------------------------------


@given(seed=seeds, c_x=st.sampled_from([1.5, 3.0, 20.0]), boldness=st.sampled_from([0.1, 1.0, 1e4]))
@settings(max_examples=40)
def test_play_keeps_the_bound_and_tells_the_truth(seed: int, c_x: float, boldness: float) -> None:
    rng = np.random.default_rng(seed)
    d, m, p, steps = 3, 2, 4, 8
    G = rng.standard_normal((p, d + m))
    A, B = rng.standard_normal((d, d)), rng.standard_normal((d, m))
    system = LinearSystem(A, B, 0.01 * np.eye(d))
    policy = LinearPolicy(boldness * rng.standard_normal((steps, m, d)))
    start = rng.standard_normal(d)
    start *= 0.9 * c_x / max(np.linalg.norm(start), np.linalg.norm(G[:, :d] @ start))
    shocks = 0.1 * rng.standard_normal((steps, d))
    played = play_within(policy, system, G, start, c_x, shocks)
    x, u = played.trajectory.states, played.trajectory.inputs
    both = np.concatenate((x[:-1], u), 1)
    assert len(u) >= 1
    assert np.linalg.norm(both, axis=1).max() <= c_x * (1 + 1e-9)
    assert np.linalg.norm(both @ G.T, axis=1).max() <= c_x * (1 + 1e-9)
    assert np.allclose(played.rows, both @ G.T)
    assert np.allclose(x[1:], x[:-1] @ A.T + u @ B.T + shocks[: len(u)])
    # Inputs are the policy's, some scaled back: no further than the bound asks for.
    meant = np.einsum("hij,hj->hi", policy.gains[: len(u)], x[:-1])
    share = (u * meant).sum(1) / (meant * meant).sum(1)
    assert np.allclose(u, share[:, None] * meant, atol=1e-9 * np.abs(meant).max())
    less = share < 1 - 1e-9
    assert less.sum() == played.scaled
    sizes = np.maximum(np.linalg.norm(both, axis=1), np.linalg.norm(both @ G.T, axis=1))
    assert np.allclose(sizes[less], c_x)
    # And it stopped where a state alone is beyond, nowhere else.
    states = np.maximum(np.linalg.norm(x, axis=1), np.linalg.norm(x @ G[:, :d].T, axis=1))
    assert (states[:-1] <= c_x).all()
    assert played.stopped == (len(u) < steps)
    assert not played.stopped or states[-1] > c_x


def test_play_within_a_wide_bound_is_a_simulation() -> None:
    fleet, rng = path_following("circle"), np.random.default_rng(3)
    system = LinearSystem(0.5 * np.eye(5), 0.1 * np.ones((5, 2)), fleet.noise)
    policy = LinearPolicy(0.1 * rng.standard_normal((19, 2, 5)))
    expected = simulate(policy, system, fleet.start, np.random.default_rng(8))
    shocks = np.random.default_rng(8).standard_normal((19, 5)) @ system.noise_factor.T
    played = play_within(policy, system, np.eye(7), fleet.start, 1e6, shocks)
    assert np.allclose(played.trajectory.states, expected.states)
    assert np.allclose(played.trajectory.inputs, expected.inputs)
    assert (played.scaled, played.stopped) == (0, False)


# -- what is recorded ----------------------------------------------------------------------------


def test_rows_are_what_the_definitions_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """V, det V, the distance and the steps' two sides again, from the rows z alone."""
    episodes = []

    def recorded(*arguments: Any) -> Any:
        episodes.append(play_within(*arguments))
        return episodes[-1]

    monkeypatch.setattr(runs, "play_within", recorded)
    found = run(Job(SMALL, "circle", False, 77))
    truth = true_decoder(path_following("circle"))
    lam = CONSTANTS.regularisation
    V, W = lam * np.eye(7), np.zeros((7, 5))
    assert len(found) == len(episodes) == SMALL.short_episodes
    for row, episode in zip(found.to_dicts(), episodes, strict=True):
        Theta = np.linalg.solve(V, W).T
        off = truth - Theta
        assert np.isclose(row["distance"], np.trace(off @ V @ off.T), rtol=1e-4)
        assert np.isclose(row["log_det"], np.linalg.slogdet(V / lam)[1], rtol=1e-6, atol=1e-9)
        Z = episode.rows
        errors = np.linalg.norm(off @ Z.T, axis=0)
        allowed = np.sqrt(row["beta"] * np.einsum("hi,ij,hj->h", Z, np.linalg.inv(V), Z))
        assert np.allclose(row["step_error"], errors, rtol=1e-3, atol=1e-6)
        assert np.allclose(row["step_allowed"], allowed, rtol=1e-3)
        assert row["steps"] == len(Z)
        V, W = V + Z.T @ Z, W + Z.T @ episode.trajectory.states[1:]
    assert found["rows"].to_list() == [0, *np.cumsum([len(e.rows) for e in episodes])[:-1]]
    assert (found["regret"] > 0).all()


def test_a_run_is_the_same_again_and_others_are_not() -> None:
    few = replace(SMALL, short_episodes=4)
    one, again, other = (run(Job(few, "circle", False, seed)) for seed in (5, 5, 6))
    assert one.equals(again)
    assert not one["regret"].equals(other["regret"])


@pytest.mark.slow
def test_a_long_run_has_what_the_rates_need() -> None:
    found = run(Job(SMALL, "circle", True, 0))
    assert len(found) == 100
    assert found["unseen"].is_finite().all()
    # An optimistic decoder is not as good as the estimate, where nothing is left to explore.
    assert 0 < found["unseen_estimate"][-1] < found["unseen"][-1]
    assert found["regret"][-20:].mean() < 0.01 * found["regret"][:5].mean()


def test_how_often_the_bound_acts_is_counted(rows: pl.DataFrame) -> None:
    changed = rows.with_columns(
        scaled=pl.when(pl.col("episode") == 7).then(3).otherwise(0),
        stopped=pl.col("episode") == 9,
        value_norm=pl.when(pl.col("episode") == 2).then(1e6).otherwise(1.0),
    )
    short = supervision(changed, {"circle": CONSTANTS})[0]
    assert short["episodes_acted"] == 2 * SMALL.seeds
    assert short["steps_scaled"] == 3 * SMALL.seeds
    assert (short["last_acted"], short["last_beyond_c_q"]) == (9, 2)
    assert short["episodes_beyond_c_q"] == SMALL.seeds


# -- every check holds, and can fail -------------------------------------------------------------


def test_all_checks_hold(rows: pl.DataFrame) -> None:
    found = verdicts(rows)
    assert len(found) == 8
    assert not failing(rows), [c.finding for c in found.values() if not c.holds]


def test_a_radius_much_too_small_fails_coverage_and_the_steps(rows: pl.DataFrame) -> None:
    wrong = replace(SMALL, beta_factor=1e-3)
    short = [run(Job(wrong, "circle", False, seed)) for seed in range(SMALL.seeds)]
    broken = runs.joined([*short, rows.filter(long=True)])
    found = verdicts(broken)
    expected = {f"coverage, {rule}" for rule, _, _ in checks.RULES} | {"per-step inequality"}
    assert failing(broken) >= expected
    assert "Θ* in all sets of 0 of 6 runs" in found["coverage, determinant form"].finding
    assert "short of the promise by 0.4" in found["coverage, determinant form"].finding
    assert found["per-step inequality"].numbers["violations"] > 50


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        ({"promised": 1.01 * pl.col("optimal")}, "optimism", "is 0.01 of the optimal cost above"),
        ({"distance": 2.0 * pl.col("beta")}, "optimism", "never inside"),
        ({"regret": 30.0 + pl.col("regret")}, "regret", "the interval ends 0."),
        ({"regret": 1e9 * pl.col("regret")}, "regret", "times the bound"),
        ({"unseen": 5.0 + pl.col("unseen")}, "unseen contexts (PAC)", "the interval ends 0."),
        ({"unseen": np.inf * pl.col("unseen")}, "unseen contexts (PAC)", "ends inf above -0.45"),
        ({"log_det": 1.01 * pl.col("log_det_bound") + 1}, "determinant lemma", "violations"),
        ({"potential": 1e4 + pl.col("potential")}, "determinant lemma", "of the potential's"),
        ({"played_ratio": 1.001 + 0 * pl.col("beta")}, "per-step inequality", "leaves its set"),
        ({"steps_violated": pl.lit(1)}, "per-step inequality", "violations in"),
    ],
)
def test_what_is_wrong_in_the_rows_is_found(
    rows: pl.DataFrame, change: dict[str, pl.Expr], name: str, said: str
) -> None:
    broken = rows.with_columns(**change)
    assert name in failing(broken)
    assert said in verdicts(broken)[name].finding


def test_large_regret_at_first_does_not_hide_that_it_never_falls(rows: pl.DataFrame) -> None:
    """The cumulative exponent is small, for the first episode outweighs all others."""
    K = 10_000
    stuck = long_rows(0, K, regret=0.0, unseen=0.0).with_columns(
        *(
            pl.when(pl.col("episode") == 1).then(1e4).otherwise(1e-4 * pl.col(c)).alias(c)
            for c in ("regret", "unseen")
        )
    )
    both = pl.concat([stuck, stuck.with_columns(seed=pl.lit(1, pl.Int64))])
    for check in (checks.regret(both, CONSTANTS, 0.1, 100), checks.unseen(both, 100)):
        assert not check.holds
        assert "the interval ends 0.4" in check.finding
    assert checks.regret(both, CONSTANTS, 0.1, 100).numbers["exponent_high"] < 0.1
    assert checks.regret(both.filter(pl.col("episode") < 9000), CONSTANTS, 0.1, 100).holds


def test_a_search_that_is_starved_fails_optimism(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the estimate alone, which is zero at first, no descent leads anywhere."""
    starved = Optimism(draws=1, starts=2, rounds=1, kept=1, polish=0, certify=False)
    monkeypatch.setattr(runs, "SEARCH", starved)
    check = checks.optimism(run(Job(SMALL, "circle", False, 0)))
    assert not check.holds
    assert check.numbers["exceptions"] > 0


def test_coverage_is_refuted_only_by_the_whole_interval(rows: pl.DataFrame) -> None:
    """Clopper and Pearson's ends by the beta distribution, and the verdict they give."""
    short = pl.concat(
        [rows.filter(long=False).with_columns(pl.col("seed") + more) for more in (0, SMALL.seeds)]
    )
    for outside in (0, 1, 3, 4, 12):
        distance = pl.when(pl.col("seed") < outside).then(2.0).otherwise(0.5) * pl.col("beta")
        check = next(iter(checks.coverage(short.with_columns(distance=distance), 0.1)))
        n, k = 12, 12 - outside
        low = beta_distribution.ppf(0.025, k, n - k + 1) if k else 0.0
        high = beta_distribution.ppf(0.975, k + 1, n - k) if k < n else 1.0
        assert np.isclose(check.numbers["low"], low)
        assert np.isclose(check.numbers["high"], high)
        assert check.holds == (high >= 0.9)


def test_beliefs_about_machines_are_held_against_the_truth() -> None:
    """A run is the same again; own episodes narrow the belief; its errors are of its size."""
    some = run_machines(3)
    assert some.equals(run_machines(3))
    assert some["own_episodes"].to_list() == [0, 1, 3, 10]
    many = pl.concat([some, run_machines(4)])
    before, after = (many.filter(own_episodes=own)["deviation"].to_numpy() for own in (0, 10))
    assert (after < before).all()
    ratios = (many["error"] / many["deviation"]).abs().to_numpy()
    assert 0.2 < np.median(ratios) < 2
    assert ratios.max() < 8


@pytest.mark.parametrize(
    ("stretch", "holds", "said"),
    [(1.0, True, "95 %"), (2.0, False, "short by 0."), (0.01, True, "wider than need be")],
)
def test_beliefs_that_are_too_narrow_are_found(stretch: float, holds: bool, said: str) -> None:
    """Errors that are exactly Student's pass; twice as large, they are refuted."""
    rng, runs = np.random.default_rng(4), 400
    frames = [
        pl.DataFrame(
            {
                "seed": np.arange(runs), "own_episodes": own, "degrees": 9.0, "deviation": 3.0,
                "error": 3.0 * stretch * rng.standard_t(9, runs), "deviating": True,
            }
        )
        for own in (0, 1)
    ]  # fmt: skip
    for check in belief_coverage(pl.concat(frames)):
        assert check.holds == holds
        assert said in check.finding
        assert check.fleet == "random fleets"
        inside = check.numbers["covered"] / runs
        assert check.numbers["low"] <= inside <= check.numbers["high"]
        expected = 2 * student(9).cdf(student(9).ppf(0.975) / stretch) - 1
        assert abs(inside - expected) < 0.06


@pytest.mark.parametrize("power", [-1.0, -0.5, 0.3])
def test_slopes_are_those_that_were_put_in(power: float) -> None:
    """The interval holds the true slope in most of 40 repetitions; and is not idly wide."""
    k, inside = np.arange(1.0, 2001), 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        size = np.exp(0.5 * rng.standard_normal((8, 1)) + 0.5 * rng.standard_normal((8, 2000)))
        slope, low, high = checks.slope(*checks.binned(k**power * size, 100))
        assert abs(slope - power) < 0.1
        assert high - low < 0.2
        inside += low - 0.01 <= power <= high + 0.01  # a bin's middle is not quite its mean
    assert inside >= 32


# -- the command ---------------------------------------------------------------------------------


def test_the_command_writes_a_report_and_says_what_holds(tmp_path: Path) -> None:
    options = ("--fleet", "circle", "--seeds", "2", "--runs", "2", "--episodes", "100")
    where = tmp_path / "new" / "folder"
    done = run_command(COMMAND, "verify", *options, "--out", where, "--json", "--jobs", "1")
    assert done.returncode in (0, 1)  # rates of so short runs need not hold
    found = json.loads(done.stdout)
    assert found == json.loads((where / "checks.json").read_text())
    assert found["holds"] == (done.returncode == 0)
    assert [c["name"] for c in found["checks"] if "coverage" in c["name"] and c["holds"]]
    beliefs = [c for c in found["checks"] if c["fleet"] == "random fleets"]
    assert [c["name"].split(", ")[1].split()[0] for c in beliefs] == ["0", "1", "3", "10"]
    assert all(c["numbers"]["runs"] == 2 for c in beliefs)
    assert found["settings"]["long_episodes"] == 100
    page = (where / "report.html").read_text()
    assert page.count("<img") == 5
    assert "The guarantees, measured" in page
    assert len(pl.read_parquet(where / "rows.parquet")) == 2 * 30 + 2 * 100
    assert len(pl.read_parquet(where / "machines.parquet")) == 2 * 4
    names = {"coverage", "optimism", "regret", "unseen", "steps"}
    assert {p.stem for p in where.glob("*.svg")} == {p.stem for p in where.glob("*.png")} == names


def test_the_command_exits_1_and_says_which_check_failed(tmp_path: Path) -> None:
    options = ("--fleet", "parabola", "--seeds", "3", "--runs", "2", "--episodes", "100")
    done = run_command(
        COMMAND, "verify", *options, "--beta-factor", "1e-3", "--out", tmp_path, "--jobs=1"
    )
    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines())) <= 80
    said = " ".join(done.stderr.split())
    assert "failed: coverage, determinant form fails on parabola: Θ* in all sets of 0 of 3" in said
    assert "failed: per-step inequality fails on parabola" in said
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fleets": ("square",)}, "fleet must be one or more of circle, parabola, lemniscate"),
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"long_runs": 1}, "long runs must be at least 2"),
        ({"long_episodes": 99}, "long episodes must be at least 100"),
        ({"delta": 1.0}, "delta must be between 0 and 1, not 1.0"),
        ({"beta_factor": 0.0}, "beta factor must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VerifySettings(**options)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_command(COMMAND, "verify", "--out", tmp_path / "file" / "below")
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot make the folder")
