"""What comes back from the parts of logs, put in their order."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from contextual_lqr.data.screening import BadRows, Quarantine


class Collector:
    """Writes the bad rows of parts in their order, however they arrive; counts what is done."""

    def __init__(
        self,
        sizes: list[float],
        quarantine: Quarantine | None,
        progress: Callable[[float], None] | None,
    ) -> None:
        self._sizes, self._quarantine, self._progress = sizes, quarantine, progress
        self._waiting: dict[int, list[BadRows]] = {}
        self._next, self._done = 0, [0.0] * len(sizes)
        self._lock, self.stopped = Lock(), False

    def __call__(self, number: int, bad: list[BadRows]) -> None:
        """A part is done, and these are its bad rows."""
        self.within(number, 1.0)
        self._waiting[number] = bad
        while self._next in self._waiting:
            for some in self._waiting.pop(self._next):
                if self._quarantine is not None:
                    self._quarantine.add(some)
            self._next += 1

    def within(self, number: int, share: float) -> None:
        """So much of a part has been read."""
        if self.stopped:
            raise InterruptedError
        if self._progress is not None:
            with self._lock:
                self._done[number] = share
                done = np.dot(self._done, self._sizes) / sum(self._sizes)
                self._progress(min(round(float(done), 9), 1.0))
