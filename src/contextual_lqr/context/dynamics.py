"""Nonlinear dynamics: features of context, state and input, x' = Θ φ(c, x, u) + w.

Linear in the unknowns, so that what is learnt is what a fleet with G = I learns: where a linear
machine has y = [x; u], this one has y = φ, of p entries.

    φ       (p,), the features, and ∂φ/∂[x; u] (p, d+m)
    used    (d, p): which entries of Θ may differ from 0
"""

import pickle
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import as_numbers, require
from contextual_lqr.context.base import ContextMap, Map
from contextual_lqr.context.expressions import RESERVED
from contextual_lqr.context.variables import sampled_values, shown
from contextual_lqr.errors import ContextError, InputError

_MOST = 10_000  # states, or inputs, by their number alone
_SAMPLES = 16  # contexts, and states and inputs of each, at which features are tried


@dataclass(frozen=True, eq=False, kw_only=True)
class Dynamics(ContextMap):
    """A known, frozen map from context, state and input to features; `Decoder` takes it.

    `FeatureDynamics` is made of expressions, `FunctionDynamics` of a function.

    Attributes
    ----------
    state_names, input_names : tuple of str
        What the states and the inputs are called.
    used : array, (d, p), or None
        Which features each state's own row of Θ has; the other entries are known to be 0. None if
        all rows have all of them.
    shared : bool
        Whether the unknowns are the same for all states: then Θ has one vector, in each row's
        places.
    """

    state_names: tuple[str, ...] = field(init=False)
    input_names: tuple[str, ...] = field(init=False)
    used: Bool[Array, "d p"] | None = field(init=False, default=None)
    shared: bool = field(init=False, default=False)

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """What the features are called, in the order of Θ's columns."""

    def features(
        self, context: Any, states: ArrayLike, inputs: ArrayLike
    ) -> Float[Array, "*batch p"]:
        """The features φ.

        Parameters
        ----------
        context
            The machine's context.
        states, inputs : array_like, (..., d) and (..., m)
            Where it is, and what is played. Leading axes are batch axes.

        Returns
        -------
        array, (..., p)
            Finite.

        Raises
        ------
        InputError
            If shapes do not fit, or a feature has no value there.
        """
        x, u = self._moves(states, inputs)
        return self._features_at(context, x, u)

    def jacobian(
        self, context: Any, states: ArrayLike, inputs: ArrayLike
    ) -> Float[Array, "*batch p n"]:
        """The derivatives of the features by states and inputs, (..., p, d+m); see `features`."""
        x, u = self._moves(states, inputs)
        return self._jacobian_at(context, x, u)

    @abstractmethod
    def _features_at(self, context: Any, x: Array, u: Array) -> Array:
        """φ of arrays that have been checked, and broadcast."""

    @abstractmethod
    def _jacobian_at(self, context: Any, x: Array, u: Array) -> Array:
        """The same of the derivatives."""

    @property
    def persistence(self) -> Float[Array, "d p"] | None:
        """Θ of machines that stay where they are: of features that are a state, as they stand."""
        if self.shape is None:
            return None
        return np.array([[float(f == x) for f in self.feature_names] for x in self.state_names])

    def constant_rows(self, wanted: Float[Array, "k n"]) -> None:
        """None: rows of [A, B] are none of Θ."""
        return None

    def usual_sizes(self, scales: Float[Array, " n"]) -> Float[Array, " p"] | None:
        """How large features are where states and inputs have these sizes.

        None where contexts cannot be sampled.
        """
        if self.bounds is None:
            return None
        rng, d = np.random.default_rng(0), len(self.state_names)
        sampled = sampled_values(self.bounds, _SAMPLES, rng)
        squares = []
        for i in range(_SAMPLES):
            y = scales * rng.uniform(-1, 1, (_SAMPLES, len(scales)))
            context = {name: values[i] for name, values in sampled.items()}
            for x, u in zip(y[:, :d], y[:, d:], strict=True):
                try:
                    squares.append(np.square(self._features_at(context, x, u)))
                except InputError:  # a root of a negative state, say
                    continue
        return np.sqrt(np.mean(squares, 0)) if squares else None

    def sized(self: Map, states: int, inputs: int) -> Map:
        """The same; refused unless it has this many states and inputs."""
        for word, now, new in (("states", self.states, states), ("inputs", self.inputs, inputs)):
            require(now == new, f"these dynamics have {now} {word}, not {new}")
        return self

    @property
    def matrix_width(self) -> int:
        """The number p of features: what a row multiplies here."""
        return self._sizes[0]

    def matrices(self, contexts: Iterable[Any]) -> Float[Array, "batch p n"]:
        """One identity for each context: all that depends on it is in the features."""
        p = self._sizes[0]
        return np.broadcast_to(np.eye(p), (len(self._rows(contexts)), p, p))

    def _matrix(self, context: Any) -> Float[Array, "p n"]:
        return np.eye(self._sizes[0])

    @property
    def _sizes(self) -> tuple[int, int, int]:
        if self.shape is None:
            raise InputError(
                "the number of features is not known yet: call features once, or learn something"
            )
        return self.shape

    def keys(self, contexts: Iterable[Any], G: Array | None = None) -> Float[Array, "batch k"]:
        """The values of declared names; of contexts without, a number for each different one."""
        rows = self._rows(contexts)
        if self.names is not None:
            return np.array([[row[name] for name in self.names] for row in rows]).reshape(
                len(rows), len(self.names)
            )
        return np.array([[_fingerprint(row)] for row in rows]).reshape(len(rows), 1)

    def expanded(self, condensed: Array) -> Float[Array, "batch p n"]:
        """As in `ContextMap`."""
        p = self._sizes[0]
        return np.broadcast_to(np.eye(p), (len(condensed), p, p))

    def moves(
        self, contexts: Iterable[Any], states: Sequence[Array], inputs: Sequence[Array]
    ) -> list[Array]:
        """As in `ContextMap`: here the features themselves."""
        return self.encode(contexts, states, inputs)

    def episode_moves(
        self, contexts: Any, states: Float[Array, "n H d"], inputs: Float[Array, "n steps m"]
    ) -> Float[Array, "n steps y"]:
        """As in `ContextMap`."""
        n, steps = inputs.shape[:2]
        each = repeated(contexts, np.repeat(np.arange(n), steps))
        x, u = (list(part.reshape(n * steps, -1).T) for part in (states[:, :-1], inputs))
        columns = self.encode(each, x, u)
        return np.stack(columns, -1).reshape(n, steps, len(columns))

    def _moves(self, states: Any, inputs: Any) -> tuple[Array, Array]:
        """States and inputs as arrays of one batch."""
        x = as_numbers("states", states, "(..., d)", 1)
        u = as_numbers("inputs", inputs, "(..., m)", 1)
        for word, array, names in (
            ("states", x, self.state_names),
            ("inputs", u, self.input_names),
        ):
            require(
                array.shape[-1] == len(names),
                f"{word} must have {len(names)} entries ({', '.join(names)}), "
                f"but the shape is {array.shape}",
            )
        try:
            batch = np.broadcast_shapes(x.shape[:-1], u.shape[:-1])
        except ValueError:
            raise InputError(
                f"states {x.shape} and inputs {u.shape} must have the same leading axes"
            ) from None
        return (
            np.broadcast_to(x, (*batch, x.shape[-1])),
            np.broadcast_to(u, (*batch, u.shape[-1])),
        )


