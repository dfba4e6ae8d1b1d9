"""The tables of a study, and how a study of an older schema becomes one of this.

    study      one row: which schema it has, and the fleet's description
    episodes   what was played, numbered 1, 2, 3, … in the order in which it was committed
    asks       what was planned, for whom, until when it is waited for, and what came of it
    machines   how often each machine has told, counted in the transaction of each episode
    snapshots  the learner after so many episodes, so that nobody need fold them all again
    tokens     who may speak to a service of this study, and as what; of secrets, a digest

Episodes are added and never changed. What is counted or marked elsewhere follows from them, and
could be found again. A schema's number goes up with every change here; the steps from each to the
next are in `migrations.py`.
"""

from __future__ import annotations

from contextual_lqr.errors import MissingExtraError

try:
    import sqlalchemy as sql
    from sqlalchemy.dialects import postgresql, sqlite
except ImportError:
    raise MissingExtraError("SQLAlchemy", "study") from None

__all__ = [
    "SCHEMA",
    "UNLABELLED",
    "asks",
    "episodes",
    "machines",
    "postgresql",
    "snapshots",
    "sql",
    "sqlite",
    "study",
    "tables",
    "tokens",
]

SCHEMA = 2
UNLABELLED = ""  # the row in `machines` of all that was told without a label

tables = sql.MetaData()

study = sql.Table(
    "clqr_study",
    tables,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("schema_version", sql.Integer, nullable=False),
    sql.Column("description", sql.Text),
    # The number of the last one: whoever tells counts here first, and holds the row until it has
    # committed, so that whoever sees number n sees all before it.
    sql.Column("episodes", sql.Integer, nullable=False, server_default="0"),
)
episodes = sql.Table(
    "clqr_episodes",
    tables,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("key", sql.String(64), nullable=False, unique=True),
    sql.Column("ask", sql.String(64), index=True),
    sql.Column("machine", sql.Text),
    sql.Column("context", sql.Text, nullable=False),
    sql.Column("content", sql.LargeBinary, nullable=False),
    sql.Column("worker", sql.Text),
    sql.Column("told_at", sql.Float, nullable=False),
    # What it cost; nothing if it was longer than the cost is for, or ran away.
    sql.Column("cost", sql.Float),
    sql.Column("steps", sql.Integer, nullable=False, server_default="0"),
)
asks = sql.Table(
    "clqr_asks",
    tables,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("machine", sql.Text),
    sql.Column("context", sql.Text, nullable=False),
    sql.Column("content", sql.LargeBinary, nullable=False),
    sql.Column("worker", sql.Text),
    sql.Column("asked_at", sql.Float, nullable=False),
    sql.Column("expires_at", sql.Float, nullable=False),
    # The first episode that came of it.
    sql.Column("told", sql.Integer),
)
_is_open = asks.c.told.is_(None)
open_asks = sql.Index(
    "ix_clqr_open_asks", asks.c.expires_at, sqlite_where=_is_open, postgresql_where=_is_open
)
machines = sql.Table(
    "clqr_machines",
    tables,
    sql.Column("machine", sql.Text, primary_key=True),
    sql.Column("context", sql.Text, nullable=False),  # that of its last episode
    sql.Column("episodes", sql.Integer, nullable=False),
    sql.Column("last_told_at", sql.Float, nullable=False),
)
snapshots = sql.Table(
    "clqr_snapshots",
    tables,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("content", sql.LargeBinary, nullable=False),
)
tokens = sql.Table(
    "clqr_tokens",
    tables,
    sql.Column("id", sql.String(64), primary_key=True),
    sql.Column("name", sql.Text, nullable=False),
    sql.Column("role", sql.String(32), nullable=False),
    sql.Column("machine", sql.Text),
    sql.Column("digest", sql.String(64), nullable=False),  # SHA-256 of the secret, in hex
    sql.Column("created_at", sql.Float, nullable=False),
    sql.Column("revoked_at", sql.Float),
)
