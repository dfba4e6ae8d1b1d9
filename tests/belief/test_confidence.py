"""The confidence set: its metric, uniform samples, its lowest point, the rules for its beta."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from contextual_lqr import (
    BlockContext,
    ConfidenceSet,
    ConstantBeta,
    Decoder,
    DeterminantBeta,
    InputError,
    LinearPolicy,
    PaperBeta,
    Trajectory,
)

MAP = BlockContext(np.eye(2), np.eye(1))
THETA = np.array([[0.9, 0.3, 1.0], [-0.2, 0.7, 0.5]])
BETA, LAMBDA, N = 7.0, 0.5, 100_000


def taught(
    seed: int = 0,
    spread: tuple[float, float, float] = (1, 1, 1),
    lam: float = LAMBDA,
    rows: int = 9,
) -> tuple[Decoder, np.ndarray]:
    """A decoder of random rows, turned so that V is full, and S with SᵀS = V, not triangular."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    Z = rng.standard_normal((rows, 3)) * spread @ turn
    decoder = Decoder(MAP, lam, noise_level=1.0)
    for z in Z:
        after = THETA @ z + 0.1 * rng.standard_normal(2)
        decoder.update({}, Trajectory([z[:2], after], [z[2:]]))
    _, s, Vt = np.linalg.svd(np.concatenate((Z, math.sqrt(lam) * np.eye(3))), full_matrices=False)
    return decoder, s[:, None] * Vt


def in_ball(sampled: np.ndarray, around: ConfidenceSet, S: np.ndarray) -> np.ndarray:
    """(Θ - Θ̂) Sᵀ as vectors: the ellipsoid as a ball, by a root of V that is not the library's."""
    return ((sampled - around.estimate) @ S.T).reshape(len(sampled), -1)


@given(st.integers(0, 10**6))
def test_distance_is_the_trace(seed: int) -> None:
    decoder, S = taught(seed)
    theta = np.random.default_rng(seed).standard_normal((4, 2, 2, 3))
    around = ConfidenceSet(decoder, BETA)
    distances = around.distance(theta)
    assert distances.shape == around.contains(theta).shape == (4, 2)
    for i, j in np.ndindex(4, 2):
        off = theta[i, j] - decoder.estimate
        trace = np.trace(off @ S.T @ S @ off.T)
        assert distances[i, j] == pytest.approx(trace, rel=1e-12)
        assert around.distance(theta[i, j]) == pytest.approx(trace, rel=1e-12)
        assert around.contains(theta[i, j]) == (trace <= BETA)


def test_the_boundary_belongs_to_the_set() -> None:
    decoder = Decoder(MAP, 4.0)  # V = 4 I, Θ̂ = 0: all of this is exact
    around = ConfidenceSet(decoder, 36.0)
    theta = np.zeros((2, 3))
    theta[1, 2] = 3
    assert around.distance(theta) == 36
    assert around.contains(theta)
    assert not around.contains(np.nextafter(theta, 9))
    assert ConfidenceSet(decoder, 0.0).contains(np.zeros((2, 3)))
    assert not around.contains([[1e308] * 3, [-1e308] * 3])
    full = ConfidenceSet(taught(0, (1e10, 1, 1))[0], 36.0)
    assert full.distance(np.multiply(1e308, [[1, -1, 1], [-1, 1, -1]])) == math.inf


# -- samples -----------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [(1, 1, 1), (1e6, 1e3, 1e-3)], ids=["round", "needle"])
def test_samples_are_uniform(spread: tuple[float, float, float]) -> None:
    decoder, S = taught(1, spread)
    if spread[0] > 1:
        assert np.linalg.cond(S) ** 2 > 1e12
    around = ConfidenceSet(decoder, BETA)
    sampled = around.sample(N, np.random.default_rng(2))
    assert sampled.shape == (N, 2, 3)
    assert (around.distance(sampled) <= BETA * (1 + 1e-9)).all()
    Y = in_ball(sampled, around, S)
    n = Y.shape[1]
    radii = np.linalg.norm(Y, axis=1)
    assert radii.max() <= math.sqrt(BETA) * (1 + 1e-9)
    assert stats.kstest((radii / math.sqrt(BETA)) ** n, "uniform").pvalue > 1e-3
    U = Y / radii[:, None]
    assert stats.chi2.sf(N * n * (U.mean(0) ** 2).sum(), n) > 1e-3  # mean 0, covariance I/n
    covariance = U.T @ U / N
    error = np.full((n, n), math.sqrt(1 / (n * (n + 2)) / N))
    np.fill_diagonal(error, math.sqrt(2 * (n - 1) / (n**2 * (n + 2)) / N))
    assert (np.abs(covariance - np.eye(n) / n) < 4 * error).all()
    rng = np.random.default_rng(3)
    for direction in np.concatenate((np.eye(n), rng.standard_normal((5, n)))):
        along = U @ direction / np.linalg.norm(direction)
        assert stats.kstest(along**2, stats.beta(0.5, (n - 1) / 2).cdf).pvalue > 1e-3
        assert stats.binomtest(int((along > 0).sum()), N).pvalue > 1e-3
    # Radius and direction know nothing of each other.
    assert abs(np.corrcoef(radii, U[:, 0] ** 2)[0, 1]) < 4 / math.sqrt(N)


