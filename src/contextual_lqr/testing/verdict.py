"""How a check speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def expect(condition: object, sentence: str) -> None:
    """Fail with this sentence unless the condition holds, whatever Python's -O says."""
    if not condition:
        raise AssertionError(sentence)


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Expect that the block refuses its input with an exception of any kind."""
    try:
        yield
    except Exception:
        return
    raise AssertionError(f"{what} should be refused, but is accepted")
