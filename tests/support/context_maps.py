"""Context maps of every kind, for the tests."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from contextual_lqr.context import (
    BlockContext,
    ContextMap,
    FeatureContext,
    FunctionContext,
)

BOUNDS = {"mass": (0.1, 10), "length": (0.0, math.inf)}
FEATURES = ("1", "1/mass", "length/mass", "sqrt(length) * exp(-mass)")
C = np.arange(20.0).reshape(4, 5)
D = np.array([[1.0, 2.0], [3.0, 4.5], [0.1, -0.0]])

contexts = st.fixed_dictionaries(
    {"mass": st.floats(0.1, 10) | st.integers(1, 10), "length": st.floats(0, 1e3)}
)


def by_mass(context: Mapping[str, float]) -> NDArray[np.float64]:
    return np.full((3, 5), 1 / context["mass"])


def inverse_mass(context: Mapping[str, float]) -> float:
    return 1 / context["mass"]


def wide(context: Mapping[str, float]) -> NDArray[np.float64]:
    return np.eye(7, 7) * context["mass"]


def all_maps() -> dict[str, ContextMap]:
    return {
        "constant blocks": BlockContext(C, D, bounds=BOUNDS),
        "one block a function": BlockContext(by_mass, D, bounds=BOUNDS),
        "features": FeatureContext(FEATURES, states=5, inputs=2, bounds=BOUNDS),
        "features without bounds": FeatureContext(FEATURES, states=5, inputs=2),
        "mixed features": FeatureContext(["1", inverse_mass], states=5, inputs=2, bounds=BOUNDS),
        "function": FunctionContext(wide, bounds=BOUNDS, states=5, inputs=2),
    }


every_map = pytest.mark.parametrize("map_", all_maps().values(), ids=all_maps().keys())
