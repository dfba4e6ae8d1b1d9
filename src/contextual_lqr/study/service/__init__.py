"""A study over HTTP: the verbs of `Study` as routes, for those whose tokens allow it.

FastAPI, because the OpenAPI description and the refusals of malformed bodies come out of the same
types; uvicorn serves it.
"""

from contextual_lqr.errors import MissingExtraError

try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingExtraError("FastAPI", "serve") from None

from contextual_lqr.study.service.app import create_app
from contextual_lqr.study.service.gate import Limits

__all__ = ["Limits", "create_app"]
