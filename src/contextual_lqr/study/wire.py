"""What crosses the wire between a study and its clients, as what JSON can hold.

Python writes a float with as many digits as it takes to read the same float again: plans, episodes
and certificates arrive to the bit. What is not finite crosses as "Infinity", "-Infinity" or "NaN".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from contextual_lqr.certificates.certificate import Certificate, CostBound
from contextual_lqr.certificates.extrapolation import Extrapolation
from contextual_lqr.certificates.margins import LoopMargins
from contextual_lqr.certificates.saturation import Saturation
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.lqr.stationary import StationaryPolicy
from contextual_lqr.study.records import Asked, StudyStatus

_RECORDS = {
    kind.__name__: kind
    for kind in (
        Certificate,
        CostBound,
        Extrapolation,
        LoopMargins,
        Saturation,
        LinearPolicy,
        StationaryPolicy,
        Asked,
        StudyStatus,
    )
}
_ODD = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def plain(value: Any) -> Any:
    """A record, its arrays and its numbers as JSON; a record says its type."""
    match value:
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {name: plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
    if is_dataclass(value):
        facts = {one.name: plain(getattr(value, one.name)) for one in fields(value)}
        return {"type": type(value).__name__, **facts}
    return value
