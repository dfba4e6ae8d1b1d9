"""The bounds: each step of the proof as a property, each formula against a second writing of it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array

from contextual_lqr import (
    BlockContext,
    Decoder,
    InputError,
    LinearPolicy,
    LinearSystem,
    PaperBeta,
    QuadraticCost,
    Trajectory,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.fleets import path_following, true_decoder, true_system
from contextual_lqr.theory import (
    Regularity,
    beta,
    episodes_needed,
    estimated_regularity,
    log_det_bound,
    regret_bound,
    regularity,
    suboptimality_bound,
)
from fleet_play import taught
from problems import seeds

CONSTANTS = Regularity(
    state_size=5, columns=7, horizon=20, c_q=36, c_theta=2.8, c_w=0.01, c_x=4, regularisation=1e-4
)
scales = st.sampled_from([1e-8, 1e-3, 0.5, 1.0, 4.0, 1e3, 1e12])
constants = st.builds(
    Regularity,
    state_size=st.integers(1, 12),
    columns=st.integers(1, 20),
    horizon=st.integers(2, 50),
    c_q=scales,
    c_theta=scales,
    c_w=scales,
    c_x=scales,
    regularisation=scales,
)


# -- the steps of the proof ----------------------------------------------------------------------


def episodes_of_rows(seed: int, c_x: float) -> tuple[list[Array], int]:
    """Some episodes of rows z, none longer than c_x, now and then all along one direction."""
    rng = np.random.default_rng(seed)
    p, steps = int(rng.integers(1, 8)), int(rng.integers(1, 15))
    episodes = []
    for _ in range(int(rng.integers(1, 6))):
        Z = rng.standard_normal((steps, p)) * (rng.random(p) < 0.7)
        lengths = np.linalg.norm(Z, axis=1, keepdims=True)
        episodes.append(Z / np.maximum(lengths, 1e-9) * c_x * rng.random((steps, 1)))
    return episodes, steps


@given(seed=seeds, c_x=st.sampled_from([1e-4, 1.0, 1e4]), lam=st.sampled_from([1e-4, 1.0, 1e4]))
def test_log_det_is_within_its_bound_and_the_potential_within_log_det(
    seed: int, c_x: float, lam: float
) -> None:
    episodes, steps = episodes_of_rows(seed, c_x)
    p = episodes[0].shape[1]
    V, last, rows = lam * np.eye(p), 0.0, 0
    for Z in episodes:
        squares = np.einsum("hi,ij,hj->h", Z, np.linalg.inv(V), Z)
        V = V + Z.T @ Z
        rows += len(Z)
        grown = np.linalg.slogdet(V / lam)[1]
        bound = log_det_bound(replace(CONSTANTS, columns=p, c_x=c_x, regularisation=lam), rows)
        assert grown <= bound * (1 + 1e-9) + 1e-9
        assert np.log1p(squares).sum() <= steps * (grown - last) * (1 + 1e-6) + 1e-6
        last = grown


def test_the_bound_on_log_det_is_attained() -> None:
    """Rows of length c_x, as many along each axis: nothing smaller could be a bound."""
    p, c_x, lam, times = 3, 2.0, 0.5, 7
    V = lam * np.eye(p) + times * c_x**2 * np.eye(p)
    one = replace(CONSTANTS, columns=p, c_x=c_x, regularisation=lam)
    assert np.isclose(np.linalg.slogdet(V / lam)[1], log_det_bound(one, p * times))


@given(c=st.floats(1e-6, 1e6), x=st.floats(0, 1e12))
def test_what_is_capped_is_at_most_a_logarithm(c: float, x: float) -> None:
    assert min(c**2, x) <= c**2 / math.log1p(c**2) * math.log1p(x) * (1 + 1e-12)


def two_systems(seed: int) -> tuple[LinearSystem, LinearSystem, QuadraticCost, Array]:
    """The truth, a decoder's idea of it, a cost and a start."""
    rng = np.random.default_rng(seed)
    d, m, H = (int(n) for n in rng.integers([1, 1, 2], [5, 4, 9]))
    A, B = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal((d, m))
    L = rng.standard_normal((d, d))
    noise = 0.1 * L @ L.T
    off = [0.3 * rng.standard_normal(M.shape) for M in (A, B)]
    F = rng.standard_normal((H, d, d))
    E = rng.standard_normal((H - 1, m, m))
    cost = QuadraticCost(F @ F.swapaxes(1, 2), E @ E.swapaxes(1, 2) + 0.1 * np.eye(m))
    truth, other = LinearSystem(A, B, noise), LinearSystem(A + off[0], B + off[1], noise)
    return truth, other, cost, rng.standard_normal(d)


