"""The features of a batch of machines as the kernels take them: a program, or two functions.

Kernels have one batch axis. `FeatureBatch` knows which machine each of its members is of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.context import FeatureDynamics
from contextual_lqr.context.program import program_of
from contextual_lqr.errors import ContextError


class FeatureBatch:
    """The features of members, each of one of the machines of a belief."""

    def __init__(self, machine: DynamicsBelief, shape: tuple[int, ...]) -> None:
        assert machine.dynamics is not None
        self.dynamics = machine.dynamics
        own = machine.mean.shape[:-2]
        self.contexts: list[Any] = list(machine.context) if own else [machine.context]
        places = np.arange(len(self.contexts)).reshape(own) if own else np.zeros((), int)
        self.which = np.broadcast_to(places, shape).reshape(math.prod(shape))

    @property
    def features(self) -> kernels.Features:
        """For `kernels.ilqr`."""
        program = None
        if isinstance(self.dynamics, FeatureDynamics) and kernels.compiled is not None:
            checked = [self.dynamics._checked(one) for one in self.contexts]
            program = program_of(self.dynamics, checked)
            program = program._replace(contexts=program.contexts[self.which])
        return kernels.Features(self.values, self.jacobian, program)

    def values(self, members: Array, x: Array, u: Array) -> Array:
        """φ, (n, p), of these members; NaN where there is none."""
        return self._of(self.dynamics.features, members, x, u)

    def jacobian(self, members: Array, x: Array, u: Array) -> Array:
        """∂φ/∂(x, u), (n, p, d+m); NaN where there is none."""
        return self._of(self.dynamics.jacobian, members, x, u)

    def _of(self, function: Callable[..., Array], members: Array, x: Array, u: Array) -> Array:
        machines = self.which[members]
        names = getattr(self.dynamics, "names", None)
        try:
            if len(self.contexts) == 1 or not len(members):
                return np.asarray(function(self.contexts[0], x, u))
            if isinstance(self.dynamics, FeatureDynamics) and names:
                each = {k: np.array([float(c[k]) for c in self.contexts])[machines] for k in names}
                return np.asarray(function(each, x, u))
            found: Array | None = None
            for machine in np.unique(machines):
                mine = machines == machine
                own = function(self.contexts[machine], x[mine], u[mine])
                found = np.empty((len(members), *own.shape[1:])) if found is None else found
                found[mine] = own
            assert found is not None
            return found
        except ContextError:
            if len(members) == 1:  # a path that leaves where features have values: no path
                p = self.dynamics.matrix_width
                slopes = function != self.dynamics.features
                return np.full((1, p, x.shape[1] + u.shape[1]) if slopes else (1, p), np.nan)
        one_by_one = [
            self._of(function, members[i : i + 1], x[i : i + 1], u[i : i + 1])
            for i in range(len(members))
        ]
        return np.concatenate(one_by_one)
