"""What all context maps have in common: from the context of one machine to its matrix G.

Every machine of a fleet obeys `[A, B] = Θ G(context)`: Θ (d, p) is shared and unknown, G known.

    d, m    numbers of states and of inputs        G    (p, d+m), the context matrix
    C, D    (p1, d) and (p2, m), the paper's form  φ    (k,), the features of a context

What a caller hands in is annotated loosely here, because to check it, and to refuse it with a
sentence, is the work of this file.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context.expressions import Expression
from contextual_lqr.context.variables import Variables, called, each, name_of, sampled_values, shown
from contextual_lqr.errors import ContextError, InputError

Map = TypeVar("Map", bound="ContextMap")


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextMap(ABC):
    """A known, frozen map from contexts to context matrices; equal to others of equal content.

    Parameters
    ----------
    states, inputs : int, optional
        The sizes d and m; by default learnt from the first episode.
    bounds : mapping from str to (low, high), optional
        Declares the names of a context, which is then a mapping of exactly these names to finite
        numbers, within the bounds, which may be infinite. Without names, a context is whatever the
        functions of the map take.
    allow_outside : bool
        Also accept values outside the bounds.
    """

    states: int | None = None
    inputs: int | None = None
    bounds: Mapping[str, Any] | None = None
    allow_outside: bool = False
    _variables: Variables | None = field(init=False, repr=False, default=None)
    # The shapes of C, D or G, as soon as they are known; the only thing a map ever learns.
    _seen: dict[str, tuple[int, ...]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for word, size in (("states", self.states), ("inputs", self.inputs)):
            if size is not None and (type(size) is not int or size < 1):
                raise InputError(f"{word} must be a whole number of at least 1, not {size!r}")
        if not isinstance(self.allow_outside, bool):
            raise InputError(f"allow_outside must be true or false, not {self.allow_outside!r}")
        if self.bounds is not None:
            variables = Variables(self.bounds, self.allow_outside)
            # Here and below, vars(self) is the way round the freeze, for construction only.
            vars(self).update(_variables=variables, bounds=variables.bounds)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of a context's values; None if they are not declared."""
        return None if self.bounds is None else tuple(self.bounds)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int] | None:
        """(p, d, m), or None while one of them is unknown."""

    def sized(self: Map, states: int, inputs: int) -> Map:
        """The same map, sized for this many states and inputs; refused if it has others."""
        for word, now, new in (("states", self.states, states), ("inputs", self.inputs, inputs)):
            if now is not None and now != new:
                raise InputError(f"this context map has {now} {word}, it cannot be sized for {new}")
        if (self.states, self.inputs) == (states, inputs) and self.shape is not None:
            return self  # nothing is left to be seen
        sized = type(self)(**{**self._arguments(), "states": states, "inputs": inputs})
        for part, shape in self._seen.items():
            sized._fit(part, shape, f"{part} of this context map", InputError)
        return sized

    def matrix(self, context: Any) -> Float[Array, "p n"]:
        """The context matrix G of one context."""
        return self._matrix(self._checked(context))

    def matrices(self, contexts: Iterable[Any]) -> Float[Array, "batch p n"]:
        """The context matrices of many: a sequence of contexts, or one mapping name -> array."""
        if rows := self._rows(contexts):
            return np.stack(each(self._matrix, rows))
        if self.shape is None:
            raise InputError("no contexts are given, and the shape of G is not known without one")
        return np.zeros((0, self.shape[0], self.shape[1] + self.shape[2]))

    def encode(
        self, contexts: Iterable[Any], states: Sequence[Array], inputs: Sequence[Array]
    ) -> list[Array]:
        """The p columns of z = G(context) [x; u], from those of x and u; each row has its context.

        A column of z that is one of x or u may be that very array.
        """
        G = self.matrices(contexts)
        require_rows(len(states[0]), len(G))
        moves = np.stack((*states, *inputs), 1)
        return list((G @ moves[..., None])[..., 0].T)

    def moves(
        self, contexts: Iterable[Any], states: Sequence[Array], inputs: Sequence[Array]
    ) -> list[Array]:
        """The columns of y, what a machine's own matrix multiplies: [x; u], as they are."""
        return [*states, *inputs]

    def episode_moves(
        self, contexts: Any, states: Float[Array, "n H d"], inputs: Float[Array, "n steps m"]
    ) -> Float[Array, "n steps y"]:
        """The y of each step of n episodes, each with its context."""
        return np.concatenate((states[:, :-1], inputs), -1)

    @cached_property
    def persistence(self) -> Float[Array, "d p"] | None:
        """Θ of machines that stay where they are, Θ G(c) = [I, 0] whatever the context c.

        Rows for which there is no such Θ are 0; None if contexts have no names.
        """
        if self.shape is None or not self.bounds:
            return None
        _, d, m = self.shape
        rows = self.constant_rows(np.eye(d, d + m))
        return None if rows is None else np.nan_to_num(rows, nan=0.0)

    def constant_rows(self, wanted: Float[Array, "k n"]) -> Float[Array, "k p"] | None:
        """The rows θ of Θ with θ G(c) = g whatever the context c, for each row g that is wanted.

        NaN where there is no such row; None if contexts cannot be sampled to find out.
        """
        if self.shape is None or self.bounds is None:
            return None
        rng, p = np.random.default_rng(0), self.shape[0]
        count = p + 2 if self.bounds else 1
        try:
            sampled = sampled_values(self.bounds, count, rng) if self.bounds else [{}]
            G = np.concatenate(list(self.matrices(sampled)), axis=1)
        except ContextError:
            return None
        sizes = np.abs(G).max(1, keepdims=True)
        sizes = np.where(sizes > 0, sizes, 1.0)
        goal = np.tile(wanted, count)
        theta = np.linalg.lstsq((G / sizes).T, goal.T, rcond=1e-12)[0].T
        exact = np.abs(theta @ (G / sizes) - goal).max(1) <= 1e-9
        theta[np.abs(theta) <= 1e-9 * np.abs(theta).max(initial=1e-300)] = 0.0
        theta = theta / sizes.T
        whole = np.round(theta, 12)
        theta = np.where(
            np.abs(whole - theta) <= 1e-13 * np.maximum(np.abs(theta), 1), whole, theta
        )
        theta[~exact] = np.nan
        return np.asarray(theta)

    def outside(self, context: Any) -> str:
        """Which values of a context lie outside their declared bounds, in words; "" if none."""
        if self._variables is None or not isinstance(context, Mapping):
            return ""
        return "; ".join(
            f"{name} = {context[name]:.12g} is outside its declared bounds, {low:g} to {high:g}"
            for name, (low, high) in self._variables.bounds.items()
            if not low <= context[name] <= high
        )

    @property
    def matrix_width(self) -> int:
        """The number of columns of G, d + m."""
        if self.shape is None:
            raise InputError("the sizes are not known yet: call sized(states, inputs) first")
        return self.shape[1] + self.shape[2]

    def condensed(self, G: Float[Array, "*batch p n"]) -> Array:
        """What must be kept of context matrices so that `expanded` gives them back."""
        return G

    def keys(self, contexts: Iterable[Any], G: Array | None = None) -> Array:
        """What is kept of contexts, whose matrices may be at hand: it tells machines apart."""
        return self.condensed(self.matrices(contexts) if G is None else G)

    def expanded(self, condensed: Array) -> Float[Array, "batch p n"]:
        """The context matrices of a batch of what `condensed`, or `keys`, gave."""
        return condensed

    def describe(self) -> dict[str, Any] | None:
        """What JSON can hold of the map, for `context_map_from`; None if it holds functions."""
        plain = self._plain()
        if any(callable(value) for value in plain.values()):
            return None
        if self._variables is not None:
            plain["bounds"] = self._variables.described()
        return {"kind": type(self).__name__, **plain}

    @abstractmethod
    def _matrix(self, context: Any) -> Float[Array, "p n"]:
        """G of a context that has been checked."""

    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """The arguments of the constructor, which are all that the map is."""
        bounds = None if self.bounds is None else dict(self.bounds)
        common = {"states": self.states, "inputs": self.inputs, "allow_outside": self.allow_outside}
        return {**common, "bounds": bounds}

    def _plain(self) -> dict[str, Any]:
        """The arguments with lists for arrays, which can be compared and written."""
        arguments = self._arguments()
        return {k: v.tolist() if isinstance(v, Array) else v for k, v in arguments.items()}

    def _checked(self, context: Any) -> Any:
        """The context with its values as floats; as it is if no names are declared."""
        return context if self._variables is None else self._variables.checked(context)

    def _rows(self, contexts: Iterable[Any]) -> list[Any]:
        """The contexts of a batch, checked, one by one."""
        if self._variables is not None:
            return self._variables.rows(contexts)
        if isinstance(contexts, Mapping):
            raise ContextError("this map has no declared names: give its contexts as a list")
        return list(contexts)

    def _require_declared(self, expressions: Iterable[Expression]) -> None:
        """Refuses expressions that use names which are not those of a context."""
        undeclared = [name for name in names_in(expressions) if name not in (self.bounds or {})]
        if undeclared:
            declared = f"bounds declares {', '.join(self.bounds or {}) or 'no names'}"
            raise InputError(f"the features use {', '.join(undeclared)}, but {declared}")

    def _tried(self) -> bool:
        """Whether a context in the middle of the bounds shows what shapes the functions give."""
        if self._variables is None:
            return False
        bounds = self._variables.bounds
        try:
            self._try({name: low / 2 + high / 2 for name, (low, high) in bounds.items()})
        except InputError:  # infinite bounds, or a function that has no value there
            return False
        return True

    def _try(self, context: Any) -> None:
        self.matrix(context)

    def _answer(self, part: str, function: Callable[[Any], Any], context: Any) -> Array:
        """The part C, D or G as a user's function gives it."""
        whose = f"{part}, from the function {name_of(function)},"
        return self._accept(part, called(function, context), whose, ContextError, context)

    def _accept(
        self, part: str, value: Any, whose: str, error: type[InputError], context: Any = None
    ) -> Float[Array, "rows columns"]:
        """A copy of `value` as the part C, D or G, if it is a finite matrix of the right shape."""
        if np.ma.is_masked(value):
            raise error(f"{whose} has masked values: fill them or leave them out")
        try:
            matrix = np.array(value)
        except ValueError:
            raise error(f"{whose} has rows of different lengths, and is not a matrix") from None
        except Exception:  # an object of somebody else's that makes an array of itself, and fails
            raise error(f"{whose} must be a two-dimensional matrix of real numbers") from None
        if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "iuf":
            found = f"has shape {matrix.shape} and type {matrix.dtype}"
            raise error(f"{whose} must be a two-dimensional matrix of real numbers, but {found}")
        self._fit(part, matrix.shape, whose, error)
        if not np.isfinite(matrix).all():
            at = "" if context is None else f" at {shown(context)}"
            raise error(f"{whose} has values that are not finite{at}")
        return matrix.astype(np.float64, copy=False)

    def _fit(self, part: str, shape: tuple[int, ...], whose: str, error: type[InputError]) -> None:
        """Refuses a shape that contradicts the sizes, or the shape that this part had before."""
        words = {"C": ["states"], "D": ["inputs"], "G": ["states", "inputs"]}[part]
        sizes = [getattr(self, word) for word in words]
        if None not in sizes and shape[1] != sum(sizes):
            needed = " + ".join(f"{size} {word}" for size, word in zip(sizes, words, strict=True))
            raise error(f"{whose} has shape {shape}, but its columns must be {needed}")
        if shape != self._seen.get(part, shape):
            raise error(f"{whose} has shape {shape}, but {part} had {self._seen[part]} before")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ContextMap) or type(self) is not type(other):
            return NotImplemented
        return self._plain() == other._plain()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are built anew, so that they are as frozen as the original."""
        return partial(type(self), **self._arguments()), ()


def require_rows(rows: int, contexts: int) -> None:
    """Each row of a table has its context."""
    if rows != contexts:
        raise InputError(f"there are {rows} rows, but {contexts} contexts")


def names_in(expressions: Iterable[Expression]) -> list[str]:
    """All names that the expressions use."""
    return sorted({name for expression in expressions for name in expression.names})


def any_value(names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Bounds that declare the names, and bound nothing."""
    return dict.fromkeys(names, (-math.inf, math.inf))
