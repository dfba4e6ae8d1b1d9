"""The database of a study, SQLite or PostgreSQL: transactions, and failures in words."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contextual_lqr.errors import ContextualLQRError, InputError
from contextual_lqr.study.forking import known_to_forks, undivided
from contextual_lqr.study.queue import in_turn, only_one
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
                f"{url!r} is not the address of a store: give one such as sqlite:///fleet.db or "
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
        known_to_forks(self)

    @property
    def missing(self) -> bool:
        """Whether it is a file that is not there: to look into it would make one."""
        return self._file is not None and self._file.parent.is_dir() and not self._file.exists()

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A transaction: all of it is on the disk when the block is left, or, if it fails, none."""
        line = in_turn(self._queue, _PATIENCE)
        with undivided(), self.reporting(), line, self._engine.begin() as now:
            yield now

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection that changes nothing; each statement sees one state of the database."""
        with undivided(), self.reporting(), self._engine.connect() as now:
            if self.is_sqlite:
                yield now.execution_options(clqr_reads=True)
            else:  # without round trips to begin and to end
                yield now.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def quick(self, *, writes: bool) -> Iterator[Callable[..., Any]]:
        """A function that runs statements of `statement`, for what every ask and tell needs.

        It is the driver's own, and SQLAlchemy adds nothing but its pool. If it `writes`, all of it
        is on the disk when the block is left, or none; in PostgreSQL, that holds for each
        statement, without round trips to begin and to end.
        """
        driver: Any = self._engine.dialect.dbapi
        alone = self._queue if writes else None
        with undivided(), self.reporting(), in_turn(alone, _PATIENCE):
            held: Any = None
            try:
                held = self._engine.raw_connection()
                yield from (_of_sqlite if self.is_sqlite else _of_postgresql)(held, writes)
            except driver.IntegrityError as error:
                raise sql.exc.IntegrityError(None, None, error) from error
            except driver.Error as error:
                if held is not None and not self.is_sqlite:  # it may have been lost
                    held.invalidate()
                raise sql.exc.OperationalError(None, None, error) from error
            finally:
                if held is not None:
                    held.close()

    @contextmanager
    def turn(self, name: str) -> Iterator[bool]:
        """Whether nobody else is in such a block of this name; who cannot know that is alone."""
        if self._file is not None:
            with only_one(Path(f"{self._file}-{name}")) as mine:
                yield mine
        elif self.is_sqlite:
            yield True
        else:
            what = f"(hashtext('clqr-{name}'))"
            with self.quick(writes=False) as run:
                mine = bool(run(f"SELECT pg_try_advisory_lock{what}").fetchone()[0])
                try:
                    yield mine
                finally:
                    if mine:  # if the connection is lost, so is the turn
                        run(f"SELECT pg_advisory_unlock{what}")

    def statement(self, text: str) -> str:
        """Of SQL with parameters such as :name, what the driver takes."""
        return text if self.is_sqlite else re.sub(r"(?<!:):(\w+)", r"%(\1)s", text)

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

    def insert(self, table: Any) -> Any:
        """A statement that adds rows, and may say what becomes of those of a known key."""
        return (sqlite if self.is_sqlite else postgresql).insert(table)

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

    def _forked(self) -> None:
        """The connections are those of another process: leave them as they are, open."""
        _others.append(self._engine.pool)
        self._engine.dispose(close=False)


_others: list[Any] = []  # pools of processes that this one was forked from


def _of_postgresql(held: Any, _: bool) -> Iterator[Callable[..., Any]]:
    """What runs statements, each of them a transaction."""
    connection = held.driver_connection
    connection.autocommit = True
    try:
        yield held.cursor().execute
    finally:
        if not connection.closed:
            connection.autocommit = False


def _of_sqlite(held: Any, writes: bool) -> Iterator[Callable[..., Any]]:
    """The same of SQLite, all in one transaction that takes its lock at once."""
    execute = held.cursor().execute
    if not writes:
        yield execute
        return
    execute("BEGIN IMMEDIATE")
    try:
        yield execute
        execute("COMMIT")
    except BaseException:
        if held.driver_connection.in_transaction:
            execute("ROLLBACK")
        raise


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
