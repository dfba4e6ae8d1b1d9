"""A loop that runs on and on: the constant gain against SciPy's, costs, gradients, refusals."""

from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from scipy.linalg import solve_discrete_are, solve_discrete_lyapunov

from contextual_lqr import (
    InputError,
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    StationaryCost,
    StationaryPolicy,
    Status,
    UnsolvableError,
    cost_gradient,
    kernels,
    optimal_cost,
    policy_cost,
    simulate,
    solve,
)
from contextual_lqr.kernels import stationary_reference as reference
from contextual_lqr.lqr.rollout import rollout
from problems import random_covariance, random_dynamics, random_stages, seeds


def random_problem(
    rng: np.random.Generator, d: int, m: int, batch: tuple[int, ...], radius: float = 1.3
) -> tuple[LinearSystem, dict[str, Array]]:
    A, B = random_dynamics(rng, d, m, radius, batch)
    Q, R, N = random_stages(rng, d, m, 2, d, batch)
    system = LinearSystem(A, B, random_covariance(rng, d, "full", batch))
    return system, {"Q": Q[..., 0, :, :], "R": R[..., 0, :, :], "N": N[..., 0, :, :]}


def dlqr(A: Array, B: Array, Q: Array, R: Array, N: Array) -> tuple[Array, Array]:
    P = solve_discrete_are(A, B, Q, R, s=N)
    return -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A + N.T), P


@given(st.integers(1, 9), st.integers(1, 4), st.sampled_from([0.5, 1.3, 2.0]), seeds)
@settings(max_examples=15, deadline=None)
def test_the_gain_is_that_of_scipy(d: int, m: int, radius: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    system, weights = random_problem(rng, d, m, (3,), radius)
    discount = float(rng.choice([1.0, 0.9]))
    solution = solve(system, StationaryCost(**weights, discount=discount))
    g = np.sqrt(discount)
    for i in range(3):
        K, P = dlqr(g * system.A[i], g * system.B[i], *(M[i] for M in weights.values()))
        if np.linalg.norm(K) > 50:  # next to no input reaches a mode: SciPy has few digits, too
            continue
        assert solution.solved[i]
        np.testing.assert_allclose(
            solution.policy.gain[i], K, rtol=0, atol=1e-9 * np.linalg.norm(K)
        )
        np.testing.assert_allclose(
            solution.value_matrix[i], P, rtol=0, atol=1e-8 * np.linalg.norm(P)
        )


def exact_gain(A: Array, B: Array, Q: Array, R: Array) -> Array:
    """By the Riccati recursion itself, with 100 digits."""
    with localcontext(Context(100)):
        A, B, Q, R = (np.vectorize(Decimal, otypes=[object])(M) for M in (A, B, Q, R))
        P = Q
        for _ in range(150):
            K = -(B.T @ P @ A) / (R + B.T @ P @ B)  # one input
            P = Q + K.T @ R @ K + (A + B @ K).T @ P @ (A + B @ K)
        return K.astype(float)


def test_one_input_that_holds_many_growing_modes_has_all_digits() -> None:
    rng = np.random.default_rng(4)
    d = 10
    A, B = random_dynamics(rng, d, 1, 4.0, ())
    Q, R = np.eye(d), np.eye(1)
    right, size = exact_gain(A, B, Q, R), np.linalg.norm(exact_gain(A, B, Q, R))
    theirs = dlqr(A, B, Q, R, np.zeros((d, 1)))[0]
    assert np.linalg.norm(theirs - right) > 1e-9 * size  # sixteen digits are not enough
    operands = [M[None] for M in (A, B, Q, R)]
    for riccati in (kernels.riccati, reference.riccati):
        found = riccati(*operands, None, batch=1)
        assert found.status[0] == kernels.SOLVED
        np.testing.assert_allclose(found.gain[0], right, rtol=0, atol=1e-14 * size)


@pytest.mark.parametrize(("d", "m"), [(1, 1), (5, 2), (25, 3)])
def test_compiled_and_reference_agree_and_no_member_sees_another(d: int, m: int) -> None:
    rng = np.random.default_rng(d)
    system, weights = random_problem(rng, d, m, (6,), 1.1)
    operands = [np.array(M) for M in (system.A, system.B, *weights.values())]
    operands[0][2] = 3 * np.eye(d)  # one member fails
    operands[1][2] = 0
    found = kernels.riccati(*operands, batch=6)
    expected = reference.riccati(*operands, batch=6)
    np.testing.assert_array_equal(found.status, expected.status)
    assert found.status[2] == kernels.NOT_CONVERGED
    for a, b in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * np.nanmax(np.abs(b)))
    for i in range(6):
        own = kernels.riccati(*(M[i : i + 1] for M in operands), batch=1)
        np.testing.assert_array_equal(own.gain[0], found.gain[i])
    F = operands[0] + operands[1] @ np.nan_to_num(found.gain)
    P, stable = kernels.lyapunov(F, operands[2], batch=6)
    reference_P, reference_stable = reference.lyapunov(F, operands[2], batch=6)
    np.testing.assert_array_equal(stable, reference_stable)
    np.testing.assert_allclose(P, reference_P, rtol=0, atol=1e-10 * np.nanmax(np.abs(P)))


