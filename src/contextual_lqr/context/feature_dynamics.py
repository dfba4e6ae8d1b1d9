"""Dynamics written as expressions: x' = Θ φ(c, x, u), φ such as "sin(angle)/length"."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import as_numbers, require
from contextual_lqr.context.base import any_value, names_in, require_rows
from contextual_lqr.context.dynamics import Dynamics, named
from contextual_lqr.context.expressions import Expression, parse
from contextual_lqr.context.variables import shown
from contextual_lqr.errors import ContextError, InputError

_SLOPE = "a derivative of the feature"


@final
@dataclass(frozen=True, eq=False, init=False)
class FeatureDynamics(Dynamics):
    """Dynamics whose features are expressions of context, state and input.

    Parameters
    ----------
    features : sequence of str, sequence of sequences, or mapping from state to sequence
        The features, such as "sin(angle)/length": one list for all states, or one for each, in
        their order or by their names. Entries of Θ that a state's own list leaves out are 0.
    states, inputs : sequence of str
        Their names. All other names in the features are those of the context.
    bounds, allow_outside
        As for `FeatureContext`: the bounds of a context.

    Raises
    ------
    InputError
        If a feature cannot be read, or a name is used twice, or not declared.

    Examples
    --------
    >>> pendulum = clqr.FeatureDynamics(
    ...     ["angle", "speed", "sin(angle)/length", "torque/(mass*length**2)"],
    ...     states=["angle", "speed"],
    ...     inputs=["torque"],
    ... )
    >>> pendulum.names
    ('length', 'mass')
    >>> pendulum.features({"length": 0.5, "mass": 2.0}, [0.0, 1.0], [3.0])
    array([0., 1., 0., 6.])
    >>> pendulum.jacobian({"length": 0.5, "mass": 2.0}, [0.0, 1.0], [3.0])[2]
    array([2., 0., 0.])
    """

    _lists: tuple[tuple[str, ...], ...] = field(repr=False)
    _features: tuple[Expression, ...]

    def __init__(
        self,
        features: Any,
        *,
        states: Any,
        inputs: Any,
        bounds: Mapping[str, Any] | None = None,
        allow_outside: bool = False,
    ) -> None:
        states, inputs = named("state", states), named("input", inputs)
        if both := set(states) & set(inputs):
            raise InputError(f"a state and an input share a name: {', '.join(sorted(both))}")
        lists = _lists(features, states)
        texts = tuple(dict.fromkeys(text for row in lists for text in row))
        expressions = tuple(map(parse, texts))
        moving = {*states, *inputs}
        if bounds is None:
            bounds = any_value(n for n in names_in(expressions) if n not in moving)
        super().__init__(
            states=len(states), inputs=len(inputs), bounds=bounds, allow_outside=allow_outside
        )
        if odd := [name for name in self.bounds or () if name in moving]:
            raise InputError(f"{', '.join(odd)} in bounds is a state or an input: rename one")
        if undeclared := [n for n in names_in(expressions) if n not in {*moving, *bounds}]:
            raise InputError(
                f"the features use {', '.join(undeclared)}, but the states are "
                f"{', '.join(states)}, the inputs {', '.join(inputs)}, and bounds declares "
                f"{', '.join(bounds) or 'no names'}"
            )
        used = None
        if len(lists) > 1:
            used = np.array([[text in row for text in texts] for row in lists])
            used = None if used.all() else used
        vars(self).update(
            _lists=lists, _features=expressions, state_names=states, input_names=inputs, used=used
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The texts of the features, in the order of Θ's columns."""
        return tuple(feature.text for feature in self._features)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The features, parsed."""
        return self._features

    @property
    def shape(self) -> tuple[int, int, int]:
        """(p, d, m)."""
        return len(self._features), len(self.state_names), len(self.input_names)

    def _features_at(self, context: Any, x: Array, u: Array) -> Array:
        values, batch = self._values(context, x, u)
        phi = np.empty((*batch, len(self._features)))
        for j, feature in enumerate(self._features):
            phi[..., j] = feature(values)
        self._require_finite("the feature", phi, values)
        return phi

    def _jacobian_at(self, context: Any, x: Array, u: Array) -> Array:
        values, batch = self._values(context, x, u)
        moving = (*self.state_names, *self.input_names)
        slopes = np.empty((*batch, len(self._features), len(moving)))
        for j, feature in enumerate(self._features):
            for k, slope in enumerate(feature.slopes(values, moving)[1]):
                slopes[..., j, k] = slope
        if not np.isfinite(slopes).all():
            self._require_finite(_SLOPE, slopes.sum(-1), values)
        return slopes

    def encode(
        self, contexts: Iterable[Any], states: Sequence[Array], inputs: Sequence[Array]
    ) -> list[Array]:
        """As in `ContextMap`: the columns of φ; each row has its context."""
        values: dict[str, Any] = {}
        if self._variables is not None and self.bounds:
            count, columns = self._variables.columns(contexts)
            require_rows(len(states[0]), count)
            values |= columns
        values |= zip((*self.state_names, *self.input_names), (*states, *inputs), strict=True)
        n = len(states[0])
        phi = [np.broadcast_to(feature(values), n) for feature in self._features]
        for feature, column in zip(self._features, phi, strict=True):
            if not np.isfinite(column).all():
                self._refuse("the feature", feature, column, values, ~np.isfinite(column))
        return phi

    def _values(self, context: Any, x: Array, u: Array) -> tuple[dict[str, Any], tuple[int, ...]]:
        """The values of all names as arrays, and the shape of the batch.

        The values of a context may be arrays, which the batch axes of states broadcast against.
        """
        several = isinstance(context, Mapping) and any(np.ndim(v) > 0 for v in context.values())
        batch = x.shape[:-1]
        values: dict[str, Any]
        if several and self._variables is not None:
            given = {name: as_numbers(name, v, "(...)", 0) for name, v in context.items()}
            try:
                shape = np.broadcast_shapes(*(v.shape for v in given.values()))
                batch = np.broadcast_shapes(batch, shape)
            except ValueError:
                raise ContextError(
                    "the arrays of a context must have the leading axes of the states, "
                    f"{batch}, or broadcast to them"
                ) from None
            flat = {name: np.broadcast_to(v, shape).ravel() for name, v in given.items()}
            values = {n: v.reshape(shape) for n, v in self._variables.columns(flat)[1].items()}
        else:
            values = dict(self._checked(context))
        values |= {name: x[..., i] for i, name in enumerate(self.state_names)}
        values |= {name: u[..., i] for i, name in enumerate(self.input_names)}
        return values, batch

    def _require_finite(self, what: str, phi: Array, values: Mapping[str, Any]) -> None:
        if np.isfinite(phi).all():
            return
        j = int(np.argwhere(~np.isfinite(phi))[0][-1])
        found = np.asarray(phi[..., j])
        self._refuse(what, self._features[j], found, values, np.asarray(~np.isfinite(found)))

    def _refuse(
        self, what: str, feature: Expression, found: Array, values: Mapping[str, Any], wrong: Array
    ) -> None:
        """Say where a feature has no value."""
        at = tuple(np.argwhere(wrong)[0]) if wrong.ndim else ()
        here = {
            name: float(np.broadcast_to(values[name], wrong.shape)[at]) for name in feature.names
        }
        remedy = ""
        if what == _SLOPE and "sqrt" in feature.text:
            remedy = " (a root is infinitely steep at 0: hypot(a, b) stands for sqrt(a**2 + b**2))"
        raise ContextError(f"{what} '{feature.text}' is {found[at]} at {shown(here)}{remedy}")

    def describe(self) -> dict[str, Any]:
        """As in `ContextMap`."""
        described = super().describe()
        assert described is not None
        return described

    def _arguments(self) -> dict[str, Any]:
        features = [list(row) for row in self._lists]
        return {
            **super()._arguments(),
            "features": features if len(features) > 1 else features[0],
            "states": list(self.state_names),
            "inputs": list(self.input_names),
        }


def _lists(features: Any, states: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The features of all states, one list, or of each, as many lists."""
    if isinstance(features, Mapping):
        odd = [name for name in features if name not in states]
        odd += [name for name in states if name not in features]
        if odd:
            raise InputError(
                f"features by state must have the states {', '.join(states)}; "
                f"missing or unknown: {', '.join(map(str, odd))}"
            )
        features = [features[name] for name in states]
    if isinstance(features, str) or not isinstance(features, Sequence) or not len(features):
        raise InputError(f"features must be a list of expressions, not {shown(features)}")
    if all(isinstance(one, str) for one in features):
        return (_texts(features),)
    if any(isinstance(one, str) or not isinstance(one, Sequence) for one in features):
        raise InputError("features must be expressions, or one list of expressions for each state")
    require(
        len(features) == len(states),
        f"there are {len(features)} lists of features, but {len(states)} states",
    )
    rows = tuple(map(_texts, features))
    return rows[:1] if len(rows) == 1 else rows


def _texts(features: Sequence[Any]) -> tuple[str, ...]:
    for one in features:
        require(isinstance(one, str), f"a feature must be an expression, not {shown(one)}")
    texts = tuple(one.strip() for one in features)
    require(texts, 'there must be at least one feature; the constant one is "1"')
    twice = [text for i, text in enumerate(texts) if text in texts[:i]]
    require(not twice, f"the feature '{(twice or [''])[0]}' is given twice")
    return texts
