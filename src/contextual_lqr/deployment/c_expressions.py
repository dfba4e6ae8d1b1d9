"""Expressions of a context, as C. They have been parsed before, so that only arithmetic is left."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

from contextual_lqr.context.expressions import Expression, as_float

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.UAdd: "+",
    ast.USub: "-",
}


def c_expression(expression: Expression, variables: Mapping[str, str], single: bool) -> str:
    """The expression in C, each name replaced by its variable; `single` for floats."""
    text = expression.text
    tree = ast.parse(text, mode="eval").body
    return _written(tree, text, variables, "f" if single else "")


def c_number(value: float, single: bool) -> str:
    """A number that C reads as the same double, or as the nearest float."""
    if math.isinf(value):
        return "HUGE_VAL" if value > 0 else "-HUGE_VAL"
    written = repr(float(value))
    return f"{written}f" if single else written


def operations(expression: Expression) -> int:
    """How many operators and functions it has."""
    counted = (ast.BinOp, ast.UnaryOp, ast.Call)
    return sum(isinstance(node, counted) for node in ast.walk(ast.parse(expression.text)))


def _written(node: ast.expr, text: str, variables: Mapping[str, str], suffix: str) -> str:
    match node:
        case ast.Constant(value=value):
            return c_number(as_float(value), bool(suffix))
        case ast.Name():
            name = ast.get_source_segment(text, node) or node.id  # as typed: `ast` rewrites some
            return variables[name] if name in variables else c_number(math.pi, bool(suffix))
        case ast.BinOp(left, ast.Pow(), right):
            base, power = (_written(one, text, variables, suffix) for one in (left, right))
            return f"pow{suffix}({base}, {power})"
        case ast.BinOp(left, op, right):
            a, b = (_written(one, text, variables, suffix) for one in (left, right))
            return f"({a} {_OPERATORS[type(op)]} {b})"
        case ast.UnaryOp(op, operand):
            return f"({_OPERATORS[type(op)]}{_written(operand, text, variables, suffix)})"
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            function = "fabs" if name == "abs" else name
            return f"{function}{suffix}({_written(argument, text, variables, suffix)})"
    raise AssertionError(f"{text} was not parsed")
