"""The decoder: exact oracles, any split merged, states of 1e12, refusals that change nothing."""

import json
import math
import os
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from contextual_lqr import (
    BlockContext,
    ConfidenceSet,
    ContextMap,
    Decoder,
    FeatureContext,
    FormatError,
    FunctionContext,
    InputError,
    LinearSystem,
    Trajectory,
    optimal_cost,
    solve,
)
from contextual_lqr.fleets import path_following, true_decoder

EPS = float(np.finfo(float).eps)
MAP = FeatureContext(["1", "gain"], states=2, inputs=1, bounds={"gain": (0, 1e200)})
THETA = np.array([[0.6, 0.2, 1.0, 0.1, -0.2, 0.3], [-0.1, 0.5, -0.4, 0.3, 0.1, 0.7]])
Episode = tuple[dict[str, float], Trajectory]


def episode(rng: np.random.Generator, scale: float = 1.0, H: int = 5, noise: float = 0.01) -> Episode:
    context = {"gain": float(rng.uniform(0, 2))}
    M = THETA @ MAP.matrix(context)
    u = scale * rng.standard_normal((H - 1, 1))
    x = [scale * rng.standard_normal(2)]
    for h in range(H - 1):
        x.append(M @ np.append(x[h], u[h]) + noise * rng.standard_normal(2))
    return context, Trajectory(np.array(x), u)


def rows_of(episodes: list[Episode]) -> tuple[np.ndarray, np.ndarray]:
    """z and x' by hand: z holds [x, u], then gain times [x, u]."""
    Z, after = [], []
    for context, t in episodes:
        y = np.concatenate((t.states[:-1], t.inputs), 1)
        Z.append(np.concatenate((y, context["gain"] * y), 1))
        after.append(t.states[1:])
    return np.concatenate(Z), np.concatenate(after)


def learnt(episodes: list[Episode], *options: Any, **named: Any) -> Decoder:
    decoder = Decoder(MAP, *options, **named)
    for one in episodes:
        decoder.update(*one)
    return decoder


