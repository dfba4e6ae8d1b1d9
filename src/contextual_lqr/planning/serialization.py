"""Our own rules, strategies and betas, in a form that JSON can hold, for files."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from contextual_lqr.belief.confidence import ConstantBeta, DeterminantBeta, PaperBeta
from contextual_lqr.errors import FormatError
from contextual_lqr.planning.cautious import Cautious
from contextual_lqr.planning.certainty_equivalence import CertaintyEquivalence
from contextual_lqr.planning.optimism import Optimism
from contextual_lqr.planning.sampled_optimism import SampledOptimism
from contextual_lqr.planning.thompson_sampling import ThompsonSampling

_STRATEGIES = (Cautious, CertaintyEquivalence, Optimism, SampledOptimism, ThompsonSampling)
_BETAS = (ConstantBeta, DeterminantBeta, PaperBeta)
_KNOWN: dict[str, type[Any]] = {kind.__name__: kind for kind in (*_STRATEGIES, *_BETAS)}


def written(rule: Any) -> Any:
    """A rule as its name and fields; None for one that is not ours, or holds one that is not."""
    try:
        return _written(rule)
    except LookupError:
        return None


def _written(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return list(value)
    if value is None or isinstance(value, int | float | str):
        return value
    if _KNOWN[type(value).__name__] is not type(value):
        raise LookupError
    fields = {one.name: _written(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return {"kind": type(value).__name__, "fields": fields}


def read(text: Any) -> Any:
    """The rule that `written` wrote."""
    if isinstance(text, list):
        return tuple(text)
    if not isinstance(text, dict):
        return text
    if text.get("kind") not in _KNOWN or not isinstance(text.get("fields"), dict):
        raise FormatError(f"there is no rule {text.get('kind')!r}")
    return _KNOWN[text["kind"]](**{name: read(value) for name, value in text["fields"].items()})
