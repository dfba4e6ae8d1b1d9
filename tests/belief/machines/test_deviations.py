"""Deviations of machines from the law, against mixed models, brute force and simulated fleets."""

from typing import NamedTuple

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from scipy.optimize import minimize
from scipy.stats import norm

from contextual_lqr.belief.machines.deviations import (
    Deviations,
    estimate_deviations,
    machine_weights,
)
from contextual_lqr.belief.machines.machine_factors import (
    fleet_belief,
    leave_one_out,
    machine_posterior,
    pool,
    whiten,
    whitened_rows,
)
from contextual_lqr.belief.machines.machine_rows import MachineFactors
from contextual_lqr.belief.prior import Prior

RIDGE = 1e-6


def reduce_rows(y: Array, after: Array) -> tuple[Array, Array, Array]:
    """R, F and rss of each machine's rows [y, x'] by one QR; rows of zeros fill up too few."""
    n, width = y.shape[-2:]
    rows = np.concatenate([y, after], axis=-1)
    rows = np.pad(rows, ((0, 0), (0, max(width - n, 0)), (0, 0)))
    full = np.linalg.qr(rows, mode="r")
    R, F = full[:, :width, :width], full[:, :width, width:]
    return R, F, np.square(full[:, width:, width:]).sum(-2)


class Rows(NamedTuple):
    """A simulated fleet, with its truth."""

    maps: Array  # (N, p, y)
    y: Array  # (N, n, y)
    after: Array  # (N, n, d)
    truth: Array  # (N, d, y): [A, B]
    theta: Array  # (d, p)
    S: Array  # (d, y, y)

    @property
    def factors(self) -> MachineFactors:
        R, F, rss = reduce_rows(self.y, self.after)
        return MachineFactors(self.maps, R, F, rss, np.full(len(R), float(self.y.shape[1])))


def simulate(
    seed: int,
    machines: int,
    rows: int,
    deviation: float,
    *,
    y: int = 4,
    d: int = 2,
    noise: float = 0.1,
    features: int = 2,
) -> Rows:
    rng = np.random.default_rng(seed)
    phi = np.concatenate([np.ones((machines, 1)), rng.uniform(-1, 1, (machines, features - 1))], 1)
    maps = np.einsum("nk,ij->nkij", phi, np.eye(y)).reshape(machines, features * y, y)
    theta = rng.normal(size=(d, features * y))
    root = deviation * np.tril(rng.normal(size=(d, y, y)))
    e = np.einsum("rij,nrj->nri", root, rng.normal(size=(machines, d, y)))
    truth = np.einsum("npy,rp->nry", maps, theta) + e
    mix = np.eye(y) + 0.5 * rng.normal(size=(y, y))  # regressors that are correlated
    states = rng.normal(size=(machines, rows, y)) @ mix
    noises = noise * rng.normal(size=(machines, rows, d))
    after = np.einsum("nty,nry->ntr", states, truth) + noises
    return Rows(maps, states, after, truth, theta, root @ root.transpose(0, 2, 1))


def learn(factors: MachineFactors) -> tuple[Deviations, Array, Array, Array]:
    """Deviations, weights, and the U and Θ pooled with them."""
    found = estimate_deviations(factors)
    weights = machine_weights(factors.reduced, found)
    pooled = pool(whitened_rows(factors, found.covariances, found.variances, weights), prior=RIDGE)
    return found, weights, pooled.U, pooled.theta


# -- factors ---------------------------------------------------------------------------------------


def test_without_deviations_pooling_is_ridge_regression() -> None:
    fleet = simulate(0, 20, 6, 0.0)
    z = np.einsum("npy,nty->ntp", fleet.maps, fleet.y).reshape(-1, 8)
    after = fleet.after.reshape(-1, 2)
    V = 0.3 * np.eye(8) + z.T @ z
    found = estimate_deviations(fleet.factors)
    assert not found.covariances.any()
    pooled = pool(
        whitened_rows(fleet.factors, found.covariances, found.variances),
        prior=np.sqrt(0.3) * np.eye(8),
    )
    for U in pooled.U:
        assert np.allclose(U.T @ U, V, rtol=1e-13)
    assert np.allclose(pooled.theta, np.linalg.solve(V, z.T @ after).T, rtol=1e-11)


