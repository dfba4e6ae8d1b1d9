"""Fleets that are not linear: learnt exactly, planned for, and played as environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import contextual_lqr as clqr
from contextual_lqr.envs import NONLINEAR_IDS
from contextual_lqr.fleets import NONLINEAR_FLEETS, true_machine
from contextual_lqr.planning.paths.path_strategies import exciting

SMALL = clqr.Cautious(draws=6, stress=2, aversions=(1.0,))


@pytest.mark.parametrize("name", NONLINEAR_FLEETS)
def test_a_few_episodes_teach_what_a_new_machine_needs(name: str) -> None:
    fleet, rng = NONLINEAR_FLEETS[name](horizon=31), np.random.default_rng(0)
    agent = fleet.agent(clqr.CertaintyEquivalence(0.0))
    for _ in range(3):
        context = fleet.sample_context(rng)
        wave = exciting(agent._problem(context, None, None), rng).policy
        agent.tell(context, fleet.play(wave, context, rng))
    assert fleet.score(agent, fleet.sample_context(rng)) < 0.01


@pytest.mark.parametrize("name", NONLINEAR_FLEETS)
def test_its_environment_charges_what_its_cost_says(name: str) -> None:
    env = gymnasium.make(NONLINEAR_IDS[name], disable_env_checker=True)
    fleet = env.unwrapped.fleet  # type: ignore[attr-defined]
    env.reset(seed=3)
    low, high = fleet.input_bounds
    states, inputs, total, over = [fleet.start], [], 0.0, False
    rng = np.random.default_rng(0)
    while not over:
        action = rng.uniform(-1, 1, low.shape)
        seen, reward, ended, over, _ = env.step(action)
        assert not ended
        total += float(reward)
        inputs.append(low + (action + 1) / 2 * (high - low))
        states.append(seen["obs"])
    paid = clqr.trajectory_cost(clqr.Trajectory(states, inputs), fleet.cost)
    np.testing.assert_allclose(-total, paid, rtol=1e-10)


def test_an_environment_is_as_gymnasium_wants_it() -> None:
    check_env(gymnasium.make(NONLINEAR_IDS["two-tanks"]).unwrapped, skip_render_check=True)


def test_the_truth_takes_euler_steps() -> None:
    fleet = NONLINEAR_FLEETS["pendulum-swing-up"](dt=0.1)
    context = {"mass": 1.0, "length": 2.0}
    context = {**context, "length": 1.2}
    after = true_machine(fleet, context).step([0.3, 0.5], [0.2])
    push = 1.5 * 9.81 * np.sin(0.3) / 1.2 + 3 * 0.2 / 1.44 - 0.1 * 0.5 / 1.44
    np.testing.assert_allclose(after, [0.35, 0.5 + 0.1 * push])


def test_what_is_no_fleet_is_refused() -> None:
    with pytest.raises(clqr.InputError, match="horizon"):
        NONLINEAR_FLEETS["two-tanks"](horizon=1)
    with pytest.raises(clqr.InputError, match="0 < low < high"):
        NONLINEAR_FLEETS["pendulum-swing-up"](mass=(1.0, 0.5))
