"""The Gymnasium environments, and agents joined to them; MuJoCo's machine is what it says it is."""

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from contextual_lqr import (
    Agent,
    Cautious,
    Decoder,
    FeatureContext,
    InputError,
    LinearPolicy,
    OutputHistory,
    QuadraticCost,
    Trajectory,
    trajectory_cost,
)
from contextual_lqr.envs import IDS, DynamicsEnv, FleetEnv, OutputHistoryEnv, rollout
from contextual_lqr.envs.inverted_pendulum import (
    CART,
    LENGTH,
    POLE,
    RANGES,
    InvertedPendulum,
    _machine,
    inverted_pendulum,
)
from contextual_lqr.fleets import FLEETS, true_system


def gains(env: Any, steps: int, seed: int = 0) -> LinearPolicy:
    d, m = len(env.unwrapped.fleet.start), env.action_space.shape[0]
    return LinearPolicy(0.05 * np.random.default_rng(seed).standard_normal((steps, m, d)))


def test_every_fleet_has_an_environment() -> None:
    assert list(IDS) == list(FLEETS)


@pytest.mark.parametrize("name", ["path-following", "vehicle"])
def test_rewards_sum_to_the_negative_cost_of_the_true_machine(name: str) -> None:
    env = gymnasium.make(IDS[name])
    fleet = env.unwrapped.fleet
    N = 0.1 * np.ones((fleet.cost.horizon - 1, fleet.cost.state_size, fleet.cost.input_size))
    cost = QuadraticCost(fleet.cost.Q, fleet.cost.R, N, indefinite=True)
    fleet = env.unwrapped.fleet = replace(fleet, cost=cost)
    played = rollout(gains(env, 100), env, seed=2)
    assert (played.terminated, played.truncated) == (False, True)
    x, u = played.trajectory.states, played.trajectory.inputs
    assert len(x) == fleet.cost.horizon
    paid = trajectory_cost(played.trajectory, cost)
    assert played.total_reward == pytest.approx(-paid, rel=1e-12)
    truth = true_system(fleet, played.context)
    shocks = x[1:] - x[:-1] @ truth.A.T - u @ truth.B.T
    assert np.abs(shocks).max() < 6 * fleet.noise_level.max()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_environments_run_side_by_side(mode: str) -> None:
    name = IDS["cart-pole"]
    vector = gymnasium.make_vec(name, num_envs=2, vectorization_mode=mode)
    seen, _ = vector.reset(seed=[3, 4])
    single, _ = gymnasium.make(name).reset(seed=4)
    assert seen["obs"].shape == (2, 4)
    assert seen["context"]["length"][1] == single["context"]["length"]
    assert vector.step(vector.action_space.sample())[1].shape == (2,)
    vector.close()


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(InputError, match="the fleets are path-following"):
        FleetEnv("boat")
    env = FleetEnv("heating", horizon=3)
    with pytest.raises(InputError, match="reset the environment before"):
        env.step(np.zeros(1))
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(1))
    with pytest.raises(InputError, match="the episode is over"):
        env.step(np.zeros(1))
    with pytest.raises(InputError, match="reset the environment before"):
        InvertedPendulum().step(np.zeros(1))


def test_what_was_played_must_be_an_input() -> None:
    agent = small_agent()
    with agent.episode({"mass": 1.0}) as episode:
        episode.act([1.0])
        with pytest.raises(InputError, match="played must have shape"):
            episode.observe([0.9], played=[1.0, 2.0])
        with pytest.raises(InputError, match="played must be finite"):
            episode.observe([0.9], played=[math.nan])
        episode.observe([0.9], played=[0.5])
    assert agent.decoder.rows == 1


# -- rollout -----------------------------------------------------------------------------------


def test_an_agent_learns_what_was_played_even_where_it_was_clipped() -> None:
    env = FleetEnv("cart-pole")
    env.input_scale = 1e-3  # so that nearly every input is too large
    agent = env.fleet.agent(Cautious())
    for adapt in ("episode", "step"):
        told = Decoder(
            agent.decoder.context_map,
            agent.decoder.regularisation,
            noise_level=agent.decoder.noise_level,
            scales=agent.decoder.scales,
        )
        agent.decoder = told.copy()
        played = rollout(agent, env, seed=3, adapt=adapt)
        assert np.abs(played.trajectory.inputs).max() == pytest.approx(1e-3)
        told.update(played.context, played.trajectory)
        assert np.allclose(agent.decoder.estimate, told.estimate, rtol=1e-12, atol=1e-14)


