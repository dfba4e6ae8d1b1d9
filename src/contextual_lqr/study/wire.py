"""What crosses the wire between a study and its clients, as what JSON can hold.

Python writes a float with as many digits as it takes to read the same float again: plans, episodes
and certificates arrive to the bit. What is not finite crosses as "Infinity", "-Infinity" or "NaN".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

import numpy as np

from contextual_lqr.certificates.certificate import Certificate, CostBound
from contextual_lqr.certificates.extrapolation import Extrapolation
from contextual_lqr.certificates.margins import LoopMargins
from contextual_lqr.certificates.saturation import Saturation
from contextual_lqr.errors import FormatError
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.lqr.stationary import StationaryPolicy
from contextual_lqr.study import encoding
from contextual_lqr.study.log import Episode
from contextual_lqr.study.records import Asked, StudyStatus

_RECORDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Asked,
        Certificate,
        CostBound,
        Extrapolation,
        LinearPolicy,
        LoopMargins,
        Saturation,
        StationaryPolicy,
        StudyStatus,
    )
}
NEXT = "Next-After"  # the header that says after which episode the next page begins
_ODD = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def plain(value: Any) -> Any:
    """A record, its arrays and its numbers; a record says its type."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case np.ndarray() if np.isfinite(value).all():
            return value.tolist()
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case Mapping():
            return {name: plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
    if is_dataclass(value):
        facts = {one.name: plain(getattr(value, one.name)) for one in fields(value)}
        return {"type": type(value).__name__, **facts}
    return value


def record_of(facts: Any, **known: Any) -> Any:
    """The record that `plain` wrote, with the fields that are `known` here as they are."""
    try:
        kind = _RECORDS[facts["type"]]
        values = {
            one.name: known.get(one.name, _value(one, facts[one.name])) for one in fields(kind)
        }
        return kind(**values)
    except (LookupError, TypeError, ValueError) as error:
        raise FormatError(f"the service answers what this release does not read: {error}") from None


def _value(field: Field[Any], value: Any) -> Any:
    """What a field of a record holds: texts stay as they are, whatever they say."""
    kind = str(field.type)
    if isinstance(value, Mapping) and value.get("type") in _RECORDS and field.name != "context":
        return record_of(value)
    if value is None or field.name == "context":
        return value
    if field.name == "diagnostics":
        return {name: _number(one) for name, one in value.items()}
    if kind.startswith("tuple[Array"):
        return tuple(np.array(one, float) for one in value)
    if "Array" in kind:
        return np.array(value, float)
    if kind.startswith("tuple"):
        return tuple(value)
    return float(_number(value)) if kind == "float" else value


def _number(value: Any) -> Any:
    return _ODD.get(value, value) if isinstance(value, str) else value


def exported(one: Episode) -> dict[str, Any]:
    """An episode as what JSON can hold."""
    played = encoding.episode_of(one.content, f"episode {one.number}")
    return {
        "key": one.key,
        "ask": one.ask,
        "machine": one.machine,
        "context": encoding.context_of(one.context),
        "states": played.states.tolist(),
        "inputs": played.inputs.tolist(),
        "worker": one.worker,
        "told_at": one.told_at,
    }
