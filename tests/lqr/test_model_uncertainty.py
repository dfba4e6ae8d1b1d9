"""Uncertain dynamics in `solve`, dither in `policy_cost`: against slower ways to the same."""

from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import Generator, default_rng
from scipy.linalg import block_diag

from contextual_lqr import (
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    QuadraticCost,
    Status,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.errors import InputError
from problems import random_cost, random_covariance, random_policy, random_system

SIZES = [(1, 1), (2, 1), (5, 2), (6, 3), (17, 3)]


def random_uncertainty(
    rng: Generator, d: int, m: int, batch: tuple[int, ...] = (), size: float = 0.1
) -> ModelUncertainty:
    return ModelUncertainty(size * random_covariance(rng, d + m, "full", (*batch, d)))


def slow_solution(
    system: LinearSystem, cost: QuadraticCost, uncertainty: ModelUncertainty, start: Array
) -> tuple[Array, float]:
    """Gains and cost: each stage's form in (x, u) in full, the rows of [A, B] as one vector."""
    d, m = system.state_size, system.input_size
    covariance = block_diag(*uncertainty.covariances).reshape(d, d + m, d, d + m)
    M = np.concatenate((system.A, system.B), 1)
    P, constant, gains = cost.Q[-1], 0.0, []
    for h in reversed(range(cost.horizon - 1)):
        N = np.zeros((d, m)) if cost.N is None else cost.N[h]
        form = np.block([[cost.Q[h], N], [N.T, cost.R[h]]])
        form = form + M.T @ P @ M + np.einsum("ij,iajb->ab", P, covariance)
        constant += np.trace(P @ system.noise)
        gains.append(-np.linalg.inv(form[d:, d:]) @ form[d:, :d])
        P = form[:d, :d] + form[:d, d:] @ gains[-1]
        P = (P + P.T) / 2
    return np.array(gains[::-1]), float(start @ P @ start + constant)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(("d", "m"), SIZES)
def test_uncertainty_is_what_a_slow_riccati_says(d: int, m: int, cross: bool) -> None:
    for seed in range(10):
        rng = default_rng(seed)
        system, cost = random_system(rng, d, m, 1.1), random_cost(rng, d, m, 12, cross)
        start, uncertainty = rng.standard_normal(d), random_uncertainty(rng, d, m)
        found = solve(system, cost, uncertainty=uncertainty, check=True)
        gains, J = slow_solution(system, cost, uncertainty, start)
        np.testing.assert_allclose(
            found.policy.gains, gains, rtol=0, atol=1e-9 * np.abs(gains).max()
        )
        assert found.cost(start) == pytest.approx(J, rel=1e-9)


def test_uncertainty_is_what_machines_that_vary_cost() -> None:
    """Rollouts with [A, B] drawn anew at each step."""
    rng, d, m, H, n = default_rng(1), 3, 2, 8, 100_000
    system, cost = random_system(rng, d, m, 0.9), random_cost(rng, d, m, H)
    start, uncertainty = rng.standard_normal(d), random_uncertainty(rng, d, m)
    found = solve(system, cost, uncertainty=uncertainty)
    assert cost.N is not None
    L = np.linalg.cholesky(uncertainty.covariances)
    M = np.concatenate((system.A, system.B), 1)
    x, total = np.broadcast_to(start, (n, d)), np.zeros(n)
    for h in range(H - 1):
        u = x @ found.policy.gains[h].T
        y = np.concatenate((x, u), 1)
        stage = np.block([[cost.Q[h], cost.N[h]], [cost.N[h].T, cost.R[h]]])
        total += np.einsum("ni,ij,nj->n", y, stage, y)
        deviation = np.einsum("rij,nrj->nri", L, rng.standard_normal((n, d, d + m)))
        noise = rng.standard_normal((n, d)) @ system.noise_factor.T
        x = np.einsum("nij,nj->ni", M + deviation, y) + noise
    total += np.einsum("ni,ij,nj->n", x, cost.Q[-1], x)
    assert abs(total.mean() - found.cost(start)) < 4 * total.std() / np.sqrt(n)
    assert total.mean() - optimal_cost(system, cost, start) > 20 * total.std() / np.sqrt(n)


@pytest.mark.parametrize(("d", "m"), SIZES)
def test_no_uncertainty_is_no_uncertainty_to_the_bit(d: int, m: int) -> None:
    rng = default_rng(2)
    system, cost = random_system(rng, d, m, 1.1, batch=(4,)), random_cost(rng, d, m, 9)
    plain = solve(system, cost)
    found = solve(system, cost, uncertainty=ModelUncertainty(np.zeros((d, d + m, d + m))))
    assert found.policy.gains.tobytes() == plain.policy.gains.tobytes()
    assert found.value_matrices.tobytes() == plain.value_matrices.tobytes()
    assert found.value_constants.tobytes() == plain.value_constants.tobytes()


@pytest.mark.parametrize(("d", "m"), SIZES)
def test_more_uncertainty_never_costs_less(d: int, m: int) -> None:
    sizes = np.array([0, 1e-6, 1e-3, 0.1, 1.0, 10.0])
    for seed in range(10):
        rng = default_rng(seed)
        system, cost = random_system(rng, d, m, 1.1), random_cost(rng, d, m, 10)
        uncertainty, start = random_uncertainty(rng, d, m), rng.standard_normal(d)
        more = ModelUncertainty(np.multiply.outer(sizes, uncertainty.covariances))
        batch = solve(system, cost, uncertainty=more)
        costs = batch.cost(start)
        assert batch.solved.all()
        assert (np.diff(costs) >= -1e-9 * costs[:-1]).all()
        assert costs[-1] > costs[0]
        assert costs[0] == pytest.approx(optimal_cost(system, cost, start), rel=1e-9)
        added = random_covariance(rng, d + m, "full", (d,))
        wider = ModelUncertainty(uncertainty.covariances + added)
        less, much = (
            solve(system, cost, uncertainty=one).cost(start) for one in (uncertainty, wider)
        )
        assert much >= less * (1 - 1e-9)


def test_a_batch_of_uncertainties_is_each_of_them_alone() -> None:
    rng = default_rng(3)
    system, cost = random_system(rng, 5, 2, 1.1, batch=(3, 1)), random_cost(rng, 5, 2, 6)
    uncertainty = random_uncertainty(rng, 5, 2, (4,))
    found = solve(system, cost, uncertainty=uncertainty)
    assert found.policy.gains.shape == (3, 4, 5, 2, 5)
    for i, j in np.ndindex(3, 4):
        one = LinearSystem(system.A[i, 0], system.B[i, 0], system.noise[i, 0])
        alone = solve(one, cost, uncertainty=ModelUncertainty(uncertainty.covariances[j]))
        assert alone.policy.gains.tobytes() == found.policy.gains[i, j].tobytes()


def test_a_member_whose_uncertainty_overflows_says_so() -> None:
    rng = default_rng(4)
    system, cost = random_system(rng, 5, 2), random_cost(rng, 5, 2, 10)
    covariances = np.multiply.outer([1e59, 1e300, 2e59], np.stack([np.eye(7)] * 5))
    uncertainty = ModelUncertainty(covariances)
    assert solve(system, cost, uncertainty=uncertainty).status[1] == Status.NOT_FINITE
    with pytest.raises(ArithmeticError, match="member"):
        solve(system, cost, uncertainty=uncertainty, check=True)


# ---- dither --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "m"), [(2, 1), (5, 2)])
def test_dither_costs_what_rollouts_cost(d: int, m: int) -> None:
    rng, H, n = default_rng(5), 10, 100_000
    system, cost = random_system(rng, d, m, 1.0), random_cost(rng, d, m, H)
    policy, start = random_policy(rng, d, m, H), rng.standard_normal(d)
    S = random_covariance(rng, m, "full", (H - 1,))
    assert cost.N is not None
    x, total = np.broadcast_to(start, (n, d)), np.zeros(n)
    for h in range(H - 1):
        L = np.linalg.cholesky(S[h])
        u = x @ policy.gains[h].T + rng.standard_normal((n, m)) @ L.T
        y = np.concatenate((x, u), 1)
        stage = np.block([[cost.Q[h], cost.N[h]], [cost.N[h].T, cost.R[h]]])
        total += np.einsum("ni,ij,nj->n", y, stage, y)
        noise = rng.standard_normal((n, d)) @ system.noise_factor.T
        x = x @ system.A.T + u @ system.B.T + noise
    total += np.einsum("ni,ij,nj->n", x, cost.Q[-1], x)
    error = total.std() / np.sqrt(n)
    exact = policy_cost(policy, system, cost, start, dither=S)
    assert abs(total.mean() - exact) < 4 * error
    assert exact - policy_cost(policy, system, cost, start) > 20 * error


def test_dither_of_zero_and_of_batches() -> None:
    rng = default_rng(6)
    system, cost = random_system(rng, 3, 2, batch=(4,)), random_cost(rng, 3, 2, 6)
    policy, start = random_policy(rng, 3, 2, 6), rng.standard_normal(3)
    plain = policy_cost(policy, system, cost, start)
    zero = policy_cost(policy, system, cost, start, dither=np.zeros((5, 2, 2)))
    np.testing.assert_array_equal(zero, plain)
    S = random_covariance(rng, 2, "full", (7, 1, 5))
    many = policy_cost(policy, system, cost, start, dither=S)
    assert many.shape == (7, 4)
    for i, j in np.ndindex(7, 4):
        one = LinearSystem(system.A[j], system.B[j], system.noise[j])
        alone = policy_cost(policy, one, cost, start, dither=S[i, 0])
        assert many[i, j] == pytest.approx(alone, rel=1e-12)
    np.testing.assert_allclose(
        policy_cost(policy, system, cost, start, dither=3 * S) - plain, 3 * (many - plain)
    )
    with np.errstate(over="ignore"):
        wild = LinearPolicy(np.full((5, 2, 3), 1e100))
        assert np.isposinf(policy_cost(wild, system, cost, start, dither=S[0, 0])).all()


# ---- refusals ------------------------------------------------------------------------------------

I3 = np.eye(3)
REFUSED: list[tuple[Any, str]] = [
    ([I3, np.triu(np.ones((3, 3)))], "covariances must be symmetric"),
    ([I3, np.diag([1, 1, -1])], "covariances must be positive semi-definite"),
    ([I3, np.diag([1, 1, np.nan])], "covariances must be finite, but holds nan"),
    ([I3, np.diag([1, 1, np.inf])], "covariances must be finite, but holds inf"),
    (I3, r"covariances must have shape \(..., d, d\+m, d\+m\)"),
    ([I3, I3, I3], r"covariances must have shape \(..., d, d\+m, d\+m\)"),
    (np.zeros((0, 3, 3)), r"covariances must have shape \(..., d, d\+m, d\+m\)"),
    (np.ones((2, 2, 3)), r"covariances must have shape \(..., d, d\+m, d\+m\)"),
    ("much", "covariances must be an array of real numbers"),
]


@pytest.mark.parametrize(("covariances", "words"), REFUSED)
def test_uncertainties_are_refused_in_words(covariances: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ModelUncertainty(covariances)


def test_uncertainties_that_do_not_fit_are_refused() -> None:
    rng = default_rng(7)
    system, cost = random_system(rng, 2, 1, batch=(3,)), random_cost(rng, 2, 1, 4)
    for covariances in ([np.eye(4)] * 3, [np.eye(4)] * 2, [I3]):
        with pytest.raises(InputError, match=r"the uncertainty is for sizes .*the system"):
            solve(system, cost, uncertainty=ModelUncertainty(covariances))
    with pytest.raises(InputError, match=r"do not broadcast .*uncertainty"):
        solve(system, cost, uncertainty=ModelUncertainty([[I3, I3]] * 2))
    with pytest.raises(ValueError, match="read-only"):
        ModelUncertainty([I3, I3]).covariances[0] = 0


@pytest.mark.parametrize(
    ("dither", "words"),
    [
        (np.zeros((2, 1, 1)), "dither must have R's shape"),
        (np.zeros((3, 2, 2)), "dither must have R's shape"),
        (np.zeros((1, 1)), r"dither must have shape \(..., H-1, m, m\)"),
        (np.full((3, 1, 1), np.nan), "dither must be finite"),
        ("much", "dither must be an array of real numbers"),
        (np.full((3, 1, 1), -1.0), "dither, a covariance, must be positive semi-definite"),
        (np.ones((2, 3, 1, 1)), "do not broadcast"),
        (np.ones((3, 1, 2)), "dither must"),
    ],
)
def test_dithers_are_refused_in_words(dither: Any, words: str) -> None:
    rng = default_rng(8)
    system, cost = random_system(rng, 2, 1, batch=(3,)), random_cost(rng, 2, 1, 4)
    with pytest.raises(InputError, match=words):
        policy_cost(random_policy(rng, 2, 1, 4), system, cost, np.ones(2), dither=dither)


@pytest.mark.parametrize("d", [5, 25])
@pytest.mark.parametrize("cross", [True, False])
def test_a_neighbour_that_overflows_leaves_no_trace(d: int, cross: bool) -> None:
    """In both layouts of the kernels, and where the neighbours share its workspace."""
    rng = np.random.default_rng(3)
    m, H, n = 3, 6, 6
    A, B = rng.normal(size=(n, d, d)) / d, rng.normal(size=(n, d, m))
    A[1] *= 1e200
    stage = rng.normal(size=(n, H, d + m, d + m))
    stage = stage @ stage.swapaxes(-1, -2)
    N = stage[:, :-1, :d, d:] if cross else None
    cost = QuadraticCost(stage[..., :d, :d], stage[:, :-1, d:, d:], N)
    uncertainty = ModelUncertainty(
        np.multiply.outer(rng.uniform(size=d), stage[:, 0]).swapaxes(0, 1)
    )
    together = solve(LinearSystem(A, B), cost, uncertainty=uncertainty)
    assert (together.solved == (np.arange(n) != 1)).all()
    for i in (0, 2, 5):
        own = QuadraticCost(cost.Q[i], cost.R[i], None if cost.N is None else cost.N[i])
        alone = solve(
            LinearSystem(A[i], B[i]),
            own,
            uncertainty=ModelUncertainty(uncertainty.covariances[i]),
        )
        np.testing.assert_allclose(
            together.value_matrices[i], alone.value_matrices, rtol=1e-9, atol=0
        )
