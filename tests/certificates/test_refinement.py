"""Gains refined on alternatives: against the optimum, a search of another kind, and other units."""

import numpy as np
import pytest
from numpy.random import default_rng
from scipy.optimize import minimize

from contextual_lqr import (
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    QuadraticCost,
    StationaryCost,
    certify,
    policy_cost,
    solve,
)
from contextual_lqr.certificates.backtest import backtest
from contextual_lqr.certificates.refinement import (
    _Sweeps,
    refinable,
    refined_gains,
    refined_on_draws,
)
from contextual_lqr.lqr.preview import Preview
from deviating_fleet import contexts, episode, learnt

START = np.array([1.0, -0.5])


def some_cost(cross: bool = False, steps: int = 4) -> QuadraticCost:
    Q, R = np.broadcast_to(np.eye(2), (steps + 1, 2, 2)), np.full((steps, 1, 1), 0.3)
    N = np.broadcast_to([[0.1], [0.2]], (steps, 2, 1)) if cross else None
    return QuadraticCost(Q, R, N)


def alternatives(n: int, spread: float = 0.3) -> LinearSystem:
    rng = default_rng(4)
    A = np.array([[1.0, 0.2], [0.1, 0.9]]) + spread * rng.normal(size=(n, 1, 2, 2))
    B = np.array([[0.1], [1.0]]) + spread * rng.normal(size=(n, 1, 2, 1))
    return LinearSystem(A, B, 0.01 * np.eye(2))


def sweeps(systems: LinearSystem, cost: QuadraticCost, varied: float = 0.0) -> _Sweeps:
    counted = np.ones(systems.A.shape[:2], bool)
    return _Sweeps(systems, counted, np.full((1, 2, 1, 1), varied) * np.eye(3), cost, START)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("varied", [0.0, 0.05])
def test_with_one_alternative_the_gains_are_those_of_solve(cross: bool, varied: float) -> None:
    cost, system = some_cost(cross), alternatives(1)
    doubt = ModelUncertainty(np.broadcast_to(varied * np.eye(3), (2, 3, 3))) if varied else None
    best = solve(system, cost, uncertainty=doubt).policy.gains
    gains = np.zeros((1, 4, 1, 2))
    for _ in range(3):
        gains = sweeps(system, cost, varied).settled(gains)
    np.testing.assert_allclose(gains[:, 1:], best[0, :, 1:], atol=1e-6)
    # Of the first gain only what it does to the start tells.
    np.testing.assert_allclose(gains[0, 0] @ START, best[0, 0, 0] @ START, atol=1e-6)


def test_a_forecast_is_known_to_the_gains() -> None:
    """With one alternative they are those of solve for the machine with what is foreseen."""
    A, B = np.array([[0.9, 0.2], [0.0, 1.0]]), np.array([[1.0], [0.0]])
    machine, cost = LinearSystem(A[None, None], B[None, None], np.zeros((2, 2))), some_cost()
    ahead, start = Preview(np.array([[0.5, 0], [-2, 0], [0.3, 0], [0, 0]]), (), 1), np.ones(2)
    best = solve(ahead.system(machine), cost).policy.gains[0]
    gains = np.zeros((1, 4, 1, 2))
    task = _Sweeps(machine, np.ones((1, 1), bool), np.zeros((1, 2, 3, 3)), cost, start, ahead)
    for _ in range(20):
        gains = task.settled(gains)

    def paid(gains: np.ndarray) -> float:
        system = ahead.system(LinearSystem(A, B, np.zeros((2, 2))))
        return float(policy_cost(LinearPolicy(gains[0]), system, cost, start))

    assert abs(paid(gains) / paid(best) - 1) < 1e-6
    assert paid(solve(machine, cost).policy.gains[0]) > 1.1 * paid(best)  # which knows nothing


def test_no_other_search_finds_better_gains() -> None:
    cost, systems = some_cost(), alternatives(6)

    def mean(gains: np.ndarray) -> float:
        paid = policy_cost(LinearPolicy(gains.reshape(4, 1, 2)), systems, cost, START)
        return float(np.log(np.asarray(paid)).mean())

    gains, task = np.zeros((1, 4, 1, 2)), sweeps(systems, cost)
    for _ in range(10):
        before, gains = mean(gains), task.settled(gains)
        assert mean(gains) <= before + 1e-12
    other = min(minimize(mean, at.ravel(), tol=1e-12).fun for at in (gains * 0, gains))
    assert mean(gains) <= other + 1e-6


