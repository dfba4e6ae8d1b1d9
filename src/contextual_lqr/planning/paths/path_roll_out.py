"""A policy about a path, played on draws of what is believed about a machine."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy
from contextual_lqr.planning.paths.feature_batch import FeatureBatch

FARTHEST = 1e100  # where a run that explodes is held, so that the others go on


def play_draws(
    machine: DynamicsBelief,
    thetas: Float[Array, "n d p"],
    policy: TrajectoryPolicy,
    start: Float[Array, " d"],
    shocks: Float[Array, "n steps d"],
) -> Trajectory:
    """x' = Θ φ(x, u) + shock for each Θ; a run that leaves the features' domain stays far away."""
    n, steps, d = shocks.shape
    batch, everyone = FeatureBatch(machine, (n,)), np.arange(n)
    states = np.empty((n, steps + 1, d))
    inputs = np.empty((n, steps, policy.inputs.shape[-1]))
    states[:, 0] = start
    alive = np.ones(n, bool)
    for t in range(steps):
        x = states[:, t]
        u = inputs[:, t] = policy(t, np.where(alive[:, None], x, start))
        some = everyone[alive]
        states[:, t + 1] = FARTHEST
        if len(some):
            with np.errstate(over="ignore", invalid="ignore"):
                phi = batch.values(some, x[some], u[some])
                after = (thetas[some] @ phi[..., None])[..., 0] + shocks[some, t]
            good = (np.abs(after) < FARTHEST).all(1)
            states[some[good], t + 1] = after[good]
            alive[some[~good]] = False
    return Trajectory(states, inputs)
