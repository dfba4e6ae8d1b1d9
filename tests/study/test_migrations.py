"""A study of schema 1, as it was written then, is opened by this release, and loses nothing."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sql

from contextual_lqr import FormatError, Study, Trajectory, trajectory_cost
from contextual_lqr.study import migrations, schema
from contextual_lqr.study.encoding import episode_of

OLD = (Path(__file__).parent / "schema_1.sql").read_text()
TABLES = ("study", "episodes", "asks", "machines", "snapshots", "tokens")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path: Path) -> str:
    """The address of a study of schema 1, with four episodes and an ask that is out."""
    if request.param == "sqlite":
        where, script = f"sqlite:///{tmp_path}/fleet.db", OLD
    else:
        where = request.getfixturevalue("postgres")
        script = re.sub(r"X'([0-9A-F]*)'", r"'\\x\1'::bytea", OLD.replace("BLOB", "BYTEA"))
    with _engine(where) as engine, engine.begin() as now:
        for statement in script.split(";\n"):
            if statement.strip() not in ("BEGIN TRANSACTION", "COMMIT", ""):
                now.exec_driver_sql(statement)
    return where


@contextmanager
def _engine(url: str) -> Iterator[sql.Engine]:
    engine = sql.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


def test_what_was_there_is_there(url: str) -> None:
    with Study.open(url) as study:
        status = study.status()
        assert status.episodes == 4
        assert status.machines == {"M-1": 2, "M-3": 1, "no label": 1}
        assert status.waiting + status.late == 1
        assert [one.key for one in study._log.open_asks()] == ["open"]
        for one in study._log.episodes():
            played = episode_of(one.content, "it")
            assert one.steps == len(played)
            if one.steps < study.cost.horizon:
                assert one.cost == pytest.approx(trajectory_cost(played, study.cost))
            else:
                assert one.cost is None
        last = {one.machine: (one.context, one.last_told_at) for one in study._log.machines()}
        assert last["M-1"][0] == '{"mass":2.5}'
        assert study.tell("open", Trajectory(np.ones((3, 1)), np.ones((2, 1)))).number == 5
        assert study._log.ask("open").told == 5
    with Study.open(url) as again:
        assert again.status().waiting == again.status().late == 0


def test_it_has_the_tables_of_a_study_that_begins_today(url: str, tmp_path: Path) -> None:
    Study.open(url).close()
    was = sql.MetaData()
    with _engine(url) as engine:
        was.reflect(engine)
    for name in TABLES:
        new, old = schema.tables.tables[f"clqr_{name}"], was.tables[f"clqr_{name}"]
        assert [one.name for one in new.columns] == [one.name for one in old.columns]
        for ours, its in zip(new.columns, old.columns, strict=True):
            assert (ours.nullable, ours.primary_key) == (its.nullable, its.primary_key), ours
            assert ours.type.python_type == its.type.python_type, ours
        assert {one.name for one in new.indexes} == {one.name for one in old.indexes}


def test_whoever_opens_it_first_changes_it_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        studies = list(pool.map(Study.open, [url] * 4))
    assert {one.status().episodes for one in studies} == {4}
    for one in studies:
        one.close()


def test_a_step_that_fails_changes_nothing(url: str, monkeypatch) -> None:
    def fails(now) -> None:
        STEP(now)
        raise FormatError("the power has gone")

    STEP = migrations.STEPS[1]
    monkeypatch.setitem(migrations.STEPS, 1, fails)
    with pytest.raises(FormatError, match="the power has gone"):
        Study.open(url)
    monkeypatch.undo()
    with _engine(url) as engine:
        assert not sql.inspect(engine).has_table("clqr_machines")
    with Study.open(url) as study:
        assert study.status().episodes == 4
