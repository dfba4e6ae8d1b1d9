"""Contexts through features: [A, B] = Σᵢ φᵢ(c) Mᵢ, what users of LPV models write."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.context.base import ContextMap, any_value, names_in, require_rows
from contextual_lqr.context.expressions import Expression, parse
from contextual_lqr.context.variables import called, each, name_of, shown
from contextual_lqr.errors import ContextError, InputError


@final
@dataclass(frozen=True, eq=False, init=False)
class FeatureContext(ContextMap):
    """G = φ(c) ⊗ I, that is [A, B] = Σᵢ φᵢ(c) Mᵢ with Θ = [M₁, …, M_k], and p = k (d+m).

    Parameters
    ----------
    features : sequence, or mapping by name
        Expressions such as "1/mass", or functions of the context. The constant one is "1".
    states, inputs, bounds, allow_outside
        As for `ContextMap`. Expressions alone need no bounds to declare names.

    Examples
    --------
    >>> clqr.FeatureContext(["1", "1/mass"]).features({"mass": 4.0})
    array([1.  , 0.25])
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
        if bounds is None and len(expressions) == len(known):
            bounds = any_value(names_in(expressions))
        super().__init__(states=states, inputs=inputs, bounds=bounds, allow_outside=allow_outside)
        self._require_declared(expressions)
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

    def encode(
        self, contexts: Iterable[Any], states: Sequence[Array], inputs: Sequence[Array]
    ) -> list[Array]:
        """As in `ContextMap`, without the matrices: z = φ ⊗ [x; u]."""
        phi = self.feature_rows(contexts)
        require_rows(len(states[0]), len(phi))
        return [feature * move for feature in phi.T for move in (*states, *inputs)]

    def condensed(self, G: Float[Array, "*batch p n"]) -> Array:
        """As in `ContextMap`: φ, of G = φ ⊗ I."""
        return np.ascontiguousarray(G[..., :: G.shape[-1], 0])

    def expanded(self, condensed: Array) -> Float[Array, "batch p n"]:
        """As in `ContextMap`."""
        return self._stacked(condensed)

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


def _named(features: Any) -> list[tuple[str, Any]]:
    """The features with their names, and those given as text parsed."""
    if isinstance(features, str | Array) or not isinstance(features, Iterable):
        raise InputError(f"features must be a list or a mapping of features, not {shown(features)}")
    named: dict[str, Any] = {}
    for item in features.items() if isinstance(features, Mapping) else features:
        pair = isinstance(item, tuple | list) and len(item) == 2
        name, feature = item if pair else (name_of(item), item)
        if not isinstance(name, str) or not (isinstance(feature, str) or callable(feature)):
            raise InputError(f"a feature must be an expression or a function, not {shown(item)}")
        if name in named:
            raise InputError(f"two features are named '{name}': name them in a mapping")
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
    given = called(function, context)
    value = np.asarray(given)
    if np.ma.is_masked(given) or value.shape or value.dtype.kind not in "iuf":
        raise ContextError(f"the feature '{name}' must be one real number, not {shown(given)}")
    return float(value)
