"""The features of dynamics as a program for the kernels: each piece that occurs, once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

from contextual_lqr.context.feature_dynamics import FeatureDynamics
from contextual_lqr.kernels import OPERATIONS, Program

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
