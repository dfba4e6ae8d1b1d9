"""What the columns of Θ are called: each has a feature, and multiplies a state or an input."""

from collections.abc import Sequence

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.context.base import ContextMap
from contextual_lqr.context.block import BlockContext
from contextual_lqr.context.dynamics import Dynamics
from contextual_lqr.context.feature import FeatureContext


def column_names(context_map: ContextMap, p: int, names: Sequence[str] | None = None) -> list[str]:
    """What each column of Θ multiplies: a feature, and a state or an input."""
    if isinstance(context_map, Dynamics):
        return list(context_map.feature_names)
    if not isinstance(context_map, FeatureContext):
        owners, features = feature_groups(context_map, p)
        return [f"{features[owner]}, row {j + 1}" for j, owner in enumerate(owners)]
    features = list(context_map.feature_names)
    y = p // len(features)
    d = context_map.states or 0
    if names is None:
        names = [f"state {i + 1}" if i < d else f"input {i - d + 1}" for i in range(y)]
    require(len(names) == y, f"there must be {y} names of states and inputs, not {len(names)}")
    return [f"{feature} · {name}" for feature in features for name in names]


def feature_groups(context_map: ContextMap, p: int) -> tuple[Array, list[str]]:
    """Which feature each of the p coordinates of z belongs to, and the names of the features.

    Of the block form, rows of C and D that hold the same expressions are one feature.
    """
    if isinstance(context_map, Dynamics):
        return np.arange(p), list(context_map.feature_names)
    if isinstance(context_map, FeatureContext):
        names = list(context_map.feature_names)
        return np.repeat(np.arange(len(names)), p // len(names)), names
    if isinstance(context_map, BlockContext) and not any(
        part is None or callable(part) for part in (context_map.C, context_map.D)
    ):
        labels = [
            f"{_entries(row)} ({part})"
            for part, block in (("states", context_map.C), ("inputs", context_map.D))
            for row in np.asarray(block, object)
        ]
        names = list(dict.fromkeys(labels))
        return np.array([names.index(label) for label in labels]), names
    return np.arange(p), [f"row {j + 1} of the context matrix" for j in range(p)]


def kept_names(context_map: ContextMap, count: int) -> list[str]:
    """What is kept of a context, in so many numbers, for people."""
    if isinstance(context_map, FeatureContext):
        return list(context_map.feature_names)
    if isinstance(context_map, Dynamics):
        return list(context_map.names or ["its context"])
    if isinstance(context_map, BlockContext) and (texts := context_map.varying) is not None:
        return texts
    return ["its context"] * count


def _entries(row: Array) -> str:
    """The expressions of a row, without the zeros; "1" for a row of numbers."""
    texts = [str(entry).strip() for entry in row if isinstance(entry, str)]
    return ", ".join(dict.fromkeys(texts)) or "1"
