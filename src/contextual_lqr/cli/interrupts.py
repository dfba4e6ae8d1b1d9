"""Ctrl-C at any moment: the command stops within seconds, with one word and exit code 130.

Python raises KeyboardInterrupt between two of its own steps in the main thread. There it may be
lost (in a destructor, a callback), become another error (in somebody else's C code), or wait for a
long call to return. So we remember that it came, raise it again if it was lost, and leave without
the main thread's help if that takes too long.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType

CODE = 130
_GRACE = 5.0  # seconds for a command to put its things in order


def _interrupt_main() -> None:
    """Once more what Ctrl-C does, which also ends a wait."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:  # Windows
        _thread.interrupt_main()


class Interrupts:
    """What is done about Ctrl-C inside a `with`; `asked` and `said` tell whether it came."""

    def __init__(self, last: bool) -> None:
        """`last` says that the process ends after this: from then on nothing is interrupted."""
        self.asked = self.said = self._lost = self._again = False
        self._last = last
        self._over = threading.Event()

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        self._before = signal.getsignal(signal.SIGINT) if main else None
        if self._before in (None, signal.SIG_IGN):  # in the background, where nobody types
            self._before = None
            return self
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reading,), daemon=True).start()
        signal.signal(signal.SIGINT, self._heard)
        if self._last:
            atexit.register(self._end)  # the first that is registered is called last
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._last else self._before)
        if not (self._last and self.asked):  # else the watch goes on until the process has ended
            self._over.set()
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._writing)  # which ends the watch
        sys.unraisablehook = self._hook

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """The first Ctrl-C stops the command; whoever is in a hurry types another."""
        if self.asked and not self._again:
            self._leave()
        self.asked, self._again = True, False
        raise KeyboardInterrupt

    def _unraisable(self, what: sys.UnraisableHookArgs) -> None:
        if self.asked:  # a KeyboardInterrupt that nobody could pass on, or what it left half done
            self._lost |= issubclass(what.exc_type, KeyboardInterrupt)
        else:
            self._hook(what)

    def _watch(self, reading: int) -> None:
        """Beside the main thread, which may be deep in a long call: see that it comes to an end."""
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while signal.SIGINT not in (came := pipe.read(64)):
                if not came:  # closed: it is over
                    return
            end = time.monotonic() + _GRACE
            while time.monotonic() < end:
                if self._over.wait(0.1):
                    return
                if self._lost:
                    self._lost, self._again = False, True
                    _interrupt_main()
            self._leave()

    def _end(self) -> None:
        """All is said and cleaned up: what Python takes apart next, threads may still be using."""
        if self.said:
            os._exit(CODE)

    def _leave(self) -> None:
        """End the process here and now; what it left half written, the next run cleans up."""
        with suppress(OSError):
            os.write(2, b"" if self.said else b"Stopped.\n")
        os._exit(CODE)
