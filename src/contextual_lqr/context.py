"""Context maps: from the context of one machine to its context matrix G.

Every machine of a fleet obeys `[A, B] = Θ G(context)`: Θ (d, p) is shared and unknown, G known.

    d, m    numbers of states and of inputs        G    (p, d+m), the context matrix
    C, D    (p1, d) and (p2, m), the paper's form  φ    (k,), the features of a context

What a caller hands in is annotated loosely here, because to check it, and to refuse it with a
sentence, is the work of this file.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, TypeVar, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.errors import ContextError, FormatError, InputError
from contextual_lqr.expressions import Expression, parse
from contextual_lqr.variables import Variables, called, each, name_of, shown

Map = TypeVar("Map", bound="ContextMap")


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextMap(ABC):
    """A known, frozen map from contexts to context matrices; equal to others of equal content.

    `bounds` (name -> (low, high), infinities allowed) declares the names of a context, which is
    then a mapping of exactly these names to finite numbers, within the bounds unless
    `allow_outside`. Without names, a context is whatever the functions of the map take.
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
        """(p, d, m), or None while one of them is not known."""

    def sized(self: Map, states: int, inputs: int) -> Map:
        """The same map, for machines of so many states and inputs; refused if it has others."""
        for word, now, new in (("states", self.states, states), ("inputs", self.inputs, inputs)):
            if now is not None and now != new:
                raise InputError(f"this context map has {now} {word}, it cannot be sized for {new}")
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

    def _tried(self) -> bool:
        """Whether a context in the middle of the bounds shows what shapes the functions give."""
        if self._variables is None:
            return False
        bounds = self._variables.bounds
        try:
            self.matrix({name: low / 2 + high / 2 for name, (low, high) in bounds.items()})
        except ContextError:  # infinite bounds, or a function that has no value there
            return False
        return True

    def _answer(self, part: str, function: Callable[[Any], Any], context: Any) -> Array:
        """The part C, D or G as a user's function gives it."""
        whose = f"{part}, from the function {name_of(function)},"
        return self._accept(part, called(function, context), whose, ContextError, context)

    def _accept(
        self, part: str, value: Any, whose: str, error: type[InputError], context: Any = None
    ) -> Float[Array, "rows columns"]:
        """A copy of `value` as the part C, D or G, if it is a finite matrix of the right shape."""
        try:
            matrix = np.array(value)
        except ValueError:
            raise error(f"{whose} has rows of different lengths, and is no matrix") from None
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


@final
@dataclass(frozen=True, eq=False)
class BlockContext(ContextMap):
    """G = blkdiag(C, D), the paper's form: A = Θ₁ C and B = Θ₂ D.

    C (p1, d) and D (p2, m) are each a matrix, or a function from the context to one; with neither
    given, the context itself is the pair (C, D).
    """

    C: Any = None
    D: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.C is None) != (self.D is None):
            raise InputError("give both C and D, or neither: then each context is a pair (C, D)")
        if self.C is None and self.bounds is not None:
            raise InputError("bounds are given without C and D, but a pair (C, D) has no names")
        for part, size in (("C", "states"), ("D", "inputs")):
            block = getattr(self, part)
            if block is not None and not callable(block):
                matrix = self._accept(part, block, f"the matrix {part}", InputError)
                matrix.flags.writeable = False
                vars(self).update({part: matrix, size: matrix.shape[1]})
                self._seen[part] = matrix.shape

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """(p, d, m), known from matrices at once and from functions after the first context."""
        if len(self._seen) < 2 and not self._tried():
            return None
        (p1, d), (p2, m) = self._seen["C"], self._seen["D"]
        return p1 + p2, d, m

    def matrices(self, contexts: Iterable[Any]) -> Float[Array, "batch p n"]:
        """As in `ContextMap`; two constant matrices are only repeated."""
        if not isinstance(self.C, Array) or not isinstance(self.D, Array):
            return super().matrices(contexts)
        by_name = self._variables
        count = len(self._rows(contexts)) if by_name is None else by_name.columns(contexts)[0]
        return np.repeat(self._matrix({})[None], count, axis=0)

    def _arguments(self) -> dict[str, Any]:
        return {"C": self.C, "D": self.D, **super()._arguments()}

    def _matrix(self, context: Any) -> Float[Array, "p n"]:
        if self.C is None:
            if not isinstance(context, tuple | list) or len(context) != 2:
                raise ContextError(f"a context must be a pair (C, D), not {shown(context)}")
            C = self._accept("C", context[0], "C of the pair", ContextError)
            D = self._accept("D", context[1], "D of the pair", ContextError)
        else:
            C = self._answer("C", self.C, context) if callable(self.C) else self.C
            D = self._answer("D", self.D, context) if callable(self.D) else self.D
        (p1, d), (p2, m) = C.shape, D.shape
        G = np.zeros((p1 + p2, d + m))
        G[:p1, :d], G[p1:, d:] = C, D
        self._seen.update(C=(p1, d), D=(p2, m))
        return G


