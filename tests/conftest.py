"""Hypothesis draws the same examples every time; long tests run without the checks of shapes.

`make fuzz` draws new ones, HYPOTHESIS_EXAMPLES of them for each test that has no number of its own.

Every call of our functions is checked in the tests (jaxtyping, beartype), which costs five to ten
times as much as the call where matrices are small. A test that is marked slow repeats calls, by
the thousand, which quick tests make with the checks on.
"""

import os
from collections.abc import Iterator

import jaxtyping
import pytest
from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, deadline=None, max_examples=60)
settings.register_profile(
    "fuzz", deadline=None, max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "10000"))
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", item.get_closest_marker("slow") is not None)
    try:
        return (yield)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
