"""Agents on machines that are not linear."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array

import contextual_lqr as clqr
from contextual_lqr.fleets import pendulum_swing_up

STEPS = 40
PENDULUM = clqr.FeatureDynamics(
    ["angle", "speed", "sin(angle)/length", "torque/(mass*length**2)"],
    states=["angle", "speed"],
    inputs=["torque"],
    bounds={"mass": (0.8, 1.2), "length": (0.8, 1.2)},
)
THETA = np.array([[1.0, 0.1, 0.0, 0.0], [0.0, 1.0, 0.981, 0.1]])
COST = clqr.TargetCost([np.diag([1.0, 0.1])] * (STEPS + 1), [[[0.01]]] * STEPS, angles=[0])
SMALL = clqr.Cautious(draws=8, stress=4, aversions=(1.0, 10.0))
START = np.array([np.pi, 0.0])


def made(strategy: Any = SMALL, **options: Any) -> clqr.Agent:
    return clqr.Agent(
        PENDULUM, COST, START, strategy, noise_level=1e-3, input_bounds=(-6, 6), seed=1, **options
    )


def step(context: dict[str, float], x: Array, u: Array, rng: np.random.Generator) -> Array:
    return THETA @ PENDULUM.features(context, x, u) + 1e-3 * rng.standard_normal(2)


def played(plan: clqr.Plan, context: Any, rng: np.random.Generator) -> clqr.Trajectory:
    x, u = [START], []
    for t in range(STEPS):
        u.append(plan.input(t, x[-1]))
        x.append(step(context, x[-1], u[-1], rng))
    return clqr.Trajectory(x, u)


def up(state: Array) -> bool:
    return abs((state[0] + np.pi) % (2 * np.pi) - np.pi) < 0.2


@pytest.mark.parametrize(
    "strategy", [SMALL, clqr.CertaintyEquivalence(0.0), clqr.ThompsonSampling()]
)
def test_a_machine_never_tried_swings_up(strategy: Any) -> None:
    agent, rng = made(strategy), np.random.default_rng(0)
    contexts = [{"mass": 0.9, "length": 1.1}, {"mass": 1.1, "length": 0.9}]
    for context in contexts:
        agent.tell(plan := agent.ask(context), played(plan, context, rng))
    new = {"mass": 1.0, "length": 1.0}
    plan = agent.ask(new)
    run = played(plan, new, rng)
    assert up(run.states[-1])
    paid = float(clqr.trajectory_cost(run, COST))
    truth = clqr.DynamicsBelief.known(PENDULUM, new, THETA)
    best = clqr.solve_trajectory(truth, COST, START, input_bounds=(-6, 6), attempts=13)
    assert paid < 1.2 * best.cost
    assert np.abs(run.inputs).max() <= 6


def test_step_by_step_it_learns_on_the_way() -> None:
    agent, rng, context = made(), np.random.default_rng(2), {"mass": 1.0, "length": 1.0}
    agent.tell({"mass": 1.1, "length": 0.9}, played(made().ask(context), context, rng))
    with agent.episode(context, adapt="step") as episode:
        x = START
        while not episode.finished:
            x = step(context, x, episode.act(x), rng)
            episode.observe(x)
    assert up(x)
    assert agent.decoder.rows == 2 * STEPS


def test_what_is_not_known_is_explored_within_the_limits() -> None:
    plan = made().ask({"mass": 1.0, "length": 1.0})
    assert plan.diagnostics["path"] == "exciting inputs"
    inputs = np.array([plan.input(t, START) for t in range(STEPS)])
    assert np.abs(inputs).max() <= 6
    assert inputs.std() > 1


def test_a_saved_agent_goes_on(tmp_path: Path) -> None:
    agent, rng, context = made(), np.random.default_rng(3), {"mass": 1.0, "length": 1.0}
    agent.tell(plan := agent.ask(context), played(plan, context, rng))
    agent.save(tmp_path / "agent")
    again = clqr.Agent.load(tmp_path / "agent")
    assert isinstance(again.cost, clqr.TargetCost)
    one, two = agent.ask(context), again.ask(context)
    np.testing.assert_array_equal(one.policy.inputs, two.policy.inputs)


def test_its_controller_is_a_path() -> None:
    agent, rng, context = made(), np.random.default_rng(4), {"mass": 1.0, "length": 1.0}
    agent.tell(plan := agent.ask(context), played(plan, context, rng))
    policy = agent.controller(context)
    assert isinstance(policy, clqr.TrajectoryPolicy)
    assert up(policy.states[-1])


def test_what_is_for_linear_machines_is_refused() -> None:
    with pytest.raises(clqr.InputError, match="not linear"):
        made(clqr.Optimism())
    with pytest.raises(clqr.InputError, match="incumbent"):
        made(incumbent=np.zeros((1, 2)))
    with pytest.raises(clqr.InputError, match="about 0"):
        clqr.Agent(clqr.FeatureContext(["1"]), COST, START)


def test_step_by_step_it_begins_with_nothing_known() -> None:
    agent, rng, context = made(), np.random.default_rng(5), {"mass": 1.0, "length": 1.0}
    with agent.episode(context, adapt="step") as episode:
        x, inputs = START, []
        for _ in range(10):
            inputs.append(episode.act(x))
            x = step(context, x, inputs[-1], rng)
            episode.observe(x)
    assert np.std(inputs) > 0.5  # which excites whatever there is
    assert np.abs(inputs).max() <= 6


def test_where_inputs_have_no_limits_the_cost_says_how_large_they_may_be() -> None:
    sizes = []
    for scale in (1.0, 100.0):  # of inputs
        cost = clqr.TargetCost(COST.Q, COST.R / scale**2, angles=[0])
        agent = clqr.Agent(PENDULUM, cost, START, SMALL, noise_level=1e-3, seed=1)
        plan = agent.ask({"mass": 1.0, "length": 1.0})
        sizes.append(np.array([plan.input(t, START) for t in range(STEPS)]))
    np.testing.assert_allclose(sizes[1], 100 * sizes[0], rtol=1e-12)
    paid = np.pi**2 / np.square(sizes[0]).max() / 0.01
    assert 90 < paid < 1000  # at most a tenth of what costs as much as the start


def test_states_that_must_not_be_left_refuse_a_swing() -> None:
    rng, context = np.random.default_rng(6), {"mass": 1.0, "length": 1.0}
    careful = clqr.Cautious(draws=8, stress=4, aversions=(1.0,), state_limit=(4.0, 0.5))
    agent = made(careful)
    agent.tell(context, played(made().ask(context), context, rng))
    plan = agent.ask(context)
    assert plan.diagnostics["path"] == "idle"  # faster than 0.5 rad/s it would have to be
    assert plan.diagnostics["refused"] == len(careful.aversions) + 1  # and what does not hedge


def test_a_simulated_fleet_teaches_step_by_step() -> None:
    fleet = pendulum_swing_up(horizon=12)
    agent, rng = fleet.agent(seed=0), np.random.default_rng(0)
    run = fleet.teach(agent, fleet.sample_context(rng), rng, adapt="step")
    assert run.states.shape == (12, 2)
    assert agent.decoder.rows == 11
    low, high = fleet.input_bounds
    assert ((low <= run.inputs) & (run.inputs <= high)).all()