def test_costs_of_gains() -> None:
    rng = np.random.default_rng(0)
    system, weights = random_problem(rng, 3, 2, (4,))
    x = rng.standard_normal((4, 3))
    for discount in (1.0, 0.8):
        cost = StationaryCost(**weights, discount=discount)
        solution = solve(system, cost, check=True)
        best = optimal_cost(system, cost, x)
        np.testing.assert_allclose(solution.cost(x), best, rtol=1e-9)
        np.testing.assert_allclose(policy_cost(solution.policy, system, cost, x), best, rtol=1e-9)
        other = StationaryPolicy(solution.policy.gain + 0.01 * rng.standard_normal((4, 2, 3)))
        costs = policy_cost(other, system, cost, x)
        for i in range(4):
            A, B, W, K = system.A[i], system.B[i], system.noise[i], other.gain[i]
            Q, R, N = (M[i] for M in weights.values())
            X = solve_discrete_lyapunov(np.sqrt(discount) * (A + B @ K), W)
            if discount < 1:
                moment = np.outer(x[i], x[i]) + discount / (1 - discount) * W
                X = solve_discrete_lyapunov(np.sqrt(discount) * (A + B @ K), moment)
            expected = np.trace((Q + K.T @ R @ K + N @ K + (N @ K).T) @ X)
            np.testing.assert_allclose(costs[i], expected, rtol=1e-9)
    idle = StationaryPolicy(np.zeros((2, 3)))
    unstable = LinearSystem(1.1 * np.eye(3), np.ones((3, 2)), np.eye(3))
    assert policy_cost(idle, unstable, StationaryCost(np.eye(3), np.eye(2))) == np.inf


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_gradient_by_differences(discount: float) -> None:
    rng = np.random.default_rng(1)
    system, weights = random_problem(rng, 3, 2, ())
    cost, x, step = StationaryCost(**weights, discount=discount), rng.standard_normal(3), 1e-6
    gradient = cost_gradient(system, cost, x)
    for name, M in (("dA", system.A), ("dB", system.B)):
        for i in np.ndindex(M.shape):
            ends = []
            for sign in (1, -1):
                moved = np.array(M)
                moved[i] += sign * step
                pair = (moved, system.B) if name == "dA" else (system.A, moved)
                ends.append(optimal_cost(LinearSystem(*pair, system.noise), cost, x))
            slope = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(getattr(gradient, name)[i], slope, rtol=1e-5, atol=1e-6)


def test_hedged_gain_solves_its_equation_and_has_a_threshold() -> None:
    # Scalar: p = q + (a² + v) p - (a b p)² / (r + (b² + w) p), v and w the variances of a and b.
    a, b, q, r, v, w = 1.1, 0.7, 1.0, 0.5, 0.02, 0.05
    system, cost = LinearSystem([[a]], [[b]]), StationaryCost([[q]], [[r]])
    doubt = ModelUncertainty([np.diag([v, w])])
    hedged = solve(system, cost, uncertainty=doubt, check=True)
    p = float(hedged.value_matrix[0, 0])
    assert p == pytest.approx(q + (a * a + v) * p - (a * b * p) ** 2 / (r + (b * b + w) * p))
    assert abs(hedged.policy.gain[0, 0]) < abs(solve(system, cost).policy.gain[0, 0])
    # It exists while a² + v - (ab)² / (b² + w) < 1.
    edge = 1 - a * a + (a * b) ** 2 / (b * b + w)
    for share, status in ((0.98, Status.SOLVED), (1.02, Status.TOO_UNCERTAIN)):
        doubt = ModelUncertainty([np.diag([share * edge, w])])
        assert solve(system, cost, uncertainty=doubt).status == status


def test_hedged_gain_is_the_limit_of_long_episodes() -> None:
    rng = np.random.default_rng(3)
    system, weights = random_problem(rng, 3, 2, (2,), 0.9)
    doubt = ModelUncertainty(0.01 * random_covariance(rng, 5, "full", (2, 3)))
    cost = StationaryCost(**weights)
    hedged = solve(system, cost, uncertainty=doubt, check=True)
    episode = solve(system, cost.over(300), uncertainty=doubt)
    np.testing.assert_allclose(hedged.policy.gain, episode.policy.gains[:, 0], rtol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e9])
