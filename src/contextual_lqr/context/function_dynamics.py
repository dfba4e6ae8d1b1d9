"""Dynamics through a function of the user's, with derivatives of theirs or by differences."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import as_numbers, require
from contextual_lqr.context.base import require_rows
from contextual_lqr.context.dynamics import Dynamics, named
from contextual_lqr.context.variables import called, name_of, shown
from contextual_lqr.errors import ContextError, InputError

_STEP = float(np.finfo(np.float64).eps) ** (1 / 3)  # relative: best for central differences


@final
@dataclass(frozen=True, eq=False, init=False)
class FunctionDynamics(Dynamics):
    """Dynamics whose features are given by a function.

    Parameters
    ----------
    function : function
        function(context, states, inputs) of states (..., d) and inputs (..., m) gives the features
        (..., p) or, where each state has its own, (..., d, p). These count as d·p features, of
        which row r of Θ uses its own p.
    states, inputs : sequence of str, or int
        Their names, or how many there are.
    jacobian : function, optional
        Of the same arguments: the derivatives (..., p, d+m), or (..., d, p, d+m). Without it they
        are central differences.
    scales : array_like, (d+m,), optional
        The typical sizes of states and inputs, by which differences step. Without it a step is in
        proportion to the largest value in the batch, or to 1 where all are 0.
    shared : bool
        Whether the p unknowns are the same for all states, as masses and frictions are, so that
        x' = φ π with φ (..., d, p). Without it each state has p unknowns of its own.
    bounds, allow_outside
        As for `ContextMap`; without bounds, a context is whatever the function takes.

    Raises
    ------
    InputError
        If an argument is of the wrong kind.

    Examples
    --------
    >>> def tank(context, level, valve):
    ...     return np.concatenate([level, np.sqrt(level) / context, valve / context], -1)
    >>> dynamics = clqr.FunctionDynamics(tank, states=["level"], inputs=["valve"])
    >>> dynamics.features(2.0, [[1.0], [4.0]], [[0.0], [1.0]])
    array([[1. , 0.5, 0. ],
           [4. , 1. , 0.5]])
    >>> dynamics.jacobian(2.0, [4.0], [1.0]).round(6)
    array([[1.   , 0.   ],
           [0.125, 0.   ],
           [0.   , 0.5  ]])
    """

    function: Callable[..., Any]
    jacobian_function: Callable[..., Any] | None
    scales: Array | None

    def __init__(
        self,
        function: Callable[..., Any],
        states: Any,
        inputs: Any,
        jacobian: Callable[..., Any] | None = None,
        *,
        scales: Any = None,
        shared: bool = False,
        bounds: Mapping[str, Any] | None = None,
        allow_outside: bool = False,
    ) -> None:
        names = named("state", states), named("input", inputs)
        d, m = map(len, names)
        for word, one in (("function", function), ("jacobian", jacobian)):
            require(one is None or callable(one), f"{word} must be a function, not {shown(one)}")
        require(function is not None, "function must be a function, not None")
        if scales is not None:
            scales = as_numbers("scales", scales, "(d+m,)", 1)
            require(
                scales.shape == (d + m,) and (scales > 0).all(),
                f"scales must be {d + m} sizes of states and inputs, all above 0",
            )
        super().__init__(states=d, inputs=m, bounds=bounds, allow_outside=allow_outside)
        vars(self).update(
            function=function,
            jacobian_function=jacobian,
            scales=scales,
            shared=bool(shared),
            state_names=names[0],
            input_names=names[1],
        )

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """(p, d, m), known once the function was called, or if bounds say where to try it."""
        if not self._seen:
            self._tried()
        if not self._seen:
            return None
        own = self._seen["features"]
        return int(np.prod(own)), len(self.state_names), len(self.input_names)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """feature 1, …; where each state has its own, that of which state it is."""
        own = self._seen["features"] if self.shape is not None else ()
        if len(own) == 1:
            return tuple(f"feature {j + 1}" for j in range(own[0]))
        return tuple(f"feature {j + 1} of {r}" for r in self.state_names for j in range(own[-1]))

    def _try(self, context: Any) -> None:
        ones = (np.ones(len(names)) for names in (self.state_names, self.input_names))
        self._features_at(context, *ones)

    def _features_at(self, context: Any, x: Array, u: Array) -> Array:
        return self._answer_of(self.function, self._checked(context), x, u, ())

    def _jacobian_at(self, context: Any, x: Array, u: Array) -> Array:
        context = self._checked(context)
        y = np.concatenate((x, u), -1)
        d, n = x.shape[-1], y.shape[-1]
        if self.jacobian_function is not None:
            self._features_at(context, x, u)  # which says how many there are
            return self._answer_of(self.jacobian_function, context, x, u, (n,))
        sizes = np.abs(y).reshape(-1, n).max(0, initial=0.0) if self.scales is None else self.scales
        steps = _STEP * np.where(sizes > 0, sizes, 1.0)
        above = y[..., None, :] + np.diag(steps)  # (..., n, n), one moved at a time
        below = y[..., None, :] - np.diag(steps)
        moved = np.stack((above, below))
        phi = self._features_at(context, moved[..., :d], moved[..., d:])
        widths = np.einsum("...ii->...i", above - below)[..., None]  # as they are, rounded
        return np.ascontiguousarray(((phi[0] - phi[1]) / widths).mT)

    def encode(
        self, contexts: Iterable[Any], states: Sequence[Array], inputs: Sequence[Array]
    ) -> list[Array]:
        """As in `ContextMap`: the columns of φ; the function is called once for each context."""
        rows = self._rows(contexts)
        n = len(states[0])
        require_rows(n, len(rows))
        x, u = np.stack(states, 1), np.stack(inputs, 1)
        keys = self.keys(rows)
        _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(which.reshape(-1), kind="stable")
        ends = np.bincount(which.reshape(-1)).cumsum()
        phi = np.empty((0, 0))
        for at, some in zip(first, np.split(order, ends[:-1]), strict=True):
            found = self._features_at(rows[at], x[some], u[some])
            phi = np.empty((n, found.shape[-1])) if not phi.size else phi
            phi[some] = found
        return list(np.ascontiguousarray(phi.T))

    def _answer_of(
        self, function: Callable[..., Any], context: Any, x: Array, u: Array, last: tuple[int, ...]
    ) -> Array:
        """What a function gives for a batch: (..., p) or (..., d, p) as (..., p), then `last`."""
        whose, batch, d = f"the function {name_of(function)}", x.shape[:-1], x.shape[-1]
        answer = called(function, context, x, u)
        found = as_numbers(f"what {whose} gives", answer, "(..., p)", 1, finite=False)
        own = found.shape[len(batch) :]
        good = found.shape[: len(batch)] == batch and own[len(own) - len(last) :] == last
        own = own[: len(own) - len(last)]
        sizes = f"for states {x.shape} and inputs {u.shape}"
        if (
            not good
            or len(own) not in (1, 2)
            or not np.prod(own)
            or (len(own) == 2 and own[0] != d)
        ):
            wanted = "(..., p) or (..., d, p)" if not last else "(..., p, d+m) or (..., d, p, d+m)"
            raise InputError(f"{whose} must give {wanted}, but {sizes} gave {found.shape}")
        if self.shared and len(own) == 1:
            raise InputError(f"{whose} must give (..., d, p), as its unknowns are shared by states")
        if own != self._seen.setdefault("features", own):
            before = self._seen["features"]
            raise InputError(f"{whose} gives features {own} {sizes}, but {before} before")
        if not np.isfinite(found).all():
            raise ContextError(f"{whose} gives values that are not finite at {shown(context)}")
        if len(own) == 2 and self.used is None:
            vars(self).update(used=np.kron(np.eye(d, dtype=bool), np.ones((1, own[1]), bool)))
        return found.reshape(*batch, int(np.prod(own)), *last)

    def _arguments(self) -> dict[str, Any]:
        return {
            **super()._arguments(),
            "function": self.function,
            "jacobian": self.jacobian_function,
            "scales": self.scales,
            "shared": self.shared,
            "states": list(self.state_names),
            "inputs": list(self.input_names),
        }
