"""What expressions compute with: each operator on floats, on arrays, and its derivatives.

    leaves    number, name (of a variable)
    of one    positive negative abs sign sqrt exp log sin cos tan asin acos atan sinh cosh tanh
    of two    add subtract multiply divide power atan2 hypot min max

Where an operator has a corner, its slope is that of one side, or 0: abs and hypot at 0 have 0, sign
has 0 everywhere, min and max of equals that of the first.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Operator(NamedTuple):
    """`slopes(value, *arguments)` are the partial derivatives, one for each argument."""

    on_floats: Callable[..., Any]
    on_arrays: Callable[..., Any]
    slopes: Callable[..., tuple[Any, ...]]


def _sign(x: float) -> float:
    return x if x != x or not x else math.copysign(1.0, x)


def _least(a: float, b: float) -> float:
    return a if a <= b or a != a else b


def _most(a: float, b: float) -> float:
    return a if a >= b or a != a else b


def _power_slopes(v: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """b aᵇ⁻¹ and aᵇ log a; 0 in place of 0 · ∞."""
    by_base = np.where(b == 0, 0.0, b * np.power(a, b - 1.0))
    return by_base, np.where(v == 0, 0.0, v * np.log(a))


def _hypot_slopes(v: Any, a: Any, b: Any) -> tuple[Any, Any]:
    safe = np.where(v == 0, 1.0, v)
    return a / safe, b / safe


def _atan2_slopes(v: Any, a: Any, b: Any) -> tuple[Any, Any]:
    r = np.hypot(a, b)
    return b / r / r, -a / r / r


OPERATORS: dict[str, Operator] = {
    "add": Operator(operator.add, np.add, lambda v, a, b: (1.0, 1.0)),
    "subtract": Operator(operator.sub, np.subtract, lambda v, a, b: (1.0, -1.0)),
    "multiply": Operator(operator.mul, np.multiply, lambda v, a, b: (b, a)),
    "divide": Operator(
        operator.truediv, np.divide, lambda v, a, b: (np.divide(1.0, b), -np.divide(v, b))
    ),
    # not operator.pow, which answers (-1) ** 0.5 with a complex
    "power": Operator(math.pow, np.power, _power_slopes),
    "positive": Operator(operator.pos, np.positive, lambda v, a: (1.0,)),
    "negative": Operator(operator.neg, np.negative, lambda v, a: (-1.0,)),
    "sqrt": Operator(math.sqrt, np.sqrt, lambda v, a: (np.divide(0.5, v),)),
    "exp": Operator(math.exp, np.exp, lambda v, a: (v,)),
    "log": Operator(math.log, np.log, lambda v, a: (np.divide(1.0, a),)),
    "sin": Operator(math.sin, np.sin, lambda v, a: (np.cos(a),)),
    "cos": Operator(math.cos, np.cos, lambda v, a: (-np.sin(a),)),
    "tan": Operator(math.tan, np.tan, lambda v, a: (1.0 + v * v,)),
    "asin": Operator(math.asin, np.arcsin, lambda v, a: (np.divide(1.0, np.sqrt(1 - a * a)),)),
    "acos": Operator(math.acos, np.arccos, lambda v, a: (np.divide(-1.0, np.sqrt(1 - a * a)),)),
    "atan": Operator(math.atan, np.arctan, lambda v, a: (1.0 / (1.0 + a * a),)),
    "atan2": Operator(math.atan2, np.arctan2, _atan2_slopes),
    "sinh": Operator(math.sinh, np.sinh, lambda v, a: (np.cosh(a),)),
    "cosh": Operator(math.cosh, np.cosh, lambda v, a: (np.sinh(a),)),
    "tanh": Operator(math.tanh, np.tanh, lambda v, a: (1.0 - v * v,)),
    "abs": Operator(abs, np.abs, lambda v, a: (np.sign(a),)),
    "sign": Operator(_sign, np.sign, lambda v, a: (0.0,)),
    "hypot": Operator(math.hypot, np.hypot, _hypot_slopes),
    "min": Operator(
        _least, np.minimum, lambda v, a, b: (np.where(a <= b, 1.0, 0.0), np.where(a <= b, 0.0, 1.0))
    ),
    "max": Operator(
        _most, np.maximum, lambda v, a, b: (np.where(a >= b, 1.0, 0.0), np.where(a >= b, 0.0, 1.0))
    ),
}
"""All operators, by name."""

SYMBOLS = ("add", "subtract", "multiply", "divide", "power", "positive", "negative")
"""Those that are written as signs."""

FUNCTIONS: dict[str, int] = {
    name: 2 if name in ("atan2", "hypot", "min", "max") else 1
    for name in OPERATORS
    if name not in SYMBOLS
}
"""Those that are written as functions, and how many arguments each takes; min and max more, too."""
