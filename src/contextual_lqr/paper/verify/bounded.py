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


class BoundedEpisode(NamedTuple):
    """An episode within the bound: its rows z, and how often the bound acted."""

    trajectory: Trajectory
    rows: Float[Array, "steps p"]
    scaled: int
    stopped: bool


def play_within(
    policy: LinearPolicy,
    system: LinearSystem,
    context_matrix: Float[Array, "p y"],
    start: Float[Array, " d"],
    c_x: float,
    shocks: Float[Array, "steps d"],
) -> BoundedEpisode:
    """One episode of the policy, with this noise, kept within c_x."""
    G_x, G_u = np.split(context_matrix, [len(start)], axis=1)
    x, states, inputs, rows = start, [start], [], []
    scaled = 0
    for K, shock in zip(policy.gains, shocks, strict=True):
        u = K @ x
        z_x, z_u = G_x @ x, G_u @ u
        if max(x @ x, z_x @ z_x) > c_x**2:
            break
        share = min(
            _share(x @ x, 0.0, u @ u, c_x), _share(z_x @ z_x, 2 * (z_x @ z_u), z_u @ z_u, c_x)
        )
        scaled += share < 1
        x = system.A @ x + system.B @ (share * u) + shock
        states.append(x)
        inputs.append(share * u)
        rows.append(z_x + share * z_u)
    played = Trajectory(np.array(states), np.array(inputs))
    return BoundedEpisode(played, np.array(rows), scaled, len(inputs) < len(shocks))


def _share(constant: float, linear: float, square: float, bound: float) -> float:
    """The largest s in [0, 1] with constant + linear s + square s² ≤ bound²."""
    room = bound**2 - constant
    if linear + square <= room:
        return 1.0
    root = math.sqrt(linear**2 + 4 * square * room)
    # Of the two forms of a root, the one that subtracts nothing.
    s = 2 * room / (linear + root) if linear >= 0 else (root - linear) / (2 * square)
    return min(1.0, s) * (1 - 1e-12)
