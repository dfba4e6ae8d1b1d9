"""The simulator against a plain loop, and what a trajectory costs against what a policy costs."""

import numpy as np
import pytest
from hypothesis import given
from numpy import ndarray as Array
from numpy.random import default_rng

from contextual_lqr import (
    InputError,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Trajectory,
    policy_cost,
    simulate,
    trajectory_cost,
)
from contextual_lqr.lqr.rollout import rollout, rollout_live
from problems import random_cost, random_policy, random_system, recipes

STEPS = 7


def plain_loop(K, A, B, x, shocks, offsets, bounds):  # type: ignore[no-untyped-def]
    states, inputs = [x], []
    for h in range(len(shocks)):
        u = np.clip(K[h] @ states[h] + offsets[h], *bounds)
        inputs.append(u)
        states.append(A @ states[h] + B @ u + shocks[h])
    return np.array(states), np.array(inputs)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)], ids=str)
def test_a_rollout_is_what_a_plain_loop_says(batch: tuple[int, ...], bounded: bool) -> None:
    rng, d, m = default_rng(0), 3, 2
    policies, system = random_policy(rng, d, m, STEPS + 1), random_system(rng, d, m, batch=batch)
    start, shocks = rng.standard_normal(d), rng.standard_normal((*batch, STEPS, d))
    offsets = rng.standard_normal((STEPS, m))
    bounds = (np.array([-0.5, -0.1]), 0.7) if bounded else (-np.inf, np.inf)
    played = rollout(
        policies, system, start, shocks, offsets=offsets, input_bounds=bounds if bounded else None
    )
    assert played.states.shape == (*batch, STEPS + 1, d)
    for i in np.ndindex(batch):
        A, B = system.A[i], system.B[i]
        states, inputs = plain_loop(policies.gains, A, B, start, shocks[i], offsets, bounds)
        np.testing.assert_allclose(played.states[i], states, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(played.inputs[i], inputs, rtol=1e-12, atol=1e-14)
    assert not bounded or played.inputs.max() == 0.7


def test_policies_starts_and_shocks_broadcast() -> None:
    rng = default_rng(1)
    policies, system = random_policy(rng, 3, 1, STEPS + 1, (5, 1)), random_system(rng, 3, 1)
    starts, shocks = rng.standard_normal((4, 3)), rng.standard_normal((STEPS, 3))
    played = rollout(policies, system, starts, shocks)
    assert played.states.shape == (5, 4, STEPS + 1, 3)
    alone = rollout(LinearPolicy(policies.gains[2, 0]), system, starts[3], shocks)
    np.testing.assert_allclose(played.states[2, 3], alone.states, rtol=1e-12)


def test_simulate_is_a_rollout_of_the_noise_it_draws() -> None:
    rng = default_rng(2)
    policy, system = random_policy(rng, 3, 2, STEPS + 1), random_system(rng, 3, 2)
    played = simulate(policy, system, np.ones(3), default_rng(5))
    shocks = default_rng(5).standard_normal((STEPS, 3)) @ system.noise_factor.T
    again = rollout(policy, system, np.ones(3), shocks)
    np.testing.assert_allclose(played.states, again.states, rtol=1e-12)


@pytest.mark.parametrize("bounds", [None, (-1e300, 1e300)], ids=str)
def test_one_episode_ends_where_it_must(bounds: tuple[float, float] | None) -> None:
    """By the compiled loop and by NumPy's: before an overflow, after a state beyond the bound."""
    idle, tenfold = LinearPolicy(np.zeros((400, 1, 1))), LinearSystem([[10.0]], [[1.0]])
    none = np.zeros((400, 1))
    whole = rollout(idle, tenfold, [1.0], none, input_bounds=bounds)
    assert (len(whole), whole.states[-1]) == (308, pytest.approx(1e308))
    short = rollout(idle, tenfold, [1.0], none, input_bounds=bounds, state_bound=500.0)
    assert (len(short), short.states[-1]) == (3, 1000.0)
    at_once = rollout(idle, tenfold, [1.0], none, input_bounds=bounds, state_bound=[0.5])
    assert len(at_once) == 0
    wild = LinearPolicy(np.full((400, 1, 1), 1e200))  # the input overflows, the state need not
    assert len(rollout(wild, LinearSystem([[1.0]], [[0.0]]), [1e200], none)) == 0
    for ended in (whole, short, at_once):
        assert np.isfinite(ended.states).all()


def test_runs_that_explode_are_held_and_the_others_are_as_ever() -> None:
    idle = LinearPolicy(np.zeros((400, 1, 2)))
    A = np.multiply.outer([10.0, -10.0, 0.5], [[1.0, 0.0], [-1.0, 1.0]])
    systems, none = LinearSystem(A, np.ones((2, 1))), np.zeros((400, 2))
    with pytest.raises(InputError, match="an episode of this batch overflows"):
        rollout(idle, systems, [1.0, 1.0], none)
    held = rollout(idle, systems, [1.0, 1.0], none, largest=1e150)
    assert (np.abs(held.states).max((-2, -1)) == [1e150, 1e150, 1.0]).all()
    calm = rollout(idle, LinearSystem(A[2], np.ones((2, 1))), [1.0, 1.0], none)
    np.testing.assert_allclose(held.states[2], calm.states, rtol=1e-12)


class Playing:
    """A policy as a player, which stops after some steps and remembers what it was shown."""

    def __init__(self, policy: LinearPolicy, steps: int) -> None:
        self.policy, self.steps, self.seen = policy, steps, list[Array]()

    @property
    def finished(self) -> bool:
        return len(self.seen) == self.steps

    def act(self, state: Array) -> Array:
        return self.policy(len(self.seen), state)

    def observe(self, state: Array) -> None:
        self.seen.append(state)


def test_a_live_player_plays_the_same_episode() -> None:
    rng = default_rng(3)
    policy, system = random_policy(rng, 3, 2, STEPS + 1), random_system(rng, 3, 2)
    shocks = rng.standard_normal((STEPS, 3))
    expected = rollout(policy, system, np.ones(3), shocks)
    for steps in (0, 4, STEPS, STEPS + 1):
        player = Playing(policy, steps)
        played = rollout_live(player, system, np.ones(3), shocks)
        n = min(steps, STEPS)
        np.testing.assert_allclose(played.states, expected.states[: n + 1], rtol=1e-12)
        np.testing.assert_allclose(played.inputs, expected.inputs[:n], rtol=1e-12)
        np.testing.assert_array_equal(played.states[1:], np.array(player.seen).reshape(-1, 3))
    explosive = LinearSystem([[1e200]], [[1.0]])
    idle = Playing(LinearPolicy(np.zeros((9, 1, 1))), 9)
    assert len(rollout_live(idle, explosive, [1.0], np.zeros((9, 1)))) == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"shocks": np.zeros((3, 2))}, r"shocks must have shape \(..., 4, 2\), not \(3, 2\)"),
        ({"shocks": np.zeros((4, 1))}, r"shocks must have shape \(..., 4, 2\), not \(4, 1\)"),
        ({"offsets": np.zeros((4, 2))}, r"offsets must have shape \(..., 4, 1\), not \(4, 2\)"),
        ({"start": np.ones(3)}, "start must have 2 coordinates, not 3"),
        ({"start": np.ones((3, 2)), "shocks": np.zeros((2, 4, 2))}, "do not broadcast.*shocks"),
        ({"shocks": np.zeros((2, 4, 2)), "state_bound": 1.0}, "a state bound stops one episode"),
    ],
    ids=str,
)
def test_rollouts_are_refused_in_words(changed: dict[str, Array], words: str) -> None:
    given = {"start": np.ones(2), "shocks": np.zeros((4, 2))} | changed
    with pytest.raises(InputError, match=words):
        rollout(
            LinearPolicy(np.zeros((4, 1, 2))), LinearSystem(np.eye(2), np.ones((2, 1))), **given
        )