def test_what_has_no_gain_says_why_in_any_units(scale: float) -> None:
    D = np.diag([scale, 1.0])

    def status(A: Any, B: Any, Q: Any, R: Any = 1.0) -> Status:
        A, B, Q = np.array(A, float), np.array(B, float), np.array(Q, float)
        inverse = np.diag(1 / np.diag(D))
        system = LinearSystem(D @ A @ inverse, D @ B * scale**0.3)
        cost = StationaryCost(inverse @ Q @ inverse, [[R * scale**0.6]])
        return Status(int(solve(system, cost).status))

    one = np.eye(2)
    assert status([[1, 0.1], [0, 1]], [[0], [0.1]], one) is Status.SOLVED
    assert status([[0, 1], [0, 0]], [[0], [1]], np.diag([1, 0])) is Status.SOLVED  # singular A
    assert status([[1.2, 0], [0, 0.5]], [[0], [1]], one) is Status.NOT_STABILISABLE
    assert status([[1, 0], [0, 0.5]], [[0], [1]], one) is Status.NOT_STABILISABLE
    assert status([[1, 0.1], [0, 1]], [[0], [0.1]], np.diag([0, 1])) is Status.NOT_DETECTABLE
    assert status([[2, 0], [0, 0.5]], [[1], [1]], np.diag([0, 1])) is Status.NOT_DETECTABLE


def test_refusals() -> None:
    one = np.eye(2)
    system, cost = LinearSystem(0.5 * one, one, one), StationaryCost(one, one)
    for arguments, sentence in (
        ({"Q": one[:1], "R": one}, r"Q must have shape \(..., d, d\)"),
        ({"Q": one, "R": one[0]}, r"R must have shape \(..., m, m\)"),
        ({"Q": one, "R": np.diag([1.0, 0.0])}, "R must be positive definite"),
        ({"Q": -one, "R": one}, "Q must be positive semi-definite"),
        ({"Q": one, "R": one, "N": 2 * one}, "N is too large for Q and R"),
        ({"Q": one, "R": one, "N": one[0]}, r"N must have shape \(..., d, m\)"),
        ({"Q": one, "R": one, "discount": 1.5}, "discount must be above 0 and at most 1"),
        ({"Q": [one] * 5, "R": [one] * 4}, "batch shapes"),  # a horizon
    ):
        with pytest.raises(InputError, match=sentence):
            StationaryCost(**arguments)
    constant = StationaryPolicy(-0.1 * one)
    with pytest.raises(InputError, match="give a StationaryPolicy"):
        policy_cost(LinearPolicy([-0.1 * one]), system, cost)
    with pytest.raises(InputError, match="give `start`"):
        policy_cost(constant, system, StationaryCost(one, one, discount=0.9))
    with pytest.raises(InputError, match="give `start`"):
        policy_cost(constant, system, cost.over(5))
    with pytest.raises(InputError, match="3 states"):
        solve(LinearSystem(np.eye(3), np.ones((3, 2))), cost)
    with pytest.raises(InputError, match="say for how many `steps`"):
        simulate(constant, system, [1, 0], np.random.default_rng(0))
    pair = LinearSystem([0.5 * one, 2 * one], np.zeros((2, 1)))
    with pytest.raises(UnsolvableError, match=r"member 1: .*not stabilisable"):
        solve(pair, StationaryCost(one, [[1]]), check=True)


def test_a_constant_gain_is_played_for_any_number_of_steps() -> None:
    system = LinearSystem([[1, 0.5], [0, 0.9]], [[0], [0.5]], 0.01 * np.eye(2))
    policy = solve(system, StationaryCost(np.eye(2), np.eye(1))).policy
    assert repr(policy) == "<StationaryPolicy: states 2, inputs 1>"
    np.testing.assert_array_equal(policy([1, 2]), policy(7, [1, 2]))
    played = simulate(policy, system, [1, 0], np.random.default_rng(0), steps=20)
    again = simulate(policy.over(20), system, [1, 0], np.random.default_rng(0))
    np.testing.assert_array_equal(played.states, again.states)
    assert len(rollout(policy, system, [1.0, 0.0], np.zeros((7, 2)))) == 7


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(("factor", "stable"), [(0.9, True), (2.0, False)])
def test_a_ring_of_states_that_costs_nothing_is_judged_by_whether_it_grows(
    size: int, factor: float, stable: bool
) -> None:
    ring = factor * np.roll(np.eye(size), 1, 0)  # no state feeds back to the one that feeds it
    weights = np.zeros((1, size, size))
    for twin in (kernels, reference):
        assert twin.lyapunov(ring[None], weights, batch=1)[1] == stable
    system = LinearSystem(ring, np.eye(size)[:, :1])
    cost = StationaryCost(weights[0], np.eye(1))
    assert solve(system, cost).solved == stable


def test_a_constant_solution_shows_itself() -> None:
    cost, stays = StationaryCost(np.eye(1), [[1.0]]), LinearSystem([[1.0]], [[1.0]])
    assert "status solved" in repr(solve(stays, cost))
    both = LinearSystem([[[1.0]], [[2.0]]], [[[1.0]], [[0.0]]])  # the second cannot be held
    assert "1 of 2 solved" in repr(solve(both, cost))
