"""The features of a batch of machines as the kernels take them: a program, or two functions.

Kernels have one batch axis. `FeatureBatch` knows which machine each of its members is of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.context import FeatureDynamics
from contextual_lqr.errors import ContextError
from contextual_lqr.kernels import OPERATIONS, Program


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


_CODES = {name: code for code, name in enumerate(OPERATIONS)}


def program_of(dynamics: FeatureDynamics, contexts: Sequence[Any]) -> Program:
    """The program of the features, and the numbers of these contexts."""
    names = tuple(dynamics.names or ())
    texts = tuple(dynamics.expressions)
    code, constants, outputs = _compiled(
        texts, (*dynamics.state_names, *dynamics.input_names, *names)
    )
    numbers: Float[Array, "n c"] = np.array(
        [[float(one[name]) for name in names] for one in contexts], float
    ).reshape(len(contexts), len(names))
    return Program(code, constants, outputs, numbers)


@lru_cache(maxsize=128)
def _compiled(
    expressions: tuple[Any, ...], variables: tuple[str, ...]
) -> tuple[Int[Array, "lines 3"], Float[Array, " constants"], Int[Array, " p"]]:
    """The lines, the constants and the registers of the features; see `kernels.Program`."""
    constants: dict[float, int] = {}
    for expression in expressions:
        for kind, value in expression.postfix():
            if kind == "number":
                constants.setdefault(float(value), len(variables) + len(constants))
    base = len(variables) + len(constants)
    lines: dict[tuple[int, int, int], int] = {}

    def line(kind: str, first: int, second: int) -> int:
        return lines.setdefault((_CODES[kind], first, second), base + len(lines))

    outputs = []
    numbers = {place: value for value, place in constants.items()}
    for expression in expressions:
        stack: list[int] = []
        for kind, value in expression.postfix():
            if kind == "number":
                stack.append(constants[float(value)])
            elif kind == "name":
                stack.append(variables.index(str(value)))
            elif kind in ("add", "subtract", "multiply", "divide", "atan2", "hypot", "min", "max"):
                second, first = stack.pop(), stack.pop()
                stack.append(line(kind, first, second))
            elif kind == "power":
                second, first = stack.pop(), stack.pop()
                square = numbers.get(second) == 2.0  # by far the most frequent power
                stack.append(
                    line("multiply", first, first) if square else line(kind, first, second)
                )
            elif kind != "positive":  # of one; both operands are the same, the second is not read
                first = stack.pop()
                stack.append(line(kind, first, first))
        outputs.append(stack.pop())
    code = np.array(list(lines), np.int32).reshape(-1, 3)
    return code, np.array(list(constants), float), np.array(outputs, np.int32)
