"""What each strategy promises; what all of them must do is in `testing`."""

from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import default_rng

from contextual_lqr import (
    Agent,
    Cautious,
    CertaintyEquivalence,
    ConfidenceSet,
    ConstantBeta,
    FeatureContext,
    InputError,
    LinearSystem,
    QuadraticCost,
    SampledOptimism,
    ThompsonSampling,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.fleets import path_following, true_system
from contextual_lqr.planning import Choice
from fleet_play import FLEETS, problem, small_fleet, taught

every_fleet = pytest.mark.parametrize("fleet", FLEETS)


def bits(choice: Choice) -> tuple[Any, ...]:
    arrays = [choice.policy.gains, choice.theta, choice.dither]
    numbers = choice.promised_cost, repr(choice.diagnostics)
    return *(None if M is None else (M.shape, M.tobytes()) for M in arrays), *numbers


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SampledOptimism(0), "samples must be at least 1, not 0"),
        (lambda: SampledOptimism(play="both"), "play"),  # the type checker of the tests is first
        (lambda: ThompsonSampling(0), "attempts must be at least 1, not 0"),
        (lambda: CertaintyEquivalence(-0.1), "dither must be at least 0, not -0.1"),
        (lambda: CertaintyEquivalence(np.nan), "dither must be at least 0, not nan"),
        (lambda: CertaintyEquivalence(np.inf), "dither must be at least 0, not inf"),
        (lambda: Cautious(draws=0), "draws must be at least 1"),
        (lambda: Cautious(stress=-1), "stress at least 0"),
        (lambda: Cautious(level=1.0), "level must be between 0 and 1, not 1.0"),
        (lambda: Cautious(confidence=0.0), "confidence must be between 0 and 1, not 0.0"),
        (lambda: Cautious(state_limit=0.0), "state_limit must be positive, not 0.0"),
        (lambda: Cautious(state_limit=(1.0, -1.0)), "state_limit must be positive"),
        (lambda: Cautious(state_limit=np.nan), "state_limit must be positive, not nan"),
        (lambda: SampledOptimism(value_bound=-1.0), "value_bound must be"),
        (lambda: SampledOptimism(value_bound=np.nan), "value_bound must be"),
        (lambda: SampledOptimism(beta=-1.0), "beta must be"),
        (lambda: Cautious(aversions=()), "aversions must be"),
        (lambda: Cautious(aversions=(1.0, -1.0)), "aversions must be"),
        (lambda: Cautious(aversions=np.eye(2)), "aversions must be"),
        (lambda: Cautious(aversions=(1.0, np.inf)), "aversions must be finite"),
        (lambda: Cautious(state_limit=(1.0, np.nan)), "state_limit must be positive"),
        (lambda: Cautious(probe=-1.0), "probe must be"),
        (lambda: Cautious(budget=np.nan), "budget must be"),
        (lambda: Cautious(stretch=-1.0), "stretch must be"),
        (lambda: Cautious(max_cost_ratio=np.nan), "max_cost_ratio must be"),
        (lambda: Cautious(doubt=-1.0), "doubt must be"),
    ],
)
def test_parameters_are_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises((InputError, TypeError), match=words):
        make()


# ---- optimism ------------------------------------------------------------------------------------


