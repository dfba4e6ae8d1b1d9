"""Arithmetic written as text, such as `"length / mass**2"`.

Features of a context come from configuration files and logs as well as from code, so their text is
never run as Python. It is parsed, checked node by node against what arithmetic needs, and turned
into closures: one set over `math` for a single context, one over NumPy for many at once.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.errors import InputError

Evaluate = Callable[[Mapping[str, Any]], Any]

# Each operation twice: for floats, and for arrays.
_SCALAR, _ARRAY = 0, 1
_OPERATORS: dict[type[ast.AST], tuple[Callable[..., Any], Callable[..., Any]]] = {
    ast.Add: (operator.add, np.add),
    ast.Sub: (operator.sub, np.subtract),
    ast.Mult: (operator.mul, np.multiply),
    ast.Div: (operator.truediv, np.divide),
    ast.Pow: (math.pow, np.power),  # not operator.pow, which answers (-1) ** 0.5 with a complex
    ast.UAdd: (operator.pos, np.positive),
    ast.USub: (operator.neg, np.negative),
}
_FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sqrt": (math.sqrt, np.sqrt),
    "exp": (math.exp, np.exp),
    "log": (math.log, np.log),
    "sin": (math.sin, np.sin),
    "cos": (math.cos, np.cos),
    "tan": (math.tan, np.tan),
    "tanh": (math.tanh, np.tanh),
    "abs": (abs, np.abs),
}
_CONSTANTS = {"pi": math.pi}

RESERVED = frozenset(_FUNCTIONS) | frozenset(_CONSTANTS)
"""Words with a meaning of their own in an expression, which no variable can have as its name."""

# Bounds on what one text can cost us; both are far beyond what a formula needs.
_LONGEST_TEXT = 500
_DEEPEST_TREE = 100

_ALLOWED = (
    "an expression may hold numbers, names, pi, + - * / **, parentheses, and the functions "
    + ", ".join(_FUNCTIONS)
)


@final
@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: call it with the values of its `names`. Made by `parse`."""

    text: str
    names: tuple[str, ...]
    _on_floats: Evaluate = field(repr=False, compare=False)
    _on_arrays: Evaluate = field(repr=False, compare=False)

    def __call__(self, values: Mapping[str, Any]) -> float | Array:
        """The value at `values`, which may hold more than `names`; element by element on arrays.

        A division by zero, a logarithm of a negative or an overflow gives inf or nan without a
        warning, since only the caller knows what it means. An expression that uses none of the
        arrays, such as "1", gives a float.
        """
        numbers = {}
        try:
            for name in self.names:
                value = values[name]
                if isinstance(value, np.ndarray):
                    columns = {n: np.array(values[n], dtype=np.float64) for n in self.names}
                    with np.errstate(all="ignore"):
                        return self._on_arrays(columns)  # type: ignore[no-any-return]
                numbers[name] = float(value)
        except KeyError as error:
            raise InputError(
                f"the expression '{self.text}' needs a value of {', '.join(self.names)}, "
                f"but {error} is not given"
            ) from None
        try:
            return self._on_floats(numbers)  # type: ignore[no-any-return]
        except (ZeroDivisionError, OverflowError, ValueError):
            # `math` raises where IEEE arithmetic has an answer; NumPy gives that answer.
            with np.errstate(all="ignore"):
                return float(self._on_arrays(numbers))

    def __reduce__(self) -> tuple[Callable[[str], "Expression"], tuple[str]]:
        """Copies and pickles travel as text, because closures cannot."""
        return parse, (self.text,)


def parse(text: str) -> Expression:
    """Reads `text` as arithmetic, or says which piece of it, at which column, is not."""
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        raise InputError(
            f"the expression '{text[:30]}...' is {len(text)} characters long; "
            f"at most {_LONGEST_TEXT} are read"
        )
    if len(text.splitlines()) != 1:
        raise InputError(f"the expression {text!r} must be one line of text, and not empty")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise InputError(
            f"the expression '{text}' cannot be read at column {error.offset or 1} "
            f"({error.msg}); {_ALLOWED}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        # What the parser says of null bytes, lone surrogates, and hundreds of nested signs.
        raise InputError(f"the expression {text!r} cannot be read: {error}") from None
    on_floats, on_arrays = (_compiled(tree, text, flavour) for flavour in (_SCALAR, _ARRAY))
    used = {_source(node, text) for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Expression(text, tuple(sorted(used - RESERVED)), on_floats, on_arrays)


def _compiled(node: ast.expr, text: str, flavour: int, depth: int = 1) -> Evaluate:
    """The closure that evaluates `node`; whatever is not listed here is refused."""
    if depth > _DEEPEST_TREE:
        raise _fault(node, text, f"is nested more than {_DEEPEST_TREE} deep")
    inner = partial(_compiled, text=text, flavour=flavour, depth=depth + 1)
    match node:
        case ast.Constant(value=float() | int() as value) if not isinstance(value, bool):
            number = as_float(value)
            if math.isinf(number):
                raise _fault(node, text, "is too large a number")
            return lambda values: number
        case ast.Name():
            name = _source(node, text)
            if name in _FUNCTIONS:
                raise _fault(node, text, f"is a function: write {name}(...)")
            if name in _CONSTANTS:
                constant = _CONSTANTS[name]
                return lambda values: constant
            return operator.itemgetter(name)
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            f, a, b = _OPERATORS[type(op)][flavour], inner(left), inner(right)
            return lambda values: f(a(values), b(values))
        case ast.BinOp(op=ast.BitXor()):
            raise _fault(node, text, "uses ^: write ** for a power")
        case ast.UnaryOp(op, operand) if type(op) in _OPERATORS:
            f, a = _OPERATORS[type(op)][flavour], inner(operand)
            return lambda values: f(a(values))
        case ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
            raise _fault(node, text, f"calls {name}, which is no function known here")
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            if len(args) != 1 or keywords:
                given = len(args) + len(keywords)
                raise _fault(node, text, f"gives {given} arguments to {name}, which takes one")
            f, a = _FUNCTIONS[name][flavour], inner(args[0])
            return lambda values: f(a(values))
    raise _fault(node, text, "is not arithmetic")


def as_float(value: Any) -> float:
    """Every number is a float, so that 9**9**9 overflows at once instead of filling the memory."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _source(node: ast.expr, text: str) -> str:
    """The piece of text behind `node`, as typed: `ast` itself rewrites some Unicode names."""
    return ast.get_source_segment(text, node) or text


def _fault(node: ast.expr, text: str, what: str) -> InputError:
    """The error that names the piece, its column (counted from 1) and what may stand there."""
    # `ast` counts columns in bytes, people count characters.
    column = len(text.encode()[: node.col_offset].decode()) + 1
    return InputError(
        f"in the expression '{text}', '{_source(node, text)}' at column {column} {what}; {_ALLOWED}"
    )
