"""The context of a machine, found again from what the context map made of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_lqr import BlockContext, FeatureContext
from contextual_lqr.context import ContextMap
from contextual_lqr.data.machine_context import context_of

MAPS = {
    "1/mass": (FeatureContext(["1", "1/mass"], states=2, inputs=1), {"mass": (1e-2, 1e3)}),
    "two": (
        FeatureContext(["1", "mass*length", "length**2"], states=2, inputs=1),
        {"mass": (0.5, 5.0), "length": (1e-3, 2e-3)},
    ),
    "block": (BlockContext([[1, 0], [0, 1]], [["exp(-mass/1e8)"]]), {"mass": (1e7, 9e8)}),
    "signed": (FeatureContext(["speed", "speed**2"], states=1, inputs=1), {"speed": (-2.0, 2.0)}),
}


@pytest.mark.parametrize("name", MAPS)
@given(data=st.data())
@settings(max_examples=8)
def test_a_context_is_found_from_its_matrix(name: str, data: st.DataObject) -> None:
    context_map, ranges = MAPS[name]
    shares = data.draw(st.lists(st.floats(0, 1), min_size=len(ranges), max_size=len(ranges)))
    context = {
        key: low * (high / low) ** share if low > 0 else low + share * (high - low)
        for (key, (low, high)), share in zip(ranges.items(), shares, strict=True)
    }
    G = context_map.matrix(context)
    found = context_of(context_map, G, ranges)
    assert found is not None
    np.testing.assert_allclose(context_map.matrix(found), G, rtol=1e-9, atol=1e-12)
    for key, (low, high) in ranges.items():
        assert found[key] == pytest.approx(context[key], rel=1e-6, abs=1e-6 * (high - low))


def test_numbers_come_back_as_they_were_written() -> None:
    context_map, ranges = MAPS["two"]
    written = {"mass": 2.5, "length": 0.0017}
    assert context_of(context_map, context_map.matrix(written), ranges) == written
    fixed = {"mass": (2.5, 2.5), "length": (0.0017, 0.0017)}  # the logs have one value
    assert context_of(context_map, context_map.matrix(written), fixed) == written


@pytest.mark.parametrize(
    ("context_map", "context"),
    [
        (FeatureContext(["speed**2"], states=1, inputs=1), {"speed": 1.0}),  # or -1
        (FeatureContext(["mass*length"], states=1, inputs=1), {"mass": 1.0, "length": 1.0}),
        (FeatureContext(["1"], states=1, inputs=1, bounds={"mass": (0, 3)}), {"mass": 1.0}),
    ],
)
def test_what_cannot_be_told_is_not(context_map: ContextMap, context: dict[str, float]) -> None:
    ranges = dict.fromkeys(context, (-2.0, 2.0))
    assert context_of(context_map, context_map.matrix(context), ranges) is None


def test_a_matrix_of_no_context_within_the_range() -> None:
    context_map, _ = MAPS["1/mass"]
    G = context_map.matrix({"mass": 8.0})
    assert context_of(context_map, G, {"mass": (1.0, 4.0)}) is None