def test_a_controller_plays_a_machine_never_tried() -> None:
    env = FleetEnv("quadrotor")
    agent, context = env.fleet.agent(), {"payload": 0.2, "arm": 0.1}
    for seed in range(8):
        rollout(agent, env, seed=seed)
    rows = agent.decoder.rows
    played = rollout(agent.controller, env, context=context, seed=9)
    fixed = rollout(agent.controller(context), env, context=context, seed=9)
    assert played.context == context
    assert played.total_reward == fixed.total_reward > -40
    assert agent.decoder.rows == rows == 8 * 29


class Plain(gymnasium.Env[Any, Any]):
    """Somebody else's: the context is in the info, and the state hides in the middle."""

    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, tells: dict[str, Any], takes_options: bool = True) -> None:
        self.tells, self.takes_options = tells, takes_options

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if options and self.takes_options:
            self.tells = {**self.tells, **options["context"]}
        self.x, self.steps = 1.0, 0
        return [0.0, self.x, 7.0], {"context": self.tells}

    def step(self, action: Any) -> Any:
        push = float(action[0]) / np.asarray(self.tells["mass"]).item()
        self.x, self.steps = 0.9 * self.x + push, self.steps + 1
        return [0.0, self.x, 7.0], 1.0, self.steps == 4, False, {}


def small_agent() -> Agent:
    map_ = FeatureContext(["1", "1/mass"], states=1, inputs=1, bounds={"mass": (0.5, 4.0)})
    return Agent(map_, QuadraticCost(np.ones((9, 1, 1)), np.ones((8, 1, 1))), [1.0])


def test_an_environment_of_somebody_else() -> None:
    agent, env = small_agent(), Plain({"mass": np.array([2.0]), "colour": 3})
    played = rollout(agent, env, state=lambda seen: [seen[1]])
    assert played.context == {"mass": 2.0}
    assert (len(played.trajectory), played.total_reward) == (4, 4.0)
    assert (played.terminated, played.truncated) == (True, False)
    assert agent.decoder.rows == 4
    played = rollout(agent, env, context={"mass": 1.5}, state=lambda seen: [seen[1]])
    assert played.context == {"mass": 1.5}


def test_rollout_refuses_what_it_cannot_join() -> None:
    agent = small_agent()
    with pytest.raises(InputError, match=r"asked for mass = 1\.5, but says it is 2\.0"):
        rollout(agent, Plain({"mass": 2.0}, takes_options=False), context={"mass": 1.5})
    with pytest.raises(InputError, match="the agent needs mass"):
        rollout(agent, Plain({"weight": 2.0}))
    with pytest.raises(InputError, match="reports no context"):
        rollout(agent, gymnasium.make("MountainCarContinuous-v0"))
    with pytest.raises(InputError, match=r"actions are Discrete\(2\)"):
        rollout(agent, gymnasium.make("CartPole-v1"))
    assert agent.decoder.rows == 0


# -- MuJoCo ------------------------------------------------------------------------------------


def capsule(mass: float, length: float, beta: float) -> tuple[float, float]:
    """Inertias of a solid capsule, across and along: a cylinder and two half balls."""
    tube, caps = math.pi * beta**2 * length, 4 / 3 * math.pi * beta**3
    m, c = mass * tube / (tube + caps), mass * caps / (tube + caps)
    along = m * beta**2 / 2 + c * 2 / 5 * beta**2
    across = m * (length**2 / 12 + beta**2 / 4)
    across += c * (2 / 5 * beta**2 + length**2 / 4 + 3 / 8 * length * beta)
    return across, along


@pytest.mark.parametrize("scale", [(1.0, 1.0, 1.0), (0.5, 3.0, 2.0), (2.0, 0.3, 0.5)])
def test_masses_lengths_and_inertias_fit_together(scale: tuple[float, float, float]) -> None:
    cart, pole, length = np.multiply(scale, (CART, POLE, LENGTH))
    engine = _machine({"cart_mass": cart, "pole_mass": pole, "pole_length": length})
    model = engine.model
    assert model.body_mass[1:] == pytest.approx([cart, pole], rel=1e-12)
    across, along = capsule(pole, math.hypot(length, 0.001 * length / LENGTH), 0.049)
    assert model.body_inertia[2] == pytest.approx([across, across, along], rel=1e-6)
    assert model.body_ipos[2, 2] == pytest.approx(length / 2, rel=1e-12)
    engine.close()


