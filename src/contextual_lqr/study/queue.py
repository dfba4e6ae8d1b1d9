"""A line in which all threads and processes stand that write to one file, first come, first served.

SQLite lets each of those who wait look again from time to time, the less often the longer it has
waited: of a hundred, some wait for minutes. Here the system wakes the next one. A place in the line
is the lock of an empty file beside the store, and ends with its process, however that ends. A
process that is forked meanwhile would keep the place as well, and gives it up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contextual_lqr.study.forking import known_to_forks, undivided

try:
    import fcntl
except ImportError:  # Windows, where SQLite's own way has to do
    fcntl = None  # type: ignore[assignment]


class _Held(set[int]):
    """The files whose locks threads of this process hold, or wait for."""

    def _forked(self) -> None:
        while self:
            os.close(self.pop())

    __hash__ = object.__hash__  # type: ignore[assignment]


_held = known_to_forks(_Held())


@contextmanager
def _place(line: Path | None) -> Iterator[int | None]:
    """The file of a line; None where there is no line, or no file can be made."""
    place = None
    if line is not None and fcntl is not None:
        # Where no file can be made nothing can be written, and SQLite says so.
        with suppress(OSError), undivided():
            place = os.open(line, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _held.add(place)
    try:
        yield place
    finally:
        if place is not None and place in _held:  # else this process was forked meanwhile
            with undivided():
                _held.discard(place)
                os.close(place)


@contextmanager
def in_turn(line: Path | None, patience: float) -> Iterator[None]:
    """Be the only one who is in this block, of those who stand in this line, if there is one."""
    with _place(line) as place:
        if place is not None:
            _wait(place, patience)
        yield


@contextmanager
def only_one(line: Path) -> Iterator[bool]:
    """Whether nobody else is in such a block; where that cannot be known, as if nobody were."""
    mine = True
    with _place(line) as place:
        if place is not None:
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                mine = False
            except OSError:  # not every file system has locks
                pass
        yield mine


def _wait(place: int, patience: float) -> None:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pass
    except OSError:  # not every file system has locks
        return
    # The system knows no patience. If ours ends, `place` is closed, and with it the lock that this
    # thread may still be given.
    turn = threading.Thread(target=fcntl.flock, args=(place, fcntl.LOCK_EX), daemon=True)
    turn.start()
    turn.join(patience)
    if turn.is_alive():
        raise TimeoutError(f"another process has been writing for {patience:.0f} s")