@every_fleet
@pytest.mark.parametrize("episodes", [0, 4])
@pytest.mark.parametrize("beta", [None, 1e-3, ConstantBeta(1e4)])
def test_sampled_optimism_is_the_best_of_its_samples(fleet: str, episodes: int, beta: Any) -> None:
    now = problem(FLEETS[fleet], episodes, regularisation=1.0)
    for seed in range(3):
        rng = default_rng(seed)
        choice = SampledOptimism(50, beta).choose(now, rng)
        plausible = ConfidenceSet(now.decoder, now.beta if beta is None else beta)
        same = default_rng(seed)
        thetas = plausible.sample(50, same)
        assert repr(same.bit_generator.state) == repr(rng.bit_generator.state)
        costs = [optimal_cost(now.systems(one), now.cost, now.start) for one in thetas]
        best = int(np.argmin(costs))
        np.testing.assert_array_equal(choice.theta, thetas[best])
        # Samples are compared in plain arithmetic, which leaves fewer digits of wild ones' costs.
        assert choice.promised_cost == pytest.approx(costs[best], rel=1e-6)
        gains = solve(now.systems(thetas[best]), now.cost).policy.gains
        np.testing.assert_allclose(choice.policy.gains, gains, rtol=1e-6)
        literal = SampledOptimism(50, beta, "estimate").choose(now, default_rng(seed))
        np.testing.assert_array_equal(literal.theta, choice.theta)
        assert literal.promised_cost == choice.promised_cost
        certain = solve(now.systems(now.decoder.estimate), now.cost)
        np.testing.assert_array_equal(literal.policy.gains, certain.policy.gains)
        assert choice.diagnostics["beta"] == plausible.beta
        unsolved = int(np.isinf(costs).sum())
        assert unsolved <= choice.diagnostics["rejected"] <= unsolved + 2  # wild ones, by rounding
        assert literal.dither is choice.dither is None


@every_fleet
@pytest.mark.parametrize("play", ["optimistic", "estimate"])
def test_value_bound_rejects_samples(fleet: str, play: Any) -> None:
    now = problem(FLEETS[fleet], 2, regularisation=1.0)
    thetas = now.confidence_set(1.0).sample(60, default_rng(1))
    solved = solve(now.systems(thetas), now.cost)
    norms = np.linalg.norm(solved.value_matrices, 2, axis=(-2, -1)).max(1)
    costs = optimal_cost(now.systems(thetas), now.cost, now.start)
    estimate = now.decoder.estimate
    certain = solve(now.systems(estimate), now.cost)
    cheapest = norms[np.argmin(costs)]
    for bound in (*np.quantile(norms, [0.1, 0.5, 0.9]), 0.999 * cheapest, norms.max(), 1e-9):
        choice = SampledOptimism(60, 1.0, play, float(bound) * (1 + 1e-9)).choose(
            now, default_rng(1)
        )
        allowed = norms <= bound * (1 + 1e-9)
        assert choice.diagnostics["rejected"] == (~allowed).sum()
        expected, promised = estimate, certain.cost(now.start)
        if allowed.any():
            best = np.argmin(np.where(allowed, costs, np.inf))
            expected, promised = thetas[best], costs[best]
        np.testing.assert_array_equal(choice.theta, expected)
        assert choice.promised_cost == pytest.approx(promised, rel=1e-12)
        played = expected if play == "optimistic" else estimate
        gains = solve(now.systems(played), now.cost).policy.gains
        np.testing.assert_allclose(choice.policy.gains, gains, rtol=1e-6)


# ---- the baselines -------------------------------------------------------------------------------


@every_fleet
@pytest.mark.parametrize("dither", [0.0, 0.3])
def test_certainty_equivalence_plays_the_estimate(fleet: str, dither: float) -> None:
    now = problem(FLEETS[fleet], 2)
    choice = CertaintyEquivalence(dither).choose(now, default_rng(0))
    best = solve(now.systems(now.decoder.estimate), now.cost)
    np.testing.assert_allclose(choice.policy.gains, best.policy.gains, rtol=1e-12, atol=1e-15)
    assert choice.promised_cost == solve(now.machine.system, now.cost).cost(now.start)
    assert choice.theta is None
    if not dither:
        assert choice.dither is None
    else:
        assert choice.dither is not None
        m = now.cost.input_size
        np.testing.assert_allclose(
            choice.dither, np.broadcast_to(0.09 * np.eye(m), choice.dither.shape)
        )


