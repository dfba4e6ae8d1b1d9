"""True optimism: below what samples find, above what the relaxation proves."""

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import Optimism, optimal_cost, solve
from problem_instances import instance, sampled_costs


@pytest.mark.slow
def test_never_above_the_best_of_many_samples() -> None:
    """benchmarks/optimism.py has more of both."""
    for seed in range(0, 200, 5):
        now, rng = instance(seed), default_rng(seed)
        choice = Optimism().choose(now, rng)
        assert choice.promised_cost <= sampled_costs(now, 10_000, rng).min() * (1 + 1e-9)
        assert choice.diagnostics["lower_bound"] <= choice.promised_cost
        assert now.confidence_set().distance(choice.theta) <= now.confidence_set().beta * 1.000001


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_below_every_machine_of_the_set(seed: int) -> None:
    now = instance(2 * seed, episodes=1 + seed)
    bound = Optimism().choose(now, default_rng(seed)).diagnostics["lower_bound"]
    assert now.floor * (1 - 1e-9) <= bound <= sampled_costs(now, 5_000, default_rng(seed)).min()
    assert bound <= Optimism(certify=False).choose(now, default_rng(seed)).promised_cost


def test_the_bound_closes_when_nothing_is_left_to_learn() -> None:
    now = instance(0, episodes=3)
    cost = optimal_cost(now.systems(now.decoder.estimate), now.cost, now.start)
    choice = Optimism(beta=1e-12).choose(now, default_rng(0))
    assert choice.diagnostics["lower_bound"] == pytest.approx(cost, rel=1e-3)
    assert choice.promised_cost == pytest.approx(cost, rel=1e-4)


def test_a_bound_on_the_values_is_kept_or_the_estimate_played() -> None:
    now = instance(4, episodes=6)
    free = Optimism(certify=False).choose(now, default_rng(0))
    values = solve(now.systems(free.theta), now.cost).value_matrices
    largest = float(np.linalg.eigvalsh(values).max())
    bound = 1.001 * largest
    kept = Optimism(value_bound=bound, certify=False).choose(now, default_rng(0))
    values = solve(now.systems(kept.theta), now.cost).value_matrices
    assert np.linalg.eigvalsh(values).max() <= bound * (1 + 1e-9)
    assert kept.promised_cost == pytest.approx(free.promised_cost, rel=1e-3)
    none = Optimism(value_bound=1e-9, certify=False).choose(now, default_rng(0))
    assert (none.theta == now.decoder.estimate).all()
