"""`contextual-lqr study token`: who may speak to a service of a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.table import Table

from contextual_lqr.checks import require
from contextual_lqr.cli.options import AsJson, Store
from contextual_lqr.cli.study_files import address
from contextual_lqr.cli.terminal import Console, answer, print_json, print_text
from contextual_lqr.study.log import Log
from contextual_lqr.study.tokens import Role, Tokens


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
    role
        What its holder may do: watch; ask and tell for one machine; for all, and export and
        import (engineer); everything (administrator).
    machine
        The label of the machine that it is for, if its role is machine.
    name
        Who has it, for people to read.
    """
    with _tokens(store) as tokens:
        made, text = tokens.create(role, machine, name)
    if as_json:
        print_json({**made.facts, "token": text})
        return
    print_text(text + "\n")


def list_(store: Store, /, *, as_json: AsJson = False) -> None:
    """Show who has tokens, and since when."""
    with _tokens(store) as tokens:
        found = tokens.all()
    if as_json:
        print_json([one.facts for one in found])
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
    token
        Its id, as `list` shows it.
    """
    with _tokens(store) as tokens:
        gone = tokens.revoke(token)
    answer(as_json, gone.facts, f"{gone.id} of {gone.name} is revoked")


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


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