def require_linear(context_map: ContextMap, what: str) -> None:
    """Refuse, for machines that are not linear, what is for A and B."""
    require(
        not isinstance(context_map, Dynamics),
        f"{what} is for linear machines, x' = A x + B u; these have dynamics, x' = Θ φ(c, x, u)",
    )


def require_rows_apart(context_map: ContextMap, known: Mapping[int, Array]) -> None:
    """Refuse known rows where all rows of Θ have the same unknowns."""
    require(
        not (known and isinstance(context_map, Dynamics) and context_map.shared),
        "the unknowns of these dynamics are shared, so no row of Θ can be known on its own",
    )


def used_entries(context_map: ContextMap) -> Bool[Array, "d p"] | None:
    """Which entries of Θ are not known to be 0; None if all of them may be anything."""
    return context_map.used if isinstance(context_map, Dynamics) else None


def repeated(contexts: Any, places: Int64[Array, " k"]) -> Any:
    """Those of the contexts that stand at these places: of a sequence, or a mapping to arrays."""
    if isinstance(contexts, Mapping):
        return {name: np.asarray(values)[places] for name, values in contexts.items()}
    return [contexts[i] for i in places]


def named(word: str, given: Any) -> tuple[str, ...]:
    """The names of states or inputs, as given or numbered from 1; refused if they are none."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 < given <= _MOST:
        return tuple(f"{word} {i + 1}" for i in range(given))
    given = given.tolist() if isinstance(given, Array) else given
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InputError(
            f"{word}s must be a list of names, or how many there are, not {shown(given)}"
        )
    names = tuple(given)
    for name in names:
        require(isinstance(name, str), f"the name of a {word} must be text, not {shown(name)}")
        require(name not in RESERVED, f"'{name}' already means something in expressions: rename it")
    require(names, f"there must be at least one {word}")
    require(len(set(names)) == len(names), f"two {word}s share a name: {', '.join(names)}")
    return names


def _fingerprint(context: Any) -> float:
    """A number that tells contexts without names apart, the same for equal numbers."""
    digest = blake2b(_plain(context), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))


def _plain(context: Any) -> bytes:
    if isinstance(context, Mapping):
        parts = sorted((str(name), _plain(value)) for name, value in context.items())
        return repr(parts).encode()
    try:
        return (as_numbers("context", context, "", 0, finite=False) + 0.0).tobytes()
    except InputError:
        pass
    try:
        return pickle.dumps(context)
    except Exception as error:
        raise ContextError(
            f"a context must be numbers, or something that can be pickled, not {shown(context)}"
        ) from error
