"""MuJoCo's inverted pendulum with a context: an engine whose equations we did not write.

It is Gymnasium's InvertedPendulum-v5, as it is, but for three numbers of its model file: the length
and the mass of the pole, and the mass of the cart. For every episode the file is written with the
numbers of that machine and compiled by MuJoCo, so that inertias fit lengths and masses. State
[position (m), angle (rad), velocity (m/s), angular rate (rad/s)], input the control of the slider's
motor within ±3 (one unit is 100 N), one step 0.04 s. An episode ends when |angle| > 0.2 rad.
"""

from __future__ import annotations

import tempfile
import xml.etree.ElementTree as xml
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap, FeatureContext
from contextual_lqr.envs.fleet_env import ContextualEnv
from contextual_lqr.envs.rollout import rollout
from contextual_lqr.errors import InputError, MissingExtraError
from contextual_lqr.fleets import Fleet
from contextual_lqr.fleets.physics import by_column, evenly, steady_cost
from contextual_lqr.lqr.problem import LinearPolicy, Trajectory
from contextual_lqr.planning.agent import Agent

try:
    import mujoco  # type: ignore[import-untyped]  # noqa: F401
    from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
except ImportError as error:
    raise MissingExtraError("MuJoCo", "mujoco") from error

CART, POLE, LENGTH = 10.472, 5.0186, 0.6  # kg, kg and m of the original
RANGES = {
    "cart_mass": (0.5 * CART, 2 * CART),
    "pole_mass": (0.3 * POLE, 3 * POLE),
    "pole_length": (0.5 * LENGTH, 2 * LENGTH),
}

# What a physicist would write down without knowing the model file: a uniform rod on a cart, with
# friction in the hinge. D = 4 M + m comes from inverting the rod's mass matrix. Each feature is
# about 1 for the original machine.
_D = "(4*cart_mass + pole_mass)"
_FORCE_ON_CART, _FORCE_ON_POLE = f"47/{_D}", f"28/(pole_length*{_D})"
_PULL_ON_CART = f"9.4*pole_mass/{_D}"
_GRAVITY = f"1.8*(cart_mass + pole_mass)/(pole_length*{_D})"
_FRICTION = f"5.5*(cart_mass + pole_mass)/(pole_mass*pole_length**2*{_D})"
_SIX = ["1", _FORCE_ON_CART, _FORCE_ON_POLE, _PULL_ON_CART, _GRAVITY, _FRICTION]


def _physical() -> ContextMap:
    """The six where physics puts them. The rail is the same everywhere: position has but a 1."""
    return by_column(
        states=[
            ["1"],
            ["1", _GRAVITY, _PULL_ON_CART, _FRICTION],
            ["1", _FORCE_ON_CART, _FORCE_ON_POLE],
            ["1", _FRICTION, _FORCE_ON_POLE, _GRAVITY, _PULL_ON_CART],
        ],
        inputs=[[_FORCE_ON_CART, _FORCE_ON_POLE, _GRAVITY]],
        bounds=RANGES,
    )


def _for_all_columns(features: list[str]) -> ContextMap:
    return FeatureContext(features, states=4, inputs=1, bounds=RANGES)


MAPS: dict[str, Callable[[], ContextMap]] = {
    "physical": _physical,
    "six everywhere": lambda: _for_all_columns(_SIX),
    "linear": lambda: _for_all_columns(
        ["1", f"cart_mass/{CART}", f"pole_mass/{POLE}", f"pole_length/{LENGTH}"]
    ),
    "none": lambda: _for_all_columns(["1"]),
}
"""Ways for the context to enter; "none" is one controller for all machines."""


