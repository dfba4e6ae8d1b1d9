"""`contextual-lqr study token`: who may speak to a service of a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from contextual_lqr.checks import require
from contextual_lqr.cli.options import AsJson
from contextual_lqr.cli.study_files import address
from contextual_lqr.cli.terminal import Console, print_json, print_text, say
from contextual_lqr.study.log import Log
from contextual_lqr.study.tokens import Role, Token, Tokens

Store = Annotated[str, Parameter()]


def create(
    store: Store,
    /,
    *,
    role: Role = "watch",
    machine: str | None = None,
    name: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Create a token, and print it once: the store keeps only a digest.

    Parameters
    ----------
    store
        The study: a file, or postgresql://user@host/database.
    role
        What its holder may do: watch; ask and tell for one machine; for all, and export and
        import (engineer); everything (administrator).
    machine
        The label of the machine that it is for, if its role is machine.
    name
        Who has it, for people to read.
    as_json
        Print JSON, for a script to read.
    """
    with _tokens(store) as tokens:
        made, text = tokens.create(role, machine, name)
    if as_json:
        print_json({**_facts(made), "token": text})
        return
    print_text(text + "\n")


def list_(store: Store, /, *, as_json: AsJson = False) -> None:
    """Show who has tokens, and since when.

    Parameters
    ----------
    store
        The study: a file, or postgresql://user@host/database.
    as_json
        Print JSON, for a script to read.
    """
    with _tokens(store) as tokens:
        found = tokens.all()
    if as_json:
        print_json([_facts(one) for one in found])
        return
    table = Table()
    for title in ("id", "role", "name", "made", "revoked"):
        table.add_column(title)
    for one in found:
        revoked = "" if one.revoked_at is None else _day(one.revoked_at)
        table.add_row(one.id, one.role, one.name, _day(one.created_at), revoked)
    Console().print(table if found else "there are no tokens in this study")


def revoke(store: Store, token: str, /, *, as_json: AsJson = False) -> None:
    """Revoke a token for good.

    Parameters
    ----------
    store
        The study: a file, or postgresql://user@host/database.
    token
        Its id, as `list` shows it.
    as_json
        Print JSON, for a script to read.
    """
    with _tokens(store) as tokens:
        gone = tokens.revoke(token)
    if as_json:
        print_json(_facts(gone))
        return
    say(Console(), f"{gone.id} of {gone.name} is revoked")


@contextmanager
def _tokens(store: str) -> Iterator[Tokens]:
    here = not store.startswith(("http://", "https://"))
    require(here, "tokens are made where the store is: give the file, or postgresql://...")
    log = Log(address(store, must_exist=True))
    try:
        require(log.found(), f"there is no study at {log.name}")
        yield Tokens(log)
    finally:
        log.close()


def _facts(token: Token) -> dict[str, Any]:
    return {name: value for name, value in vars(token).items() if name != "digest"}


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