@given(seed=seeds)
def test_what_a_policy_costs_above_its_promise_is_the_sum_of_model_errors(seed: int) -> None:
    """J^π(M*) - J*(M̃) = Σ_h E[δ''_h], exactly: the Bellman step of the proof."""
    truth, other, cost, x = two_systems(seed)
    solution = solve(other, cost, check=True)
    S, total = np.outer(x, x), 0.0
    for K, P in zip(solution.policy.gains, solution.value_matrices[1:], strict=True):
        true, believed = truth.A + truth.B @ K, other.A + other.B @ K
        total += np.trace((true.T @ P @ true - believed.T @ P @ believed) @ S)
        S = true @ S @ true.T + truth.noise
    excess = policy_cost(solution.policy, truth, cost, x) - optimal_cost(other, cost, x)
    assert np.isclose(excess, total, rtol=1e-8, atol=1e-8 * abs(solution.cost(x)))


@given(seed=seeds)
def test_a_predicted_step_is_worth_no_more_than_the_state(seed: int) -> None:
    """‖P̃_{h+1}^{1/2} M̃ y‖² ≤ xᵀ P̃_h x: correction 10, in place of a bound on Θ̃."""
    _, other, cost, _ = two_systems(seed)
    solution = solve(other, cost, check=True)
    P = solution.value_matrices
    for h, K in enumerate(solution.policy.gains):
        closed = other.A + other.B @ K
        left = np.linalg.eigvalsh(P[h] - closed.T @ P[h + 1] @ closed)
        assert left[0] >= -1e-9 * np.abs(P[h]).max()