@pytest.mark.slow
@every_fleet
def test_thompson_draws_have_the_spread_of_the_posterior(fleet: str) -> None:
    """(Θ - Θ̂) Rᵀ / √v is Student-t: here of so many degrees that its variance is known well."""
    now = problem(FLEETS[fleet], 6, regularisation=1e-4)
    posterior, R = now.decoder.posterior, now.decoder.factor
    rng, n = default_rng(4), 500
    drawn = np.stack([ThompsonSampling().choose(now, rng).theta for _ in range(n)])
    Y = (drawn - now.decoder.estimate) @ R.T / np.sqrt(posterior.variance)[:, None]
    k = posterior.degrees
    assert k > 20
    entries = Y.reshape(n, -1)
    assert np.abs(entries.mean(0)).max() < 5 * np.sqrt(k / (k - 2) / n)
    covariance = entries.T @ entries / n
    assert np.abs(covariance - np.eye(len(covariance)) * k / (k - 2)).max() < 7 / np.sqrt(n)
    theta = ThompsonSampling().choose(now, default_rng(8)).theta
    gains = solve(now.systems(theta), now.cost).policy.gains
    np.testing.assert_allclose(
        ThompsonSampling().choose(now, default_rng(8)).policy.gains, gains, rtol=1e-12
    )


# ---- cautious ------------------------------------------------------------------------------------


@every_fleet
def test_cautious_does_nothing_before_it_knows_anything(fleet: str) -> None:
    now = problem(FLEETS[fleet])
    for seed in range(10):
        choice = Cautious().choose(now, default_rng(seed))
        assert not choice.policy.gains.any()
        assert choice.dither is not None
        assert choice.dither.any()


@pytest.mark.slow
@every_fleet
def test_cautious_is_nearly_optimal_after_plentiful_data(fleet: str) -> None:
    one = FLEETS[fleet]
    agent = taught(one, 200, Cautious())
    rng = default_rng(6)
    for _ in range(10):
        context = one.sample_context(rng)
        plan, truth = agent.ask(context), true_system(one, context)
        best = optimal_cost(truth, one.cost, one.start)
        assert policy_cost(plan.policy, truth, one.cost, one.start) <= 1.01 * best
        assert policy_cost(plan.policy, truth, one.cost, one.start, dither=plan.dither) <= (
            1.02 * best
        )
        assert plan.promised_cost == pytest.approx(best, rel=0.02)


def reaches(K: Array, A: Array, B: Array, W: Array, x: Array) -> Array:
    """The largest |mean| + 3 deviations of each coordinate over an episode."""
    mean, spread, reach = x, np.zeros_like(A), np.abs(x)
    for gain in K:
        F = A + B @ gain
        mean, spread = F @ mean, F @ spread @ F.T + W
        reach = np.maximum(reach, np.abs(mean) + 3 * np.sqrt(np.diagonal(spread)))
    return reach


@every_fleet
@pytest.mark.parametrize("limit", [1.3, 2.0, 10.0])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_cautious_keeps_the_state_limit(fleet: str, limit: float, confidence: float) -> None:
    zeros = 0
    for episodes in (1, 2, 4):
        now = problem(FLEETS[fleet], episodes)
        for seed in range(1):
            choice = Cautious(state_limit=limit, confidence=confidence).choose(
                now, default_rng(seed)
            )
            K = choice.policy.gains
            zeros += not K.any()
            machines = now.machine.draw(192, default_rng(seed))
            draws = list(zip(machines.A, machines.B, machines.noise, strict=True))[:128]
            broken = [(reaches(K, A, B, W, now.start) > limit).any() for A, B, W in draws]
            assert np.mean(broken) <= 1 - confidence or not K.any()
    assert zeros < 3 or limit < 2


def test_a_state_limit_for_each_coordinate() -> None:
    now = problem(FLEETS["path"], 4)
    same = [
        Cautious(state_limit=limit).choose(now, default_rng(2))
        for limit in (2.0, (2.0, 2.0, 2.0, 2.0, 2.0))
    ]
    assert bits(same[0]) == bits(same[1])
    tight = Cautious(state_limit=(2.0, 2.0, 2.0, 1e-3, 2.0)).choose(now, default_rng(2))
    assert not tight.policy.gains.any()
    assert same[0].policy.gains.any()
    with pytest.raises(InputError, match="state_limit"):
        Cautious(state_limit=(2.0, 2.0)).choose(now, default_rng(2))


