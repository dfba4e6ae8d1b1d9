"""The log of a study: asks and episodes in a database that many processes share.

    episodes   what was played, numbered 1, 2, 3, … in the order in which it was committed
    asks       what was planned, for whom, and until when it is waited for
    snapshots  the learner after so many episodes, so that nobody need fold them all again

Rows are added and never changed. An episode's number is given under a lock that is held until its
commit, so that whoever sees number n sees all before it: the order in which episodes are folded is
the same for every reader. A key is written once; a second episode of the same key is the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from contextual_lqr.errors import (
    ContextualLQRError,
    FormatError,
    InputError,
    MissingExtraError,
)

try:
    import sqlalchemy as sql
    from sqlalchemy import event, exc
except ImportError:
    raise MissingExtraError("SQLAlchemy", "study") from None

SCHEMA = 1
_PATIENCE = 60.0  # seconds that a writer waits for another one

_tables = sql.MetaData()
_study = sql.Table(
    "clqr_study",
    _tables,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("schema_version", sql.Integer, nullable=False),
    sql.Column("description", sql.Text),
)
_episodes = sql.Table(
    "clqr_episodes",
    _tables,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("key", sql.String(64), nullable=False, unique=True),
    sql.Column("ask", sql.String(64), index=True),
    sql.Column("machine", sql.Text),
    sql.Column("context", sql.Text, nullable=False),
    sql.Column("content", sql.LargeBinary, nullable=False),
    sql.Column("worker", sql.Text),
    sql.Column("told_at", sql.Float, nullable=False),
)
_asks = sql.Table(
    "clqr_asks",
    _tables,
    sql.Column("key", sql.String(64), primary_key=True),
    sql.Column("machine", sql.Text),
    sql.Column("context", sql.Text, nullable=False),
    sql.Column("content", sql.LargeBinary, nullable=False),
    sql.Column("worker", sql.Text),
    sql.Column("asked_at", sql.Float, nullable=False),
    sql.Column("expires_at", sql.Float, nullable=False),
)
_snapshots = sql.Table(
    "clqr_snapshots",
    _tables,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("content", sql.LargeBinary, nullable=False),
)


class StoreError(ContextualLQRError):
    """The database cannot be read or written; nothing was changed by the call."""


@dataclass(frozen=True)
class Episode:
    """What was played: `number` is its place in the log, `content` states and inputs."""

    number: int
    key: str
    ask: str | None
    machine: str | None
    context: str
    content: bytes
    worker: str | None
    told_at: float


@dataclass(frozen=True)
class Ask:
    """What was planned, and until when it is waited for."""

    key: str
    machine: str | None
    context: str
    content: bytes
    worker: str | None
    asked_at: float
    expires_at: float


class Log:
    """The log at an SQLAlchemy address, such as sqlite:///fleet.db; threads may share it."""

    def __init__(self, url: str) -> None:
        try:
            address = sql.make_url(url)
        except exc.ArgumentError:
            raise InputError(
                f"{url!r} is no address of a store: give one such as sqlite:///fleet.db or "
                "postgresql+psycopg://user@host/database"
            ) from None
        self.name = address.render_as_string(hide_password=True)
        if address.drivername == "postgresql":
            address = address.set(drivername="postgresql+psycopg")
        try:
            self._engine = sql.create_engine(
                address,
                pool_pre_ping=True,
                **({"connect_args": {"timeout": _PATIENCE}} if self._is_sqlite(address) else {}),
            )
        except (ImportError, exc.NoSuchModuleError) as error:
            raise InputError(f"a store at {self.name} needs a driver: {error}") from None
        if self._is_sqlite(address):
            event.listen(self._engine, "connect", _durable)
            event.listen(self._engine, "begin", _write_lock)

    @staticmethod
    def _is_sqlite(address: Any) -> bool:
        return str(address.drivername).startswith("sqlite")

    # -- the study ---------------------------------------------------------------------------------

    def found(self) -> bool:
        """Whether there is a study here, of a schema that this release reads."""
        with self._reading() as now:
            if not sql.inspect(now).has_table(_study.name):
                return False
            version = now.execute(sql.select(_study.c.schema_version)).scalar()
        if version is None:
            return False
        if version > SCHEMA:
            raise FormatError(
                f"{self.name} has schema {version}, but this release reads up to {SCHEMA}: "
                "open it with the newer release that wrote it"
            )
        return True

    def create(self, first: bytes, description: str | None) -> None:
        """Begin a study with a learner that has learnt nothing here; there may be one already."""
        with self._writing() as now:
            _tables.create_all(now)
            if now.execute(sql.select(_study.c.id).with_for_update()).first() is None:
                row = {"id": 1, "schema_version": SCHEMA, "description": description}
                now.execute(sql.insert(_study).values(row))
                now.execute(sql.insert(_snapshots).values(number=0, content=first))

    @property
    def description(self) -> str | None:
        """The text of the fleet's description, if the study began with one."""
        with self._reading() as now:
            text = now.execute(sql.select(_study.c.description)).scalar()
        return None if text is None else str(text)

    # -- episodes ----------------------------------------------------------------------------------

    def append(self, episode: Episode) -> tuple[int, bool]:
        """Add an episode, whatever its number; its number in the log, and whether it is new."""
        with self._writing() as now:
            # Whoever tells waits here until the one before has committed.
            now.execute(sql.select(_study.c.id).with_for_update())
            known = sql.select(_episodes.c.number).where(_episodes.c.key == episode.key)
            if (number := now.execute(known).scalar()) is not None:
                return int(number), False
            last = now.execute(sql.select(sql.func.max(_episodes.c.number))).scalar()
            number = int(last or 0) + 1
            now.execute(sql.insert(_episodes).values({**vars(episode), "number": number}))
            return number, True

    def after(self, number: int, most: int = 10_000) -> list[Episode]:
        """The episodes that follow this one, in order, at most so many."""
        rows = sql.select(_episodes).where(_episodes.c.number > number)
        with self._reading() as now:
            found = now.execute(rows.order_by(_episodes.c.number).limit(most))
            return [Episode(**row._mapping) for row in found]

    def episodes(self) -> Iterator[Episode]:
        """All episodes, in order."""
        number = 0
        while some := self.after(number, 1000):
            yield from some
            number = some[-1].number

    def count(self) -> int:
        """How many episodes there are."""
        with self._reading() as now:
            return int(now.execute(sql.select(sql.func.max(_episodes.c.number))).scalar() or 0)

    # -- asks --------------------------------------------------------------------------------------

    def add_ask(self, ask: Ask) -> bool:
        """Add an ask, unless its key is there already; whether it is new."""
        with self._writing() as now:
            if now.execute(sql.select(_asks.c.key).where(_asks.c.key == ask.key)).first():
                return False
            now.execute(sql.insert(_asks).values(vars(ask)))
            return True

    def ask(self, key: str) -> Ask | None:
        """The ask of this key."""
        with self._reading() as now:
            row = now.execute(sql.select(_asks).where(_asks.c.key == key)).first()
        return None if row is None else Ask(**row._mapping)

    def open_asks(self) -> list[Ask]:
        """What was asked and not told yet, late or not, in the order in which it was asked."""
        told = sql.select(_episodes.c.ask).where(_episodes.c.ask == _asks.c.key).exists()
        rows = sql.select(_asks).where(~told).order_by(_asks.c.asked_at, _asks.c.key)
        with self._reading() as now:
            return [Ask(**row._mapping) for row in now.execute(rows)]

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self, number: int | None = None) -> tuple[int, bytes]:
        """The learner after so many episodes; the last one that was written, unless given."""
        rows = sql.select(_snapshots).order_by(_snapshots.c.number.desc()).limit(1)
        if number is not None:
            rows = rows.where(_snapshots.c.number == number)
        with self._reading() as now:
            row = now.execute(rows).first()
        if row is None:
            raise FormatError(f"{self.name} is damaged: it has no snapshot of its learner")
        return int(row.number), bytes(row.content)

    def add_snapshot(self, number: int, content: bytes) -> None:
        """Add a snapshot, unless there is one; those between it and the first are not needed."""
        with self._writing() as now:
            here = sql.select(_snapshots.c.number).where(_snapshots.c.number >= number)
            if now.execute(here).first() is None:
                now.execute(sql.insert(_snapshots).values(number=number, content=content))
                between = (_snapshots.c.number > 0) & (_snapshots.c.number < number)
                now.execute(sql.delete(_snapshots).where(between))

    def compact(self, before: float) -> int:
        """Forget asks that were told, or are late since before a time; how many that were."""
        told = sql.select(_episodes.c.ask).where(_episodes.c.ask == _asks.c.key).exists()
        with self._writing() as now:
            gone = now.execute(sql.delete(_asks).where(told | (_asks.c.expires_at < before)))
        if self._engine.dialect.name == "sqlite":
            with self._reporting():
                raw = self._engine.raw_connection()
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
                raw.close()
        return int(gone.rowcount)

    def close(self) -> None:
        """Give back all connections."""
        self._engine.dispose()

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._reporting(), self._engine.begin() as now:
            yield now

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._reporting(), self._engine.connect() as now:
            reader = now.execution_options(clqr_reads=True)
            yield reader

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except exc.SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            reason = str(cause).strip().splitlines()[0] if str(cause).strip() else repr(cause)
            raise StoreError(f"the store at {self.name} cannot be used: {reason}") from error


def _durable(connection: Any, _: object) -> None:
    """SQLite: readers beside a writer, and every commit on the disk before it is answered."""
    connection.isolation_level = None  # transactions are begun by us
    for setting in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {setting}")


def _write_lock(connection: Any) -> None:
    """SQLite: a writer takes its lock at once, so that what it has read stays true."""
    reads = connection.get_execution_options().get("clqr_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
