"""An environment of which only outputs are seen, as one of histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy import ndarray as Array

from contextual_lqr.belief.output_history import OutputHistory
from contextual_lqr.belief.output_memory import OutputMemory
from contextual_lqr.envs.fleet_env import FARTHEST


class OutputHistoryEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations are histories of some of what it shows.

    `outputs` are the indices, in the observation's "obs" or in all of it, of what is measured; the
    rest is hidden. `rollout`, agents and policies of the history then play it like any other.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], history: OutputHistory, outputs: Sequence[int]
    ) -> None:
        super().__init__(env)
        self.history, self.outputs, self._memory = history, list(outputs), OutputMemory(history)
        box = spaces.Box(-FARTHEST, FARTHEST, (history.state_size,), np.float64)
        space = env.observation_space
        named = isinstance(space, spaces.Dict) and "obs" in space.spaces
        self.observation_space = (
            spaces.Dict({**space.spaces, "obs": box}) if named else box  # type: ignore[attr-defined]
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin, as if at rest where it begins."""
        seen, info = self.env.reset(seed=seed, options=options)
        self._memory = OutputMemory(self.history)
        return self._remembered(seen, None), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play the action, and remember what input it was."""
        scale = getattr(self.env.unwrapped, "input_scale", 1.0)
        low, high = (getattr(self.env.action_space, end) for end in ("low", "high"))
        played = np.clip(np.asarray(action, float), low, high) * scale
        seen, reward, terminated, truncated, info = self.env.step(action)
        return self._remembered(seen, played), reward, terminated, truncated, info

    def _remembered(self, seen: Any, played: Array | None) -> Any:
        named = isinstance(seen, Mapping) and "obs" in seen
        now = np.asarray(seen["obs"] if named else seen, float)[self.outputs]
        x = self._memory.see(now, played)
        return {**seen, "obs": x} if named else x