def test_other_units_change_nothing_but_units() -> None:
    cost, systems = some_cost(), alternatives(5)
    size, push = np.array([1e3, 1e-2]), 50.0
    scaled = LinearSystem(
        size[:, None] * systems.A / size, size[:, None] * systems.B / push, 0.01 * np.diag(size**2)
    )
    other = QuadraticCost(cost.Q / size / size[:, None], cost.R / push**2)
    first = solve(systems, cost).policy.gains[0]
    gains = sweeps(systems, cost).settled(first)
    counted = np.ones((5, 1), bool)
    again = _Sweeps(scaled, counted, np.zeros((1, 2, 3, 3)), other, size * START)
    np.testing.assert_allclose(again.settled(push * first / size), push * gains / size, rtol=1e-6)


def test_what_no_alternative_moves_keeps_its_gain() -> None:
    A, B = np.diag([0.9, 0.5]), np.array([[1.0], [0.0]])
    system = LinearSystem(A[None, None], B[None, None], np.zeros((2, 2)))
    cost, gains = some_cost(), np.full((1, 4, 1, 2), 0.7)
    one, none = np.ones((1, 1), bool), np.zeros((1, 2, 3, 3))
    task = _Sweeps(system, one, none, cost, np.array([1.0, 0.0]))
    found = task.settled(gains)
    assert (found[..., 1] == 0.7).all()
    assert (found[..., 0] < 0).all()


def test_a_fleet_that_varies_wildly_is_refined_and_a_good_one_is_not() -> None:
    cost = some_cost(steps=12)
    wild, _ = learnt(30, 0.2, default_rng(2))
    found = backtest(wild, cost, START)
    assert found.refined
    assert found.as_dict()["refined"]
    assert np.isfinite(certify(wild, contexts(1)[0], cost, START).policy.gains).all()
    alike, _ = learnt(30, 0.0, default_rng(0))
    assert not backtest(alike, cost, START).refined


def test_a_machine_does_not_stand_for_itself() -> None:
    wild, _ = learnt(6, 0.3, default_rng(1))
    cost, population = some_cost(), wild.population
    assert population is not None
    belief = wild.machines(contexts(2))
    gains = np.asarray(solve(belief.system, cost).policy.gains)
    both = refined_gains(belief, gains, cost, START, population)
    apart = refined_gains(belief, gains, cost, START, population, np.array([0, 1]))
    assert np.abs(both - apart).max() > 1e-6
    none = refined_gains(belief, gains, cost, START, population, np.array([99, 99]))
    np.testing.assert_array_equal(both, none)


def test_only_episodes_with_convex_costs_are_refined() -> None:
    assert refinable(some_cost())
    assert not refinable(StationaryCost(np.eye(2), np.eye(1)))
    assert not refinable(QuadraticCost(some_cost().Q, some_cost().R, indefinite=True))


def test_machines_with_few_rows_of_their_own_are_better_off_on_other_draws() -> None:
    """By the mean logarithm, which is refined; and each whatever others are refined beside it."""
    cost = some_cost(steps=12)
    rng = default_rng(2)
    few, truth = learnt(30, 0.2, rng)
    labels = [f"new {i}" for i in range(8)]
    for i, label in enumerate(labels):
        few.update(contexts(30)[i], episode(truth[i], 3, rng, 0.1), label)
    belief = few.machines(contexts(30)[:8], labels)
    hedged = np.asarray(solve(belief.system, cost).policy.gains)
    found = refined_on_draws(belief, hedged, cost, START)
    alone = refined_on_draws(belief[3:4], hedged[3:4], cost, START)
    np.testing.assert_array_equal(alone, found[3:4])
    drawn = belief.draw(400, default_rng(7))

    def mean(gains: np.ndarray) -> np.ndarray:
        paid = np.asarray(policy_cost(LinearPolicy(gains), drawn, cost, START))
        return np.asarray(np.log(paid).mean(0))

    gained = mean(hedged) - mean(found)
    assert gained.min() > -1e-3
    assert gained.mean() > 0.01
    one = certify(few, contexts(30)[3], cost, START, machine="new 3")
    assert np.abs(one.policy.gains - hedged[3]).max() > 1e-3
