"""The variables a context is made of: which names have a value, and within which bounds."""

import math
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Real
from types import MappingProxyType
from typing import Any, final

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.checks import as_numbers
from contextual_lqr.context.expressions import RESERVED, Expression, as_float
from contextual_lqr.errors import ContextError, InputError

_MAX = sys.float_info.max


@final
class Variables:
    """Named, bounded numbers: which there are, and what is wrong with a set of values for them."""

    def __init__(self, bounds: Any, allow_outside: bool) -> None:
        """`bounds`: name -> (low, high); None and infinities stand for no bound."""
        if not isinstance(bounds, Mapping):
            raise InputError(f"bounds must map names to (low, high), not be {shown(bounds)}")
        pairs = {name: _pair(name, pair) for name, pair in bounds.items()}
        self.bounds: Mapping[str, tuple[float, float]] = MappingProxyType(pairs)
        self.allow_outside = allow_outside
        # Limits are finite, so that a single comparison refuses nan, infinity and out of bounds.
        self._limits = dict.fromkeys(pairs, (-_MAX, _MAX))
        if not allow_outside:
            self._limits = {n: (max(a, -_MAX), min(b, _MAX)) for n, (a, b) in pairs.items()}

    def checked(self, values: Any) -> dict[str, float]:
        """The values as floats, or all that is wrong with them in one `ContextError`."""
        floats: dict[str, float] = {}
        if isinstance(values, Mapping) and len(values) == len(self._limits):
            for name, (low, high) in self._limits.items():
                value = values.get(name)
                if type(value) is not float:
                    value = _number(value)
                if not low <= value <= high:
                    break
                floats[name] = value
            else:
                return floats
        raise ContextError(self._faults(values))

    def columns(self, batch: Iterable[Any]) -> tuple[int, dict[str, Float[Array, " batch"]]]:
        """How many contexts a batch holds, and their values by name, checked.

        A batch is a sequence of mappings, or one mapping from names to arrays of one length.
        """
        if not isinstance(batch, Mapping):
            rows = each(self.checked, batch)
            return len(rows), {name: np.array([row[name] for row in rows]) for name in self.bounds}
        if not self.bounds:
            raise ContextError("a mapping of arrays needs declared names: give a list of contexts")
        if faults := self._name_faults(batch):
            raise ContextError("; ".join(faults))
        columns = {name: _column(name, batch[name]) for name in self.bounds}
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(column)}" for name, column in columns.items())
            raise ContextError(f"the arrays of a batch must have the same length, but {lengths}")
        good = np.array(True)
        for name, (low, high) in self._limits.items():
            good = good & (low <= columns[name]) & (columns[name] <= high)
        if not good.all():
            index = int(good.argmin())
            values = {name: float(column[index]) for name, column in columns.items()}
            raise ContextError(f"context {index}: {self._faults(values)}")
        return len(good), columns

    def rows(self, batch: Iterable[Any]) -> list[dict[str, float]]:
        """The contexts of a batch one by one, checked."""
        return self.split(*self.columns(batch))

    def split(self, count: int, columns: Mapping[str, Array]) -> list[dict[str, float]]:
        """Columns as one mapping per context."""
        lists = {name: column.tolist() for name, column in columns.items()}
        return [{name: column[i] for name, column in lists.items()} for i in range(count)]

    def described(self) -> dict[str, list[float | None]]:
        """The bounds for JSON, which has no infinity: null stands for no bound."""
        pairs = self.bounds.items()
        return {name: [None if math.isinf(b) else b for b in pair] for name, pair in pairs}

    def _faults(self, values: Any) -> str:
        if not isinstance(values, Mapping):
            names = ", ".join(self.bounds) or "(none)"
            return f"a context must be a mapping with the names {names}, not {shown(values)}"
        faults = self._name_faults(values)
        for name in (name for name in self.bounds if name in values):
            value, (low, high) = values[name], self.bounds[name]
            said = f"'{name}' is {shown(value)}"
            if not _is_number(value):
                faults.append(f"{said}, which is not a number")
            elif not math.isfinite(_number(value)):
                faults.append(f"{said}, which is not finite")
            elif not self.allow_outside and not low <= _number(value) <= high:
                remedy = "allow_outside=True would let it pass"
                faults.append(f"{said}, outside its bounds [{low}, {high}] ({remedy})")
        return "; ".join(faults)

    def _name_faults(self, given: Mapping[Any, Any]) -> list[str]:
        exist = ", ".join(self.bounds) or "(none)"
        unknown = [
            f"'{n}' is unknown (the names are {exist})" for n in given if n not in self.bounds
        ]
        return unknown + [f"'{n}' is missing" for n in self.bounds if n not in given]


