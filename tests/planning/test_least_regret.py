"""The input of least expected regret: against costs played out, and where machines disagree."""

import numpy as np
import pytest
from numpy.random import default_rng
from scipy.optimize import minimize

from contextual_lqr import Cautious, LinearSystem, QuadraticCost, optimal_cost, solve
from contextual_lqr.fleets import chain
from contextual_lqr.fleets.fleet import true_system
from contextual_lqr.planning.least_regret import least_regret

D, M, H, N = 3, 2, 6, 9
X = np.array([1.0, -2.0, 0.5])


def a_task(rng: np.random.Generator) -> tuple[LinearSystem, QuadraticCost]:
    A = np.eye(D) + 0.4 * rng.standard_normal((N, D, D))
    machines = LinearSystem(A, 0.7 * rng.standard_normal((N, D, M)), noise=0.01 * np.eye(D))
    return machines, QuadraticCost(np.stack([np.eye(D)] * H), np.stack([0.3 * np.eye(M)] * (H - 1)))


def above_the_best(u: np.ndarray, machines: LinearSystem, cost: QuadraticCost) -> np.ndarray:
    """What each machine costs above its best if u is played, and the best afterwards."""
    best = solve(machines, cost)
    P, c = best.value_matrices[:, 1], best.value_constants[:, 1]
    after = (machines.A @ X[:, None])[..., 0] + machines.B @ u
    later = np.einsum("ni,nij,nj->n", after, P, after) + np.einsum("nij,ij->n", P, 0.01 * np.eye(D))
    return np.asarray(X @ cost.Q[0] @ X + u @ cost.R[0] @ u + later + c - best.cost(X))


@pytest.mark.parametrize("seed", range(3))
def test_it_minimises_the_regret_in_parts_of_what_each_machine_costs(seed: int) -> None:
    machines, cost = a_task(default_rng(seed))
    shape = np.diag([2.0, 0.1])
    u, size = least_regret(cost, X, machines, shape, 0.0, 0.2)
    idle = above_the_best(np.zeros(M), machines, cost)
    whole = np.asarray(solve(machines, cost).cost(X)) + idle
    regret = lambda v: float((above_the_best(v, machines, cost) / whole).sum())  # noqa: E731
    assert np.allclose(u, minimize(regret, np.zeros(M), tol=1e-12).x, atol=1e-5)

    # The dither e costs its share of what is left: E[regret(u + e)] - regret(u).
    steps = np.sqrt(size * np.diagonal(shape))[:, None] * np.eye(M)
    extra = sum((regret(u + e) + regret(u - e)) / 2 - regret(u) for e in steps)
    assert np.isclose(extra, 0.2 * regret(u), rtol=1e-6)

    saved = regret(np.zeros(M)) - regret(u)
    shrunk, _ = least_regret(cost, X, machines, shape, 0.1, 0.2)
    assert np.allclose(shrunk, u * max(1 - 0.1 * regret(u) / saved, 0.0), rtol=1e-6)


def test_machines_that_agree_are_played_and_those_that_contradict_one_another_are_not() -> None:
    machines, cost = a_task(default_rng(5))
    one = LinearSystem(machines.A[[0] * N], machines.B[[0] * N], noise=0.01 * np.eye(D))
    u, size = least_regret(cost, X, one, np.eye(M), 0.1, 0.03)
    assert np.allclose(u, solve(one, cost).policy.gains[0, 0] @ X)
    assert size < 1e-12

    both = LinearSystem(np.tile(machines.A, (2, 1, 1)), np.concatenate((machines.B, -machines.B)))
    u, size = least_regret(cost, X, both, np.eye(M), 0.1, 0.03)
    assert np.allclose(u, 0, atol=1e-12)
    assert size > 0


def test_where_no_machine_can_be_solved_nothing_is_done() -> None:
    machines, cost = a_task(default_rng(0))
    wild = LinearSystem(1e200 * machines.A, machines.B)
    u, size = least_regret(cost, X, wild, np.eye(M), 0.1, 0.03)
    assert not u.any()
    assert size == np.inf


@pytest.mark.parametrize("masses", [3, 12])
def test_a_first_episode_too_short_to_learn_the_machine_does_not_shake_it(masses: int) -> None:
    """24 states show 29 rows of 64 unknowns; a dither that grows with the state would run away."""
    fleet, rng = chain(masses), default_rng(900)
    agent, context = fleet.agent(Cautious()), fleet.sample_context(rng)
    machine, paid = true_system(fleet, context), []
    with agent.episode(context, adapt="step") as episode:
        x, deviation = fleet.start, np.sqrt(np.diagonal(machine.noise))
        for Q, R in zip(fleet.cost.Q, fleet.cost.R, strict=False):
            u = episode.act(x)
            paid.append(x @ Q @ x + u @ R @ u)
            x = machine.A @ x + machine.B @ u + deviation * rng.standard_normal(len(x))
            episode.observe(x)
            assert np.abs(x).max() < 3 * np.abs(fleet.start).max()
    assert sum(paid) < 3 * optimal_cost(machine, fleet.cost, fleet.start)
