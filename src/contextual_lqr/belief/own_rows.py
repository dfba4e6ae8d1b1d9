"""What a machine shows while it is being played, on top of what was believed about it before.

The belief before the first step is the prior of the machine's own [A, B]; its rows [y, x'] are
factored anew with every step, and condition that prior. The fleet's law and the deviations from it
stay as they were until the episode is told.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.factors import triangle
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machines.machine_factors import machine_posterior


class OwnRows:
    """The belief about one machine, which grows with its steps."""

    def __init__(self, before: MachineBelief) -> None:
        self.belief = self._before = before
        d, y = before.mean.shape
        self._factor = np.zeros((0, y + d))  # triangular, of the rows [y x']

    def add(self, moves: Float[Array, " y"], after: Float[Array, " d"]) -> None:
        """One step more: y = [x; u], or its features, and x'."""
        before, row = self._before, np.concatenate((moves, after))[None]
        y, width = before.mean.shape[1], len(row[0])
        self._factor = triangle(self._factor, row)
        top = np.zeros((y, width))
        top[: min(y, len(self._factor))] = self._factor[:y]
        # An exact coordinate is learnt as well as its digits allow.
        exact = np.square(np.finfo(float).eps * self._factor[:, y:]).sum(0)
        variances = np.maximum(np.diagonal(before.noise), np.where(exact > 0, exact, 1.0))
        posterior = machine_posterior(
            top[:, :y], top[:, y:], before.mean, before.covariances, variances, before.degrees
        )
        rows = np.isfinite(posterior.covariances).all((-2, -1)) & before.covariances.any((-2, -1))
        self.belief = replace(
            before,
            mean=np.where(rows[:, None], posterior.means, before.mean),
            covariances=np.where(rows[:, None, None], posterior.covariances, before.covariances),
            degrees=before.degrees + min(y, len(self._factor)),
        )
