"""The page that an engineer watches, what it shows as JSON, and events when the study grows.

What takes long is made by a thread of its own, one thing after the other, so that machines that ask
and tell need not wait for those who watch. A token is never in an address: the page reads events by
a request with a header, as it reads everything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from contextual_lqr.study.service.auth import Caller, authorized
from contextual_lqr.study.service.pulse import LONGEST, Pulse
from contextual_lqr.study.watch import Answer, Watch

router = APIRouter()
Name = Annotated[str | None, Query(max_length=200)]
Json = Annotated[str, Query(max_length=2000, description="An object of JSON.")]

_MANY = "too many are watching at once: try again later"
_QUEUE = 64  # things that may wait to be made
_KINDS = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)


class Watched:
    """A study with those who watch it."""

    def __init__(self, caller: Caller, ending: Callable[[], bool]) -> None:
        self.watch = Watch(caller.study)
        self.pulse = Pulse(self.watch, ending)
        self._makers = {one: ThreadPoolExecutor(1, "watch") for one in (False, True)}
        self._waiting = 0

    async def made(self, make: Callable[[], Answer], longest: bool = False) -> Answer:
        """What takes long, after all that came before; what takes longest holds up nothing else."""
        if self._waiting >= _QUEUE:
            raise HTTPException(503, _MANY, {"Retry-After": "5"})
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._makers[longest], make)
        finally:
            self._waiting -= 1


async def watched(request: Request, caller: Annotated[Caller, authorized("watch")]) -> Watched:
    """What this service shows of the caller's study."""
    kept = vars(request.app).setdefault("watched", {})
    name = request.path_params["study"]
    if name not in kept:
        ending = getattr(request.app.state, "ending", lambda: False)
        found = await run_in_threadpool(Watched, caller, ending)
        kept.setdefault(name, found)
    one: Watched = kept[name]
    return one


Shown = Annotated[Watched, Depends(watched)]


@router.get("/api/{study}/overview")
async def overview(found: Shown) -> Answer:
    """How it stands, and every machine's state."""
    return await run_in_threadpool(found.watch.overview)


@router.get("/api/{study}/costs")
async def costs(found: Shown) -> Answer:
    """Cost and excess of the latest episodes, as columns."""
    return await found.made(found.watch.costs)


@router.get("/api/{study}/theta")
async def theta(found: Shown) -> Answer:
    """Θ with its standard errors, and the directions that no episode has excited."""
    return await found.made(found.watch.theta)


@router.get("/api/{study}/trust")
async def trust(found: Shown) -> Answer:
    """How many machines never tried, all over the range, would be trusted."""
    return await found.made(found.watch.trust)


@router.get("/api/{study}/alarm")
async def alarm(found: Shown) -> Answer:
    """Machines that stand out, the worst first."""
    return await found.made(found.watch.alarm, longest=True)


@router.get("/api/{study}/next")
async def next_runs(found: Shown) -> Answer:
    """What one more run would save of the price of ignorance."""
    return await found.made(found.watch.next_runs)


@router.get("/api/{study}/map")
async def trust_map(found: Shown, x: Name = None, y: Name = None, held: Json = "{}") -> Answer:
    """Verdict and likely excess over one or two names of the context; the others are held."""
    at = _object("held", held)
    return await found.made(lambda: found.watch.map(x, y, at))


@router.get("/api/{study}/look")
async def look(found: Shown, context: Json, machine: Name = None) -> Answer:
    """One machine in detail: verdict, gains, and the closed loop with the band of 90 %."""
    at = _object("context", context)
    return await found.made(lambda: found.watch.look(at, machine))


@router.get("/api/{study}/events", response_class=StreamingResponse)
async def events(
    found: Shown, seconds: Annotated[float, Query(ge=0, le=LONGEST)] = LONGEST
) -> StreamingResponse:
    """Server-sent events: one now, and one whenever an episode or an ask has come.

    They end after five minutes, or sooner; whoever still watches, and still may, comes again.
    """
    if found.pulse.full:
        raise HTTPException(503, _MANY, {"Retry-After": "5"})

    async def lines() -> AsyncIterator[str]:
        async for change in found.pulse.beats(seconds):
            yield ": still here\n\n" if change is None else f"data: {json.dumps(change)}\n\n"

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


@router.get("/", include_in_schema=False)
def page() -> Response:
    """The page."""
    return _file("index.html")


@router.get("/{study}", include_in_schema=False)
def page_of(request: Request, study: str) -> Response:
    """The same, for the study at this address."""
    if study not in request.app.state.studies:
        raise HTTPException(404, "there is no such study here")
    return _file("index.html")


@router.get("/page/{name}", include_in_schema=False)
def part(name: str) -> Response:
    """What the page is made of."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in _parts():
        raise HTTPException(404, "there is no such part of the page")
    kind = _KINDS[name.replace("-", ".").rpartition(".")[2]]
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    return Response(_parts()[name], media_type=kind, headers=headers)


@cache
def _parts() -> dict[str, bytes]:
    folder = files("contextual_lqr.study.service") / "page"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HTTPException(409, f'{name} must be an object of JSON, as {{"mass": 2.0}}')
    return found