def each(function: Callable[[Any], Any], contexts: Iterable[Any]) -> list[Any]:
    """`function` of every context; a `ContextError` on the way is told the index."""
    answers: list[Any] = []
    try:
        for context in contexts:
            answers.append(function(context))  # noqa: PERF401 (their number tells the index)
    except ContextError as error:
        raise ContextError(f"context {len(answers)}: {error}") from error.__cause__
    return answers


def one_by_one(contexts: Iterable[Any]) -> list[Any]:
    """The contexts of a batch as a list: a sequence of them, or a mapping name -> array."""
    if not isinstance(contexts, Mapping):
        return list(contexts)
    columns = [np.asarray(values).tolist() for values in contexts.values()]
    return [dict(zip(contexts, values, strict=True)) for values in zip(*columns, strict=True)]


def shown(value: Any) -> str:
    """A value as it should stand in a sentence: short, and named values as name=value."""
    if isinstance(value, Mapping) and value:
        return ", ".join(f"{key}={shown(part)}" for key, part in value.items())
    return str(value) if isinstance(value, np.number) else reprlib.repr(value)


def called(function: Callable[..., Any], context: Any, *more: Any) -> Any:
    """A user's function of the context; what it raises is put in its place."""
    try:
        return function(context, *more)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ContextError(
            f"the function {name_of(function)} failed at {shown(context)} ({what})"
        ) from error


def name_of(feature: Any) -> str:
    """Text names itself, a function has a name, and everything else is shown."""
    text = feature.text if isinstance(feature, Expression) else feature
    return text.strip() if isinstance(text, str) else getattr(text, "__name__", shown(text))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _number(value: Any) -> float:
    """The value as a float; nan if it is no number, so that it fails every comparison."""
    return as_float(value) if _is_number(value) else math.nan


def _pair(name: Any, pair: Any) -> tuple[float, float]:
    """The bounds of one name as floats."""
    if not isinstance(name, str):
        raise InputError(f"a name in bounds must be text, not {shown(name)}")
    if name in RESERVED:
        raise InputError(f"'{name}' in bounds already means something in expressions: rename it")
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise InputError(
            f"the bounds of '{name}' must be a pair (low, high), not {shown(pair)}"
        ) from None
    low = -math.inf if low is None else _number(low)
    high = math.inf if high is None else _number(high)
    if not (low <= high and low < math.inf and high > -math.inf):
        raise InputError(
            f"the bounds of '{name}' must be numbers with low <= high, not {shown(pair)}"
        )
    return low, high


def _column(name: str, values: Any) -> Float[Array, " batch"]:
    """The values of one name in a batch."""
    with suppress(InputError):
        column = as_numbers(name, values, "(n,)", 1, finite=False)
        if column.ndim == 1:
            return column
    raise ContextError(
        f"the values of '{name}' must be a one-dimensional array of numbers, not {shown(values)}"
    )


def sampled_values(
    bounds: Mapping[str, tuple[float, float]],
    n: int,
    rng: np.random.Generator,
    near: Mapping[str, float] | None = None,
) -> dict[str, Float[Array, " n"]]:
    """n contexts within the bounds, by name.

    Where one is infinite: within 30 % of `near` or, without that, from 1 to 10 or as far off the
    other bound.
    """
    values = {}
    for name, (low, high) in bounds.items():
        first, last = low, high
        if not (math.isfinite(low) and math.isfinite(high)):
            if near is not None and name in near:
                first, last = np.clip((0.7 * near[name], 1.3 * near[name]), low, high)
            elif math.isfinite(high):
                first = high - 9
            else:
                first = low if math.isfinite(low) else 1.0
                last = first + 9
        share = rng.random(n)
        values[name] = first * (1 - share) + last * share  # last - first may overflow
    return values