@final
@dataclass(frozen=True, eq=False, init=False)
class FeatureContext(ContextMap):
    """G = φ(c) ⊗ I, that is [A, B] = Σᵢ φᵢ(c) Mᵢ with Θ = [M₁, …, M_k], and p = k (d+m).

    Features are expressions such as "1/mass" or functions of the context, in a sequence or a
    mapping by name. The constant one is "1". Expressions alone need no bounds to declare names.
    """

    _features: tuple[tuple[str, Any], ...]
    _evaluators: list[Callable[[Any], Any]] = field(repr=False)

    def __init__(
        self,
        features: Any,
        *,
        states: int | None = None,
        inputs: int | None = None,
        bounds: Mapping[str, Any] | None = None,
        allow_outside: bool = False,
    ) -> None:
        known = tuple(_named(features))
        expressions = [feature for _, feature in known if isinstance(feature, Expression)]
        used = sorted({name for expression in expressions for name in expression.names})
        if bounds is None and len(expressions) == len(known):
            bounds = dict.fromkeys(used, (-math.inf, math.inf))
        super().__init__(states=states, inputs=inputs, bounds=bounds, allow_outside=allow_outside)
        if undeclared := [name for name in used if name not in (self.bounds or {})]:
            declared = f"bounds declares {', '.join(self.bounds or {}) or 'no names'}"
            raise InputError(f"the features use {', '.join(undeclared)}, but {declared}")
        vars(self).update(_features=known, _evaluators=[_evaluator(*named) for named in known])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in the order of Θ's blocks."""
        return tuple(name for name, _ in self._features)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """(p, d, m), known as soon as states and inputs are."""
        if self.states is None or self.inputs is None:
            return None
        return len(self._features) * (self.states + self.inputs), self.states, self.inputs

    def features(self, context: Any) -> Float[Array, " k"]:
        """φ of one context."""
        return self._phi(self._checked(context))

    def feature_rows(self, contexts: Iterable[Any]) -> Float[Array, "batch k"]:
        """φ of many: a sequence of contexts, or one mapping name -> array."""
        if self._variables is not None and self.describe():  # expressions alone
            count, columns = self._variables.columns(contexts)
            phi = np.empty((count, len(self._features)))
            for j, expression in enumerate(self._evaluators):
                phi[:, j] = expression(columns)
            if np.isfinite(phi).all():
                return phi
            contexts = self._variables.split(count, columns)  # one by one, to say which is wrong
        return np.array(each(self._phi, self._rows(contexts))).reshape(-1, len(self._features))

    def matrices(self, contexts: Iterable[Any]) -> Float[Array, "batch p n"]:
        """As in `ContextMap`, all at once."""
        return self._stacked(self.feature_rows(contexts))

    def describe(self) -> dict[str, Any] | None:
        """As in `ContextMap`, with the expressions as text."""
        if not all(isinstance(feature, Expression) for _, feature in self._features):
            return None
        return {**(super().describe() or {}), "features": [[n, f.text] for n, f in self._features]}

    def _arguments(self) -> dict[str, Any]:
        return {"features": self._features, **super()._arguments()}

    def _matrix(self, context: Any) -> Float[Array, "p n"]:
        return self._stacked(self._phi(context))

    def _phi(self, values: Any) -> Float[Array, " k"]:
        phi = [evaluate(values) for evaluate in self._evaluators]
        for i, value in enumerate(phi):
            if not math.isfinite(value):
                name = self._features[i][0]
                raise ContextError(f"the feature '{name}' is {value} at {shown(values)}")
        return np.array(phi)

    def _stacked(self, phi: Float[Array, "*batch k"]) -> Float[Array, "*batch p n"]:
        """φ ⊗ I: φᵢ on the diagonal of the i-th block of G."""
        if self.shape is None:
            raise InputError("the sizes are not known yet: call sized(states, inputs) first")
        p, d, m = self.shape
        G = np.zeros((*phi.shape, (d + m) ** 2))
        G[..., :: d + m + 1] = phi[..., None]
        return G.reshape(*phi.shape[:-1], p, d + m)


