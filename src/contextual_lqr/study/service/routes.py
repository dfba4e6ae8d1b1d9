"""The verbs of a study as routes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from contextual_lqr.study.service.auth import Caller, authorized
from contextual_lqr.study.wire import plain

router = APIRouter()
Watch = Annotated[Caller, authorized("watch")]


@router.get("/health")
def health() -> dict[str, str]:
    """Whether the service runs."""
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> str:
    """Counts for Prometheus; of studies, those that the token is of."""
    callers = request.scope["callers"]
    episodes = {name: float(one.study._log.count()) for name, one in callers.items()}
    text: str = request.app.state.metrics.text({"episodes": episodes})
    return text


@router.get("/api")
def studies(request: Request) -> dict[str, list[str]]:
    """The studies that the caller may see."""
    return {"studies": sorted(request.scope["callers"])}


@router.get("/api/{study}/status")
def status(caller: Watch) -> dict[str, Any]:
    """How the study stands."""
    found: dict[str, Any] = plain(caller.study.status())
    return found
