"""A service in a thread of the tests."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from contextual_lqr import Study
from contextual_lqr.study.service import Limits
from contextual_lqr.study.service.server import server


@contextmanager
def served(studies: Mapping[str, Study], limits: Limits | None = None) -> Iterator[str]:
    """The address of a service of these studies."""
    running = server(studies, port=0, limits=limits)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started:
            assert thread.is_alive()
            time.sleep(0.005)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join()
