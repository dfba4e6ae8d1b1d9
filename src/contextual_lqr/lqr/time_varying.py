"""Dynamics that change during an episode, in a way that is known when it begins.

x[h+1] = A[h] x[h] + B[h] u[h] + w[h+1],   E[w wᵀ] = noise[h]              h = 1 .. H-1

A (H-1, d, d)   B (H-1, d, m)   noise (d, d), or (H-1, d, d) if that changes too
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import as_covariances, as_numbers, frozen, read_only, require
from contextual_lqr.lqr.dynamics import Dynamics


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TimeVaryingSystem(Dynamics):
    """Machines that obey x' = A[h] x + B[h] u + w at step h, with E[w wᵀ] = noise[h].

    Whatever takes a `LinearSystem` and a cost takes this: `solve`, `optimal_cost`, `policy_cost`,
    `simulate`, `cost_gradient`. A `ModelUncertainty` beside it may differ from step to step too:
    covariances (..., H-1, d, d+m, d+m), where an axis of 1 in place of H-1 says that they do not.

    Parameters
    ----------
    A : array_like, (..., H-1, d, d)
        How the state of each step carries over to the next. Leading axes are a batch of machines.
    B : array_like, (..., H-1, d, m)
        What the input of each step does to the next state.
    noise : array_like, (d, d) or (..., H-1, d, d), optional
        The covariance of w, the same at all steps, or one for each: an axis of 1 in place of H-1
        says that the machines of a batch have constant ones. Zero by default.

    Attributes
    ----------
    steps : int
        The number of inputs H-1 of an episode.
    batch_shape, has_noise
        As of `LinearSystem`.

    Raises
    ------
    InputError
        If a shape does not fit, a number is not finite, or noise is not a covariance.

    Examples
    --------
    >>> slower_and_slower = np.linspace(1.0, 0.5, 14)[:, None, None]
    >>> system = clqr.TimeVaryingSystem(slower_and_slower, np.ones((14, 1, 1)))
    >>> system
    <TimeVaryingSystem: states 1, inputs 1, steps 14, noise none>
    >>> cost = clqr.QuadraticCost(Q=[np.eye(1)] * 15, R=[np.eye(1)] * 14)
    >>> print(f"{clqr.optimal_cost(system, cost, [1.0]):.4f}")
    1.6087
    """

    A: Float[Array, "*#batch steps d d"]
    B: Float[Array, "*#batch steps d m"]
    noise: Float[Array, "*#batch stages d d"]
    batch_shape: tuple[int, ...]
    has_noise: bool
    _core = 3

    def __init__(self, A: ArrayLike, B: ArrayLike, noise: ArrayLike | None = None) -> None:
        A = as_numbers("A", A, "(..., H-1, d, d)", 3)
        B = as_numbers("B", B, "(..., H-1, d, m)", 3)
        steps, rows, d = A.shape[-3:]
        require(
            rows == d and d > 0 and steps > 0,
            f"A must have a square matrix for each step, (..., H-1, d, d), not {A.shape}",
        )
        require(
            B.shape[-3:-1] == (steps, d) and B.shape[-1] > 0,
            f"B must have as many steps and rows as A, (..., {steps}, {d}, m), not {B.shape}",
        )
        W = np.zeros((d, d)) if noise is None else as_numbers("noise", noise, "(..., d, d)", 2)
        require(
            W.shape[-2:] == (d, d) and (W.ndim == 2 or W.shape[-3] in (1, steps)),
            f"noise must have shape ({d}, {d}) or (..., {steps}, {d}, {d}), not {W.shape}",
        )
        self._hold(frozen(A), frozen(B), read_only(as_covariances("noise", W)))

    def _hold(self, A: Array, B: Array, noise: Array) -> TimeVaryingSystem:
        return super()._hold(A, B, noise[None] if noise.ndim == 2 else noise)

    @cached_property
    def steps(self) -> int:
        """The number of inputs H-1."""
        return int(self.A.shape[-3])

    def at(self, step: int) -> tuple[Float[Array, "*batch d d"], Float[Array, "*batch d m"]]:
        """A and B of a step, counted from 0."""
        return self.A[..., step, :, :], self.B[..., step, :, :]
