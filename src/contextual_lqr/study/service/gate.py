"""What every request passes before its body is read: who calls, how often, and how much.

A study without tokens is for whoever is on this host: its caller must come from a loopback address,
to a loopback name (so that no name on the network can be pointed here), and through no proxy. No
page of another origin may call at all.
"""

from __future__ import annotations

import ipaddress
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from contextual_lqr.study.log import StoreError
from contextual_lqr.study.service.auth import Caller
from contextual_lqr.study.service.errors import fault, refused, unavailable
from contextual_lqr.study.service.metrics import Metrics
from contextual_lqr.study.study import Study
from contextual_lqr.study.tokens import Tokens

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_REMEMBERED = 10_000  # callers whose buckets are kept, the latest
_HEARD = 8  # times the largest body is what is read at most of one that is too large
_PORT = re.compile(r":[0-9]*$")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
}


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


class Gate:
    """The outermost part of the application. A route finds its `Caller` in the scope."""

    def __init__(
        self, app: Any, studies: Mapping[str, Study], limits: Limits, metrics: Metrics
    ) -> None:
        self._app, self._studies, self._limits, self._metrics = app, studies, limits, metrics
        self._tokens = {name: Tokens(study._log) for name, study in studies.items()}
        self._buckets = Buckets(limits.rate, limits.burst)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request in, or say why not; every answer has the headers of a safe one."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, code = time.monotonic(), 0

        async def sending(message: Any) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _SAFE.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            inside = await self._refusal(scope) or self._app
            await inside(scope, self._limited(receive), sending)
        except Exception as error:
            if code:  # half of an answer is on its way
                raise
            await fault(error)(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.count(method, route, code, time.monotonic() - began)

    def _limited(self, receive: Any) -> Any:
        """The body as it comes in, until it is too large.

        Some more of it is then read and dropped: who is cut off while sending hears no reason.
        """
        size = 0

        async def receiving() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limits.body:
                while size < _HEARD * self._limits.body and message.get("more_body"):
                    message = await receive()
                    size += len(message.get("body", b""))
                raise HTTPException(413, self._too_large, {"Connection": "close"})
            return message

        return receiving

    @property
    def _too_large(self) -> str:
        return f"a body may have at most {self._limits.body:,} bytes"

    async def _refusal(self, scope: Any) -> Response | None:
        """Why the request is not let in; if it is, its callers are in the scope."""
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return refused(403, "pages of other origins may not call this service")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > _HEARD * self._limits.body:
            return refused(413, self._too_large, Connection="close")
        parts = scope["path"].removeprefix(scope.get("root_path", "")).split("/")
        if len(parts) < 2 or parts[1] not in ("api", "metrics"):
            return None
        names = [parts[2]] if parts[1] == "api" and len(parts) > 2 else list(self._studies)
        if not all(name in self._studies for name in names):
            return refused(404, "there is no such study here")
        try:
            callers = await run_in_threadpool(self._callers, names, scope, headers)
        except StoreError as error:
            return unavailable(error)
        if not callers:
            why = "give a token of this study, as Authorization: Bearer ..."
            return refused(401, why, WWW_Authenticate="Bearer")
        scope["callers"], scope["caller"] = callers, next(iter(callers.values()))
        who = scope["caller"].name
        if who and (wait := self._buckets.wait(who)):
            why = f"this token has made too many requests: try again in {wait:.2g} s"
            return refused(429, why, Retry_After=str(math.ceil(wait)))
        return None

    def _callers(self, names: list[str], scope: Any, headers: Headers) -> dict[str, Caller]:
        """Who calls, in each of these studies where they are somebody."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        found = {}
        for name in names:
            study, tokens = self._studies[name], self._tokens[name]
            if not tokens.any():
                if _local(scope, headers):
                    found[name] = Caller("", "administrator", study)
            elif kind.lower() == "bearer" and (token := tokens.holder(given.strip())):
                found[name] = Caller(token.id, token.role, study, token.machine)
        return found


def _local(scope: Any, headers: Headers) -> bool:
    """Whether somebody on this host calls, and nobody through them."""
    if any(name in headers for name in _FORWARDED):
        return False
    client, host = (scope.get("client") or ("",))[0], headers.get("host", "")
    return is_loopback(client) and is_loopback(_PORT.sub("", host).strip("[]"))


def is_loopback(host: str) -> bool:
    """Whether this address or name is of this host only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
