"""What comes by itself and is known beforehand: a forecast of disturbances over an episode.

A disturbance w is a state that nothing we do can change, and that is carried on as it is, w' = w.
With a forecast f[1] .. f[H] it changes as that does:

    w[h+1] = w[h] + (f[h+1] - f[h]) · 1        1: a state that is always 1

What is measured when acting still counts: if it is 2 K colder than the forecast said, it is
expected to stay so. The forecast itself is taken as right: w has no noise. [A, B] of a step is the
machine's own but for these numbers, which are known, so that whatever takes a `TimeVaryingSystem`
minds the forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.solve import Costs, optimal_cost, policy_cost
from contextual_lqr.lqr.stationary import Cost, Policy
from contextual_lqr.lqr.time_varying import TimeVaryingSystem

_AT_ONCE = 2**22  # numbers of [A, B], over all machines and steps: some 30 MB


@dataclass(frozen=True, eq=False)
class Preview:
    """What is added to the next state at each step: of the states that are forecast.

    `one` is the place of the state that is 1. What is forecast has no noise.
    """

    changes: Float[Array, "steps d"]
    states: tuple[int, ...]
    one: int

    def over(self, M: Float[Array, "*batch d k"]) -> Float[Array, "*batch steps d k"]:
        """[A, B], or A alone, of each step."""
        each = np.repeat(M[..., None, :, :], len(self.changes), axis=-3)
        each[..., self.one] += self.changes
        return each

    def system(self, machine: Dynamics) -> TimeVaryingSystem:
        """The machine, or a batch of them, with what the forecast does to it at each step."""
        B = np.repeat(machine.B[..., None, :, :], len(self.changes), axis=-3)
        noise = machine.noise[..., None, :, :].copy()
        noise[..., self.states, :] = noise[..., :, self.states] = 0.0
        return TimeVaryingSystem.unchecked(self.over(machine.A), B, noise)


def foreseen(machine: Dynamics, preview: Preview | None) -> Dynamics:
    """The machine with what is forecast, if anything is."""
    return machine if preview is None else preview.system(machine)


def best_costs(
    drawn: LinearSystem, cost: Cost, start: Float[Array, " d"], preview: Preview | None
) -> Costs:
    """The optimal costs of machines, by controllers that know the forecast, if there is one."""
    if preview is None:
        return optimal_cost(drawn, cost, start)
    costs = (optimal_cost(part, cost, start) for part in _parts(drawn, preview))
    return np.concatenate([*costs])


def costs_of(
    policy: Policy,
    drawn: LinearSystem,
    cost: Cost,
    start: Float[Array, " d"],
    preview: Preview | None,
) -> Costs:
    """What a policy costs on machines, whose first axis is that of draws and not the policy's."""
    if preview is None:
        return policy_cost(policy, drawn, cost, start)
    costs = (policy_cost(policy, part, cost, start) for part in _parts(drawn, preview))
    return np.concatenate([*costs])


def _parts(drawn: LinearSystem, preview: Preview) -> Iterator[TimeVaryingSystem]:
    """So many draws at a time that those of all steps fit into memory."""
    A, B, noise = drawn.A, drawn.B, drawn.noise
    size = (A[0].size + B[0].size) * len(preview.changes)
    some = max(_AT_ONCE // size, 1)
    for first in range(0, len(A), some):
        rows = slice(first, first + some)
        yield preview.system(
            LinearSystem.unchecked(A[rows], B[rows], noise if noise.ndim == 2 else noise[rows])
        )
