"""Dynamics that change from step to step: against a dense least squares, differences, constants."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from numpy.random import Generator, default_rng

from contextual_lqr import (
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    QuadraticCost,
    StationaryCost,
    TimeVaryingSystem,
    cost_gradient,
    kernels,
    optimal_cost,
    policy_cost,
    simulate,
    solve,
)
from contextual_lqr.errors import InputError
from contextual_lqr.kernels import reference
from contextual_lqr.lqr.rollout import rollout
from problems import random_cost, random_covariance, random_dynamics, random_policy, seeds

SIZES = [(1, 1), (2, 1), (4, 2), (3, 5), (7, 2), (25, 3)]


def random_varying(
    rng: Generator, d: int, m: int, steps: int, batch: tuple[int, ...] = (), noise: Any = "each"
) -> TimeVaryingSystem:
    A, B = random_dynamics(rng, d, m, 1.1, (*batch, steps))
    W = random_covariance(rng, d, "full", (*batch, steps) if noise == "each" else ())
    return TimeVaryingSystem(A, B, None if noise is None else W)


def stacked_optimum(system: TimeVaryingSystem, cost: QuadraticCost, start: Array) -> float:
    """The least of the cost over all inputs at once, without noise: states as S x + T u."""
    steps, d, m = system.steps, system.state_size, system.input_size
    S, T = np.zeros((steps + 1, d, d)), np.zeros((steps + 1, d, steps * m))
    S[0] = np.eye(d)
    for h in range(steps):
        S[h + 1], T[h + 1] = system.A[h] @ S[h], system.A[h] @ T[h]
        T[h + 1][:, h * m : (h + 1) * m] += system.B[h]
    x, H, g, c = S @ start, np.zeros((steps * m,) * 2), np.zeros(steps * m), 0.0
    for h in range(steps + 1):
        H += T[h].T @ cost.Q[h] @ T[h]
        g += T[h].T @ cost.Q[h] @ x[h]
        c += x[h] @ cost.Q[h] @ x[h]
        if h < steps:
            own = np.eye(steps * m)[h * m : (h + 1) * m]
            H += own.T @ cost.R[h] @ own
            if cost.N is not None:
                H += T[h].T @ cost.N[h] @ own + own.T @ cost.N[h].T @ T[h]
                g += own.T @ cost.N[h].T @ x[h]
    return float(c - g @ np.linalg.solve(H, g))


@pytest.mark.parametrize(("d", "m"), SIZES)
def test_the_optimum_is_that_of_one_dense_least_squares(d: int, m: int) -> None:
    for seed in range(5):
        rng = default_rng(seed)
        system = random_varying(rng, d, m, 9, noise=None)
        cost, start = random_cost(rng, d, m, 10, cross=bool(seed % 2)), rng.standard_normal(d)
        expected = stacked_optimum(system, cost, start)
        assert solve(system, cost, check=True).cost(start) == pytest.approx(expected, rel=1e-8)
        assert optimal_cost(system, cost, start) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("noise", ["each", "one"])
def test_noise_costs_what_it_costs_from_each_step_on(noise: str) -> None:
    rng = default_rng(1)
    system, cost = random_varying(rng, 3, 2, 6, noise=noise), random_cost(rng, 3, 2, 7, cross=True)
    P = solve(system, cost).value_matrices
    W = np.broadcast_to(system.noise, (6, 3, 3))
    without = TimeVaryingSystem(system.A, system.B)
    expected = optimal_cost(without, cost, np.ones(3)) + np.einsum("hij,hij->", P[1:], W)
    assert optimal_cost(system, cost, np.ones(3)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("d", "m"), [(2, 1), (3, 2)])
def test_gradients_are_those_of_finite_differences(d: int, m: int) -> None:
    rng = default_rng(2)
    system, cost, start = random_varying(rng, d, m, 5), random_cost(rng, d, m, 6), np.ones(d)
    gradient = cost_gradient(system, cost, start)
    assert gradient.dA.shape == (5, d, d)
    for name, by in (("A", gradient.dA), ("B", gradient.dB)):
        for place in np.ndindex(by.shape):
            ends = []
            for sign in (1, -1):
                moved = {"A": system.A.copy(), "B": system.B.copy()}
                moved[name][place] += sign * 1e-6
                ends.append(
                    optimal_cost(TimeVaryingSystem(**moved, noise=system.noise), cost, start)
                )
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(by[place], rel=1e-5, abs=1e-6)


def test_simulation_costs_what_policy_cost_says() -> None:
    rng = default_rng(3)
    system, cost = random_varying(rng, 2, 1, 8), random_cost(rng, 2, 1, 9, cross=False)
    policy, start = random_policy(rng, 2, 1, 9), np.array([1.0, -0.5])
    n = 20_000
    played = simulate(policy, system, np.tile(start, (n, 1)), rng)
    x, u = played.states, played.inputs
    paid = np.einsum("nhi,hij,nhj->n", x, cost.Q, x) + np.einsum("nhi,hij,nhj->n", u, cost.R, u)
    error = paid.std() / np.sqrt(n)
    assert abs(paid.mean() - policy_cost(policy, system, cost, start)) < 5 * error
    shocks = rng.standard_normal((8, 2))
    one = rollout(policy, system, start, shocks)  # by the kernel
    two = rollout(policy, system, start[None], shocks)  # step by step
    np.testing.assert_allclose(one.states, two.states[0], rtol=1e-12)


@given(
    size=st.sampled_from(SIZES),
    H=st.integers(2, 12),
    batch=st.integers(1, 6),
    seed=seeds,
    policy=st.booleans(),
    noise=st.sampled_from([None, "one", "each"]),
    hedged=st.sampled_from([None, "one", "each"]),
)
@settings(max_examples=40)
def test_kernels_agree_and_constant_dynamics_are_a_special_case(
    size, H, batch, seed, policy, noise, hedged
):
    """The compiled recursion is the reference; with equal steps, it is that of `LinearSystem`."""
    (d, m), rng = size, default_rng(seed)
    alike = bool(seed % 2)
    A, B = random_dynamics(rng, d, m, 1.1, (batch, 1 if alike else H - 1))
    A, B = (np.tile(M, (1, H - 1, 1, 1)) if alike else M for M in (A, B))
    cost, start = random_cost(rng, d, m, H, cross=True), rng.standard_normal((batch, d))
    W = None if noise is None else random_covariance(rng, d, "full", (batch,))
    C = None if hedged is None else 0.01 * random_covariance(rng, d + m, "full", (batch, d))
    K = random_policy(rng, d, m, H).gains[None] if policy else None
    each = {"noise": noise == "each", "C": hedged == "each"}
    V = None if W is None else np.repeat(W[:, None], H - 1, 1) if each["noise"] else W
    D = None if C is None else np.repeat(C[:, None], H - 1, 1) if each["C"] else C
    wanted = {"gains": True, "values": True, "gradient": C is None}
    task = (cost.Q[None], cost.R[None], None if cost.N is None else cost.N[None])
    options = {"start": start, "policy": K, "batch": batch, **wanted}
    found = kernels.recursions(A, B, *task, V, covariances=D, **options)
    twins = [reference.recursions(A, B, *task, V, covariances=D, **options)]
    if alike:
        one = kernels.recursions(A[:, 0], B[:, 0], *task, W, covariances=C, **options)
        if one.dA is not None and one.dB is not None:
            assert found.dA is not None
            np.testing.assert_allclose(found.dA.sum(1), one.dA, rtol=1e-6, atol=1e-9)
            found, one = found._replace(dA=None, dB=None), one._replace(dA=None, dB=None)
            twins = [twins[0]._replace(dA=None, dB=None)]
        twins.append(one)
    for twin in twins:
        for name, a, b in zip(found._fields, found, twin, strict=True):
            if a is not None and b is not None:
                scale = np.abs(b).max(initial=0.0, where=np.isfinite(b))
                np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9 * scale, err_msg=name)


def test_hedging_by_step_is_hedging_where_it_is_uncertain() -> None:
    rng = default_rng(4)
    system, cost = random_varying(rng, 2, 1, 6, (3,)), random_cost(rng, 2, 1, 7)
    C = np.zeros((6, 2, 3, 3))
    C[3:] = np.eye(3)
    hedged = solve(system, cost, uncertainty=ModelUncertainty(C)).policy.gains
    everywhere = solve(system, cost, uncertainty=ModelUncertainty(C[3])).policy.gains
    np.testing.assert_allclose(hedged[:, 3:], everywhere[:, 3:], rtol=1e-12)
    plain = solve(TimeVaryingSystem(system.A[:, :3], system.B[:, :3]), random_cost(rng, 2, 1, 4))
    assert plain.policy.gains.shape == (3, 3, 1, 2)
    assert not np.allclose(hedged[:, 0], everywhere[:, 0])


def test_what_is_refused() -> None:
    A, B = np.zeros((4, 2, 2)), np.zeros((4, 2, 1))
    cost = QuadraticCost(Q=[np.eye(2)] * 5, R=[np.eye(1)] * 4)
    system = TimeVaryingSystem(A, B)
    with pytest.raises(InputError, match="as many steps and rows as A"):
        TimeVaryingSystem(A, B[:3])
    with pytest.raises(InputError, match="a square matrix for each step"):
        TimeVaryingSystem(A[:0], B)
    with pytest.raises(InputError, match=r"noise must have shape \(2, 2\) or \(..., 4, 2, 2\)"):
        TimeVaryingSystem(A, B, np.zeros((3, 2, 2)))
    with pytest.raises(InputError, match="the system has 4 steps, but the cost 2"):
        solve(system, QuadraticCost(Q=[np.eye(2)] * 3, R=[np.eye(1)] * 2))
    with pytest.raises(InputError, match="the policy has 3 steps, but the system 4"):
        simulate(LinearPolicy(np.zeros((3, 1, 2))), system, [1, 0], default_rng(0))
    with pytest.raises(InputError, match=r"covariances must have shape \(..., 4, d, d\+m, d\+m\)"):
        solve(system, cost, uncertainty=ModelUncertainty(np.zeros((3, 2, 3, 3))))
    with pytest.raises(InputError, match="a StationaryCost is for a LinearSystem"):
        solve(system, StationaryCost(np.eye(2), np.eye(1)))
    assert repr(system) == "<TimeVaryingSystem: states 2, inputs 1, steps 4, noise none>"
    assert isinstance(LinearSystem(A[0], B[0]).at(3), tuple)
