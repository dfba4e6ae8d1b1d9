"""Expressions of a context, as C. They have been parsed before, so that only arithmetic is left."""

from __future__ import annotations

import math
from collections.abc import Mapping

from contextual_lqr.context.expressions import Expression, Node

_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_SIGNS |= {"positive": "+", "negative": "-"}
_FUNCTIONS = {"power": "pow", "abs": "fabs", "min": "fmin", "max": "fmax"}  # others as they are


def c_expression(expression: Expression, variables: Mapping[str, str], single: bool) -> str:
    """The expression in C, each name replaced by its variable; `single` for floats."""
    return _written(expression.tree, variables, "f" if single else "")


def c_number(value: float, single: bool) -> str:
    """A number that C reads as the same double, or as the nearest float."""
    if math.isinf(value):
        return "HUGE_VAL" if value > 0 else "-HUGE_VAL"
    written = repr(float(value))
    return f"{written}f" if single else written


def operations(expression: Expression) -> int:
    """How many operators and functions it has."""
    return sum(kind not in ("number", "name") for kind, _ in expression.postfix())


def _written(node: Node, variables: Mapping[str, str], suffix: str) -> str:
    name, arguments = node.operator, [_written(one, variables, suffix) for one in node.arguments]
    if isinstance(node.value, str):
        return variables[node.value]
    if node.value is not None:
        return c_number(node.value, bool(suffix))
    if name == "sign":
        return f"(({arguments[0]} > 0) - ({arguments[0]} < 0))"
    if name not in _SIGNS:
        return f"{_FUNCTIONS.get(name, name)}{suffix}({', '.join(arguments)})"
    if len(arguments) == 1:
        return f"({_SIGNS[name]}{arguments[0]})"
    return f"({arguments[0]} {_SIGNS[name]} {arguments[1]})"