# ---- the posterior -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0.2, 1.0, 5.0])
def test_the_noise_is_corrected_from_the_residuals(wrong: float) -> None:
    """The truth has a deviation of 0.01; the level says a fifth, or five times that."""
    fleet = small_fleet()
    ridge = (0.01 * wrong) ** 2
    now = problem(fleet, 0, 0.01 * wrong, regularisation=ridge)
    before = now.decoder.posterior
    assert before.degrees == pytest.approx(1.0)
    np.testing.assert_allclose(before.variance, 1e-4 * wrong**2)
    found = {}
    for episodes in (5, 200):
        now = problem(fleet, episodes, 0.01 * wrong, regularisation=ridge)
        posterior = now.decoder.posterior
        rows, p = now.decoder.rows, now.decoder.estimate.shape[1]
        assert rows - p + 1 <= posterior.degrees <= rows + 1
        found[episodes] = posterior.variance / 1e-4
        four_errors = 4 * np.sqrt(2 / posterior.degrees) + 30 / posterior.degrees
        assert (np.abs(found[episodes] - 1) <= four_errors).all()
        _, noise = posterior.draw(4000, default_rng(1))
        np.testing.assert_allclose(
            np.median(noise, 0).diagonal(), posterior.variance, rtol=0.05 + 1 / posterior.degrees
        )
    assert np.abs(found[200] - 1).max() < 0.1


def test_an_exact_coordinate_has_no_noise_but_an_unknown_row() -> None:
    fleet = path_following("circle")
    level = np.array([0, 0.01, 0.01, 0.01, 0.01])
    for episodes in (0, 3):
        now = problem(fleet, episodes, level)
        thetas, noise = now.decoder.posterior.draw(50, default_rng(0))
        assert not noise[:, 0].any()
        assert (noise[:, 1:, 1:].diagonal(axis1=1, axis2=2) > 0).all()
        assert thetas.std(0).min() > 0


def test_a_policy_may_be_judged_on_draws() -> None:
    """What Cautious reports is what its draws say of the policy it plays."""
    now = problem(FLEETS["small"], 3)
    choice = Cautious().choose(now, default_rng(5))
    drawn = now.machine.draw(192, default_rng(5))
    costs = policy_cost(choice.policy, drawn, now.cost, now.start)[:128]
    high = np.quantile(costs, 0.95, method="higher")
    assert choice.promised_cost == pytest.approx(np.median(costs), rel=1e-12)
    assert choice.diagnostics["upper_cost"] == pytest.approx(high, rel=1e-12)


@pytest.mark.slow  # without the checks of types: an array is no tuple
def test_limits_and_aversions_are_plain_numbers_however_they_are_given() -> None:
    given = Cautious(aversions=np.array([1.0, 2.0]), state_limit=np.array([np.inf, 3.0]))
    assert given == Cautious(aversions=(1.0, 2.0), state_limit=(np.inf, 3.0))
    with pytest.raises(InputError, match="state_limit has masked values"):
        Cautious(state_limit=np.ma.array([1.0, 2.0], mask=[0, 1]))
    with pytest.raises(InputError, match="state_limit must be an array of real numbers"):
        Cautious(state_limit=(np.eye(2), 1.0))


def test_episodes_that_end_early_teach_enough_to_last() -> None:
    """Unstable machines with a limit, one plan an episode: probes come before the end."""
    A, B = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([[0.0], [0.2]])
    truth = LinearSystem(A, B, noise=1e-4 * np.eye(2))
    cost = QuadraticCost([np.eye(2)] * 20, [0.1 * np.eye(1)] * 19)
    lasted = []
    for seed in range(4):
        agent = Agent(FeatureContext(["1"]), cost, [1.0, 0.0], Cautious(state_limit=2.0), seed=seed)
        rng, steps = default_rng(seed), []
        for _ in range(12):
            with agent.episode({}) as episode:
                x = np.array([1.0, 0.0])
                while not episode.finished:
                    x = truth.A @ x + truth.B @ episode.act(x) + 0.01 * rng.standard_normal(2)
                    episode.observe(x)
            steps.append(len(episode._inputs))
        lasted.append(steps)
    assert min(steps[0] for steps in lasted) < 19  # nothing holds it at first
    assert all(steps[-4:] == [19] * 4 for steps in lasted)
