"""How much, how often: sizes of bodies, requests of a token, threads at work."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_REMEMBERED = 10_000  # callers whose buckets are kept, the latest


@dataclass(frozen=True)
class Limits:
    """What the service bears.

    `body` is in bytes; `rate` in requests of one token a second, in bursts of up to `burst`;
    `threads` work at once, and what comes meanwhile waits.
    """

    body: int = 16 * 1024 * 1024
    rate: float = 50.0
    burst: float = 200.0
    threads: int = 12  # fewer than a store has connections


class Buckets:
    """One bucket a caller: a request takes a drop, and drops come in at a constant rate."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str) -> float:
        """Take a drop; 0 if there was one, otherwise in how many seconds there will be."""
        now = self._clock()
        drops, then = self._buckets.pop(caller, (self._burst, now))
        drops = min(self._burst, drops + self._rate * (now - then))
        late = max(0.0, (1.0 - drops) / self._rate)
        self._buckets[caller] = (drops if late else drops - 1.0, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        return late