def test_whitened_rows_have_the_noise_that_the_model_says() -> None:
    fleet = simulate(1, 5, 9, 0.3)
    factors, variances = fleet.factors, np.array([0.01, 0.04])
    weights = np.random.default_rng(0).uniform(0.2, 2, (5, 2))
    rows, right = whiten(factors, fleet.S, variances, weights)
    for i in range(5):
        for r in range(2):
            R = factors.R[i]
            M = np.eye(4) + R @ fleet.S[r] @ R.T / variances[r] / weights[i, r]
            for got, raw in ((rows, R @ fleet.maps[i].T), (right, factors.F[i, :, r])):
                assert np.allclose(got[r, i].T @ got[r, i], raw.T @ np.linalg.solve(M, raw))


def test_parts_of_a_fleet_pool_as_the_whole() -> None:
    fleet = simulate(2, 30, 5, 0.3)
    factors, variances = fleet.factors, np.full(2, 0.01)
    whole = pool(whitened_rows(factors, fleet.S, variances), prior=RIDGE)
    cuts = (slice(0, 1), slice(1, 12), slice(12, None))
    parts = (whitened_rows(factors[some], fleet.S, variances) for some in cuts)
    merged = pool(*parts, prior=RIDGE)
    assert np.allclose(merged.U, whole.U)
    assert np.allclose(merged.theta, whole.theta)


def test_leaving_one_out_is_a_fit_to_the_others() -> None:
    fleet = simulate(3, 12, 6, 0.2)
    factors, variances, none = fleet.factors, np.full(2, 0.01), np.zeros_like(fleet.S)
    pooled = pool(whitened_rows(factors, none, variances), prior=0.01)
    left = leave_one_out(factors, pooled, none, variances)
    for i in range(12):
        others = np.arange(12) != i
        rest = pool(whitened_rows(factors[others], none, variances), prior=0.01)
        expected = fleet_belief(fleet.maps[i], rest, none, variances)
        assert np.allclose(left.means[i], expected.means)
        assert np.allclose(left.covariances[i], expected.covariances)


def test_leaving_one_out_of_machines_that_deviate() -> None:
    """Means as of the others with the same S; covariances nearer to those of S estimated anew."""
    fleet = simulate(3, 30, 12, 0.2)
    factors = fleet.factors
    found = estimate_deviations(factors, shrinkage=1e-2)
    S, variances = found.covariances, found.variances
    pooled = pool(whitened_rows(factors, S, variances), prior=0.01)
    left = leave_one_out(factors, pooled, S, variances)
    close, far = [], []
    for i in range(0, 30, 3):
        others = factors[np.arange(30) != i]
        rest = pool(whitened_rows(others, S, variances), prior=0.01)
        assert np.allclose(left.means[i], fleet_belief(fleet.maps[i], rest, S, variances).means)
        again = estimate_deviations(others, shrinkage=1e-2)
        rest = pool(whitened_rows(others, again.covariances, again.variances), prior=0.01)
        anew = fleet_belief(fleet.maps[i], rest, again.covariances, again.variances)
        kept = fleet_belief(fleet.maps[i], rest, S, variances)
        close.append(np.linalg.norm(left.covariances[i] - anew.covariances))
        far.append(np.linalg.norm(kept.covariances - anew.covariances))
    assert np.mean(close) < 0.6 * np.mean(far)  # one step of EM


def test_a_posterior_is_that_of_conditioning() -> None:
    fleet = simulate(4, 6, 3, 0.3)  # fewer rows than coefficients
    factors, variances = fleet.factors, np.array([0.01, 0.02])
    mean = np.einsum("npy,rp->nry", fleet.maps, fleet.theta)
    singular = fleet.S.copy()
    singular[0, 0] = singular[0, :, 0] = 0  # one coefficient is known
    got = machine_posterior(
        factors.R, factors.F, mean, np.broadcast_to(singular, (6, 2, 4, 4)), variances
    )
    for i in range(6):
        for r in range(2):
            Y, S = fleet.y[i], singular[r]
            gain = S @ Y.T @ np.linalg.inv(Y @ S @ Y.T + variances[r] * np.eye(len(Y)))
            expected = mean[i, r] + gain @ (fleet.after[i, :, r] - Y @ mean[i, r])
            assert np.allclose(got.means[i, r], expected)
            assert np.allclose(got.covariances[i, r], S - gain @ Y @ S, atol=1e-12)


# -- restricted maximum likelihood -----------------------------------------------------------------