@dataclass(frozen=True, eq=False)
class PendulumFleet(Fleet):
    """The pendulum as a fleet whose truth nobody has: it is played in its environment."""

    def play(
        self,
        policy: LinearPolicy,
        context: Any,
        rng: np.random.Generator,
        *,
        state_bound: float | None = None,
    ) -> Trajectory:
        """One episode of the machine with this context, until the pole falls."""
        require(state_bound is None, "the pendulum has a bound of its own: 0.2 rad")
        return self._rollout(policy, context, int(rng.integers(2**31)))

    def teach(
        self,
        agent: Agent,
        context: Any,
        rng: np.random.Generator,
        adapt: Literal["episode", "step"] = "episode",
    ) -> Trajectory:
        """One live episode of the agent on this machine."""
        return self._rollout(agent, context, int(rng.integers(2**31)), adapt)

    def optimum(self, context: Any) -> None:
        """Nobody knows."""

    def score(self, agent: Agent, context: Any) -> float:
        """The steps, at most 250, that the agent's controller keeps the pole up."""
        policy = agent.controller(context, cost=inverted_pendulum(horizon=251).cost)
        return len(self._rollout(policy, context, seed=0))

    def _rollout(self, player: Any, context: Any, seed: int, adapt: Any = "episode") -> Trajectory:
        with closing(InvertedPendulum()) as env:
            return rollout(player, env, context=context, seed=seed, adapt=adapt).trajectory


def inverted_pendulum(
    features: str = "physical", horizon: int = 50, noise: float = 1e-3
) -> PendulumFleet:
    """The pendulum as a fleet.

    `features` is one of `MAPS`. The engine has no noise; `noise` stands for what a step does
    that is not linear, or not in the features. A controller for longer than `horizon` states is
    `agent.controller(context, cost=inverted_pendulum(horizon=...).cost)`.
    """
    require(features in MAPS, f"features must be one of {', '.join(MAPS)}, not {features!r}")
    return PendulumFleet(
        context_map=MAPS[features](),
        cost=steady_cost(horizon, np.array([1.0, 1.0, 0.1, 0.1]), np.array([1.0])),
        start=np.zeros(4),
        noise=noise**2 * np.eye(4),
        sample_context=evenly(RANGES),
        _truth=None,
        states=("position [m]", "angle [rad]", "velocity [m/s]", "angular rate [rad/s]"),
        inputs=("control [100 N]",),
        units={"cart_mass": "kg", "pole_mass": "kg", "pole_length": "m"},
    )


class InvertedPendulum(ContextualEnv):
    """InvertedPendulum-v5 with a context, observed and acted on as the environments of the fleets.

    The reward is Gymnasium's: 1 for every step in which the pole stays up. So is the start: every
    coordinate of the state within ±`reset_noise_scale`.
    """

    def __init__(self, reset_noise_scale: float = 0.01) -> None:
        super().__init__(inverted_pendulum(), input_scale=3.0)
        self._noise = reset_noise_scale
        self._engine: InvertedPendulumEnv | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Build the machine that `options["context"]` names, or one that the seed draws."""
        super().reset(seed=seed)
        self._choose_context(options)
        self.close()
        self._engine = _machine(self.context, self._noise)
        x, _ = self._engine.reset(seed=int(self.np_random.integers(2**31)))
        return self._observation(x), {"context": dict(self.context)}

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One step of the engine, 0.04 s."""
        if self._engine is None:
            raise InputError("reset the environment before its first step")
        u = self._input(action)
        x, reward, terminated, truncated, _ = self._engine.step(u)  # type: ignore[no-untyped-call]
        info = {"context": dict(self.context)}
        return self._observation(x), float(reward), terminated, truncated, info

    def close(self) -> None:
        """Let the engine go."""
        if self._engine is not None:
            self._engine.close()  # type: ignore[no-untyped-call]
            self._engine = None


def _machine(context: dict[str, float], reset_noise_scale: float = 0.01) -> InvertedPendulumEnv:
    """The original, compiled from its own model file with three numbers changed."""
    import gymnasium.envs.mujoco as home

    model = xml.parse(Path(home.__file__).parent / "assets" / "inverted_pendulum.xml")
    geoms = {geom.get("name"): geom for geom in model.iter("geom")}
    length = float(context["pole_length"])
    geoms["cart"].set("mass", repr(float(context["cart_mass"])))
    pole = geoms["cpole"]
    pole.set("mass", repr(float(context["pole_mass"])))
    pole.set("fromto", f"0 0 0 {0.001 * length / LENGTH!r} 0 {length!r}")  # leans as the original
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "machine.xml"
        model.write(path)
        return InvertedPendulumEnv(xml_file=str(path), reset_noise_scale=reset_noise_scale)
