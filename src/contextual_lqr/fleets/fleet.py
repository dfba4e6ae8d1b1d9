"""A simulated fleet: it hands out contexts and plays policies; its truth is for scoring only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context import ContextMap
from contextual_lqr.lqr import simulate
from contextual_lqr.problem import LinearPolicy, LinearSystem, QuadraticCost, Trajectory


@dataclass(frozen=True, eq=False)
class Fleet:
    """Machines with [A, B] = Θ G(context), all with the same task."""

    context_map: ContextMap
    cost: QuadraticCost
    start: Float[Array, " d"]
    noise: Float[Array, "d d"]
    sample_context: Callable[[np.random.Generator], Any]
    _theta: Float[Array, "d p"] = field(repr=False)

    def play(
        self,
        policy: LinearPolicy,
        context: Any,
        rng: np.random.Generator,
        *,
        state_bound: float | None = None,
    ) -> Trajectory:
        """One episode of the machine with this context."""
        system = true_system(self, context)
        return simulate(policy, system, self.start, rng, state_bound=state_bound)


def true_decoder(fleet: Fleet) -> Float[Array, "d p"]:
    """The Θ that no learner may see."""
    return fleet._theta


def true_system(fleet: Fleet, context: Any) -> LinearSystem:
    """The machine with this context as it really is; for scoring."""
    M = fleet._theta @ fleet.context_map.matrix(context)
    d = len(M)
    return LinearSystem(M[:, :d], M[:, d:], fleet.noise)