def test_the_original_machine_is_gymnasiums() -> None:
    original = gymnasium.make("InvertedPendulum-v5")
    cart, pole = original.unwrapped.model.body_mass[1:]
    ours = _machine({"cart_mass": cart, "pole_mass": pole, "pole_length": LENGTH})
    x, _ = original.reset(seed=1)
    y, _ = ours.reset(seed=1)
    for step in range(12):
        assert y == pytest.approx(x, abs=1e-12)
        x, *_ = original.step([0.1 * math.sin(step)])
        y, *_ = ours.step(np.array([0.1 * math.sin(step)]))
    original.close()
    ours.close()


def test_nobody_knows_the_pendulums_truth() -> None:
    with pytest.raises(InputError, match="nobody knows the true dynamics"):
        true_system(
            inverted_pendulum(),
            dict(zip(("cart_mass", "pole_mass", "pole_length"), (10.0, 5.0, 0.6), strict=True)),
        )
    with pytest.raises(InputError, match="features must be one of"):
        inverted_pendulum("quadratic")


def test_without_a_context_there_is_one_controller_for_all() -> None:
    fleet, rng = inverted_pendulum("none"), np.random.default_rng(3)
    agent = fleet.agent()
    steps = rng.normal(scale=0.01, size=(20, 4))
    agent.tell(fleet.sample_context(rng), Trajectory(steps, 0.1 * rng.normal(size=(19, 1))))
    light, heavy = ({name: pair[i] for name, pair in RANGES.items()} for i in (0, 1))
    assert np.array_equal(agent.controller(light).gains, agent.controller(heavy).gains)


# -- without the extras ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocked", "code", "said"),
    [
        ("gymnasium", "import contextual_lqr.envs", "pip install 'contextual-lqr[gym]'"),
        (
            "mujoco",
            "import contextual_lqr.envs.inverted_pendulum",
            "pip install 'contextual-lqr[mujoco]'",
        ),
        (
            "gymnasium",
            "import sys; sys.argv[1:] = ['play', '--fleet', 'inverted-pendulum'];"
            "from contextual_lqr.cli import main; main(last=True)",
            "pip install 'contextual-lqr[mujoco]'",
        ),
    ],
)
def test_a_missing_extra_says_what_to_install(blocked: str, code: str, said: str) -> None:
    setup = f"import sys; sys.modules[{blocked!r}] = None; import contextual_lqr.fleets\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert said in " ".join(done.stderr.split())


def test_the_library_needs_no_extra_and_imports_none() -> None:
    code = (
        "import sys; import contextual_lqr, contextual_lqr.fleets;"
        "print(*{'gymnasium', 'mujoco', 'PIL', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_an_environment_of_outputs_shows_histories():
    """A house and its history, played by a policy of that."""
    env = gymnasium.make(IDS["heating"])
    shown = env.observation_space["obs"].shape[0]
    history = OutputHistory(outputs=shown, inputs=env.action_space.shape[0], n=2)
    hidden = OutputHistoryEnv(env, history, range(shown))
    steps = env.unwrapped.fleet.cost.horizon - 1
    gains = np.random.default_rng(0).normal(size=(steps, history.inputs, history.state_size)) / 50
    played = rollout(LinearPolicy(gains), hidden, seed=1)
    x, u = played.trajectory.states, played.trajectory.inputs
    again = history.trajectory(x[:, :shown], u)
    assert np.array_equal(again.states, x[history.lost :])
    assert hidden.observation_space.contains(hidden.reset(seed=2)[0])


def test_a_machine_that_leaves_where_features_have_values_ends_its_episode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = DynamicsEnv("two-tanks")
    with pytest.raises(InputError, match="reset the environment before its first step"):
        env.step(np.zeros(1))
    env.reset(seed=0)

    def dry(*_: Any) -> None:
        raise InputError("sqrt(level) has no value")

    monkeypatch.setattr("contextual_lqr.fleets.NonlinearFleet.step", dry)
    _, _, terminated, truncated, info = env.step(env.action_space.sample())
    assert (terminated, truncated) == (True, False)
    assert info["context"] == dict(env.context)
