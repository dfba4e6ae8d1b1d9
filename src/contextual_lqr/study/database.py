"""The database of a study, SQLite or PostgreSQL: transactions, and failures in words."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contextual_lqr.errors import ContextualLQRError, InputError
from contextual_lqr.study.queue import in_turn
from contextual_lqr.study.schema import postgresql, sql, sqlite

_PATIENCE = 60.0  # seconds that a writer waits for another one
_REST = 1.0  # seconds after which a connection is tried before it is used
_MEMORY = (None, "", ":memory:")


class StoreError(ContextualLQRError):
    """The database cannot be read or written; nothing was changed by the call."""


class Taken(StoreError):
    """There is a row of this key already."""


class Database:
    """What is at an SQLAlchemy address, such as sqlite:///fleet.db; threads may share it."""

    def __init__(self, url: str) -> None:
        try:
            address = sql.make_url(url)
        except sql.exc.ArgumentError:
            raise InputError(
                f"{url!r} is no address of a store: give one such as sqlite:///fleet.db or "
                "postgresql://user@host/database"
            ) from None
        self.name = address.render_as_string(hide_password=True)
        if address.drivername == "postgresql":
            address = address.set(drivername="postgresql+psycopg")
        self.is_sqlite = str(address.drivername).startswith("sqlite")
        self._file: Path | None = None
        self._queue: Path | None = None
        options: dict[str, Any] = {"pool_timeout": _PATIENCE}
        if self.is_sqlite:
            options["connect_args"] = {"timeout": _PATIENCE, "check_same_thread": False}
            options["poolclass"] = sql.pool.QueuePool
            if address.database in _MEMORY:  # there is only one connection, for one at a time
                options |= {"pool_size": 1, "max_overflow": 0}
            elif not address.database.startswith("file:"):
                self._file = Path(address.database)
                self._queue = Path(f"{address.database}-queue")
        try:
            self._engine = sql.create_engine(address, **options)
        except (ImportError, sql.exc.NoSuchModuleError) as error:
            raise InputError(f"a store at {self.name} needs a driver: {error}") from None
        if self.is_sqlite:
            sql.event.listen(self._engine, "connect", _durable)
            sql.event.listen(self._engine, "begin", _write_lock)
        else:
            sql.event.listen(self._engine, "checkin", _rests)
            sql.event.listen(self._engine, "checkout", _is_alive)

    @property
    def missing(self) -> bool:
        """Whether it is a file that is not there: to look into it would make one."""
        return self._file is not None and self._file.parent.is_dir() and not self._file.exists()

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A transaction: all of it is on the disk when the block is left, or, if it fails, none."""
        with self.reporting(), in_turn(self._queue, _PATIENCE), self._engine.begin() as now:
            yield now

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection that changes nothing; each statement sees one state of the database."""
        with self.reporting(), self._engine.connect() as now:
            if self.is_sqlite:
                yield now.execution_options(clqr_reads=True)
            else:  # without round trips to begin and to end
                yield now.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """What the database refuses, as a sentence."""
        try:
            yield
        except sql.exc.IntegrityError as error:
            raise Taken(f"the store at {self.name} has this already") from error
        except TimeoutError as error:
            raise StoreError(f"the store at {self.name} cannot be used: {error}") from error
        except sql.exc.SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            reason = str(cause).strip().splitlines()[0] if str(cause).strip() else repr(cause)
            raise StoreError(f"the store at {self.name} cannot be used: {reason}") from error

    def insert_new(self, table: Any, row: dict[str, Any]) -> Any:
        """The statement that adds a row, unless there is one of its key."""
        dialect = sqlite if self.is_sqlite else postgresql
        return dialect.insert(table).values(row).on_conflict_do_nothing()

    def tidy(self) -> None:
        """SQLite: move what is in the write-ahead log to where it belongs."""
        if self.is_sqlite:
            with self.reporting():
                raw = self._engine.raw_connection()
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
                raw.close()

    def close(self) -> None:
        """Give back all connections."""
        self._engine.dispose()


def _rests(_: object, record: Any) -> None:
    record.info["since"] = time.monotonic()


def _is_alive(connection: Any, record: Any, _: object) -> None:
    """PostgreSQL: a connection that has rested may have been lost, and is then made anew."""
    if time.monotonic() - record.info.get("since", math.inf) > _REST:
        try:
            connection.execute("SELECT 1")
            connection.rollback()
        except Exception:
            raise sql.exc.DisconnectionError from None


def _durable(connection: Any, _: object) -> None:
    """SQLite: readers beside a writer, and every commit on the disk before it is answered."""
    connection.isolation_level = None  # transactions are begun by us
    for setting in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {setting}")


def _write_lock(connection: Any) -> None:
    """SQLite: a writer takes its lock at once, so that what it has read stays true."""
    reads = connection.get_execution_options().get("clqr_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