# ---- what it costs -------------------------------------------------------------------------------


@given(recipes())
def test_without_noise_a_trajectory_costs_what_its_policy_costs(recipe) -> None:  # type: ignore[no-untyped-def]
    p = recipe.make()
    d, m = p.system.state_size, p.system.input_size
    quiet = LinearSystem(p.system.A, p.system.B)
    policy = random_policy(p.rng, d, m, p.cost.horizon)
    played = simulate(policy, quiet, p.start, p.rng)
    expected = policy_cost(policy, quiet, p.cost, p.start)
    np.testing.assert_allclose(trajectory_cost(played, p.cost), expected, rtol=1e-8)


def test_an_episode_that_ended_early_costs_as_far_as_it_went() -> None:
    rng = default_rng(4)
    cost, x, u = random_cost(rng, 3, 2, 8), rng.normal(size=(5, 3)), rng.normal(size=(4, 2))
    assert cost.N is not None
    expected = sum(x[h] @ cost.Q[h] @ x[h] for h in range(5))
    expected += sum(u[h] @ cost.R[h] @ u[h] + 2 * x[h] @ cost.N[h] @ u[h] for h in range(4))
    found = trajectory_cost(Trajectory(x, u), cost)
    assert isinstance(found, float)
    assert found == pytest.approx(expected, rel=1e-12)
    assert trajectory_cost(Trajectory(1e200 * x, 1e200 * u), cost) == np.inf
    both = trajectory_cost(Trajectory([x, 2 * x], [u, 2 * u]), cost)
    np.testing.assert_allclose(both, [found, 4 * found], rtol=1e-12)


def test_costs_of_trajectories_are_refused_in_words() -> None:
    cost = QuadraticCost([np.eye(2)] * 3, [np.eye(1)] * 2)
    for states, inputs, words in (
        (np.ones((4, 2)), np.ones((3, 1)), "the trajectory has 3 steps, but the cost is for 2"),
        (np.ones((3, 2)), np.ones((2, 2)), "2 states and 2 inputs, but the cost is for 2 states"),
    ):
        with pytest.raises(InputError, match=words):
            trajectory_cost(Trajectory(states, inputs), cost)
    costs = QuadraticCost(np.stack([cost.Q] * 2), cost.R)
    with pytest.raises(InputError, match="do not broadcast"):
        trajectory_cost(Trajectory(np.ones((3, 3, 2)), np.ones((3, 2, 1))), costs)