def exactly(Z: np.ndarray, after: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Θ̂, V and log det V of the normal equations, in rational arithmetic: no rounding at all."""
    p, d = Z.shape[1], after.shape[1]
    rows = [[Fraction(v) for v in row] for row in np.concatenate((Z, after), 1).tolist()]
    V = [
        [sum((r[i] * r[j] for r in rows), Fraction(lam) * (i == j)) for j in range(p + d)]
        for i in range(p)
    ]
    rounded = np.array([[float(v) for v in row[:p]] for row in V])
    log_det = 0.0
    for k in range(p):
        log_det += math.log(V[k][k].numerator) - math.log(V[k][k].denominator)
        V[k] = [v / V[k][k] for v in V[k]]
        for i in set(range(p)) - {k}:
            V[i] = [a - V[i][k] * b for a, b in zip(V[i], V[k], strict=True)]
    return np.array([[float(v) for v in row[p:]] for row in V]).T, rounded, log_det


def assert_same_belief(one: Decoder, other: Decoder, size: float) -> None:
    """To rounding: compared in the metric of V, where eps times the largest row is the unit."""
    assert (one.rows, one.episodes, one.ignored_rows) == (
        other.rows, other.episodes, other.ignored_rows,
    )  # fmt: skip
    V, W = one.factor.T @ one.factor, other.factor.T @ other.factor
    lengths = np.sqrt(np.diag(V))
    assert np.abs(V - W).max(initial=0, where=np.isfinite(V)) <= 1e-13 * (lengths**2).max()
    assert np.all(np.abs(V - W) <= 1e-13 * np.outer(lengths, lengths))
    off = np.abs((one.estimate - other.estimate) @ one.factor.T).max()
    assert off <= 50 * EPS * (1 + size)
    assert one.noise_estimate == pytest.approx(other.noise_estimate, rel=1e-6, abs=(50 * EPS * size) ** 2)


exponents = st.lists(st.integers(-8, 12), min_size=1, max_size=5)
seeds = st.integers(0, 2**32 - 1)


# -- right -------------------------------------------------------------------------------------


@given(seeds, exponents, st.integers(2, 6), st.sampled_from([1.0, 1e-4, 30.0]))
def test_estimate_factor_and_determinant_are_those_of_rational_arithmetic(
    seed: int, powers: list[int], H: int, lam: float
) -> None:
    rng = np.random.default_rng(seed)
    episodes = [episode(rng, 10.0**power, H) for power in powers]
    decoder = learnt(episodes, lam, noise_level=0.01)
    Z, after = rows_of(episodes)
    theta, V, log_det = exactly(Z, after, lam)
    R, size = decoder.factor, max(np.abs(Z).max(), np.abs(after).max())
    assert np.array_equal(R, np.triu(R))
    assert (np.diagonal(R) >= math.sqrt(lam) * (1 - 1e-12)).all()
    lengths = np.sqrt(np.diag(V))
    assert np.all(np.abs(R.T @ R - V) <= 1e-14 * np.outer(lengths, lengths))
    # Even at 1e12, where eps times the size is 2e-4, this is below the noise of 0.01.
    assert np.abs((decoder.estimate - theta) @ R.T).max() <= 20 * EPS * (1 + size)
    assert decoder.log_det == pytest.approx(log_det, abs=1e-11 + 20 * EPS * size / math.sqrt(lam))
    assert (decoder.rows, decoder.episodes) == (len(Z), len(powers))
    assert decoder.ignored_rows == 0


@given(seeds, st.integers(-8, 12))
def test_estimate_is_the_least_squares_of_the_rows_on_the_prior(seed: int, power: int) -> None:
    rng, scale = np.random.default_rng(seed), 10.0**power
    episodes = [episode(rng, scale, 6, 0.01 * scale) for _ in range(3)]
    decoder = learnt(episodes, scale**2)
    Z, after = rows_of(episodes)
    stacked = np.concatenate((Z, scale * np.eye(6)))
    theta = np.linalg.lstsq(stacked, np.concatenate((after, np.zeros((6, 2)))), rcond=None)[0].T
    assert decoder.estimate == pytest.approx(theta, rel=1e-11, abs=1e-13)


def test_before_any_data_the_belief_is_the_prior() -> None:
    decoder = Decoder(MAP, 4.0)
    assert np.array_equal(decoder.factor, 2 * np.eye(6))
    assert np.array_equal(decoder.estimate, np.zeros((2, 6)))
    assert decoder.log_det == pytest.approx(6 * math.log(4))
    assert np.array_equal(decoder.noise_estimate, 4 * np.eye(2))
    with pytest.raises(InputError, match="size of Θ is not known before the first episode"):
        _ = Decoder(FeatureContext(["1", "gain"])).estimate


def test_large_states_do_not_spoil_small_ones_as_they_do_in_normal_equations() -> None:
    rng = np.random.default_rng(0)
    theta, along, across = np.array([[0.7, -0.3]]), np.array([1.0, 1.0]), np.array([1.0, -1.0])
    z = np.concatenate((1e10 * rng.uniform(1, 2, (30, 1)) * along, 1e3 * np.ones((100, 1)) * across))
    z = z[rng.permutation(len(z))]
    after = z @ theta.T
    decoder = Decoder(BlockContext([[1.0]], [[1.0]]), 1.0, noise_level=0.01)
    for (x, u), y in zip(z, after, strict=True):
        decoder.update({}, Trajectory([[x], y], [[u]]))
    normal = np.linalg.solve(np.eye(2) + z.T @ z, z.T @ after).T
    assert abs((decoder.estimate - theta) @ across).max() < 1e-6
    assert abs((normal - theta) @ across).max() > 1e-5
    assert decoder.ignored_rows == 0


@given(seeds, exponents, st.data())
def test_any_split_merged_in_any_order_is_learning_in_one_go(
    seed: int, powers: list[int], data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    episodes = [episode(rng, 10.0**power) for power in powers * 2]
    size = max(np.abs(part).max() for part in rows_of(episodes))
    parts = [Decoder(MAP, noise_level=0.01) for _ in range(data.draw(st.integers(1, 5)))]
    for one in data.draw(st.permutations(episodes)):
        data.draw(st.sampled_from(parts)).update(*one)
    while len(parts) > 1:  # any two of those left: chains, trees, and empty ones among them
        i, j = data.draw(st.permutations(range(len(parts))))[:2]
        before = snapshot(parts[j])
        parts[i].merge(parts[j])
        assert snapshot(parts[j]) == before
        del parts[j]
    assert_same_belief(parts[0], learnt(episodes, noise_level=0.01), size)


@given(seeds, exponents)
def test_one_by_one_is_many_at_once(seed: int, powers: list[int]) -> None:
    rng = np.random.default_rng(seed)
    unequal = [episode(rng, 10.0**power, 2 + i % 3) for i, power in enumerate(powers * 2)]
    equal = [episode(rng, 10.0**power) for power in powers]
    for episodes in (unequal, equal):
        one_by_one = learnt(episodes, noise_level=0.01)
        size = max(np.abs(part).max() for part in rows_of(episodes))
        listed, named = [c for c, _ in episodes], {"gain": np.array([c["gain"] for c, _ in episodes])}
        runs: list[Any] = [[t for _, t in episodes]]
        if episodes is equal:
            runs.append(Trajectory(*(np.stack([getattr(t, part) for _, t in equal])
                                     for part in ("states", "inputs"))))  # fmt: skip
        for trajectories in runs:
            for contexts in (listed, named):
                many = Decoder(MAP, noise_level=0.01)
                many.update_many(contexts, trajectories)
                assert_same_belief(many, one_by_one, size)


def test_merge_counts_the_prior_once_and_takes_an_empty_one() -> None:
    a, b = (learnt([episode(np.random.default_rng(s))], 5.0) for s in (1, 2))
    rows = [x.factor.T @ x.factor - 5 * np.eye(6) for x in (a, b)]
    a.merge(b)
    assert a.factor.T @ a.factor == pytest.approx(5 * np.eye(6) + rows[0] + rows[1], abs=1e-12)
    before = snapshot(a)
    a.merge(Decoder(FeatureContext(["1", "gain"], bounds={"gain": (0, 1e200)}), 5.0))
    _ = a.estimate
    assert snapshot(a) == before
    empty = Decoder(FeatureContext(["1", "gain"], bounds={"gain": (0, 1e200)}), 5.0)
    empty.merge(a)
    assert np.array_equal(empty.estimate, a.estimate)
    assert (empty.rows, empty.episodes) == (a.rows, a.episodes)


def test_merge_accepts_one_map_however_it_came_to_know_its_size() -> None:
    def C(context: Any) -> np.ndarray:
        return np.eye(2)

    map_ = BlockContext(C, [[1.0]])
    trajectory = episode(np.random.default_rng(0))[1]
    early, late = Decoder(map_), Decoder(map_)
    early.update({}, trajectory)
    map_.matrix({})  # from here on the shape of the map is known, though its sizes are not declared
    late.update({}, trajectory)
    late.merge(early)
    assert late.episodes == 2


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (Decoder(FeatureContext(["1", "gain"], states=2, inputs=1)), "context map"),
        (Decoder(FeatureContext(["1", "gain"], states=3, inputs=1)), "context map"),
        (Decoder(BlockContext(np.eye(3), np.eye(2))), "context map"),
        (Decoder(MAP, 2.0, noise_level=1.0), "regularisation"),
        (Decoder(MAP, noise_level=0.5), "noise level"),
    ],
)
def test_merge_refuses_another_kind_and_changes_nothing(other: Decoder, match: str) -> None:
    decoder = learnt([episode(np.random.default_rng(3))])
    _, before = decoder.estimate, snapshot(decoder)
    with pytest.raises(InputError, match=match):
        decoder.merge(other)
    assert snapshot(decoder) == before


def test_merge_refuses_pairs_of_another_size() -> None:
    small, large = Decoder(BlockContext()), Decoder(BlockContext())
    trajectory = episode(np.random.default_rng(0))[1]
    small.update((np.eye(2), np.eye(1)), trajectory)
    large.update((np.ones((3, 2)), np.eye(1)), trajectory)
    before = snapshot(small)
    with pytest.raises(InputError, match="context map|size|shape"):
        small.merge(large)
    assert snapshot(small) == before


def test_a_copy_is_independent() -> None:
    rng = np.random.default_rng(4)
    decoder = learnt([episode(rng)])
    _, before = decoder.estimate, snapshot(decoder)
    twin = decoder.copy()
    assert snapshot(twin) == before
    twin.update(*episode(rng))
    twin.merge(decoder)
    assert snapshot(decoder) == before
    assert (twin.episodes, decoder.episodes) == (3, 1)


# -- the noise ---------------------------------------------------------------------------------


def test_noise_estimate_is_unbiased_and_sees_no_prior() -> None:
    rng, sigma, found = np.random.default_rng(5), 0.3, []
    for _ in range(400):
        decoder = learnt([episode(rng, 1.0, 13, sigma)])  # 12 rows for 3 unknowns: one gain alone
        found.append(decoder.noise_estimate / sigma**2)
    off = np.mean(found, 0) - np.eye(2)
    assert (np.abs(off) < 4 * np.std(found, 0) / 20).all()  # 400 of them; n - 3 or n - 6 is seen
    episodes = [episode(rng, 1.0, 2000, sigma) for _ in range(5)]
    one = learnt(episodes, 1.0)
    assert one.noise_estimate == pytest.approx(sigma**2 * np.eye(2), abs=5 * sigma**2 * math.sqrt(2e-4))
    assert np.array_equal(one.noise_estimate, learnt(episodes, 1e6).noise_estimate)
    Z, after = rows_of(episodes)
    left = after - Z @ np.linalg.lstsq(Z, after, rcond=None)[0]
    assert one.noise_estimate == pytest.approx(left.T @ left / (len(Z) - 6), rel=1e-9)


def test_noise_estimate_waits_for_rows_and_an_exact_coordinate_has_none() -> None:
    rng = np.random.default_rng(6)
    decoder = Decoder(BlockContext(np.eye(2), np.eye(1)), noise_level=0.2)
    for steps in range(1, 8):
        x = np.stack((np.ones(2), rng.standard_normal(2)), 1)
        decoder.update({}, Trajectory(x, rng.standard_normal((1, 1))))
        if steps <= 3:
            assert np.array_equal(decoder.noise_estimate, 0.2**2 * np.eye(2))
    noise = decoder.noise_estimate
    assert abs(noise[0]).max() < 1e-15
    assert noise[1, 1] > 0.1


# -- machines ----------------------------------------------------------------------------------


def test_systems_are_the_estimate_times_the_context_matrix() -> None:
    rng = np.random.default_rng(7)
    decoder = learnt([episode(rng) for _ in range(4)])
    gains = rng.uniform(0, 5, 1000)
    many = decoder.systems({"gain": gains})
    for i, g in enumerate(gains):
        by_hand = decoder.estimate[:, :3] + g * decoder.estimate[:, 3:]
        one = decoder.system({"gain": g})
        assert one.A == pytest.approx(by_hand[:, :2], rel=1e-13, abs=1e-15)
        assert one.B == pytest.approx(by_hand[:, 2:], rel=1e-13, abs=1e-15)
        assert many.A[i] == pytest.approx(one.A, rel=1e-14, abs=1e-16)
        assert many.B[i] == pytest.approx(one.B, rel=1e-14, abs=1e-16)
    assert np.array_equal(many.noise, decoder.noise_estimate)
    listed = decoder.systems([{"gain": g} for g in gains])
    assert np.array_equal(listed.A, many.A)


# -- large states ------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "ignored"), [(1e12, 0), (1e14, 1), (1e200, 1)])
def test_a_step_that_drowns_the_noise_is_counted_and_not_learnt(size: float, ignored: int) -> None:
    rng = np.random.default_rng(8)
    episodes = [episode(rng) for _ in range(5)]
    plain, both = learnt(episodes, noise_level=0.01), learnt(episodes, noise_level=0.01)
    x = np.array([size, 1.0])
    both.update({"gain": 0.0}, Trajectory([x, THETA[:, :2] @ x], [[0.0]]))
    assert (both.ignored_rows, both.rows) == (ignored, plain.rows + 1 - ignored)
    assert both.episodes == 6
    assert np.array_equal(both.estimate, plain.estimate) == bool(ignored)
    if not ignored:
        assert both.estimate[:, 0] == pytest.approx(THETA[:, 0], abs=1e-11)


@pytest.mark.slow
def test_the_papers_circle_experiment_survives_its_explosions() -> None:
    """Best of 100 uniform samples, β = 1e4, λ = 1: states reach 1e10 to 1e24 on the way."""
    fleet = path_following("circle", 1.0)
    truth = true_decoder(fleet)
    size, off, ignored, off_normal = np.zeros((4, 200))
    for seed in range(200):
        rng = np.random.default_rng(seed)
        fleet.context_map.matrix({"mass": 1.0})
        decoder = Decoder(fleet.context_map, 1.0, noise_level=0.01)
        V, W = np.eye(7), np.zeros((7, 5))
        for _ in range(5):
            context = fleet.sample_context(rng)
            G = fleet.context_map.matrix(context)
            M = ConfidenceSet(decoder, 1e4).sample(100, rng) @ G
            costs = optimal_cost(LinearSystem(M[..., :5], M[..., 5:], fleet.noise), fleet.cost, fleet.start)
            best = M[int(np.argmin(costs))]
            policy = solve(LinearSystem(best[:, :5], best[:, 5:]), fleet.cost).policy
            played = fleet.play(policy, context, rng)
            size[seed] = max(size[seed], np.abs(played.states).max())
            decoder.update(context, played)
            Z = np.concatenate((played.states[:-1], played.inputs), 1) @ G.T
            V, W = V + Z.T @ Z, W + Z.T @ played.states[1:]
        off[seed] = np.linalg.norm(decoder.estimate - truth)
        off_normal[seed] = np.linalg.norm(np.linalg.solve(V, W).T - truth)
        ignored[seed] = decoder.ignored_rows
    within = size < 1e12
    assert off[within].max() < 0.05
    assert (size[within] > 1e10).any()
    assert ignored.any()
    assert not ignored[within].any()
    assert off_normal[within].max() > 0.05  # so the requirement is one that normal equations miss


# -- refusals ----------------------------------------------------------------------------------


def snapshot(decoder: Decoder) -> dict[str, Any]:
    """All that a decoder is, to the bit."""

    def bits(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.shape, value.tobytes()
        if isinstance(value, ContextMap):
            return repr(value), dict(value._seen)
        return tuple(map(bits, value)) if isinstance(value, tuple) else value

    return {name: bits(value) for name, value in vars(decoder).items()}
