"""Machines drawn from a belief: what they cost where digits suffice, and that no more are taken."""

from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    Cautious,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    kernels,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.fleets import chain
from contextual_lqr.planning.drawn_machines import drawn_costs, first_steps
from problems import random_covariance, random_dynamics, random_stages

D, M, H, N = 4, 2, 12, 9


def a_task(seed: int) -> tuple[LinearSystem, QuadraticCost, np.ndarray]:
    rng = default_rng(seed)
    parts = [random_dynamics(rng, D, M, 1.3) for _ in range(N)]
    A, B = (np.stack(part) for part in zip(*parts, strict=True))
    noise = random_covariance(rng, D, "full", (N,) if seed % 2 else ())
    cost = QuadraticCost(*random_stages(rng, D, M, H, D))
    return LinearSystem(A, B, noise), cost, rng.standard_normal(D)


@pytest.mark.parametrize("seed", range(4))
def test_costs_and_first_steps_are_those_of_the_solution(seed: int) -> None:
    machines, cost, x = a_task(seed)
    best = solve(machines, cost)
    policy, dither = LinearPolicy(best.policy.gains[0]), np.stack([np.eye(M)] * (H - 1))
    paid = policy_cost(policy, machines, cost, x, dither=dither)
    np.testing.assert_allclose(drawn_costs(machines, cost, x, policy, dither), paid, rtol=1e-9)
    np.testing.assert_allclose(drawn_costs(machines, cost, x), optimal_cost(machines, cost, x))
    us, metrics, J = first_steps(machines, cost, x)
    np.testing.assert_allclose(us, best.policy.gains[:, 0] @ x)
    np.testing.assert_allclose(J, best.cost(x))
    B, P = machines.B, best.value_matrices[:, 1]
    np.testing.assert_allclose(metrics, cost.R[0] + B.swapaxes(1, 2) @ P @ B)


def test_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task(1)
    whole = first_steps(*task)
    monkeypatch.setattr("contextual_lqr.planning.drawn_machines._TOGETHER", 2 * H * D * D)
    for part, one in zip(first_steps(*task), whole, strict=True):
        np.testing.assert_allclose(part, one, rtol=1e-13)  # rounding depends on where memory is


def test_costs_lost_to_rounding_are_infinite() -> None:
    """Five modes of 60 to 120: no cost is below that of the start, whatever 16 digits say."""
    A, B = np.diag(np.linspace(60, 120, 5)), np.ones((5, 1))
    cost = QuadraticCost([np.eye(5)] * 31, [np.eye(1)] * 30)
    x = default_rng(0).standard_normal((40, 5))
    J = np.concatenate([drawn_costs(LinearSystem(A[None], B[None]), cost, one) for one in x])
    assert np.isinf(J).any()
    assert ((1 - 1e-6) * np.square(x).sum(1) <= J).all()


@pytest.mark.parametrize("adapt", ["step", "episode"])
def test_planning_takes_16_digits_of_draws(adapt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before data they are wild: of 100 states, 32 digits take fifty times as long."""
    refined, recursions = [], kernels.recursions

    def spy(*operands: Any, batch: int, refine: bool = True, **options: Any) -> kernels.Outcome:
        if batch >= Cautious().draws:
            refined.append(refine)
        return recursions(*operands, batch=batch, refine=refine, **options)

    monkeypatch.setattr(kernels, "recursions", spy)
    fleet, rng = chain(2), default_rng(0)
    agent = fleet.agent(Cautious())
    for _ in range(3):
        fleet.teach(agent, fleet.sample_context(rng), rng)
    with agent.episode(fleet.sample_context(rng), adapt=adapt) as episode:
        for _ in range(2):
            episode.act(fleet.start)
            episode.observe(fleet.start)
    assert refined
    assert not any(refined)
