"""Routes of the service itself, of no study."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from contextual_lqr.study.service import bodies
from contextual_lqr.study.service.answers import Answer
from contextual_lqr.study.service.auth import SCHEME

router = APIRouter(default_response_class=Answer)


@router.get("/health", response_model=bodies.Health)
def health() -> Any:
    """Whether the service runs."""
    return Answer({"status": "ok"})


@router.get("/metrics", response_class=PlainTextResponse, dependencies=[SCHEME])
def metrics(request: Request) -> Any:
    """Counts for Prometheus; of studies, those that the token is of."""
    episodes = {
        name: float(caller.study._log.count()) for name, caller in request.scope["callers"].items()
    }
    return request.app.state.metrics.text({"episodes": episodes})


@router.get("/api", response_model=bodies.Studies, dependencies=[SCHEME])
def studies(request: Request) -> Any:
    """The studies that the token is of."""
    return Answer({"studies": sorted(request.scope["callers"])})