def test_samples_are_of_the_generator_alone() -> None:
    around = ConfidenceSet(taught()[0], BETA)
    one, same, other = (around.sample(5, np.random.default_rng(s)) for s in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert around.sample(0, np.random.default_rng(1)).shape == (0, 2, 3)
    flat = ConfidenceSet(taught()[0], 0.0)
    assert np.array_equal(flat.sample(3, np.random.default_rng(1)), [flat.estimate] * 3)


@pytest.mark.parametrize("scale", [0.3, [0.3, 2.0], [0.0, 2.0]])
def test_draws_have_the_covariance_of_the_posterior(scale: Any) -> None:
    decoder, S = taught(4, (1e3, 1, 1e-2))
    around = ConfidenceSet(decoder, BETA)
    drawn = around.draw(N, np.random.default_rng(5), scale)
    Y = in_ball(drawn, around, S).reshape(N, 2, 3)
    for row, size in enumerate(np.broadcast_to(scale, 2)):
        if size == 0:
            assert (drawn[:, row] == around.estimate[row]).all()
            continue
        white = Y[:, row] / size
        assert stats.kstest(white.ravel(), "norm").pvalue > 1e-3
        assert stats.chi2.sf(N * (white.mean(0) ** 2).sum(), 3) > 1e-3
        error = np.sqrt((1 + np.eye(3)) / N)
        assert (np.abs(white.T @ white / N - np.eye(3)) < 4 * error).all()
    assert (
        abs(np.mean(Y[:, 0, 0] * Y[:, 1, 0])) < 4 * np.prod(np.broadcast_to(scale, 2)) / 300 + 1e-12
    )
    for bad in (-1.0, [1.0, -1.0], [1.0] * 3, math.nan, "wide"):
        with pytest.raises(InputError, match="scale must be"):
            around.draw(2, np.random.default_rng(0), bad)


# -- the lowest point --------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(-200, 200), st.sampled_from([1.0, 1e3]))
def test_the_lowest_point_satisfies_the_first_order_condition(
    seed: int, power: int, width: float
) -> None:
    decoder, S = taught(seed, (width, 1, 1))
    around = ConfidenceSet(decoder, BETA)
    D = np.random.default_rng(seed).standard_normal((2, 3))
    lowest = around.lowest_linear(D * 10.0**power)
    assert around.distance(lowest) == pytest.approx(BETA, rel=1e-9)
    normal = (lowest - decoder.estimate) @ S.T @ S  # D = -μ · normal, μ > 0
    cosine = (D * normal).sum() / np.linalg.norm(D) / np.linalg.norm(normal)
    assert cosine == pytest.approx(-1, abs=1e-9)
    sampled = around.sample(200, np.random.default_rng(seed))
    assert ((D * sampled).sum((1, 2)) >= (D * lowest).sum()).all()


def test_the_lowest_point_is_that_of_a_solver_and_of_a_loop() -> None:
    decoder, S = taught(6)
    around = ConfidenceSet(decoder, BETA)
    D = np.random.default_rng(7).standard_normal((4, 3, 2, 3))
    D[1, 1] = 0
    D[2] *= np.array([1e-200, 1e200, 1e-310])[:, None, None]
    lowest = around.lowest_linear(D)
    for i, j in np.ndindex(4, 3):
        assert np.array_equal(around.lowest_linear(D[i, j]), lowest[i, j])
    assert np.array_equal(lowest[1, 1], decoder.estimate)
    goal, V = D[0, 0].ravel(), np.kron(np.eye(2), S.T @ S)
    found = minimize(
        lambda y: goal @ y,
        np.zeros(6),
        jac=lambda y: goal,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda y: BETA - y @ V @ y,
            "jac": lambda y: -2 * V @ y,
        },
        options={"ftol": 1e-9, "maxiter": 500},
    )
    assert found.success
    off = lowest[0, 0] - decoder.estimate
    assert (D[0, 0] * off).sum() == pytest.approx(found.fun, rel=1e-6)
    assert off == pytest.approx(found.x.reshape(2, 3), abs=1e-2)


# -- the beta --------------------------------------------------------------------------------


def test_the_rules_are_their_formulas() -> None:
    c_theta, c_w, c_x, delta = 2.0, 0.3, 5.0, 0.05
    for lam in (1.0, 0.01, 30.0):
        decoder, S = taught(8, lam=lam)
        kH = 9 * 2  # nine episodes of two states
        inside = math.log(2) + 3 * math.log(1 + kH * c_x**2 / (lam * 3)) / 2 + math.log(1 / delta)
        paper = (math.sqrt(lam) * c_theta + c_w * math.sqrt(2 * 2 * inside)) ** 2
        assert PaperBeta(c_theta, c_w, c_x, delta)(decoder) == pytest.approx(paper, rel=1e-12)
        spread = math.log(np.linalg.det(S.T @ S / lam)) / 2
        inside = math.log(2) + spread + math.log(1 / delta)
        bound = (math.sqrt(lam) * c_theta + c_w * math.sqrt(2 * 2 * inside)) ** 2
        assert DeterminantBeta(c_theta, c_w, delta)(decoder) == pytest.approx(bound, rel=1e-12)
        assert ConstantBeta(1e4)(decoder) == 1e4
        for rule in (DeterminantBeta(c_theta, c_w, delta), ConstantBeta(3.0)):
            assert ConfidenceSet(decoder, rule).beta == rule(decoder)


