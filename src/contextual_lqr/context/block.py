"""Contexts in the paper's form, G = blkdiag(C, D)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context.base import ContextMap, any_value, names_in, require_rows
from contextual_lqr.context.expressions import Expression, parse
from contextual_lqr.context.variables import shown
from contextual_lqr.errors import ContextError, InputError


class _Pattern(NamedTuple):
    """A matrix some of whose entries depend on the context."""

    constant: Float[Array, "rows columns"]
    entries: list[tuple[int, int, Expression]]


@final
@dataclass(frozen=True, eq=False)
class BlockContext(ContextMap):
    """G = blkdiag(C, D), the paper's form: A = Θ₁ C and B = Θ₂ D.

    Parameters
    ----------
    C, D : matrix or function, (p1, d) and (p2, m), optional
        A matrix, whose entries may be expressions such as "1/mass", or a function from the context
        to a matrix. With neither given, the context is the pair (C, D).
    states, inputs, bounds, allow_outside
        As for `ContextMap`.

    Examples
    --------
    >>> blocks = clqr.BlockContext(C=np.eye(2), D=[["1/mass"]])
    >>> blocks.matrix({"mass": 4.0})
    array([[1.  , 0.  , 0.  ],
           [0.  , 1.  , 0.  ],
           [0.  , 0.  , 0.25]])
    """

    C: Any = None
    D: Any = None
    _patterns: dict[str, _Pattern] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if (self.C is None) != (self.D is None):
            raise InputError("give both C and D, or neither: then each context is a pair (C, D)")
        if self.C is None and self.bounds is not None:
            raise InputError("bounds are given without C and D, but a pair (C, D) has no names")
        found = {part: _parsed(getattr(self, part)) for part in ("C", "D")}
        expressions = [e for _, entries in found.values() for _, _, e in entries]
        if self.bounds is None and expressions and not (callable(self.C) or callable(self.D)):
            vars(self).update(bounds=any_value(names_in(expressions)))
        super().__post_init__()
        self._require_declared(expressions)
        for part, size in (("C", "states"), ("D", "inputs")):
            block, entries = found[part]
            if block is None or callable(block):
                continue
            matrix = self._accept(part, block, f"the matrix {part}", InputError)
            matrix.flags.writeable = False
            self._patterns[part] = _Pattern(matrix, entries)
            if not entries:
                vars(self).update({part: matrix})
            vars(self).update({size: matrix.shape[1]})
            self._seen[part] = matrix.shape

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """(p, d, m), known from matrices at once and from functions after the first context."""
        if len(self._seen) < 2 and not self._tried():
            return None
        (p1, d), (p2, m) = self._seen["C"], self._seen["D"]
        return p1 + p2, d, m

    def matrices(self, contexts: Iterable[Any]) -> Float[Array, "batch p n"]:
        """As in `ContextMap`; matrices without functions all at once."""
        if len(self._patterns) < 2:
            return super().matrices(contexts)
        columns: dict[str, Array] = {}
        if self._variables is None:
            count = len(self._rows(contexts))
        else:
            count, columns = self._variables.columns(contexts)
        constant = self._blocks(*(self._patterns[part].constant for part in "CD"))
        G, finite = np.empty((count, *constant.shape)), bool(np.isfinite(constant).all())
        G[...] = constant
        for i, j, expression in self._varying:
            value = G[:, i, j] = expression(columns)
            finite &= bool(np.isfinite(value).all())
        if finite or self._variables is None:
            return G
        return super().matrices(self._variables.split(count, columns))  # to say which is wrong

    def encode(
        self, contexts: Iterable[Any], states: Sequence[Array], inputs: Sequence[Array]
    ) -> list[Array]:
        """As in `ContextMap`; without functions, without the matrices: z = [C x; D u]."""
        if len(self._patterns) < 2 or self._variables is None:
            return super().encode(contexts, states, inputs)
        count, columns = self._variables.columns(contexts)
        require_rows(len(states[0]), count)
        found: list[Array] = []
        coefficients: dict[str, Any] = {}
        for part, moves in (("C", states), ("D", inputs)):
            constant, entries = self._patterns[part]
            terms: list[list[Array]] = [[] for _ in constant]
            for i, j in np.argwhere(constant).tolist():
                c = constant[i, j]
                terms[i].append(moves[j] if c == 1 else c * moves[j])
            for i, j, expression in entries:
                if expression.text not in coefficients:
                    value = coefficients[expression.text] = expression(columns)
                    if not np.isfinite(value).all():  # the slow way says which is wrong
                        split = self._variables.split(count, columns)
                        return super().encode(split, states, inputs)
                terms[i].append(coefficients[expression.text] * moves[j])
            found += [reduce(np.add, row) if row else np.zeros(count) for row in terms]
        return found

    @property
    def varying(self) -> list[str] | None:
        """The entries that are expressions; None if there are functions."""
        if len(self._patterns) < 2:
            return None
        return [expression.text for _, _, expression in self._varying]

    def condensed(self, G: Float[Array, "*batch p n"]) -> Array:
        """As in `ContextMap`: the entries that are expressions, unless there are functions."""
        if len(self._patterns) < 2:
            return G
        i, j = [i for i, _, _ in self._varying], [j for _, j, _ in self._varying]
        return np.ascontiguousarray(G[..., i, j])

    def expanded(self, condensed: Array) -> Float[Array, "batch p n"]:
        """As in `ContextMap`."""
        if len(self._patterns) < 2:
            return condensed
        C, D = self._patterns["C"].constant, self._patterns["D"].constant
        G = np.repeat(self._blocks(C, D)[None], len(condensed), axis=0)
        for column, (i, j, _) in enumerate(self._varying):
            G[:, i, j] = condensed[:, column]
        return G

    @property
    def _varying(self) -> list[tuple[int, int, Expression]]:
        """The expressions, each with the row and the column of G where it stands."""
        (p, d), below = self._seen["C"], self._patterns["D"].entries
        own = self._patterns["C"].entries
        return [*own, *((p + i, d + j, expression) for i, j, expression in below)]

    def _arguments(self) -> dict[str, Any]:
        return {"C": self.C, "D": self.D, **super()._arguments()}

    def _matrix(self, context: Any) -> Float[Array, "p n"]:
        if self.C is None:
            if not isinstance(context, tuple | list) or len(context) != 2:
                raise ContextError(f"a context must be a pair (C, D), not {shown(context)}")
            C = self._accept("C", context[0], "C of the pair", ContextError)
            D = self._accept("D", context[1], "D of the pair", ContextError)
        else:
            C, D = self._block("C", context), self._block("D", context)
        self._seen.update(C=C.shape, D=D.shape)
        return self._blocks(C, D)

    def _block(self, part: str, context: Any) -> Float[Array, "rows columns"]:
        pattern = self._patterns.get(part)
        if pattern is None:
            return self._answer(part, getattr(self, part), context)
        if not pattern.entries:
            return pattern.constant
        matrix = pattern.constant.copy()
        for i, j, expression in pattern.entries:
            value = matrix[i, j] = expression(context)
            if not math.isfinite(value):
                said = f"the entry '{expression.text}' of {part} is {value}"
                raise ContextError(f"{said} at {shown(context)}")
        return matrix

    @staticmethod
    def _blocks(
        C: Float[Array, "*batch p1 d"], D: Float[Array, "*batch p2 m"]
    ) -> Float[Array, "*batch p n"]:
        (p1, d), (p2, m) = C.shape[-2:], D.shape[-2:]
        G = np.zeros((*C.shape[:-2], p1 + p2, d + m))
        G[..., :p1, :d], G[..., p1:, d:] = C, D
        return G


def _parsed(block: Any) -> tuple[Any, list[tuple[int, int, Expression]]]:
    """The block with zeros for its expressions, and these apart; anything else as it is."""
    if not isinstance(block, tuple | list) or not all(isinstance(r, tuple | list) for r in block):
        return block, []
    entries = [
        (i, j, parse(entry))
        for i, row in enumerate(block)
        for j, entry in enumerate(row)
        if isinstance(entry, str)
    ]
    return [[0.0 if isinstance(entry, str) else entry for entry in row] for row in block], entries