def test_as_a_mixed_model_of_statsmodels() -> None:
    fleet = simulate(0, 60, 8, 0.3, y=2, d=1)
    z = np.einsum("npy,nty->ntp", fleet.maps, fleet.y).reshape(-1, 4)
    groups = np.repeat(np.arange(60), 8)
    model = sm.MixedLM(fleet.after.ravel(), z, groups, exog_re=fleet.y.reshape(-1, 2))
    expected = model.fit(reml=True, method="powell")
    found = estimate_deviations(fleet.factors, robust=False, shrinkage=1e-3)
    pooled = pool(whitened_rows(fleet.factors, found.covariances, found.variances))
    assert found.variances[0] == pytest.approx(expected.scale, rel=2e-3)
    assert np.allclose(found.covariances[0], expected.cov_re, rtol=5e-3)
    assert np.allclose(pooled.theta[0], expected.fe_params, rtol=1e-4)


@pytest.mark.parametrize("rows", [2, 9])  # of three coefficients
def test_as_the_dense_likelihood(rows: int) -> None:
    fleet = simulate(6, 90 // rows, rows, 0.5, y=3, d=1, noise=0.3)
    z = np.einsum("npy,nty->ntp", fleet.maps, fleet.y).reshape(-1, 6)
    x = fleet.after.ravel()
    tril = np.tril_indices(3)

    def covariance(of: Array) -> tuple[Array, Array]:
        L = np.zeros((3, 3))
        L[tril] = of[1:]
        blocks = np.zeros((len(x), len(x)))
        for i, Y in enumerate(fleet.y):
            at = slice(rows * i, rows * (i + 1))
            blocks[at, at] = Y @ L @ L.T @ Y.T + np.exp(of[0]) * np.eye(rows)
        return L @ L.T, blocks

    def objective(of: Array) -> float:
        S, C = covariance(of)
        weighted = np.linalg.solve(C, z)
        theta = np.linalg.solve(z.T @ weighted, weighted.T @ x)
        off = x - z @ theta
        return float(
            np.linalg.slogdet(C)[1]
            + np.linalg.slogdet(z.T @ weighted)[1]
            + off @ np.linalg.solve(C, off)
            - np.linalg.slogdet(S)[1]  # the prior, worth one machine
        )

    found = estimate_deviations(fleet.factors, robust=False)
    ours = [np.log(found.variances[0]), *np.linalg.cholesky(found.covariances[0])[tril]]
    best = minimize(objective, ours)
    assert objective(np.array(ours)) <= best.fun + 1e-6
    spread = np.linalg.cholesky(fleet.S[0])[tril]
    elsewhere = minimize(objective, [np.log(0.01), *spread])
    assert objective(np.array(ours)) <= elsewhere.fun + 1e-6


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(-6, 6), min_size=4, max_size=4),
    st.lists(st.integers(-6, 6), min_size=2, max_size=2),
    st.booleans(),
)
def test_in_any_units(of_y: list[int], of_after: list[int], exact: bool) -> None:
    fleet = simulate(7, 30, 7, 0.0 if exact else 0.2)
    y, after = 10.0 ** np.array(of_y), 10.0 ** np.array(of_after)
    scaled = fleet._replace(y=fleet.y * y, after=fleet.after * after)  # G is features ⊗ I
    one, other = estimate_deviations(fleet.factors), estimate_deviations(scaled.factors)
    back = after[:, None, None] ** 2 / (y[:, None] * y)
    assert np.allclose(other.covariances / back, one.covariances, rtol=1e-6, atol=1e-9)
    assert np.allclose(other.variances / after**2, one.variances, rtol=1e-8)
    assert np.allclose(other.p_values, one.p_values, rtol=1e-6)
    assert np.array_equal(other.degrees, one.degrees)


@pytest.mark.parametrize("rows", [3, 20])
def test_deviations_are_recovered(rows: int) -> None:
    fleet = simulate(8, 1000, rows, 0.2)
    found = estimate_deviations(fleet.factors)
    assert np.isinf(found.degrees).all()
    off = np.linalg.norm(found.covariances - fleet.S, axis=(1, 2))
    assert (off < 0.15 * np.linalg.norm(fleet.S, axis=(1, 2))).all()
    if rows > 4:  # else hardly anything tells the noise from the deviations
        assert np.allclose(found.variances, 0.01, rtol=0.05)


