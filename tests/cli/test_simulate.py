"""Rollouts: the seed decides, a bound stops, exact coordinates stay exact."""

import numpy as np
import pytest
from hypothesis import given
from numpy.random import default_rng

from compare import assert_near, same_bits, t
from contextual_lqr import (
    LinearPolicy,
    LinearSystem,
    simulate,
)
from problems import (
    random_policy,
    random_system,
    recipes,
)


def test_the_seed_decides_the_episode():
    rng = default_rng(0)
    system, policy = random_system(rng, 3, 2), random_policy(rng, 3, 2, 8)
    one, again, other = (simulate(policy, system, np.ones(3), default_rng(s)) for s in (1, 1, 2))
    assert same_bits(one.states, again.states)
    assert same_bits(one.inputs, again.inputs)
    assert not np.isclose(one.states[1:], other.states[1:]).any()
    shocks = one.states[1:] - one.states[:-1] @ system.A.T - one.inputs @ system.B.T
    drawn = default_rng(1).standard_normal((7, 3)) @ system.noise_factor.T
    np.testing.assert_allclose(shocks, drawn, atol=1e-13)
    played = np.einsum("hij,hj->hi", policy.gains, one.states[:-1])
    np.testing.assert_allclose(one.inputs, played, rtol=1e-12)
    assert len(one) == 7


@given(recipes())
def test_a_coordinate_without_noise_is_exact(recipe):
    system = recipe.make().system
    L = system.noise_factor
    assert_near(L @ t(L), np.broadcast_to(system.noise, (L @ t(L)).shape), 1e-12)
    silent = np.einsum("...ii->...i", system.noise) == 0
    assert not L[silent].any()
    d, m = system.state_size, system.input_size
    still = LinearSystem(np.eye(d), np.zeros((d, m)), system.noise)
    played = simulate(LinearPolicy(np.ones((5, m, d))), still, np.full(d, 0.1), default_rng(0))
    stays = (played.states == 0.1).all(-2)
    np.testing.assert_array_equal(stays, np.broadcast_to(silent, stays.shape))


DOUBLING, IDLE = LinearSystem(np.diag([2.0, 1.0]), np.zeros((2, 1))), np.zeros((6, 1, 2))


@pytest.mark.parametrize(
    ("bound", "start", "states"),
    [
        (3.0, [1, 1], 3),
        (4.0, [1, 1], 4),
        ([1e9, 0.5], [1, 0.4], 7),
        ([3, 9], [1, 5], 3),
        (3.0, [-1, 1], 3),
        (1e9, [1, 1], 7),
        (0.5, [1, 1], 1),  # the start is the first state
    ],
)
def test_a_bound_stops_the_episode_after_the_state_beyond_it(bound, start, states):
    played = simulate(LinearPolicy(IDLE), DOUBLING, start, default_rng(0), state_bound=bound)
    expected = np.stack([2.0 ** np.arange(7) * start[0], np.full(7, start[1])], axis=1)
    np.testing.assert_array_equal(played.states, expected[:states])
    assert len(played) == states - 1


def test_an_overflow_stops_the_episode_before_it():
    huge = LinearSystem([[1e200]], [[1.0]])
    played = simulate(LinearPolicy(np.zeros((6, 1, 1))), huge, [1.0], default_rng(0))
    np.testing.assert_array_equal(played.states, [[1], [1e200]])
    steep = LinearPolicy(np.full((6, 1, 1), 1e200))  # u overflows where B u is nothing
    played = simulate(steep, LinearSystem([[1e150]], [[0.0]]), [1.0], default_rng(0))
    np.testing.assert_array_equal(played.states, [[1], [1e150]])


@pytest.mark.parametrize("bound", [None, 1e-9, 1.5, 1e9])
def test_what_is_drawn_does_not_depend_on_where_an_episode_stops(bound):
    rng, expected = default_rng(3), default_rng(3)
    simulate(LinearPolicy(IDLE), DOUBLING, [1, 1], rng, state_bound=bound)
    expected.standard_normal((6, 2))
    assert rng.random() == expected.random()


def test_a_batch_of_episodes_is_its_members():
    rng = default_rng(1)
    systems = random_system(rng, 3, 2, noise="absent", batch=(2,))
    policies, starts = random_policy(rng, 3, 2, 5, (4, 1)), rng.standard_normal((3, 1, 1, 3))
    played = simulate(policies, systems, starts, rng)
    assert played.states.shape == (3, 4, 2, 5, 3)
    assert played.inputs.shape == (3, 4, 2, 4, 2)
    for s, i, j in np.ndindex(3, 4, 2):
        system, policy = LinearSystem(systems.A[j], systems.B[j]), policies.gains[i, 0]
        one = simulate(LinearPolicy(policy), system, starts[s, 0, 0], rng)
        np.testing.assert_allclose(played.states[s, i, j], one.states, rtol=1e-12)
        np.testing.assert_allclose(played.inputs[s, i, j], one.inputs, rtol=1e-12)