@final
@dataclass(frozen=True, eq=False)
class FunctionContext(ContextMap):
    """G = f(context), for whatever the other maps cannot say."""

    f: Callable[[Any], Any]

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """(p, d, m), known once the map is sized and has seen a context."""
        if self.states is None or self.inputs is None or not (self._seen or self._tried()):
            return None
        return self._seen["G"][0], self.states, self.inputs

    def _arguments(self) -> dict[str, Any]:
        return {"f": self.f, **super()._arguments()}

    def _matrix(self, context: Any) -> Float[Array, "p n"]:
        G = self._answer("G", self.f, context)
        self._seen["G"] = G.shape
        return G


_DESCRIBABLE = {kind.__name__: kind for kind in (BlockContext, FeatureContext)}


def context_map_from(description: Any) -> ContextMap:
    """The map that `describe` described, exact to the bit."""
    arguments = dict(description) if isinstance(description, Mapping) else {}
    kind = arguments.pop("kind", None)
    if not isinstance(kind, str) or kind not in _DESCRIBABLE:
        kinds = " or ".join(_DESCRIBABLE)
        raise FormatError(f"a context map has the kind {kinds}, unlike {shown(description)}")
    make: Callable[..., ContextMap] = _DESCRIBABLE[kind]
    fields = signature(make).parameters.keys()
    if odd := fields ^ arguments.keys():
        odd_ones, needed = (", ".join(sorted(map(str, keys))) for keys in (odd, fields))
        raise FormatError(f"a {kind} is described by {needed}; missing or unknown: {odd_ones}")
    try:
        return make(**arguments)
    except (TypeError, ValueError) as error:
        raise FormatError(f"the description of a {kind} is wrong: {error}") from error


def _named(features: Any) -> list[tuple[str, Any]]:
    """The features with their names, and those given as text parsed."""
    if isinstance(features, str) or not isinstance(features, Iterable):
        raise InputError(f"features must be a list or a mapping of features, not {shown(features)}")
    named: dict[str, Any] = {}
    for item in features.items() if isinstance(features, Mapping) else features:
        pair = isinstance(item, tuple | list) and len(item) == 2
        name, feature = item if pair else (name_of(item), item)
        if not isinstance(name, str) or not (isinstance(feature, str) or callable(feature)):
            raise InputError(f"a feature must be an expression or a function, not {shown(item)}")
        if name in named:
            raise InputError(f"two features are named '{name}': name them apart in a mapping")
        named[name] = parse(feature) if isinstance(feature, str) else feature
    if not named:
        raise InputError('there must be at least one feature; the constant one is "1"')
    return list(named.items())


def _evaluator(name: str, feature: Any) -> Callable[[Any], Any]:
    """What gives the feature of a context, be it even, for a constant, one without names."""
    if not isinstance(feature, Expression):
        return partial(_scalar, name, feature)
    constant = None if feature.names else feature({})
    return feature if constant is None else lambda context: constant


def _scalar(name: str, function: Callable[[Any], Any], context: Any) -> float:
    """A feature as a user's function gives it."""
    value = np.asarray(called(function, context))
    if value.shape or value.dtype.kind not in "iuf":
        raise ContextError(f"the feature '{name}' must be one real number, not {shown(value)}")
    return float(value)
