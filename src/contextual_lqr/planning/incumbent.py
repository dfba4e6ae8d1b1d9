"""The controller that runs the machines today, which an agent starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import as_numbers, frozen, require
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearPolicy

Incumbent: TypeAlias = LinearPolicy | ArrayLike | Callable[[Any], Any]

GENTLE = 0.03  # of the incumbent's own inputs, squared: the share that a first dither adds


def as_incumbent(given: Incumbent, m: int, d: int) -> Array | Callable[[Any], Any]:
    """Gains, (m, d) for all steps or (H-1, m, d), or a function from contexts to these."""
    if not isinstance(given, LinearPolicy) and callable(given):
        return given
    K = given.gains if isinstance(given, LinearPolicy) else as_numbers("incumbent", given, "", 2)
    require(
        K.ndim in (2, 3) and K.shape[-2:] == (m, d),
        f"incumbent must be a gain of shape {(m, d)}, one for each step, a LinearPolicy, or a "
        f"function from contexts to one of these, not of shape {K.shape}",
    )
    return frozen(K)


def incumbent_policy(
    incumbent: Array | Callable[[Any], Any], context: Any, steps: int, m: int, d: int
) -> LinearPolicy:
    """What runs the machine with this context today, for an episode of this many steps."""
    K = incumbent
    if not isinstance(K, np.ndarray):
        K = as_incumbent(K(context), m, d)
        if not isinstance(K, np.ndarray):
            raise InputError("the incumbent's function must return gains, not a function")
    if K.ndim == 2:
        K = np.broadcast_to(K, (steps, m, d))
    require(
        len(K) == steps,
        f"the incumbent has gains for {len(K)} steps, but the episode has {steps}: give one gain, "
        "(m, d), for episodes of any length",
    )
    return LinearPolicy(K)


def gentle_dither(
    policy: LinearPolicy, start: Float[Array, " d"], noise: Float[Array, "d d"]
) -> Float[Array, "steps m m"]:
    """A dither that the closed loop bears, whatever the machine: a share of its own inputs.

    The inputs' own variance at a step is about K₁x₁x₁ᵀK₁ᵀ, spread over the episode, and KWKᵀ.
    """
    K = policy.gains
    own = np.square(K[0] @ start) / len(K) + np.einsum("hij,jk,hik->hi", K, noise, K)
    return np.asarray(GENTLE * own[..., None] * np.eye(K.shape[1]))
