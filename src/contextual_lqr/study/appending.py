"""How an episode enters the log: all of it with its number, or nothing.

    number     the study's count of episodes, raised by one
    episode    the row, under that number
    ask        marked as told, if it is the first that came of it
    machine    counted

Whoever raises the count holds the study's row until the commit, and everybody else who tells waits.
In PostgreSQL that must not take a round trip for each of the four, with a client in between that is
slow or dies: there it is one statement. SQLite's writers are alone, and in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextual_lqr.study.database import Database, Taken
from contextual_lqr.study.schema import SCHEMA, UNLABELLED

_COLUMNS = "key, ask, machine, context, content, worker, told_at, cost, steps"
_VALUES = ", ".join(f":{name}" for name in _COLUMNS.split(", "))
_IS_NEW = "schema_version = :schema AND NOT EXISTS (SELECT 1 FROM clqr_episodes WHERE key = :key)"

_NUMBER = f"UPDATE clqr_study SET episodes = episodes + 1 WHERE {_IS_NEW} RETURNING episodes"
_EPISODE = f"INSERT INTO clqr_episodes (number, {_COLUMNS})"
_ASK = "UPDATE clqr_asks SET told = {number} {source} WHERE key = :ask AND told IS NULL"
_MACHINE = "INSERT INTO clqr_machines (machine, context, episodes, last_told_at)"
_AGAIN = (
    "ON CONFLICT (machine) DO UPDATE SET episodes = clqr_machines.episodes + 1, "
    "context = excluded.context, last_told_at = excluded.last_told_at"
)

_ONE_BY_ONE = (
    f"{_EPISODE} VALUES (:number, {_VALUES})",
    _ASK.format(number=":number", source=""),
    f"{_MACHINE} VALUES (:label, :context, 1, :told_at) {_AGAIN}",
)
_TYPED = ", ".join(
    f"CAST(:{name} AS {kind})"
    for name, kind in zip(
        _COLUMNS.split(", "),
        ("text", "text", "text", "text", "bytea", "text", "float8", "float8", "integer"),
        strict=True,
    )
)
_AT_ONCE = (
    f"WITH next AS ({_NUMBER}), "
    f"told AS ({_EPISODE} SELECT next.episodes, {_TYPED} FROM next RETURNING number), "
    f"asked AS ({_ASK.format(number='told.number', source='FROM told')}), "
    f"counted AS ({_MACHINE} SELECT CAST(:label AS text), CAST(:context AS text), 1, "
    f"CAST(:told_at AS float8) FROM told {_AGAIN}) "
    "SELECT number FROM told"
)


def append(database: Database, episode: Mapping[str, Any]) -> int | None:
    """The number of a new episode; None if one of its key is there, or the schema is another."""
    row = {**episode, "schema": SCHEMA, "label": episode["machine"] or UNLABELLED}
    if not database.is_sqlite:
        try:
            with database.quick(writes=True) as run:
                found = run(database.statement(_AT_ONCE), row).fetchone()
        except Taken:  # the same episode, told at the same time
            return None
        return None if found is None else int(found[0])
    with database.quick(writes=True) as run:
        found = run(_NUMBER, row).fetchall()
        for one in _ONE_BY_ONE if found else ():
            run(one, {**row, "number": found[0][0]})
    return int(found[0][0]) if found else None
