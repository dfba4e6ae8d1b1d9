"""The service as a process: where it may listen, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import uvicorn

from contextual_lqr.checks import require
from contextual_lqr.study.service.app import create_app
from contextual_lqr.study.service.gate import is_loopback
from contextual_lqr.study.service.limits import Limits
from contextual_lqr.study.study import Study
from contextual_lqr.study.tokens import Tokens

_GRACE = 10  # seconds that requests have to end when the service is asked to


def server(
    studies: Mapping[str, Study],
    host: str = "127.0.0.1",
    port: int = 8123,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    limits: Limits | None = None,
) -> uvicorn.Server:
    """The service of these studies, to be run; elsewhere than on the loopback all need tokens."""
    for name, study in studies.items():
        require(
            is_loopback(host) or Tokens(study._log).valid(),
            f"the study {name} has no token, and would be open to whoever reaches {host}: make "
            "one first, with contextual-lqr study token create, or listen on 127.0.0.1",
        )
    app = create_app(studies, limits)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who calls is said by their token
        limit_concurrency=1000,
        timeout_graceful_shutdown=_GRACE,
        ws="none",
    )
    running = uvicorn.Server(config)
    app.state.ending = lambda: running.should_exit  # for those who listen to events
    return running
