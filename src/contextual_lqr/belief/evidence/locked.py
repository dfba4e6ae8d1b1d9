"""Data that threads may share: whoever changes them waits for the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


class Locked:
    """Has a lock of its own, which is not pickled."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())


def one_at_a_time(method: Method) -> Method:
    """A method of something `Locked` that one thread at a time may run."""

    @wraps(method)
    def guarded(self: Locked, *given: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *given, **named)

    return guarded  # type: ignore[return-value]
