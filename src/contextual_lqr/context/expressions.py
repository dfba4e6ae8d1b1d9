"""Arithmetic written as text, such as `"length / mass**2"`.

Features of a context come from configuration files and logs as well as from code, so their text is
never run as Python. It is parsed, checked node by node against what arithmetic needs into a tree of
the operators of `operators.py`, and that is turned into closures: one set over `math` for a single
context, one over NumPy for many at once. Derivatives are exact: the tree is walked once, forwards,
with the chain rule at each node.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, NamedTuple, final

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.context.operators import FUNCTIONS, OPERATORS
from contextual_lqr.errors import InputError

Evaluate = Callable[[Mapping[str, Any]], Any]

_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.UAdd: "positive",
    ast.USub: "negative",
}
_CONSTANTS = {"pi": math.pi}

RESERVED = frozenset(FUNCTIONS) | frozenset(_CONSTANTS)
"""Words with a meaning of their own in an expression, which no variable can have as its name."""

# Bounds on what one text can cost us; both are far beyond what a formula needs.
_LONGEST_TEXT = 500
_DEEPEST_TREE = 100

_ALLOWED = (
    "an expression may hold numbers, names, pi, + - * / **, parentheses, and the functions "
    + ", ".join(FUNCTIONS)
)


class Node(NamedTuple):
    """A piece of an expression: an operator of its arguments, a number, or a name.

    `operator` is one of `operators.OPERATORS`, or "number", or "name"; these two have a `value`.
    """

    operator: str
    arguments: tuple["Node", ...] = ()
    value: float | str | None = None


@final
@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: call it with the values of its `names`. Made by `parse`."""

    text: str
    names: tuple[str, ...]
    tree: Node = field(repr=False, compare=False)
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

    def slopes(self, values: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, list[Any]]:
        """The value at `values` and its partial derivatives by these names, on arrays.

        What does not depend on a name has the slope 0.0, a number.
        """
        columns = {name: np.asarray(values[name], np.float64) for name in self.names}
        with np.errstate(all="ignore"):
            value, slopes = _forward(self.tree, columns, frozenset(names))
        return value, [slopes.get(name, 0.0) for name in names]

    def postfix(self) -> list[tuple[str, float | str | None]]:
        """The tree as a program for a stack: ("number", 2.0), ("name", "mass"), ("divide", None).

        Each operator takes its arguments, one or two, from the top of the stack, the last one
        first, and leaves its value there.
        """
        return _postfix(self.tree)

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
    read = _read(tree, text)
    used = {str(value) for kind, value in _postfix(read) if kind == "name"}
    on_floats, on_arrays = (_compiled(read, flavour) for flavour in ("on_floats", "on_arrays"))
    return Expression(text, tuple(sorted(used)), read, on_floats, on_arrays)


def _read(node: ast.expr, text: str, depth: int = 1) -> Node:
    """The tree of what `ast` found; whatever is not listed here is refused."""
    if depth > _DEEPEST_TREE:
        raise _fault(node, text, f"is nested more than {_DEEPEST_TREE} deep")
    inner = partial(_read, text=text, depth=depth + 1)
    match node:
        case ast.Constant(value=float() | int() as value) if not isinstance(value, bool):
            number = as_float(value)
            if math.isinf(number):
                raise _fault(node, text, "is too large a number")
            return Node("number", value=number)
        case ast.Name():
            name = _source(node, text)
            if name in FUNCTIONS:
                raise _fault(node, text, f"is a function: write {name}(...)")
            if name in _CONSTANTS:
                return Node("number", value=_CONSTANTS[name])
            return Node("name", value=name)
        case ast.BinOp(left, op, right) if type(op) in _SIGNS:
            return Node(_SIGNS[type(op)], (inner(left), inner(right)))
        case ast.BinOp(op=ast.BitXor()):
            raise _fault(node, text, "uses ^: write ** for a power")
        case ast.UnaryOp(op, operand) if type(op) in _SIGNS:
            return Node(_SIGNS[type(op)], (inner(operand),))
        case ast.Call(func=ast.Name(id=name)) if name not in FUNCTIONS:
            raise _fault(node, text, f"calls {name}, which is not a known function")
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            several, given = name in ("min", "max"), len(args) + len(keywords)
            if keywords or not (given == FUNCTIONS[name] or (several and given > 2)):
                takes = ("one", "two")[FUNCTIONS[name] - 1] + (" or more" if several else "")
                raise _fault(node, text, f"gives {given} arguments to {name}, which takes {takes}")
            found = [inner(one) for one in args]
            if several:
                return reduce(lambda a, b: Node(name, (a, b)), found)
            return Node(name, tuple(found))
    raise _fault(node, text, "is not arithmetic")


def _compiled(node: Node, flavour: str) -> Evaluate:
    """The closure that evaluates a tree on floats, or on arrays."""
    if node.operator == "number":
        number = node.value
        return lambda values: number
    if node.operator == "name":
        return operator.itemgetter(node.value)
    f = getattr(OPERATORS[node.operator], flavour)
    a, *more = (_compiled(one, flavour) for one in node.arguments)
    if more:
        b = more[0]
        return lambda values: f(a(values), b(values))
    return lambda values: f(a(values))


def _forward(
    node: Node, values: Mapping[str, Any], names: frozenset[str]
) -> tuple[Any, dict[str, Any]]:
    """The value of a tree, and its slopes by those of the names that it depends on."""
    if node.operator == "number":
        return node.value, {}
    if node.operator == "name":
        name = str(node.value)
        return values[name], {name: 1.0} if name in names else {}
    arguments = [_forward(one, values, names) for one in node.arguments]
    operation = OPERATORS[node.operator]
    at = [value for value, _ in arguments]
    value = operation.on_arrays(*at)
    found: dict[str, Any] = {}
    if any(slopes for _, slopes in arguments):
        for outer, (_, slopes) in zip(operation.slopes(value, *at), arguments, strict=True):
            for name, inner in slopes.items():
                found[name] = found.get(name, 0.0) + outer * inner  # the chain rule
    return value, found


def _postfix(node: Node) -> list[tuple[str, float | str | None]]:
    program = [step for one in node.arguments for step in _postfix(one)]
    return [*program, (node.operator, node.value)]


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
