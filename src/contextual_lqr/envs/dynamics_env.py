"""A nonlinear fleet as a Gymnasium environment: every episode is a new machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.envs.contextual_env import FARTHEST, ContextualEnv
from contextual_lqr.errors import InputError
from contextual_lqr.fleets import NONLINEAR_FLEETS, NonlinearFleet


class DynamicsEnv(ContextualEnv):
    """One fleet of `NONLINEAR_FLEETS`; `options` are those of the function that makes it.

    An action of -1 is the lowest input, and 1 the highest. The reward is the negative cost of the
    step, so that the rewards of an episode sum to its negative cost; it is truncated at the fleet's
    horizon.
    """

    fleet: NonlinearFleet

    def __init__(self, fleet: str, **options: Any) -> None:
        known = ", ".join(NONLINEAR_FLEETS)
        require(fleet in NONLINEAR_FLEETS, f"the fleets are {known}, not {fleet!r}")
        super().__init__(NONLINEAR_FLEETS[fleet](**options), 1.0)
        self._step: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with the machine that `options["context"]` names, or one that the seed draws."""
        super().reset(seed=seed)
        self._choose_context(options)
        self._state, self._step = np.array(self.fleet.start, float), 0
        return self._observation(self._state), {"context": dict(self.context)}

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play the input for one step."""
        cost, h = self.fleet.cost, self._step
        if h is None or h + 1 == cost.horizon:
            begun = "before its first step" if h is None else "first: the episode is over"
            raise InputError(f"reset the environment {begun}")
        x, u = self._state, self._input(action)
        reward = -self._price(x, h) - self._price_of_input(u, h)
        try:
            x = self._state = self.fleet.step(self.context, x, u, self.np_random)
        except InputError:  # it has left where its features have values
            return self._observation(x), reward, True, False, {"context": dict(self.context)}
        self._step = h + 1
        truncated = self._step + 1 == cost.horizon
        if truncated:
            reward -= self._price(x, h + 1)
        terminated = not bool((np.abs(x) <= FARTHEST).all())
        info = {"context": dict(self.context)}
        return self._observation(x), reward, terminated, truncated, info

    def _price(self, x: Float[Array, " d"], step: int) -> float:
        e, _ = self.fleet.cost.rest(step).errors(x[None], np.zeros((0, 1)))
        return float(e[0] @ self.fleet.cost.Q[step] @ e[0])

    def _price_of_input(self, u: Float[Array, " m"], step: int) -> float:
        r = u - self.fleet.cost.input_target[step]
        return float(r @ self.fleet.cost.R[step] @ r)

    def _input(self, action: Array) -> Float[Array, " m"]:
        low, high = self.fleet.input_bounds
        return np.asarray(low + (np.clip(np.asarray(action, float), -1, 1) + 1) / 2 * (high - low))
