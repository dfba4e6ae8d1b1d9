"""Fleets as Gymnasium environments: every episode another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.errors import InputError
from contextual_lqr.fleets import FLEETS, NONLINEAR_FLEETS, Fleet, NonlinearFleet, true_system
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.target_cost import about_target

SCALES: dict[str, float] = {"path-following": 20.0, "quadrotor": 10.0, "heating": 50.0}
"""Inputs at an action of 1, in the fleet's unit; 10 for the others."""

FARTHEST = 1e9
"""The largest state coordinate of an observation; beyond it an episode ends."""


class ContextualEnv(gymnasium.Env[dict[str, Any], Array]):
    """An environment in which every episode is a new machine of a fleet.

    An observation is {"obs": state, "context": {name: number}}, like CARL's. An action within ±1 is
    the input divided by `input_scale`. `reset` takes `options={"context": {...}}`, and otherwise
    draws a machine.
    """

    def __init__(self, fleet: Fleet | NonlinearFleet, input_scale: float) -> None:
        self.fleet: Any = fleet
        self.input_scale = input_scale
        self.context: dict[str, float] = {}
        named: dict[str, spaces.Space[Any]] = {
            name: spaces.Box(low, high, (1,), np.float64)
            for name, (low, high) in (fleet.context_map.bounds or {}).items()
        }
        state = spaces.Box(-FARTHEST, FARTHEST, fleet.start.shape, np.float64)
        self.observation_space = spaces.Dict({"obs": state, "context": spaces.Dict(named)})
        self.action_space = spaces.Box(-1.0, 1.0, (fleet.cost.input_size,), np.float64)

    def _choose_context(self, options: dict[str, Any] | None) -> None:
        """The context that `reset` was asked for, checked, or any."""
        asked = (options or {}).get("context")
        if asked is None:
            self.context = self.fleet.sample_context(self.np_random)
            return
        context = {
            name: float(np.asarray(value).item()) if np.size(value) == 1 else value
            for name, value in dict(asked).items()
        }
        self.fleet.context_map.matrix(context)  # which refuses what is no context
        self.context = context

    def _input(self, action: Array) -> Float[Array, " m"]:
        return np.asarray(self.input_scale * np.clip(np.asarray(action, float), -1, 1))

    def _observation(self, state: Float[Array, " d"]) -> dict[str, Any]:
        """What is beyond the space is brought back to its edge."""
        context = {name: np.array([value]) for name, value in self.context.items()}
        return {"obs": np.clip(state, -FARTHEST, FARTHEST), "context": context}


class FleetEnv(ContextualEnv):
    """One fleet of `FLEETS`; `options` are those of the function that makes it.

    The reward is the negative cost of the step, so that the rewards of an episode sum to its
    negative cost; it is truncated at the fleet's horizon.
    """

    _fleets: ClassVar[Mapping[str, Callable[..., Any]]] = FLEETS
    _scale: ClassVar[float] = 10.0

    def __init__(self, fleet: str, **options: Any) -> None:
        known = self._fleets
        require(fleet in known, f"the fleets are {', '.join(known)}, not {fleet!r}")
        super().__init__(known[fleet](**options), SCALES.get(fleet, self._scale))
        self._step: int | None = None
        self._system: LinearSystem | None = None  # found when it first moves

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with the machine that `options["context"]` names, or one that the seed draws."""
        super().reset(seed=seed)
        self._choose_context(options)
        self._state, self._step, self._system = np.array(self.fleet.start, float), 0, None
        return self._observation(self._state), self._info()

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play the input for one step."""
        horizon, h = self.fleet.cost.horizon, self._step
        if h is None or h + 1 == horizon:
            begun = "before its first step" if h is None else "first: the episode is over"
            raise InputError(f"reset the environment {begun}")
        x, u = self._state, self._input(action)
        reward = -self._price(h, x, u[None])
        try:
            x = self._state = self._moved(x, u)
        except InputError:  # it has left where its features have values
            return self._observation(x), reward, True, False, self._info()
        self._step = h + 1
        truncated = self._step + 1 == horizon
        if truncated:
            reward -= self._price(h + 1, x, np.zeros((0, len(u))))
        terminated = not bool((np.abs(x) <= FARTHEST).all())
        return self._observation(x), reward, terminated, truncated, self._info()

    def _moved(self, x: Float[Array, " d"], u: Float[Array, " m"]) -> Float[Array, " d"]:
        system = self._system = self._system or true_system(self.fleet, self.context)
        shock = system.noise_factor @ self.np_random.standard_normal(len(x))
        return np.asarray(system.A @ x + system.B @ u + shock)

    def _price(self, step: int, x: Float[Array, " d"], inputs: Float[Array, "one m"]) -> float:
        """What a state costs, and the input that is played in it, if any is."""
        cost = about_target(self.fleet.cost).rest(step)
        (e,), left = cost.errors(x[None], inputs)
        price = e @ cost.Q[0] @ e
        for r in left:
            price = price + r @ cost.R[0] @ r + (0.0 if cost.N is None else 2 * e @ cost.N[0] @ r)
        return float(price)

    def _info(self) -> dict[str, Any]:
        limit = self.fleet.state_limit
        within = limit is None or bool((np.abs(self._state) <= limit).all())
        return {"context": dict(self.context), "within_limit": within}


class DynamicsEnv(FleetEnv):
    """One fleet of `NONLINEAR_FLEETS`; `options` are those of the function that makes it.

    An action of -1 is the lowest input, and 1 the highest. Rewards are those of `FleetEnv`.
    """

    _fleets = NONLINEAR_FLEETS
    _scale = 1.0

    def _moved(self, x: Float[Array, " d"], u: Float[Array, " m"]) -> Float[Array, " d"]:
        return np.asarray(self.fleet.step(self.context, x, u, self.np_random))

    def _info(self) -> dict[str, Any]:
        return {"context": dict(self.context)}

    def _input(self, action: Array) -> Float[Array, " m"]:
        low, high = self.fleet.input_bounds
        return np.asarray(low + (np.clip(np.asarray(action, float), -1, 1) + 1) / 2 * (high - low))
