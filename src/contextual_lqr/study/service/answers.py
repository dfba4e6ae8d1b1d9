"""How answers are written."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse, Response


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
