"""Constant gains for systems some of whose states stay as they are."""

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from contextual_lqr import (
    Controller,
    InputError,
    LinearSystem,
    ModelUncertainty,
    StationaryCost,
    StationaryPolicy,
    cost_gradient,
    optimal_cost,
    policy_cost,
    solve,
)

STILL, START = [1, 3], np.array([0.0, 1.7, 0.0, -0.6, 0.0])


def problem(rng: Generator, n: int = 1) -> tuple[LinearSystem, np.ndarray]:
    """Five states, of which two stay; and the weights of states and two inputs."""
    A, B = 0.6 * rng.standard_normal((n, 5, 5)), rng.standard_normal((n, 5, 2))
    A[:, STILL], B[:, STILL] = np.eye(5)[STILL], 0.0
    J = rng.standard_normal((7, 7))
    return LinearSystem(A, B, np.diag([0.1, 0.0, 0.2, 0.0, 0.3])), J @ J.T


def cost_of(W: np.ndarray, discount: float = 1.0) -> StationaryCost:
    still = STILL if discount == 1 else []
    return StationaryCost(W[:5, :5], W[5:, 5:], W[:5, 5:], discount, constant=still)


def test_the_gain_is_the_limit_of_those_with_a_discount() -> None:
    """With a discount nothing is constant for ever, and other code solves it."""
    system, W = problem(default_rng(0), 4)
    found = solve(system, cost_of(W), check=True)
    assert found.cost(START).shape == (4,)
    errors = []
    for discount in (1 - 1e-3, 1 - 1e-4, 1 - 1e-5):
        near = solve(system, cost_of(W, discount), check=True)
        errors.append(np.abs(near.policy.gain - found.policy.gain).max())
        average = (1 - discount) * near.cost(START)
        np.testing.assert_allclose(found.cost(START), average, rtol=30 * (1 - discount))
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 10, rtol=0.05)


def test_costs_are_what_one_step_more_costs() -> None:
    system, W = problem(default_rng(1))
    cost = cost_of(W)
    gain = solve(system, cost).policy.gain[0] + 0.02 * default_rng(2).standard_normal((2, 5))
    policy = StationaryPolicy(gain)
    long, longer = (policy_cost(policy, system, cost.over(h), START) for h in (400, 401))
    np.testing.assert_allclose(policy_cost(policy, system, cost, START), longer - long, rtol=1e-9)
    best = optimal_cost(system, cost, START)
    assert (best < policy_cost(policy, system, cost, START)).all()
    np.testing.assert_allclose(best, solve(system, cost).cost(START), rtol=1e-12)
    own = policy_cost(solve(system, cost).policy, system, cost, START)
    np.testing.assert_allclose(best, own, rtol=1e-9)


def test_gradients_are_differences() -> None:
    system, W = problem(default_rng(3))
    cost, h = cost_of(W), 1e-6
    found = cost_gradient(system, cost, START)
    for place in ((0, 0), (0, 1), (2, 3), (4, 4), (2, 5), (4, 6)):
        moved = []
        for sign in (1, -1):
            both = np.concatenate((system.A[0], system.B[0]), 1)
            both[place] += sign * h
            near = LinearSystem(both[:, :5], both[:, 5:], system.noise)
            moved.append(optimal_cost(near, cost, START))
        derivative = np.concatenate((found.dA[0], found.dB[0]), 1)[place]
        assert derivative == pytest.approx((moved[0] - moved[1]) / (2 * h), rel=1e-5)
    assert not found.dA[0, STILL].any()


def test_a_controller_about_rest_does_the_same() -> None:
    """Where a machine rests is found otherwise there, by a linear equation in state and input."""
    system, W = problem(default_rng(4))
    weights = np.diag(np.diag(W) * np.isin(np.arange(7), STILL, invert=True))
    cost = StationaryCost(weights[:5, :5], weights[5:, 5:], constant=STILL)
    one = LinearSystem(system.A[0], system.B[0], system.noise)
    controller = Controller(
        one, cost, states=list("abcde"), constant=["b"], measured=["d"], input_bounds=(-99, 99)
    )
    policy, rng = solve(one, cost).policy, default_rng(5)
    for _ in range(5):
        x = rng.standard_normal(5)
        x[1] = 1.0
        np.testing.assert_allclose(controller.input(x), policy(x), rtol=1e-8, atol=1e-10)
    assert controller.rest[0].shape == (3,)


def test_a_hedge_counts_what_is_unknown_of_offsets() -> None:
    system, W = problem(default_rng(6))
    doubt = 0.005 * np.eye(7) * np.isin(np.arange(5), STILL, invert=True)[:, None, None]
    found, near = (
        solve(system, cost_of(W, d), uncertainty=ModelUncertainty(doubt), check=True)
        for d in (1.0, 1 - 1e-6)
    )
    np.testing.assert_allclose(found.policy.gain, near.policy.gain, rtol=1e-4, atol=1e-5)
    plain = solve(system, cost_of(W)).policy.gain
    assert np.abs(found.policy.gain - plain).max() > 1e-3


def test_what_cannot_be_meant_is_refused() -> None:
    system, W = problem(default_rng(7))
    with pytest.raises(InputError, match="state 1 is declared constant, but the system changes it"):
        solve(system, StationaryCost(W[:5, :5], W[5:, 5:], constant=[0]))
    with pytest.raises(InputError, match="depends on what is constant: give `start`"):
        optimal_cost(system, cost_of(W))
    with pytest.raises(InputError, match="every state is constant"):
        StationaryCost(np.eye(2), [[1.0]], constant=[0, 1])
    with pytest.raises(InputError, match="constant must be"):
        StationaryCost(np.eye(2), [[1.0]], constant=[2])
    lost = LinearSystem(np.diag([2.0, 1.0, 2.0, 1.0, 2.0]), np.zeros((5, 2)))
    assert not solve(lost, cost_of(W)).solved
    assert np.isnan(solve(lost, cost_of(W)).policy.gain).all()
    gain = StationaryPolicy(np.zeros((2, 5)))
    assert policy_cost(gain, LinearSystem(np.eye(5), system.B[0]), cost_of(W), START) == np.inf
