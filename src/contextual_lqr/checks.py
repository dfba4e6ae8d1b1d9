"""Checks at the boundary: what comes in becomes finite float64 arrays, or is refused in words."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import numpy as np
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.linalg.blas import dasum

from contextual_lqr.errors import ContextualLQRError, InputError

_Record = TypeVar("_Record")


def require(condition: object, message: str) -> None:
    """Refuse the input with this sentence unless the condition holds."""
    if not condition:
        raise InputError(message)


def shown(value: object) -> str:
    """A value in a sentence: short, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, an object of somebody else's
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else f"{text[:57]}..."


def require_probability(name: str, value: Any) -> None:
    """Refuse what is not strictly between 0 and 1."""
    good = False
    with suppress(InputError):
        good = 0 < as_number(name, value) < 1
    require(good, f"{name} must be a probability between 0 and 1, not {shown(value)}")


def as_number(name: str, value: Any) -> float:
    """`value` as one finite number."""
    array = as_numbers(name, value, "()", 0)
    require(array.ndim == 0, f"{name} must be one number, but has shape {array.shape}")
    return float(array)


def as_count(name: str, value: Any, least: int = 1, most: int = 10**9) -> int:
    """`value` as a whole number between two others; True is none."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require(whole, f"{name} must be a whole number, not {shown(value)}")
    count = int(value)
    require(count >= least, f"{name} must be at least {least}, not {shown(count)}")
    require(count <= most, f"{name} must be at most {most}, not {shown(count)}")
    return count


def as_numbers(name: str, value: Any, shape: str, least_axes: int, *, finite: bool = True) -> Array:
    """`value` as a C-contiguous float64 array of numbers, finite unless said otherwise.

    Truth values, dates and words are no numbers, and what is masked is missing.
    """
    try:
        array = value if type(value) is Array else _as_array(name, value)
        if array.dtype.kind not in "fiu":
            raise TypeError
        array = np.asarray(array, np.float64, order="C")
    except InputError:
        raise
    except Exception:  # an object of somebody else's makes an array of itself, or fails as it likes
        raise InputError(f"{name} must be an array of real numbers of shape {shape}") from None
    if array.ndim < least_axes:
        raise InputError(f"{name} must have shape {shape}, but has shape {array.shape}")
    if finite and not all_finite(array):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        place = f" at index {where}" if where else ""
        raise InputError(f"{name} must be finite, but holds {array[where]}{place}")
    return array


def _as_array(name: str, value: Any) -> Array:
    """An array of something else; NumPy would take truth values for 0 and 1, and forget masks."""
    if _any(value, _masked):
        raise InputError(f"{name} has masked values: fill them or leave them out")
    if _any(value, _truth):
        raise TypeError
    return np.asarray(value)


def _any(value: object, odd: Callable[[object], bool]) -> bool:
    """Whether something in nested lists is odd."""
    if isinstance(value, list | tuple):
        return any(_any(one, odd) for one in value)
    return odd(value)


def _masked(value: object) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def _truth(value: object) -> bool:
    return isinstance(value, bool | np.bool_) or getattr(value, "dtype", None) == np.bool_


def all_finite(array: Array) -> bool:
    """Whether no entry of a C-contiguous float64 array is infinite or NaN."""
    # Σ|a| says so in one pass without a warning, unless it overflows by itself.
    quick = array.size > 0 and math.isfinite(dasum(array.reshape(-1)))
    return quick or bool(np.isfinite(array).all())


def as_symmetric(name: str, matrices: Array) -> Array:
    """The symmetric part, exactly symmetric; refused if it is not nearly all there is."""
    transposed = matrices.mT
    skew = np.abs(matrices - transposed).max((-2, -1), initial=0.0)
    scale = np.abs(matrices).max((-2, -1), initial=0.0)
    bad = skew > 1e-10 * scale
    require(
        not bad.any(),
        f"{name} must be symmetric, but an entry and its mirror image differ by "
        f"{skew[bad].max(initial=0.0):.3g}",
    )
    return matrices / 2 + transposed / 2


def require_semi_definite(name: str, matrices: Array, hint: str = "") -> None:
    """Refuse a stack of symmetric matrices if one has a negative eigenvalue, beyond rounding."""
    if matrices.size == 0:
        return
    eigenvalues = np.linalg.eigvalsh(matrices)
    least = eigenvalues[..., 0]
    bad = least < -1e-10 * np.abs(eigenvalues).max(-1)
    require(
        not bad.any(),
        f"{name} must be positive semi-definite, but has an eigenvalue of "
        f"{least[bad].min(initial=0.0):.3g}{hint}",
    )


def as_covariance(name: str, value: Any, d: int) -> Array:
    """A covariance of d numbers, (d, d)."""
    W = as_numbers(name, value, "(d, d)", 2)
    require(W.shape == (d, d), f"{name} must have shape ({d}, {d}), not {W.shape}")
    return as_covariances(name, W)


def as_covariances(name: str, matrices: Array) -> Array:
    """A stack of covariances, exactly symmetric; refused if one is none."""
    found = as_symmetric(name, matrices)
    require_semi_definite(f"{name}, a covariance,", found)
    return found


def as_places(name: str, places: Iterable[int], d: int) -> tuple[int, ...]:
    """Some of d states, counted from 0, in order."""
    chosen = tuple(places)
    whole = all(isinstance(i, int | np.integer) and 0 <= i < d for i in chosen)
    require(whole, f"{name} must be states counted from 0 to {d - 1}, not {shown(places)}")
    return tuple(sorted({int(i) for i in chosen}))


def broadcast_batches(batches: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The common batch shape, or a sentence that lists the shapes that do not fit together."""
    shapes = set(batches.values()) - {()}
    if len(shapes) < 2:  # the usual case, and quick
        return shapes.pop() if shapes else ()
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in batches.items())
        raise InputError(
            f"the batch shapes do not broadcast against each other: {listed}"
        ) from None


