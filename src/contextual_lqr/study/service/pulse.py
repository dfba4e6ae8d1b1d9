"""What tells watchers that a study has grown: one look at the store for all of them.

Others may tell through other processes, so the store is asked; as long as somebody watches, and
once for all who do. When the service ends, so do the events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

from contextual_lqr.errors import ContextualLQRError
from contextual_lqr.study.watch import Watch

LOOK = 0.5  # seconds between looks at the store
HEARTBEAT = 15.0  # seconds of silence at most
LONGEST = 300.0  # seconds after which a watcher must show its token again
MOST = 100  # watchers at once

Change = dict[str, Any]


class Pulse:
    """Those who watch a study, and what they were told last."""

    def __init__(self, watch: Watch, ending: Callable[[], bool]) -> None:
        self._watch, self._ending = watch, ending
        self._watchers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._last: Change | None = None

    @property
    def full(self) -> bool:
        """Whether no more can be told."""
        return len(self._watchers) >= MOST

    async def beats(self, seconds: float = LONGEST) -> AsyncIterator[Change | None]:
        """How the study stands whenever it has changed; None as a sign of life."""
        ends, changed = time.monotonic() + seconds, asyncio.Event()
        self._watchers.add(changed)
        if self._task is None or self._task.done():
            self._last, self._task = None, asyncio.create_task(self._look())
        elif self._last is not None:
            changed.set()
        try:
            yield None  # so that who watches knows at once that it does
            while time.monotonic() < ends and not self._ending():
                wait = min(HEARTBEAT, ends - time.monotonic())
                try:
                    await asyncio.wait_for(changed.wait(), wait)
                except TimeoutError:
                    yield None
                else:
                    changed.clear()
                    yield None if self._ending() else self._last
        finally:
            self._watchers.discard(changed)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None  # who comes now begins anew, though this has not ended yet

    async def _look(self) -> None:
        while True:
            try:
                found: Change = await run_in_threadpool(self._watch.mark)
            except ContextualLQRError as error:
                found = {"trouble": str(error)}
            if found != self._last or self._ending():
                self._last = found
                for watcher in self._watchers:
                    watcher.set()
            await asyncio.sleep(LOOK)
