"""A fleet as a Gymnasium environment: every episode another machine."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.envs.spaces import (
    FARTHEST,
    action_space,
    chosen_context,
    observation,
    observation_space,
)
from contextual_lqr.fleets import FLEETS, true_system
from contextual_lqr.fleets.pictures import picture

SCALES: dict[str, float] = {"path-following": 20.0, "quadrotor": 10.0, "heating": 50.0}
"""Inputs at an action of 1, in the fleet's unit; 10 for the others."""


class FleetEnv(gymnasium.Env[dict[str, Any], Array]):
    """One fleet of `FLEETS`; `options` are those of the function that makes it.

    An observation is {"obs": state, "context": {name: number}}. An action within ±1 is the input
    divided by `input_scale`. The reward is the negative cost of the step, so that the rewards of an
    episode sum to its negative cost; it is truncated at the fleet's horizon. `reset` takes
    `options={"context": {...}}`, and otherwise draws a machine.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012

    def __init__(self, fleet: str, render_mode: str | None = None, **options: Any) -> None:
        require(fleet in FLEETS, f"the fleets are {', '.join(FLEETS)}, not {fleet!r}")
        known = self.metadata["render_modes"]
        require(render_mode in (None, *known), f"render_mode must be {known}, not {render_mode!r}")
        self.name, self.render_mode = fleet, render_mode
        self.fleet = FLEETS[fleet](**options)
        self.input_scale = SCALES.get(fleet, 10.0)
        self.observation_space = observation_space(self.fleet.context_map, len(self.fleet.start))
        self.action_space = action_space(self.fleet.cost.input_size)
        self._states: list[Array] = []
        self._inputs: list[Array] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with the machine that `options["context"]` names, or one that the seed draws."""
        super().reset(seed=seed)
        context = chosen_context(options, self.fleet.context_map)
        self.context = self.fleet.sample_context(self.np_random) if context is None else context
        self._system = true_system(self.fleet, self.context)
        self._states, self._inputs = [np.array(self.fleet.start, float)], []
        return self._observation(), self._info()

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play the input for one step."""
        require(self._states, "reset the environment before its first step")
        cost, h, x = self.fleet.cost, len(self._inputs), self._states[-1]
        require(h < cost.horizon - 1, "the episode is over: reset the environment")
        u = self.input_scale * np.clip(np.asarray(action, float), -1, 1)
        reward = -float(x @ cost.Q[h] @ x + u @ cost.R[h] @ u)
        shock = self._system.noise_factor @ self.np_random.standard_normal(len(x))
        x = self._system.A @ x + self._system.B @ u + shock
        self._states.append(x)
        self._inputs.append(u)
        truncated = h + 2 == cost.horizon
        if truncated:
            reward -= float(x @ cost.Q[-1] @ x)
        terminated = not bool((np.abs(x) <= FARTHEST).all())
        return self._observation(), reward, terminated, truncated, self._info()

    def render(self) -> Array | None:
        """The machine as it is now."""
        if self.render_mode is None or not self._states:
            return None
        return picture(self.name, self.fleet, self.context, self._states, self._inputs)

    def _observation(self) -> dict[str, Any]:
        return observation(self._states[-1], self.context)

    def _info(self) -> dict[str, Any]:
        limit = self.fleet.state_limit
        within = limit is None or bool((np.abs(self._states[-1]) <= limit).all())
        return {"context": dict(self.context), "within_limit": within}