def test_an_exact_law_has_no_deviations() -> None:
    """In 80 rows of fleets without deviations, hardly one at the level of 1 %; with 10 %, all."""
    exact = [estimate_deviations(simulate(s, 20, 10, 0.0).factors) for s in range(40)]
    assert sum(bool(one.covariances[r].any()) for one in exact for r in range(2)) <= 4
    few = [estimate_deviations(simulate(s, 60, 3, 0.0).factors) for s in range(10)]
    assert sum(bool(one.covariances[r].any()) for one in few for r in range(2)) <= 1
    varied = [estimate_deviations(simulate(s, 20, 10, 0.1).factors) for s in range(5)]
    assert all(one.covariances[r].any() for one in varied for r in range(2))


def test_rows_that_are_known() -> None:
    fleet = simulate(9, 20, 10, 0.0)
    known = np.where([[True], [False]], fleet.theta, np.nan)
    found = estimate_deviations(fleet.factors, known=known)
    assert not found.covariances.any()
    known[0, 0] += 0.1  # the data contradict this
    wrong = estimate_deviations(fleet.factors, known=known)
    assert wrong.covariances[0].any()
    assert not wrong.covariances[1].any()
    skipped = estimate_deviations(fleet.factors, known=known, skip=np.array([True, False]))
    assert not skipped.covariances.any()


def test_what_no_machine_has_shown_does_not_deviate() -> None:
    fleet = simulate(10, 30, 12, 0.2)
    fleet.y[:, :, 1] = 0
    fleet.y[:, :, 3] = 2 * fleet.y[:, :, 0]
    found = estimate_deviations(fleet.factors)
    assert np.isfinite(found.covariances).all()
    assert np.allclose(found.covariances[:, 1], 0)


def test_one_machine_with_a_wrong_label_spoils_nothing() -> None:
    fleet = simulate(11, 40, 15, 0.1)
    clean = learn(fleet.factors)
    wrong = fleet.after.copy()
    wrong[7] *= -3
    spoilt = fleet._replace(after=wrong).factors
    found, weights, _, theta = learn(spoilt)
    assert (weights[7] < 0.1).all()
    assert (np.delete(weights, 7, axis=0) == 1).mean() > 0.95
    errors = np.stack(  # standard errors of Θ without the wrong label
        [
            np.sqrt(variance * np.square(np.linalg.inv(U)).sum(1))
            for variance, U in zip(clean[0].variances, clean[2], strict=True)
        ]
    )
    assert (np.abs(theta - clean[3]) < 1.2 * errors).all()
    ordinary = pool(
        whitened_rows(spoilt, np.zeros_like(fleet.S), found.variances), prior=RIDGE
    ).theta
    assert (np.abs(ordinary - clean[3]) > 5 * errors).mean() > 0.5
    gaussian = estimate_deviations(spoilt, robust=False)
    traces = found.covariances.trace(axis1=1, axis2=2) / clean[0].covariances.trace(
        axis1=1, axis2=2
    )
    assert (traces < 1.3).all()
    assert (
        gaussian.covariances.trace(axis1=1, axis2=2) > 10 * fleet.S.trace(axis1=1, axis2=2)
    ).all()


def test_machine_intervals_cover() -> None:
    """95 % intervals of a direction of a row hold 95 %, from no, 1, 3 or 10 episodes of its own."""
    inside, count = {0: 0, 1: 0, 3: 0, 10: 0}, 0
    for seed in range(15):
        fleet, rng = simulate(100 + seed, 160, 40, 0.2), np.random.default_rng(seed)
        old = fleet._replace(y=fleet.y[:60, :12], after=fleet.after[:60, :12], maps=fleet.maps[:60])
        found = estimate_deviations(old.factors)
        rows = whitened_rows(old.factors, found.covariances, found.variances)
        maps, truth, direction = fleet.maps[60:], fleet.truth[60:], rng.normal(size=4)
        told = fleet_belief(maps, pool(rows, prior=RIDGE), found.covariances, found.variances)
        for own in inside:
            belief = told
            if own:
                R, F, _ = reduce_rows(fleet.y[60:, : 4 * own], fleet.after[60:, : 4 * own])
                belief = machine_posterior(R, F, *told, found.variances)
            off = (truth - belief.means) @ direction
            size = np.sqrt(np.einsum("i,nrij,j->nr", direction, belief.covariances, direction))
            inside[own] += int((np.abs(off) < norm.ppf(0.975) * size).sum())
        count += off.size
    assert all(0.93 < one / count < 0.975 for one in inside.values()), (inside, count)