def frozen(array: Array) -> Array:
    """A read-only copy, so that no one else can change a record."""
    return read_only(array.copy())


def read_only(array: Array) -> Array:
    """The same array, of ours, protected from now on."""
    array.setflags(write=False)
    return array


def record(instance: _Record, **fields: object) -> _Record:
    """Set the fields of a frozen record whose contents have been checked."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
    return instance


def altered(instance: _Record, **fields: object) -> _Record:
    """A frozen record with other contents in some fields, which have been checked."""
    old = {one.name: getattr(instance, one.name) for one in dataclasses.fields(instance)}  # type: ignore[arg-type]
    return record(object.__new__(type(instance)), **old | fields)


# -- arguments of the wrong kind -------------------------------------------------------------------

_Public = TypeVar("_Public")


def in_words(public: _Public) -> _Public:
    """Make a function, or the public methods of a class, refuse arguments of the wrong kind.

    Nothing is checked beforehand. When a call fails with an error that is not ours, its arguments
    are held against the annotations, and the first that does not fit is named; if all fit, the
    error is what it is.
    """
    if isinstance(public, type):
        package = public.__module__.partition(".")[0]
        for owner in public.__mro__:
            if owner.__module__.partition(".")[0] == package:
                _explain_methods(owner)
        return public
    wrapped = _explaining(public)
    setattr(sys.modules[wrapped.__module__], wrapped.__name__, wrapped)  # the same for everybody
    return cast(_Public, wrapped)


def _explain_methods(owner: type) -> None:
    for name, member in list(vars(owner).items()):
        plain = getattr(member, "__func__", member)
        if inspect.isfunction(plain) and (name == "__init__" or not name.startswith("_")):
            wrapped = _explaining(plain)
            kept = type(member) if isinstance(member, classmethod | staticmethod) else None
            setattr(owner, name, wrapped if kept is None else kept(wrapped))


def _explaining(function: Any) -> Any:
    if hasattr(function, "explains"):
        return function

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except (ContextualLQRError, MemoryError):
            raise
        except Exception as error:
            if sentence := _misfit(function, arguments, named):
                raise InputError(sentence) from error
            raise

    called.explains = True  # type: ignore[attr-defined]
    return called


def _misfit(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> str | None:
    """The first argument that is not of its kind."""
    try:
        given = inspect.signature(function).bind(*arguments, **named).arguments
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # it was called with too few, or too many
        return None
    for name, value in given.items():
        if name in hints and name != "self" and not _fits(name, value, hints[name]):
            return f"{name} must be {_described(hints[name])}, not {shown(value)}"
    return None


def _fits(name: str, value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, TypeVar | typing.ForwardRef | str):
        return True
    if hint == ArrayLike:
        with suppress(InputError):
            return bool(as_numbers(name, value, "", 0).size)
        return False
    if origin in (typing.Union, types.UnionType):
        return any(_fits(name, value, one) for one in inner)
    if origin is typing.Literal:
        return isinstance(value, str) and value in inner
    if hint in (int, float):
        return _is_number(value, hint)
    if isinstance(value, Array) and value.ndim == 0 and origin in (Iterable, Sequence):
        return False
    try:
        return isinstance(value, origin or (type(None) if hint is None else hint))
    except TypeError:  # a protocol of the user's, say
        return True


def _is_number(value: Any, kind: type) -> bool:
    """Whether it is a number, and one that 64 bits hold."""
    if isinstance(value, bool | np.longdouble):
        return False
    if isinstance(value, int | np.integer):
        return abs(int(value)) < 2**63
    return kind is float and isinstance(value, float | np.floating)


def _described(hint: Any) -> str:
    if hint == ArrayLike:
        return "an array of real numbers"
    words = {int: "a whole number", float: "a number", bool: "True or False", str: "a word"}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_described, typing.get_args(hint))))
    if hint in (None, type(None)):
        return "None"
    return words.get(hint) or f"a {getattr(hint, '__name__', str(hint))}"


def as_input_bounds(bounds: Any, m: int) -> tuple[Array, Array]:
    """The pair (low, high) of what m inputs may be, each a number or m of them."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InputError(f"input_bounds must be a pair (low, high), not {bounds!r}")
    try:
        pair = [np.asarray(bound, float) for bound in bounds]
    except (TypeError, ValueError):
        raise InputError(f"input_bounds must be numbers, not {bounds!r}") from None
    require(
        all(bound.shape in ((), (m,)) for bound in pair) and bool((pair[0] <= pair[1]).all()),
        f"input_bounds must be low <= high, each a number or {m} of them, not {bounds!r}",
    )
    low, high = (frozen(np.broadcast_to(bound, (m,))) for bound in pair)
    return low, high
