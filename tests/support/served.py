"""A service in a thread of the tests."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from contextual_lqr import Study
from contextual_lqr.study.service import Limits
from contextual_lqr.study.service.server import listening, server


@contextmanager
def served(
    studies: Mapping[str, Study], limits: Limits | None = None, port: int = 0
) -> Iterator[str]:
    """The address of a service of these studies."""
    running = server(studies, limits=limits)
    with listening("127.0.0.1", port) as socket:
        thread = threading.Thread(target=running.run, args=([socket],))
        thread.start()
        try:
            while not running.started:
                assert thread.is_alive()
                time.sleep(0.005)
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()


class Answer(NamedTuple):
    """What a service said."""

    code: int
    content: bytes
    headers: Mapping[str, str]

    @property
    def error(self) -> str:
        """The sentence of a refusal, which is all there is of it."""
        facts = json.loads(self.content)
        assert list(facts) == ["error"]
        assert "Traceback" not in facts["error"]
        return facts["error"]


def request(
    url: str, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
) -> Answer:
    """One request as it is; a body that is no bytes becomes JSON."""
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=20)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    if body is not None:
        given.setdefault("Content-Type", "application/json")
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with suppress(BrokenPipeError):  # it may have said why before it hung up
            connection.request(method, path, body, given)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), answer.headers)
    finally:
        connection.close()