def test_extreme_sizes_of_noise() -> None:
    for noise in (1e-9, 1e4):
        fleet = simulate(12, 30, 10, 0.2, noise=noise)
        found = estimate_deviations(fleet.factors)
        assert np.allclose(np.sqrt(found.variances), noise, rtol=0.2)
        pooled = pool(whitened_rows(fleet.factors, found.covariances, found.variances), prior=RIDGE)
        assert np.isfinite(pooled.theta).all()
        belief = leave_one_out(fleet.factors, pooled, found.covariances, found.variances)
        assert np.isfinite(belief.covariances).all()


# -- about a prior that somebody has stated --------------------------------------------------------


def about_truth(fleet: Rows, off: float, units: Array | None = None) -> Prior:
    """A prior whose law is near the true one, and whose first entry of each row is known."""
    d, p = fleet.theta.shape
    spread = np.full(p, off)
    spread[0] = 0.0
    scale = np.ones(p) if units is None else units
    theta = fleet.theta + np.r_[0.0, np.full(p - 1, off / 3)]
    return Prior(theta / scale, [np.diag(np.square(spread / scale))] * d)


def test_two_machines_do_not_say_that_machines_deviate_beyond_what_is_stated() -> None:
    """From two machines S is hardly told: about a prior it stays near it, in all directions."""
    wild, tame = [], []
    for seed in range(8):
        fleet = simulate(seed, 2, 300, 0.05, y=6, features=1)
        within = np.eye(6) * np.r_[[1.0] * 3, [1e-3] * 3]  # three directions are hardly shown
        fleet = fleet._replace(y=fleet.y @ within)
        rng = np.random.default_rng(seed)
        after = np.einsum("nty,nry->ntr", fleet.y, fleet.truth)
        fleet = fleet._replace(after=after + 0.1 * rng.normal(size=after.shape))
        wild.append(estimate_deviations(fleet.factors).covariances)
        found = estimate_deviations(fleet.factors, stated=about_truth(fleet, 0.1))
        tame.append(found.covariances)
    largest = np.sqrt(np.diagonal(tame, axis1=2, axis2=3)).max()
    assert largest < 0.3 < np.sqrt(np.diagonal(wild, axis1=2, axis2=3)).max()


def test_machines_do_not_deviate_in_what_is_known() -> None:
    fleet = simulate(0, 5, 40, 0.2, features=1)
    found = estimate_deviations(fleet.factors, stated=about_truth(fleet, 0.3))
    assert found.covariances[:, 1:, 1:].any((1, 2)).all()
    assert not found.covariances[:, 0].any()
    assert np.array_equal(found.theta[:, 0], fleet.theta[:, 0])


def test_many_machines_outweigh_what_is_stated() -> None:
    """As of units that differ, the prior is worth one machine at most."""
    fleet = simulate(3, 400, 40, 0.2, features=1)
    fleet.truth[:, :, 0] = fleet.theta[:, 0]  # known
    rng = np.random.default_rng(0)
    after = np.einsum("nty,nry->ntr", fleet.y, fleet.truth)
    fleet = fleet._replace(after=after + 0.1 * rng.normal(size=after.shape))
    plain = estimate_deviations(fleet.factors).covariances[:, 1:, 1:]
    found = estimate_deviations(fleet.factors, stated=about_truth(fleet, 0.3))
    assert np.abs(found.covariances[:, 1:, 1:] - plain).max() < 0.1 * np.abs(plain).max()
    units = np.array([1e3, 1e-4, 10.0, 1e-2])
    scaled = fleet._replace(y=fleet.y * units)
    other = estimate_deviations(scaled.factors, stated=about_truth(fleet, 0.3, units))
    expected = found.covariances / units[:, None] / units
    assert np.allclose(other.covariances, expected, rtol=1e-5, atol=1e-12 * np.abs(expected).max())


def test_a_stated_prior_counts_where_contexts_differ() -> None:
    """There, P is what the prior says of a machine's own row, in the mean over machines."""
    fleet = simulate(1, 3, 60, 0.05)
    d, p = fleet.theta.shape
    prior = Prior(fleet.theta, [0.1**2 * np.eye(p)] * d)
    found = estimate_deviations(fleet.factors, stated=prior).covariances
    said = np.einsum("npy,npz->yz", fleet.maps, fleet.maps) / 3 * 0.1**2
    assert (np.linalg.eigvalsh(3 * said - found) > 0).all()
    assert found.any((1, 2)).any()
