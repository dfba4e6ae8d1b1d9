"""The application: routes behind a gate, and errors as sentences."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version

import anyio.to_thread
from fastapi import FastAPI

from contextual_lqr.checks import require, shown
from contextual_lqr.study.service import errors, routes, watch_routes
from contextual_lqr.study.service.auth import STUDY_NAME
from contextual_lqr.study.service.gate import Gate, Limits
from contextual_lqr.study.service.metrics import Metrics
from contextual_lqr.study.study import Study

_OURS = ("api", "health", "metrics", "page")  # which are paths of the service itself


def create_app(studies: Mapping[str, Study], limits: Limits | None = None) -> FastAPI:
    """The service of these studies, each under its name; they are closed when it ends.

    A study that has no tokens is open to whoever reaches this host by a loopback address; one that
    has any is open to their holders only.
    """
    for name in studies:
        require(
            STUDY_NAME.fullmatch(name) and name not in _OURS,
            "a study is served under a name of up to 64 letters, digits, - and _, but not "
            f"{', '.join(_OURS)}; {shown(name)} is not one",
        )
    limits = limits or Limits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = limits.threads
        yield
        for study in studies.values():
            study.close()

    app = FastAPI(
        title="contextual-lqr",
        summary="Studies that fleets share: ask, tell, controllers and certificates.",
        version=version("contextual-lqr"),
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=errors.RESPONSES,
    )
    app.state.studies, app.state.metrics = dict(studies), Metrics()
    errors.install(app)
    for router in (routes.router, watch_routes.router):
        app.include_router(router)
    app.add_middleware(Gate, studies=studies, limits=limits, metrics=app.state.metrics)
    return app
