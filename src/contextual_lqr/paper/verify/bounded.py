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

from contextual_lqr.checks import record
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, Trajectory


class Played(NamedTuple):
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
) -> Played:
    """One episode of the policy, with this noise, kept within c_x."""
    free = _free(policy, system, start, shocks)
    both = np.concatenate((free.states[:-1], free.inputs), 1)
    rows = both @ context_matrix.T
    with np.errstate(over="ignore", invalid="ignore"):
        largest = max((both * both).sum(1).max(), (rows * rows).sum(1).max())
    if largest <= c_x**2:  # the usual case, and quick
        return Played(free, rows, 0, False)
    return _held(policy, system, context_matrix, start, c_x, shocks)


def _free(policy: LinearPolicy, system: LinearSystem, start: Array, shocks: Array) -> Trajectory:
    """The episode without the bound."""
    closed = system.A + system.B @ policy.gains
    states = np.empty((len(shocks) + 1, len(start)))
    states[0] = x = start
    for h, F in enumerate(closed):
        x = states[h + 1] = F @ x + shocks[h]
    inputs = (policy.gains @ states[:-1, :, None])[..., 0]
    return record(object.__new__(Trajectory), states=states, inputs=inputs)


def _held(
    policy: LinearPolicy,
    system: LinearSystem,
    context_matrix: Array,
    start: Array,
    c_x: float,
    shocks: Array,
) -> Played:
    """The episode with the bound, step by step."""
    d = len(start)
    G_x, G_u = context_matrix[:, :d], context_matrix[:, d:]
    x, states, inputs, rows = start, [start], [], []
    scaled, stopped = 0, False
    for K, shock in zip(policy.gains, shocks, strict=True):
        u = K @ x
        z_x, z_u = G_x @ x, G_u @ u
        if x @ x > c_x**2 or z_x @ z_x > c_x**2:
            stopped = True
            break
        share = min(
            _share(x @ x, 0.0, u @ u, c_x), _share(z_x @ z_x, 2 * (z_x @ z_u), z_u @ z_u, c_x)
        )
        if share < 1:
            scaled += 1
            u, z_u = share * u, share * z_u
        inputs.append(u)
        rows.append(z_x + z_u)
        x = system.A @ x + system.B @ u + shock
        states.append(x)
    return Played(Trajectory(np.array(states), np.array(inputs)), np.array(rows), scaled, stopped)


def _share(constant: float, linear: float, square: float, bound: float) -> float:
    """The largest s in [0, 1] with constant + linear s + square s² ≤ bound²."""
    room = bound**2 - constant
    if linear + square <= room:
        return 1.0
    root = math.sqrt(linear**2 + 4 * square * room)
    # Of the two forms of a root, the one that subtracts nothing.
    s = 2 * room / (linear + root) if linear >= 0 else (root - linear) / (2 * square)
    return min(1.0, s) * (1 - 1e-12)
