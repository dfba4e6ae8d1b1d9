"""Calls to a service, repeated until they are answered: every call of ours may be.

What is sent is made once: a plan is asked for under a key of ours, and an episode is known by what
it holds. A call whose answer was lost can so be made again, and changes nothing twice.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from contextual_lqr.checks import require, shown
from contextual_lqr.errors import FormatError, InputError
from contextual_lqr.study.log import StoreError

TOKEN = "CONTEXTUAL_LQR_TOKEN"  # where a token may be, if none is given
_HERE = ("localhost", "127.0.0.1", "::1")
_ONCE = 60.0  # seconds in which an answer must begin
_AGAIN = (429, 502, 503, 504)  # what may be better a little later
_LONGEST = 2.0  # seconds between two tries at most


@dataclass(frozen=True)
class Answered:
    """What came back."""

    content: bytes
    headers: Any

    @property
    def json(self) -> Any:
        """The content, read."""
        try:
            return json.loads(self.content)
        except ValueError:
            raise FormatError("what answers there is not the service of a study") from None


class Service:
    """The routes of one study at http(s)://host:port/study; threads may share it.

    A call that fails is repeated for `patience` seconds.
    """

    def __init__(self, url: str, token: str | None, patience: float) -> None:
        parts = urlsplit(url)
        path, _, study = parts.path.rstrip("/").rpartition("/")
        require(
            parts.hostname and study and not parts.query and not parts.fragment,
            f"a served study is at an address such as https://host:8123/fleet, not {shown(url)}",
        )
        require(
            "@" not in parts.netloc, "give the token as token=, not in the address: addresses leak"
        )
        require(0 < patience < float("inf"), f"patience is a number of seconds, not {patience!r}")
        self.name = f"{parts.scheme}://{parts.netloc}{path}/{study}"
        self._root, self._patience = f"{path}/api/{study}", patience
        self._secure, self._host = parts.scheme == "https", str(parts.hostname)
        self._port = parts.port
        self._headers = {"Accept": "*/*"}
        if token := token or os.environ.get(TOKEN):
            sound = isinstance(token, str) and token.isascii() and token.isprintable()
            require(sound, "a token is a string of letters and digits, shown when it was created")
            self._headers["Authorization"] = f"Bearer {token}"
            if not self._secure and self._host not in _HERE:
                warnings.warn(
                    f"the token goes to {self._host} unencrypted: use https://", stacklevel=4
                )
        self._own, self._process = threading.local(), os.getpid()
        self._open: set[http.client.HTTPConnection] = set()

    def call(self, method: str, route: str, body: Any = None) -> Answered:
        """The answer of a route of the study."""
        try:
            content = None if body is None else json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"only finite numbers, text and lists can be sent: {error}") from None
        end, wait = time.monotonic() + self._patience, 0.05
        while True:
            try:
                code, answer = self._try(method, self._root + route, content)
                why = _sentence(code, answer)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise StoreError(f"{self.name} could not be verified: {error}") from None
                code, why = 0, f"{str(error) or type(error).__name__}"
            else:
                if code < 300:
                    return answer
                if code not in _AGAIN:
                    raise InputError(f"{self.name}: {why}")
            if time.monotonic() + wait > end:
                raise StoreError(f"{self.name} does not answer: {why}; it is safe to try again")
            time.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, _LONGEST)

    def close(self) -> None:
        """End all connections."""
        while self._open:
            self._open.pop().close()

    def _try(self, method: str, path: str, content: bytes | None) -> tuple[int, Answered]:
        connection = self._connection()
        headers = dict(self._headers)
        if content is not None:
            headers["Content-Type"] = "application/json"
        with suppress(BrokenPipeError):  # it may have said why before it hung up
            connection.request(method, path, content, headers)
        answer = connection.getresponse()
        return answer.status, Answered(answer.read(), answer.headers)

    def _connection(self) -> http.client.HTTPConnection:
        """This thread's; a process that was forked has its own."""
        if self._process != os.getpid():
            self._process, self._own, self._open = os.getpid(), threading.local(), set()
        found: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if found is None or found not in self._open:
            if self._secure:
                secure = ssl.create_default_context()
                found = http.client.HTTPSConnection(
                    self._host, self._port, timeout=_ONCE, context=secure
                )
            else:
                found = http.client.HTTPConnection(self._host, self._port, timeout=_ONCE)
            self._own.connection = found
            self._open.add(found)
        return found

    def _drop(self) -> None:
        if (old := getattr(self._own, "connection", None)) is not None:
            old.close()
            self._open.discard(old)


def _sentence(code: int, answer: Answered) -> str:
    """Why not."""
    try:
        return str(answer.json["error"])
    except (FormatError, LookupError, TypeError):
        return f"the answer is {code} {http.client.responses.get(code, '')}".rstrip()