def test_the_radius_grows_with_data_and_from_the_same_start() -> None:
    paper, determinant = PaperBeta(2.0, 0.3, 5.0, 0.05), DeterminantBeta(2.0, 0.3, 0.05)
    decoder = Decoder(MAP, LAMBDA)
    assert paper(decoder) == pytest.approx(determinant(decoder), rel=1e-12)
    rng, before = np.random.default_rng(9), np.array([paper(decoder), determinant(decoder)])
    for _ in range(10):
        x = rng.standard_normal((4, 2))
        decoder.update({}, Trajectory(x, rng.standard_normal((3, 1))))
        after = np.array([paper(decoder), determinant(decoder)])
        assert (after > before).all()
        assert after[1] < after[0]  # ‖z‖ stays below c_x: the determinant's bound is the smaller
        before = after


@pytest.mark.slow
def test_the_truth_is_inside_after_every_episode() -> None:
    rng, sigma = np.random.default_rng(10), 0.1
    rule = DeterminantBeta(float(np.linalg.norm(THETA)), sigma, 0.1)
    inside, narrow = np.ones((2, 200), bool)
    for run in range(200):
        decoder = Decoder(MAP, sigma**2)
        for _ in range(10):
            x, u = [rng.standard_normal(2)], rng.standard_normal((4, 1))
            for h in range(4):
                x.append(THETA @ np.append(x[h], u[h]) + sigma * rng.standard_normal(2))
            decoder.update({}, Trajectory(np.array(x), u))
            inside[run] &= ConfidenceSet(decoder, rule).contains(THETA)
            narrow[run] &= ConfidenceSet(decoder, rule(decoder) / 30).contains(THETA)
    assert inside.mean() >= 0.9
    assert narrow.mean() < 0.9  # the test can fail


@pytest.mark.parametrize("rule", [lambda: 1.0, LinearPolicy(np.zeros((3, 1, 2)))])
def test_what_is_no_rule_is_refused(rule: Any) -> None:
    with pytest.raises(InputError, match="beta must be a function of the decoder"):
        ConfidenceSet(taught()[0], rule)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bad_radii_are_refused(bad: float) -> None:
    decoder = taught()[0]
    with pytest.raises(InputError, match="value must be a finite number of at least 0"):
        ConstantBeta(bad)
    with pytest.raises(InputError, match="beta must be a finite number of at least 0"):
        ConfidenceSet(decoder, bad)
    with pytest.raises(InputError, match="beta must be a finite number of at least 0"):
        ConfidenceSet(decoder, lambda _: bad)
    for name in ("c_theta", "c_w", "c_x"):
        with pytest.raises(InputError, match=f"{name} must be a finite number of at least 0"):
            PaperBeta(**({"c_theta": 1.0, "c_w": 1.0, "c_x": 1.0, "delta": 0.1} | {name: bad}))
    with pytest.raises(InputError, match="c_w must be"):
        DeterminantBeta(1.0, bad, 0.1)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_delta_is_a_probability(delta: float) -> None:
    with pytest.raises(InputError, match="delta must be a probability between 0 and 1"):
        PaperBeta(1.0, 1.0, 1.0, delta)
    with pytest.raises(InputError, match="delta must be a probability between 0 and 1"):
        DeterminantBeta(1.0, 1.0, delta)


@pytest.mark.parametrize("value", [np.ones((3, 2)), np.ones(3), [[1, 2, 3], [4, 5, math.nan]], "x"])
def test_what_is_no_decoder_is_refused(value: Any) -> None:
    around = ConfidenceSet(taught()[0], BETA)
    for name, method in (("theta", around.distance), ("theta", around.contains),
                         ("direction", around.lowest_linear)):  # fmt: skip
        with pytest.raises(InputError, match=f"{name} must"):
            method(value)


def test_a_set_is_of_its_moment() -> None:
    decoder, _ = taught()
    around = ConfidenceSet(decoder, DeterminantBeta(1.0, 1.0, 0.1))
    before = around.beta, around.estimate.tobytes(), around.factor.tobytes()
    decoder.update({}, Trajectory([[5.0, 5.0], [1.0, 1.0]], [[2.0]]))
    decoder.merge(taught(3)[0])
    assert decoder.estimate.tobytes() != before[1]
    assert (around.beta, around.estimate.tobytes(), around.factor.tobytes()) == before
    with pytest.raises(ValueError, match="read-only"):
        around.estimate[0, 0] = 1
