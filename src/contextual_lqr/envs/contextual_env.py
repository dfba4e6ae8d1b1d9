"""What our environments share: a machine for each episode, named by its context."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.fleets import Fleet, NonlinearFleet

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
