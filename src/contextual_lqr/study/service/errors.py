"""How answers are written; what is refused, or goes wrong, as `{"error": sentence}`."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from contextual_lqr.errors import ContextualLQRError
from contextual_lqr.study.log import StoreError

_LONGEST = 1000  # characters of a sentence, which may quote what was sent
_log = logging.getLogger("uvicorn.error")


class Answer(JSONResponse):
    """JSON in ASCII: half letters, which a name may hold, have no UTF-8."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Lines(Response):
    """JSON, one record a line."""

    media_type = "application/x-ndjson"


class Numbers(Response):
    """A file of arrays, as `Agent.save` or `Decoder.save` writes it."""

    media_type = "application/octet-stream"


class Refusal(BaseModel):
    """Why not."""

    error: str


_WHY = {
    400: "The body is not JSON.",
    401: "No token of this study was given.",
    403: "The token's role does not allow it.",
    404: "Not found.",
    405: "Not with this method.",
    409: "It does not fit this study: the sizes of states and inputs, the context, a key.",
    413: "The body is too large.",
    422: "The body or a parameter is not as described.",
    429: "Too many requests with this token; Retry-After says when to try again.",
    500: "A bug in the program.",
    503: "The store cannot be used at present; nothing was changed.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {  # JSON, whatever a route answers otherwise
    code: {
        "description": why,
        "content": {"application/json": {"schema": Refusal.model_json_schema()}},
    }
    for code, why in _WHY.items()
}


def refused(code: int, sentence: str, **headers: str) -> Answer:
    """The answer that says why not."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer({"error": sentence[:_LONGEST]}, code, named)


def unavailable(error: StoreError) -> Answer:
    """The store cannot be used; where it is, and why, is for the log."""
    _log.error("%s", error)
    why = "the store of this study cannot be used at present; nothing was changed"
    return refused(503, why, Retry_After="1")


def fault(error: Exception) -> Answer:
    """Something of ours went wrong: what it was, for the log."""
    _log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return refused(500, f"this is a bug in the program ({type(error).__name__})")


def install(app: FastAPI) -> None:
    """Answer every error in words."""

    @app.exception_handler(StoreError)
    def _store(_: Request, error: StoreError) -> Answer:
        return unavailable(error)

    @app.exception_handler(ContextualLQRError)
    def _ours(_: Request, error: ContextualLQRError) -> Answer:
        return refused(409, str(error))

    @app.exception_handler(RequestValidationError)
    def _malformed(_: Request, error: RequestValidationError) -> Answer:
        return refused(422, sentence(error))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Answer:
        if error.status_code == 405:
            named = (error.headers or {}).get("Allow", "")
            allowed = ", ".join(methods(app, request.url.path)) or named
            return refused(405, f"this allows only {allowed}", Allow=allowed)
        return Answer({"error": str(error.detail)}, error.status_code, error.headers)


def methods(app: FastAPI, path: str) -> list[str]:
    """All that a path answers to; a router names those of one route only."""
    return sorted(
        method.upper()
        for template, operations in app.openapi()["paths"].items()
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
        for method in operations
    )


def sentence(error: RequestValidationError) -> str:
    """The first things that are wrong with a body or a parameter, and where."""
    found = []
    for one in error.errors()[:3]:
        where = ".".join(str(part) for part in one["loc"])[:200]
        found.append(f"{where}: {one['msg']}"[:300])
    return "; ".join(found)
