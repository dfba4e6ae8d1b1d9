"""The log of a study: asks and episodes in a database that many processes share.

An episode's number is given under a lock that is held until its commit, so that whoever sees number
n sees all before it: the order in which episodes are folded is the same for every reader. A key is
written once; the same episode under the same key is the one that is there. How an episode is added
is in `appending.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from contextual_lqr.errors import FormatError, InputError
from contextual_lqr.study import schema
from contextual_lqr.study.appending import append
from contextual_lqr.study.database import Database, StoreError
from contextual_lqr.study.migrations import migrate
from contextual_lqr.study.schema import SCHEMA, sql

__all__ = ["Ask", "Episode", "Log", "Machine", "StoreError"]

_episodes, _asks, _snapshots = schema.episodes, schema.asks, schema.snapshots
_BEGINNING = 0x636C7172  # the advisory lock of PostgreSQL under which tables are made


_PROGRESS = "SELECT episodes, (SELECT max(number) FROM clqr_snapshots) FROM clqr_study"
_ADD_ASK = (  # which may have been told already
    "INSERT INTO clqr_asks "
    "(key, machine, context, content, worker, asked_at, expires_at, told) VALUES "
    "(CAST(:key AS text), :machine, :context, :content, :worker, :asked_at, :expires_at, "
    "(SELECT min(number) FROM clqr_episodes WHERE ask = CAST(:key AS text))) "
    "ON CONFLICT DO NOTHING"
)


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
    cost: float | None
    steps: int


@dataclass(frozen=True)
class Ask:
    """What was planned, until when it is waited for, and the first episode that came of it."""

    key: str
    machine: str | None
    context: str
    content: bytes
    worker: str | None
    asked_at: float
    expires_at: float
    told: int | None = None


@dataclass(frozen=True)
class Machine:
    """How often a machine has told; without a label, `machine` is empty, and counts them all."""

    machine: str
    context: str
    episodes: int
    last_told_at: float


class Log:
    """The log at an SQLAlchemy address, such as sqlite:///fleet.db; threads may share it."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.name = self.database.name

    # -- the study ---------------------------------------------------------------------------------

    def found(self) -> bool:
        """Whether there is a study here; one of an older schema is brought to this one."""
        if self.database.missing:
            return False
        with self.database.reading() as now:
            if not sql.inspect(now).has_table(schema.study.name):
                return False
            version = now.execute(sql.select(schema.study.c.schema_version)).scalar()
        if version is None:
            return False
        if version < SCHEMA:
            with self.database.writing() as now:
                self._alone(now)
                version = now.execute(sql.select(schema.study.c.schema_version)).scalar_one()
                if version < SCHEMA:  # nobody else was quicker
                    migrate(now, version)
        self._require_read(max(version, SCHEMA))
        return True

    def create(self, first: bytes, description: str | None) -> None:
        """Begin a study with a learner that has learnt nothing here; there may be one already."""
        with self.database.writing() as now:
            self._alone(now)
            schema.tables.create_all(now)
            if now.execute(sql.select(schema.study.c.id)).first() is None:
                row = {"id": 1, "schema_version": SCHEMA, "description": description}
                now.execute(sql.insert(schema.study).values(row))
                now.execute(sql.insert(_snapshots).values(number=0, content=first))

    @property
    def description(self) -> str | None:
        """The text of the fleet's description, if the study began with one."""
        with self.database.reading() as now:
            text = now.execute(sql.select(schema.study.c.description)).scalar()
        return None if text is None else str(text)

    # -- episodes ----------------------------------------------------------------------------------

    def append(self, episode: Episode) -> tuple[int, bool]:
        """Add an episode, whatever its number; its number in the log, and whether it is new."""
        if (number := append(self.database, vars(episode))) is not None:
            return number, True
        version = sql.select(schema.study.c.schema_version)
        same = sql.select(_episodes).where(_episodes.c.key == episode.key)
        with self.database.reading() as now:
            self._require_read(now.execute(version).scalar_one())
            known = Episode(**now.execute(same).one()._mapping)
        _require_equal(known, episode)
        return known.number, False

    def after(self, number: int, most: int = 10_000) -> list[Episode]:
        """The episodes that follow this one, in order, at most so many."""
        rows = sql.select(_episodes).where(_episodes.c.number > number)
        with self.database.reading() as now:
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
        return self.progress()[0]

    def progress(self) -> tuple[int, int]:
        """How many episodes there are, and how many of them the last snapshot has learnt."""
        with self.database.quick(writes=False) as run:
            row = run(_PROGRESS).fetchone()
        return int(row[0]), int(row[1] or 0)

    def learning(self) -> AbstractContextManager[bool]:
        """Whether nobody else is folding episodes that all would have to fold."""
        return self.database.turn("learn")

    def machines(self) -> list[Machine]:
        """How often each machine has told, by its label."""
        rows = sql.select(schema.machines).order_by(schema.machines.c.machine)
        with self.database.reading() as now:
            return [Machine(**row._mapping) for row in now.execute(rows)]

    # -- asks --------------------------------------------------------------------------------------

    def add_ask(self, ask: Ask) -> bool:
        """Add an ask, unless its key is there already; whether it is new."""
        with self.database.quick(writes=True) as run:
            return bool(run(self.database.statement(_ADD_ASK), vars(ask)).rowcount)

    def ask(self, key: str) -> Ask | None:
        """The ask of this key."""
        with self.database.reading() as now:
            row = now.execute(sql.select(_asks).where(_asks.c.key == key)).first()
        return None if row is None else Ask(**row._mapping)

    def open_asks(self, since: float | None = None, most: int | None = None) -> list[Ask]:
        """What was asked and not told yet, in the order in which it was asked.

        All of it, late or not; or what is waited for at the time `since`, and of that at most so
        many, those that are waited for longest.
        """
        rows = sql.select(_asks).where(_asks.c.told.is_(None))
        if since is not None:
            rows = rows.where(_asks.c.expires_at >= since)
        with self.database.reading() as now:
            found = now.execute(rows.order_by(_asks.c.expires_at.desc(), _asks.c.key).limit(most))
            asks = [Ask(**row._mapping) for row in found]
        return sorted(asks, key=lambda one: (one.asked_at, one.key))

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self, number: int | None = None) -> tuple[int, bytes]:
        """The learner after so many episodes; the last one that was written, unless given."""
        rows = sql.select(_snapshots).order_by(_snapshots.c.number.desc()).limit(1)
        if number is not None:
            rows = rows.where(_snapshots.c.number == number)
        with self.database.reading() as now:
            row = now.execute(rows).first()
        if row is None:
            raise FormatError(f"{self.name} is damaged: it has no snapshot of its learner")
        return int(row.number), bytes(row.content)

    def add_snapshot(self, number: int, content: bytes) -> None:
        """Add a snapshot; those between it and the first are not needed."""
        row = {"number": number, "content": content}
        with self.database.writing() as now:
            new = self.database.insert(_snapshots).values(row)
            now.execute(new.on_conflict_do_update(index_elements=["number"], set_=row))
            between = (_snapshots.c.number > 0) & (_snapshots.c.number < number)
            now.execute(sql.delete(_snapshots).where(between))

    def compact(self, before: float) -> int:
        """Forget asks that were told, or are late since before a time; how many that were."""
        done = _asks.c.told.is_not(None) | (_asks.c.expires_at < before)
        with self.database.writing() as now:
            gone = now.execute(sql.delete(_asks).where(done))
        self.database.tidy()
        return int(gone.rowcount)

    def close(self) -> None:
        """Give back all connections."""
        self.database.close()

    # -- inside ------------------------------------------------------------------------------------

    def _alone(self, now: Any) -> None:
        """Nobody else makes or changes tables until this transaction ends."""
        if not self.database.is_sqlite:  # whose writers are alone
            now.execute(sql.select(sql.func.pg_advisory_xact_lock(_BEGINNING)))

    def _require_read(self, version: int) -> None:
        if version > SCHEMA:
            raise FormatError(
                f"{self.name} has schema {version}, but this release reads up to {SCHEMA}: "
                "open it with the newer release that wrote it"
            )


def _require_equal(known: Episode, told: Episode) -> None:
    """Refuse another episode under a key that is taken; who told it, and when, may differ."""
    odd = [
        name
        for name, is_same in (
            ("machine", known.machine == told.machine),
            ("context", known.context == told.context),
            ("states or inputs", bytes(known.content) == told.content),
        )
        if not is_same
    ]
    if odd:
        raise InputError(
            f"the key {told.key!r} belongs to episode {known.number}, which differs in "
            f"{' and '.join(odd)}: give every episode a key of its own, or none"
        )
