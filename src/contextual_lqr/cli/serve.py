"""`contextual-lqr serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from contextual_lqr.checks import require
from contextual_lqr.cli.terminal import Console, say


def serve(
    *,
    store: Annotated[list[str], Parameter(negative="")],
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=Number(gte=0, lt=2**16))] = 8123,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> None:
    """Serve studies over HTTP, with a page to watch them, until Ctrl-C.

    Parameters
    ----------
    store
        Where a study is, as sqlite:///fleet.db, or its name and that, as
        fleet=sqlite:///fleet.db; given again for each further one.
    host
        The address to listen on; elsewhere than here, every study needs tokens.
    port
        The port; 0 for any that is free.
    tls_cert
        The certificate, to speak HTTPS; with tls_key.
    tls_key
        The certificate's private key.
    """
    from contextual_lqr.study import Study
    from contextual_lqr.study.service.server import server

    require((tls_cert is None) == (tls_key is None), "give both --tls-cert and --tls-key")
    studies = {}
    for one in store:
        name, equals, url = one.partition("=")
        if not equals or "://" in name:
            name, url = "study", one
        require(name not in studies, f"two stores are named {name}: give each its own, NAME=URL")
        studies[name] = Study.open(url)
    running = server(studies, host, port, tls_cert, tls_key)
    say(Console(stderr=True), f"http://{host}:{port}")
    running.run()
