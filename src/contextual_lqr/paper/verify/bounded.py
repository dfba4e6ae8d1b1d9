"""Play that keeps ‖[x; u]‖ ≤ c_x and ‖z‖ ≤ c_x, so that the theory's Assumption holds.

An input that would break the bound is scaled back, along its ray, to the largest that does not.
If the state breaks it by itself, the episode ends there. Both are decided from what was seen before
the next noise is drawn. So every row (z, x') is still one of x' = Θz + w, and the end of an episode
is a stopping time: the self-normalised bound holds for the rows that are kept.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, Trajectory
from contextual_lqr.lqr.rollout import rollout_live


class BoundedEpisode(NamedTuple):
    """An episode within the bound: its rows z, and how often the bound acted."""

    trajectory: Trajectory
    rows: Float[Array, "steps p"]
    scaled: int
    stopped: bool


class _Bounded:
    """Plays a policy within the bound, step by step."""

    def __init__(self, policy: LinearPolicy, G: Array, start: Array, c_x: float) -> None:
        self._gains, self._c_x, self.scaled = list(policy.gains), c_x, 0
        self._G_x, self._G_u = np.split(G, [len(start)], axis=1)
        self.observe(start)

    def observe(self, state: Array, /) -> None:
        z = self._G_x @ state
        self.finished = bool(max(state @ state, z @ z) > self._c_x**2)

    def act(self, state: Array, /) -> Array:
        u = self._gains.pop(0) @ state
        z_x, z_u = self._G_x @ state, self._G_u @ u
        share = min(
            _share(state @ state, 0.0, u @ u, self._c_x),
            _share(z_x @ z_x, 2 * (z_x @ z_u), z_u @ z_u, self._c_x),
        )
        self.scaled += share < 1
        return np.asarray(share * u)


def play_within(
    policy: LinearPolicy,
    system: LinearSystem,
    context_matrix: Float[Array, "p y"],
    start: Float[Array, " d"],
    c_x: float,
    shocks: Float[Array, "steps d"],
) -> BoundedEpisode:
    """One episode of the policy, with this noise, kept within c_x."""
    player = _Bounded(policy, context_matrix, start, c_x)
    played = rollout_live(player, system, start, shocks)
    rows = np.concatenate((played.states[:-1], played.inputs), 1) @ context_matrix.T
    return BoundedEpisode(played, rows, player.scaled, len(played) < len(shocks))


def _share(constant: float, linear: float, square: float, bound: float) -> float:
    """The largest s in [0, 1] with constant + linear s + square s² ≤ bound²."""
    room = bound**2 - constant
    if linear + square <= room:
        return 1.0
    root = math.sqrt(linear**2 + 4 * square * room)
    # Of the two forms of a root, the one that subtracts nothing.
    s = 2 * room / (linear + root) if linear >= 0 else (root - linear) / (2 * square)
    return min(1.0, s) * (1 - 1e-12)
