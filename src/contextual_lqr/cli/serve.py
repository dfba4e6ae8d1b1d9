"""`contextual-lqr serve`."""

from __future__ import annotations

import re
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
        Where a study is, such as sqlite:///fleet.db, or with a name,
        fleet=sqlite:///fleet.db; once for each study.
    host
        The address to listen on; if not this host alone, every study needs tokens.
    port
        The port; 0 for any free one.
    tls_cert
        The certificate, to speak HTTPS; with tls_key.
    tls_key
        The certificate's private key.
    """
    from contextual_lqr.cli.study_files import address
    from contextual_lqr.study import Study
    from contextual_lqr.study.service.server import listening, server
    from contextual_lqr.study.tokens import Tokens

    addresses: dict[str, str] = {}
    for one in store:
        name, url = _named(one)
        require(name not in addresses, f"two studies are named {name}: give each --store NAME=URL")
        here = not url.startswith(("http://", "https://"))
        require(here, f"{url} is served already: give the store itself")
        addresses[name] = url
    studies = {name: Study.open(address(url, must_exist=True)) for name, url in addresses.items()}
    running = server(studies, host, tls_cert, tls_key)
    console, scheme = Console(stderr=True), "http" if tls_cert is None else "https"
    with listening(host, port) as socket:
        at = f"[{host}]" if ":" in host else host
        root = f"{scheme}://{at}:{socket.getsockname()[1]}"
        for name, study in studies.items():
            say(console, f"{root}/{name} serves {study._log.name}")
            if not Tokens(study._log).any():
                say(
                    console,
                    f"{name} has no tokens: anyone on this host may do everything; "
                    "`contextual-lqr study token create` makes one",
                )
        if scheme == "http" and not host.startswith("127."):
            say(console, "without TLS, tokens can be read in transit: use a proxy, or --tls-cert")
        running.run([socket])


def _named(store: str) -> tuple[str, str]:
    """A name and an address; the name is that of the file or database, unless given."""
    name, equals, url = store.partition("=")
    if equals and re.fullmatch("[A-Za-z0-9_-]+", name):
        return name, url
    found = re.search(r"([A-Za-z0-9_-]{1,64})(\.\w+)?$", store.partition("?")[0])
    return found[1] if found else "study", store
