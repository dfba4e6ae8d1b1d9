"""From each schema of a study to the next; all steps that are needed, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contextual_lqr.errors import FormatError
from contextual_lqr.files import unpacked
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.planning.agent_file import FORMAT_VERSION, cost_of
from contextual_lqr.study import schema
from contextual_lqr.study.encoding import cost_and_steps, episode_of
from contextual_lqr.study.schema import sql

_SOME = 1000  # episodes at a time


def migrate(now: Any, version: int) -> None:
    """Bring a study of this version to `SCHEMA`, within the transaction of the connection `now`."""
    if version not in STEPS:
        raise FormatError(f"there is no schema {version} of a study")
    while version < schema.SCHEMA:
        STEPS[version](now)
        version += 1
    now.execute(sql.update(schema.study).values(schema_version=version))


def _counted_and_marked(now: Any) -> None:
    """1 to 2: costs and steps of episodes, asks that are told, counts, machines, tokens.

    Spelt out, not taken from `schema.py`, where later schemas are.
    """
    for statement in (
        "ALTER TABLE clqr_study ADD COLUMN episodes INTEGER NOT NULL DEFAULT 0",
        "UPDATE clqr_study SET episodes = (SELECT COUNT(*) FROM clqr_episodes)",
        "ALTER TABLE clqr_episodes ADD COLUMN cost FLOAT",
        "ALTER TABLE clqr_episodes ADD COLUMN steps INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE clqr_asks ADD COLUMN told INTEGER",
        "UPDATE clqr_asks SET told = (SELECT MIN(number) FROM clqr_episodes "
        "WHERE clqr_episodes.ask = clqr_asks.key)",
        "CREATE INDEX ix_clqr_open_asks ON clqr_asks (expires_at) WHERE told IS NULL",
        "CREATE TABLE clqr_machines (machine TEXT NOT NULL PRIMARY KEY, context TEXT NOT NULL, "
        "episodes INTEGER NOT NULL, last_told_at FLOAT NOT NULL)",
        "INSERT INTO clqr_machines SELECT COALESCE(last.machine, ''), last.context, counted.n, "
        "last.told_at FROM clqr_episodes AS last JOIN (SELECT MAX(number) AS number, "
        "COUNT(*) AS n FROM clqr_episodes GROUP BY COALESCE(machine, '')) AS counted "
        "ON counted.number = last.number",
        "CREATE TABLE clqr_tokens (id VARCHAR(64) NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
        "role VARCHAR(32) NOT NULL, machine TEXT, digest VARCHAR(64) NOT NULL, "
        "created_at FLOAT NOT NULL, revoked_at FLOAT)",
    ):
        now.execute(sql.text(statement))
    cost, number = _first_cost(now), 0
    rows = sql.text(
        "SELECT number, content FROM clqr_episodes WHERE number > :number ORDER BY number "
        f"LIMIT {_SOME}"
    )
    change = sql.text("UPDATE clqr_episodes SET cost = :cost, steps = :steps WHERE number = :n")
    while some := now.execute(rows, {"number": number}).all():
        found = [
            cost_and_steps(episode_of(bytes(content), f"episode {n}"), cost) for n, content in some
        ]
        number = some[-1].number
        now.execute(
            change,
            [
                {"n": row.number, "cost": cost, "steps": steps}
                for row, (cost, steps) in zip(some, found, strict=True)
            ],
        )


def _first_cost(now: Any) -> QuadraticCost:
    """The cost that a study began with, which stays."""
    content = now.execute(sql.text("SELECT content FROM clqr_snapshots WHERE number = 0")).scalar()
    if content is None:
        raise FormatError("the study is damaged: it has no snapshot of its learner")
    return cost_of(*unpacked(bytes(content), "agent", FORMAT_VERSION, "its first snapshot"))


STEPS: dict[int, Callable[[Any], None]] = {1: _counted_and_marked}
