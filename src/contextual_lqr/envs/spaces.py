"""The spaces that our environments share: actions within ±1, and a state with its context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context import ContextMap

FARTHEST = 1e9
"""The largest state coordinate of an observation; beyond it an episode ends."""


def action_space(inputs: int) -> spaces.Box:
    """Inputs divided by the environment's `input_scale`."""
    return spaces.Box(-1.0, 1.0, (inputs,), np.float64)


def observation_space(context_map: ContextMap, states: int) -> spaces.Space[Any]:
    """A dictionary as CARL's: "obs" is the state, "context" a number for each name."""
    named: dict[str, spaces.Space[Any]] = {
        name: spaces.Box(low, high, (1,), np.float64)
        for name, (low, high) in (context_map.bounds or {}).items()
    }
    return spaces.Dict(
        {
            "obs": spaces.Box(-FARTHEST, FARTHEST, (states,), np.float64),
            "context": spaces.Dict(named),
        }
    )


def observation(state: Float[Array, " d"], context: Mapping[str, float]) -> dict[str, Any]:
    """A member of that space; what is beyond it is brought back to its edge."""
    return {
        "obs": np.clip(state, -FARTHEST, FARTHEST),
        "context": {name: np.array([value]) for name, value in context.items()},
    }


def chosen_context(
    options: dict[str, Any] | None, context_map: ContextMap
) -> dict[str, float] | None:
    """The context that `reset` was asked for, checked; None if it may be any."""
    if not options or options.get("context") is None:
        return None
    context = {
        name: float(np.asarray(value).item()) if np.size(value) == 1 else value
        for name, value in dict(options["context"]).items()
    }
    context_map.matrix(context)  # which refuses what is no context
    return context
