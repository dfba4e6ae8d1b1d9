"""What a process that is forked must not take over from its parent: locks, connections, places.

Other threads may be in the middle of anything when one of them forks, and in the child they never
go on. What they held is given up there: whoever is `known_to_forks` is told, by its `_forked`. What
cannot be given up is waited for: while a thread is `undivided`, nobody forks. SQLite is like that,
and so is whatever else holds locks of its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar, runtime_checkable

_LONGEST = 10.0  # seconds for which a fork waits


@runtime_checkable
class _Forked(Protocol):
    def _forked(self) -> None: ...


_Known = TypeVar("_Known", bound=_Forked)
_known: weakref.WeakSet[_Forked] = weakref.WeakSet()


def known_to_forks(one: _Known) -> _Known:
    """Have it told in every process that is forked from now on."""
    _known.add(one)
    return one


class _Threads:
    """How many threads are undivided now."""

    def __init__(self) -> None:
        self._free, self._own = threading.Condition(), threading.local()
        self._inside, self._forking = 0, False

    @contextmanager
    def undivided(self) -> Iterator[None]:
        nested = getattr(self._own, "depth", 0)
        if not nested:
            with self._free:
                self._free.wait_for(lambda: not self._forking)
                self._inside += 1
        self._own.depth = nested + 1
        try:
            yield
        finally:
            self._own.depth = nested
            if not nested:
                with self._free:
                    self._inside -= 1
                    self._free.notify_all()

    def before(self) -> None:
        mine = int(getattr(self._own, "depth", 0) > 0)
        self._free.acquire()
        self._free.wait_for(lambda: not self._forking)
        self._forking = True  # nobody comes in until the fork is over
        self._free.wait_for(lambda: self._inside <= mine, _LONGEST)

    def after(self) -> None:
        self._forking = False
        self._free.notify_all()
        self._free.release()


_threads = _Threads()


def undivided() -> AbstractContextManager[None]:
    """A block in which no other thread forks."""
    return _threads.undivided()


class Lock:
    """A lock that a thread may take again, and under which it is undivided."""

    def __init__(self) -> None:
        self._forked()
        known_to_forks(self)

    def _forked(self) -> None:
        self._lock, self._blocks = threading.RLock(), threading.local()

    def __enter__(self) -> None:
        block = undivided()
        block.__enter__()
        self._lock.acquire()
        self._blocks.__dict__.setdefault("all", []).append(block)

    def __exit__(self, *about: object) -> None:
        block = self._blocks.all.pop()
        self._lock.release()
        block.__exit__(None, None, None)


def _in_child() -> None:
    global _threads
    _threads = _Threads()
    for one in list(_known):
        one._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _threads.before(),
        after_in_parent=lambda: _threads.after(),
        after_in_child=_in_child,
    )
