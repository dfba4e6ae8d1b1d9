"""An agent or a policy, joined to any Gymnasium environment that tells its context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost, Trajectory
from contextual_lqr.planning.agent import Agent

Player = Agent | LinearPolicy | Callable[[Any], LinearPolicy]


class Rollout(NamedTuple):
    """One episode: what was played on which machine, the rewards' sum, and how it ended."""

    context: Any
    trajectory: Trajectory
    total_reward: float
    terminated: bool
    truncated: bool


def rollout(
    player: Player,
    env: Any,
    *,
    context: Mapping[str, float] | None = None,
    seed: int | None = None,
    adapt: Literal["episode", "step"] = "episode",
    cost: QuadraticCost | None = None,
    state: Callable[[Any], Any] | None = None,
) -> Rollout:
    """Play one episode of the environment, and let an agent learn from it.

    The player is an `Agent`, which learns; a `LinearPolicy`; or a function from a context to a
    policy, such as `agent.controller`, which controls a machine never tried. The episode lasts
    until the environment ends it, the plan is over, or the agent's state limit or region is left.

    The context is that of `reset(options={"context": ...})` if given; the environment must report
    it, in the observation's "context" or in the info. An agent takes the values that its map names.
    The state is the observation's "obs", or all of it, or what `state` makes of that. Actions are
    inputs divided by the environment's `input_scale`, if it has one, and clipped to its bounds; the
    agent learns from the clipped value. `cost` is only for an agent's episode.
    """
    run = _Run(env, state)
    told = run.reset(seed, context)
    if isinstance(player, Agent):
        told = _named(told, player.decoder.context_map.names)
        with player.episode(told, adapt, start=run.states[0], cost=cost) as episode:
            while not (episode.finished or run.over):
                run.step(episode.act(run.states[-1]))
                episode.observe(run.states[-1], run.inputs[-1])
    else:
        policy = player if isinstance(player, LinearPolicy) else player(told)
        for gain in policy.gains:
            if not run.over:
                run.step(gain @ run.states[-1])
    require(run.inputs, "nothing was played: the plan has no steps")
    trajectory = Trajectory(np.array(run.states), np.array(run.inputs))
    return Rollout(told, trajectory, run.reward, run.terminated, run.truncated)


class _Run:
    """An episode of an environment so far, in inputs and states rather than actions and dicts."""

    def __init__(self, env: Any, state: Callable[[Any], Any] | None) -> None:
        self._env, self._state = env, state
        self._scale = np.asarray(getattr(env.unwrapped, "input_scale", 1.0), float)
        self._low = getattr(env.action_space, "low", None)
        self._high = getattr(env.action_space, "high", None)
        require(
            self._low is not None,
            f"inputs are numbers, but the environment's actions are {env.action_space}",
        )
        self.states: list[Array] = []
        self.inputs: list[Array] = []
        self.reward, self.terminated, self.truncated = 0.0, False, False

    @property
    def over(self) -> bool:
        """Whether the environment has ended the episode."""
        return self.terminated or self.truncated

    def reset(self, seed: int | None, context: Mapping[str, float] | None) -> Any:
        """Begin, and say with which context."""
        options = None if context is None else {"context": dict(context)}
        seen, info = self._env.reset(seed=seed, options=options)
        self._see(seen)
        told = told_context(seen, info)
        for name, value in (context or {}).items():
            got = told.get(name)
            require(
                got is not None and np.isclose(got, value, rtol=1e-6, atol=0),
                f"the environment was asked for {name} = {value}, but says it is {got}: does its "
                'reset take options={"context": ...}?',
            )
        return told

    def step(self, u: Array) -> None:
        """Play an input, as far as the environment's bounds let it."""
        action = np.clip(u / self._scale, self._low, self._high)
        action = action.astype(self._env.action_space.dtype)
        seen, reward, terminated, truncated, _ = self._env.step(action)
        self.inputs.append(np.asarray(action * self._scale, float))
        self.reward += float(reward)
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        self._see(seen)

    def _see(self, seen: Any) -> None:
        inner = seen["obs"] if isinstance(seen, Mapping) and "obs" in seen else seen
        found = inner if self._state is None else self._state(inner)
        self.states.append(np.array(found, float))


def told_context(seen: Any, info: Mapping[str, Any]) -> dict[str, float]:
    """The context as plain numbers, from the observation or else from the info."""
    told = seen.get("context") if isinstance(seen, Mapping) else None
    told = info.get("context") if told is None else told
    if not isinstance(told, Mapping):
        raise InputError(
            "the environment reports no context: neither its observation nor its info has "
            f'a "context" with names, but {type(told).__name__}'
        )
    numbers = {name: np.asarray(value) for name, value in told.items()}
    return {name: float(value.item()) for name, value in numbers.items() if value.size == 1}


def _named(told: dict[str, float], names: tuple[str, ...] | None) -> dict[str, float]:
    """The values that a map has names for, of all that the environment tells."""
    if names is None:
        return told
    missing = [name for name in names if name not in told]
    require(
        not missing,
        f"the environment reports {', '.join(told)}, but the agent needs {', '.join(missing)}",
    )
    return {name: told[name] for name in names}