@given(seed=seeds, beta=st.sampled_from([1e-6, 1.0, 1e6]))
def test_two_decoders_of_a_set_differ_by_twice_its_radius(seed: int, beta: float) -> None:
    """‖(Θ̃ - Θ*)z‖ ≤ 2√β ‖z‖_{V⁻¹}, and no less than 2 will do: correction 11."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((9, 3))
    V = np.eye(3) + Z.T @ Z
    z = rng.standard_normal(3)
    direction = np.linalg.solve(V, z)
    length = math.sqrt(z @ direction)
    one = math.sqrt(beta) * direction / length  # as far as the set reaches in z's direction
    assert np.isclose(one @ V @ one, beta)
    assert np.isclose(abs((one - -one) @ z), 2 * math.sqrt(beta) * length)


# -- the formulas --------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [0, 1, 4])
def test_radius_is_the_rule_of_a_decoder_that_saw_as_much(episodes: int) -> None:
    decoder = Decoder(BlockContext(np.eye(2), np.eye(1)), 0.3)
    for _ in range(episodes):
        same = Trajectory(np.ones((6, 2)), np.ones((5, 1)))
        decoder.update((), same, allow_repeats=True)
    one = Regularity(2, 3, 6, c_q=1, c_theta=0.7, c_w=0.2, c_x=5, regularisation=0.3)
    assert np.isclose(beta(one, episodes, 0.05), PaperBeta(0.7, 0.2, 5, 0.05)(decoder))


def written_out(r: Regularity, K: int, delta: float) -> tuple[float, float, float]:
    """The three sums, step by step, as the docs page derives them."""
    H, p, d, lam = r.horizon, r.columns, r.state_size, r.regularisation
    third = delta / 3
    beta = (
        math.sqrt(lam) * r.c_theta
        + r.c_w
        * math.sqrt(2 * d * math.log(d * (1 + K * H * r.c_x**2 / (lam * p)) ** (p / 2) / third))
    ) ** 2
    first = second = potential = 0.0
    for h in range(1, H):
        first += K * ((H - h) * r.c_q * r.c_x**2) ** 2
        second += K * (r.c_q * r.c_x**2) ** 2
        potential += math.log((1 + K * (H - 1) * r.c_x**2 / (lam * p)) ** p)
    most = max(r.c_q * r.c_x**2, r.c_q * (r.c_theta * r.c_x) ** 2)  # of a step
    each = (math.sqrt(r.c_q) * 2 * math.sqrt(beta)) * (math.sqrt(r.c_q) * r.c_x * (1 + r.c_theta))
    cap = min(most / each, r.c_x / math.sqrt(lam))
    sums = potential * cap**2 / math.log(1 + cap**2)
    return (
        math.sqrt(2 * first * math.log(2 / third)),
        math.sqrt(2 * second * math.log(2 / third)),
        each * math.sqrt(K * (H - 1)) * math.sqrt(sums),
    )


@pytest.mark.parametrize("K", [1, 30, 10_000])
@pytest.mark.parametrize("lam", [1e-4, 1.0, 50.0])
def test_regret_bound_is_its_derivation_written_out(K: int, lam: float) -> None:
    one = replace(CONSTANTS, regularisation=lam)
    bound = regret_bound(one, K, 0.1)
    found = (bound.cost_noise, bound.promise_noise, bound.model_error)
    assert np.allclose(found, written_out(one, K, 0.1), rtol=1e-12)
    assert bound.total == sum(found)
    assert np.isclose(bound.trivial, K * 20 * 36 * 16)


def test_regret_bound_grows_as_the_root_of_k_and_a_logarithm() -> None:
    for K in (10**4, 10**8, 10**16):
        ratio = regret_bound(CONSTANTS, 100 * K, 0.1).total / regret_bound(CONSTANTS, K, 0.1).total
        assert 10 <= ratio <= 14


@given(one=constants, factor=st.floats(1, 100), delta=st.sampled_from([1e-9, 0.1, 0.9]))
def test_bounds_are_finite_and_grow_with_every_constant(
    one: Regularity, factor: float, delta: float
) -> None:
    def bounds(r: Regularity, K: float, chance: float) -> Array:
        return np.array([beta(r, K, chance), regret_bound(r, K, chance).total])

    base = bounds(one, 100, delta)
    assert np.isfinite(base).all()
    assert (base >= 0).all()
    for name in ("c_q", "c_theta", "c_w", "c_x"):
        larger = replace(one, **{name: factor * getattr(one, name)})
        assert (bounds(larger, 100, delta) >= base * (1 - 1e-9)).all(), name
    assert (bounds(one, 100 * factor, delta) >= base * (1 - 1e-9)).all()
    assert (bounds(one, 100, delta / factor) >= base * (1 - 1e-9)).all()


@settings(max_examples=20)
@given(one=constants, share=st.sampled_from([1e-6, 1e-2, 0.5, 3.0]), delta=st.floats(0.01, 0.5))
def test_from_the_episodes_needed_on_the_bound_is_kept(
    one: Regularity, share: float, delta: float
) -> None:
    epsilon = share * suboptimality_bound(one, 100, delta)
    K = episodes_needed(one, epsilon, delta)
    for more in (0, 1, K // 2, K, 10 * K, 10**6 * K):
        assert suboptimality_bound(one, K + more, delta) <= epsilon * (1 + 1e-9)
    growth = (one.horizon - 1) * one.c_x**2 / (one.regularisation * one.columns)
    if 1.1 * 4 / growth < K - 1 < 10**11:
        assert suboptimality_bound(one, K - 1, delta) > epsilon * (1 - 1e-9)


def test_the_theorem_asks_for_more_episodes_as_one_over_epsilon_squared() -> None:
    """A hundred times the accuracy: 10⁴ times the episodes, and a logarithm squared."""
    K = [episodes_needed(CONSTANTS, epsilon, 0.1) for epsilon in (100.0, 1.0)]
    assert 1e4 <= K[1] / K[0] <= 2e4


# -- the constants -------------------------------------------------------------------------------


def test_constants_of_a_fleet_are_those_found_machine_by_machine() -> None:
    fleet = path_following("lemniscate")
    masses = np.geomspace(0.1, 10, 7)
    found = regularity(
        true_decoder(fleet), fleet.context_map, {"mass": masses}, fleet.cost, fleet.start,
        fleet.noise, regularisation=1e-4, chance=1e-3,
    )  # fmt: skip
    largest = max(
        float(np.linalg.norm(P, 2))
        for mass in masses
        for P in solve(true_system(fleet, {"mass": mass}), fleet.cost).value_matrices
    )
    assert np.isclose(found.c_q, max(largest, 1.0))
    assert np.isclose(found.c_theta**2, 1 + 4 * 1 + 2 * 0.7**2 + 2)
    assert np.isclose(found.c_w, 0.01)
    assert (found.state_size, found.columns, found.horizon) == (5, 7, 20)
    # The chance is kept in play, and c_x is not far from what play reaches.
    rng, beyond, steps, largest = np.random.default_rng(0), 0, 0, 0.0
    for mass in np.repeat(masses[::2], 12):
        context = {"mass": mass}
        G = fleet.context_map.matrix(context)
        policy = solve(true_system(fleet, context), fleet.cost).policy
        played = fleet.play(policy, context, rng)
        both = np.concatenate((played.states[:-1], played.inputs), 1)
        sizes = np.maximum(np.linalg.norm(both, axis=1), np.linalg.norm(both @ G.T, axis=1))
        beyond, steps, largest = beyond + int((sizes > found.c_x).sum()), steps + 19, max(
            largest, float(sizes.max())
        )  # fmt: skip
    assert beyond <= 5 * 1e-3 * steps
    assert 0.8 * found.c_x <= largest
    twice = regularity(
        true_decoder(fleet), fleet.context_map, {"mass": masses}, fleet.cost, fleet.start,
        fleet.noise, margin=2.0, chance=1e-3,
    )  # fmt: skip
    assert (twice.c_q, twice.c_x) == (2 * found.c_q, 2 * found.c_x)


def test_constants_estimated_from_a_decoder_are_those_of_the_truth_nearly() -> None:
    fleet = path_following("circle")
    contexts = {"mass": [0.1, 1.0, 10.0]}
    true = regularity(
        true_decoder(fleet), fleet.context_map, contexts, fleet.cost, fleet.start, fleet.noise
    )
    for seed in range(10):
        decoder = taught(fleet, 8, seed=seed, regularisation=1e-4).decoder
        found = estimated_regularity(decoder, contexts, fleet.cost, fleet.start)
        assert true.c_theta <= found.c_theta <= 1.5 * true.c_theta
        for name in ("c_q", "c_w", "c_x"):
            assert np.isclose(getattr(found, name), getattr(true, name), rtol=0.3), name
        assert found.regularisation == decoder.regularisation


def test_a_decoder_that_saw_too_little_has_no_constants() -> None:
    fleet = path_following("circle")
    decoder = Decoder(fleet.context_map, 1e-4)
    idle = LinearPolicy(np.zeros((19, 2, 5)))
    decoder.update({"mass": 1.0}, fleet.play(idle, {"mass": 1.0}, np.random.default_rng(0)))
    with pytest.raises(InputError, match="leave a direction of Θ quite open"):
        estimated_regularity(decoder, {"mass": [1.0]}, fleet.cost, fleet.start)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c_q": -1.0}, "c_q must be finite and not negative, not -1.0"),
        ({"c_theta": np.nan}, "c_theta must be finite"),
        ({"c_w": np.inf}, "c_w must be finite"),
        ({"c_x": -1e-9}, "c_x must be finite"),
        ({"regularisation": 0.0}, "regularisation must be a positive number, not 0.0"),
        ({"horizon": 1}, "horizon must be a whole number of at least 2, not 1"),
        ({"columns": 0}, "columns must be a whole number of at least 1, not 0"),
    ],
)
def test_bad_constants_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(CONSTANTS, **change)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, np.nan])
def test_what_is_no_probability_is_refused(delta: float) -> None:
    for refuse in (
        lambda: beta(CONSTANTS, 1, delta),
        lambda: regret_bound(CONSTANTS, 1, delta),
        lambda: suboptimality_bound(CONSTANTS, 1, delta),
        lambda: episodes_needed(CONSTANTS, 1.0, delta),
    ):
        with pytest.raises(InputError, match="delta must be a probability between 0 and 1"):
            refuse()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.inf, np.nan])
def test_an_accuracy_must_be_a_positive_cost(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon must be a positive cost"):
        episodes_needed(CONSTANTS, epsilon, 0.1)


def test_what_no_number_of_episodes_reaches_is_said() -> None:
    with pytest.raises(InputError, match=r"more than 1e\+60 episodes would be needed"):
        episodes_needed(CONSTANTS, 1e-40, 0.1)


@settings(max_examples=5)
@given(rows=st.sampled_from([-1.0, np.nan, np.inf]))
def test_a_number_of_rows_is_a_number(rows: float) -> None:
    with pytest.raises(InputError, match="rows must be a number of rows"):
        log_det_bound(CONSTANTS, rows)
    with pytest.raises(InputError, match="episodes must be at least"):
        regret_bound(CONSTANTS, rows, 0.1)


# -- a law that is wrong by ε --------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=30)
def test_errors_of_the_law_move_the_estimate_by_no_more_than_their_size(seed: int) -> None:
    """‖FᵀZ V^-½‖_F ≤ ‖F‖_F, by the definition of V."""
    rng = np.random.default_rng(seed)
    n, p, d = rng.integers(1, 40), rng.integers(1, 6), rng.integers(1, 4)
    Z, F = rng.standard_normal((n, p)), rng.standard_normal((n, d))
    values, axes = np.linalg.eigh(1e-3 * np.eye(p) + Z.T @ Z)
    root = axes / np.sqrt(values) @ axes.T
    assert np.linalg.norm(F.T @ Z @ root) <= np.linalg.norm(F) * (1 + 1e-12)


@given(seed=seeds)
@settings(max_examples=20)
def test_the_excess_of_other_gains_is_quadratic_in_their_difference(seed: int) -> None:
    """J(K̂) - J* = Σ E‖(R + BᵀPB)^½ (K̂ - K) x‖², x under K̂."""
    rng = np.random.default_rng(seed)
    d, m, H = 3, 2, 6
    A, B = 0.6 * rng.standard_normal((d, d)), rng.standard_normal((d, m))
    system = LinearSystem(A, B, 0.01 * np.eye(d))
    Q, R = np.repeat(np.eye(d)[None], H, 0), np.repeat(0.5 * np.eye(m)[None], H - 1, 0)
    cost, start = QuadraticCost(Q, R), rng.standard_normal(d)
    best = solve(system, cost)
    gains = best.policy.gains + 0.1 * rng.standard_normal((H - 1, m, d))
    total, X = 0.0, np.outer(start, start)
    for h, K in enumerate(gains):
        off = K - best.policy.gains[h]
        S = R[h] + B.T @ best.value_matrices[h + 1] @ B
        total += np.trace(off.T @ S @ off @ X)
        loop = A + B @ K
        X = loop @ X @ loop.T + system.noise
    paid = policy_cost(LinearPolicy(gains), system, cost, start)
    assert total == pytest.approx(float(paid - best.cost(start)), rel=1e-8)
