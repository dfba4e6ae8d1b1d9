"""Typical sizes by what they cost."""

import numpy as np
import pytest

from contextual_lqr import Agent, FeatureContext, QuadraticCost
from contextual_lqr.planning.natural_scales import natural_scales


def cost_of(states: list[float], inputs: list[float]) -> QuadraticCost:
    return QuadraticCost(Q=[np.diag(states)] * 4, R=[np.diag(inputs)] * 3)


def test_each_alone_costs_as_much_as_the_start() -> None:
    cost = cost_of([1.0, 4.0], [0.25])
    sizes = natural_scales(cost, np.array([2.0, 0.0]), np.array([0.01, 0.01]))
    np.testing.assert_allclose(sizes, [2.0, 1.0, 4.0])


def test_a_state_that_costs_nothing_is_as_many_noises_as_the_others() -> None:
    cost = cost_of([1.0, 0.0, 0.0], [1.0])
    sizes = natural_scales(cost, np.array([2.0, 0.0, 3.0]), np.array([0.01, 0.05, 0.0]))
    np.testing.assert_allclose(sizes, [2.0, 10.0, 3.0, 2.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("weights", "noise"),
    [([1.0, 0.0], [0.0, 0.01]), ([0.0, 0.0], [0.01, 0.01]), ([0.0, 0.0], [0.01, 0.0])],
)
def test_where_nothing_costs_anything_an_agent_still_begins(
    weights: list[float], noise: list[float]
) -> None:
    cost = cost_of(weights, [1.0])
    sizes = natural_scales(cost, np.zeros(2), np.array(noise))
    assert (sizes > 0).all()
    assert np.isfinite(sizes).all()
    agent = Agent(FeatureContext(["1"]), cost, np.zeros(2), noise_level=noise)
    assert np.isfinite(agent.ask({}).policy.gains).all()
