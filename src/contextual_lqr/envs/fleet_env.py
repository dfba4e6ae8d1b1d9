"""A fleet as a Gymnasium environment: every episode another machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.envs.contextual_env import FARTHEST, ContextualEnv
from contextual_lqr.errors import InputError
from contextual_lqr.fleets import FLEETS, true_system

SCALES: dict[str, float] = {"path-following": 20.0, "quadrotor": 10.0, "heating": 50.0}
"""Inputs at an action of 1, in the fleet's unit; 10 for the others."""


class FleetEnv(ContextualEnv):
    """One fleet of `FLEETS`; `options` are those of the function that makes it.

    The reward is the negative cost of the step, so that the rewards of an episode sum to its
    negative cost; it is truncated at the fleet's horizon.
    """

    def __init__(self, fleet: str, **options: Any) -> None:
        require(fleet in FLEETS, f"the fleets are {', '.join(FLEETS)}, not {fleet!r}")
        super().__init__(FLEETS[fleet](**options), SCALES.get(fleet, 10.0))
        self._step: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with the machine that `options["context"]` names, or one that the seed draws."""
        super().reset(seed=seed)
        self._choose_context(options)
        self._system = true_system(self.fleet, self.context)
        self._state, self._step = np.array(self.fleet.start, float), 0
        return self._observation(self._state), self._info()

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play the input for one step."""
        cost, h = self.fleet.cost, self._step
        if h is None or h + 1 == cost.horizon:
            begun = "before its first step" if h is None else "first: the episode is over"
            raise InputError(f"reset the environment {begun}")
        x, u = self._state, self._input(action)
        cross = 0.0 if cost.N is None else 2 * x @ cost.N[h] @ u
        reward = -float(x @ cost.Q[h] @ x + u @ cost.R[h] @ u + cross)
        shock = self._system.noise_factor @ self.np_random.standard_normal(len(x))
        x = self._state = self._system.A @ x + self._system.B @ u + shock
        self._step = h + 1
        truncated = self._step + 1 == cost.horizon
        if truncated:
            reward -= float(x @ cost.Q[-1] @ x)
        terminated = not bool((np.abs(x) <= FARTHEST).all())
        return self._observation(x), reward, terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        limit = self.fleet.state_limit
        within = limit is None or bool((np.abs(self._state) <= limit).all())
        return {"context": dict(self.context), "within_limit": within}
