"""A past that fades: its recursion, what it forgets, and plain samples as its limit."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr.belief.fading import FORGOTTEN, faded, forgotten_after


@pytest.mark.parametrize("spacing", [1.0, 1.5, 8.0])
def test_each_stage_follows_the_one_before(spacing: float) -> None:
    column = default_rng(0).normal(size=(50, 2))
    stages, keep = faded(column, 3, spacing), 1 - 1 / spacing
    assert np.array_equal(stages[0], column)
    for before, now in pairwise(stages):
        assert np.array_equal(now[0], column[0])  # at rest before
        assert np.allclose(now[1:], keep * now[:-1] + (1 - keep) * before[:-1], atol=1e-14)


def test_without_fading_stages_are_samples() -> None:
    column = np.arange(9.0)
    assert np.array_equal(faded(column, 2, 1.0)[2][2:], column[:-2])
    assert forgotten_after(4, 1.0) == 4
    assert forgotten_after(0, 7.0) == 0


@pytest.mark.parametrize(("stages", "spacing"), [(1, 3.0), (3, 10.0), (7, 2.0)])
def test_what_was_before_is_forgotten_just_then(stages: int, spacing: float) -> None:
    """A column that was 1 for ever, and is 0 from its second sample on."""
    steps = forgotten_after(stages, spacing)
    left = faded(np.array([1.0] + [0.0] * 400), stages, spacing)[-1]
    # The first sample counts as the past; a sample enters the first stage a step after it is seen.
    assert left[steps + 1] <= FORGOTTEN < left[steps]
