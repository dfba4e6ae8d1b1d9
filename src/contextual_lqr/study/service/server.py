"""The service as a process: where it may listen, and how it ends."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import uvicorn

from contextual_lqr.checks import require
from contextual_lqr.errors import InputError
from contextual_lqr.study.service.app import create_app
from contextual_lqr.study.service.gate import Limits, is_loopback
from contextual_lqr.study.study import Study
from contextual_lqr.study.tokens import Tokens

_GRACE = 3  # seconds that requests have to end when the service is asked to
_CONNECTIONS, _BACKLOG = 1000, 2048


def server(
    studies: Mapping[str, Study],
    host: str = "127.0.0.1",
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    limits: Limits | None = None,
) -> uvicorn.Server:
    """The service of these studies, to be run on what `listening` gives for this host.

    Elsewhere than on the loopback every study must have a token.
    """
    for name, study in studies.items():
        require(
            is_loopback(host) or Tokens(study._log).valid(),
            f"the study {name} has no token, and would be open to anyone who reaches {host}: make "
            "one first, with contextual-lqr study token create, or listen on 127.0.0.1",
        )
    require((tls_cert is None) == (tls_key is None), "TLS needs both a certificate and its key")
    app = create_app(studies, limits)
    config = uvicorn.Config(
        app,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who calls is said by their token
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE,
        ws="none",
    )
    try:
        config.load()
    except OSError as error:
        raise InputError(f"TLS cannot start with {tls_cert} and {tls_key}: {error}") from None
    running = uvicorn.Server(config)
    app.state.ending = lambda: running.should_exit  # for those who listen to events
    return running


def listening(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Of this protocol by name: only then does asyncio send what is written at once, not 40 ms late.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise InputError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    return found
