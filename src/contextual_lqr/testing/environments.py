"""What every environment with contexts must satisfy, so that agents can use it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.testing.verdict import expect, refused


def check_environment(
    env: Any, seed: int = 0, *, state: Callable[[Any], Any] | None = None
) -> None:
    """Reset and play an environment, ours or your own (it needs the extra `gym`).

    Gymnasium's own checks come first, its warnings being failures. Then: the context is told, by
    the observation or the info; it comes from the seed, or is the one that `reset` is asked for by
    `options={"context": ...}`; what is no context is refused; and `rollout` can play it, with the
    same `state`.
    """
    from gymnasium.utils.env_checker import check_env

    from contextual_lqr.envs.rollout import rollout, told_context

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:
            raise AssertionError(f"Gymnasium's checks: {error}") from error

    def reset(seed: int, **options: Any) -> tuple[Any, dict[str, float]]:
        seen, info = env.reset(seed=seed, options=options or None)
        try:
            return seen, told_context(seen, info)
        except InputError as error:
            raise AssertionError(str(error)) from None

    (seen, first), (again, same), (_, other) = reset(seed), reset(seed), reset(seed + 1)
    expect(first == same, f"the same seed gives another machine: {same} instead of {first}")
    expect(_equal(seen, again), "the same seed gives another first observation")
    expect(first != other, f"another seed gives the same machine, {first}")
    _, told = reset(seed, context=other)
    close = told.keys() == other.keys() and all(np.isclose(told[k], other[k]) for k in other)
    expect(close, f"reset was asked for {other}, but tells {told}")
    seen, _, _, _, info = env.step(env.action_space.sample())
    if "context" in info or (isinstance(seen, Mapping) and "context" in seen):
        later = told_context(seen, info)
        expect(later == told, f"within an episode the context changes from {told} to {later}")
    with refused('options={"context": {}}'):
        reset(seed, context={})
    with refused("a context with nan"):
        reset(seed, context=dict.fromkeys(other, float("nan")))
    inner = seen["obs"] if isinstance(seen, Mapping) and "obs" in seen else seen
    d, m = np.size(inner if state is None else state(inner)), env.action_space.shape[0]
    played = rollout(LinearPolicy(np.zeros((3, m, d))), env, context=other, seed=seed, state=state)
    idle = not played.trajectory.inputs.any()
    expect(idle, "an input of zero must be an action of zero: see `input_scale`")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    return bool(np.array_equal(one, other))
