"""Disks that are full or read-only, connections that are lost, clocks: a sentence, nothing lost."""

import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sql

from contextual_lqr import Study, Trajectory
from contextual_lqr.study import study as study_module
from contextual_lqr.study.learner import agent_bytes
from contextual_lqr.study.log import StoreError
from contextual_lqr.study.queue import in_turn
from contextual_lqr.testing.stores import _agent, _played
from postgres import server, start

MASS = {"mass": 2.0}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/fleet.db"


def test_a_full_disk_is_a_sentence_and_what_was_told_is_there(url, tmp_path) -> None:
    with Study.open(url, _agent()) as study:
        study.tell(MASS, _played(0))
        engine = study._log.database._engine

        def full(connection, *_) -> None:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages + 2}")

        sql.event.listen(engine, "checkout", full)
        big = Trajectory(np.ones((5000, 1)), np.ones((4999, 1)))
        with pytest.raises(StoreError, match="database or disk is full"):
            study.tell(MASS, big)
        assert study.status().episodes == 1
        sql.event.remove(engine, "checkout", full)
        engine.dispose()
        assert study.tell(MASS, big) == (2, True)
        assert sum(study.status().machines.values()) == 2


def test_a_read_only_disk_can_be_read(url, tmp_path) -> None:
    with Study.open(url, _agent()) as study:
        for k in range(20):
            study.tell(MASS, _played(k))
        read_only = f"sqlite:///file:{tmp_path}/fleet.db?mode=ro&uri=true"
        with Study.open(read_only) as reader:
            assert reader.status().episodes == 20
            assert (reader.decoder.estimate == study.decoder.estimate).all()
            for change in (lambda: reader.tell(MASS, _played(99)), lambda: reader.ask(MASS)):
                with pytest.raises(StoreError, match="attempt to write a readonly database"):
                    change()
        assert study.status().episodes == 20


def test_a_clock_that_is_set_back_changes_no_order(url, monkeypatch) -> None:
    clock = [1e9]
    monkeypatch.setattr(study_module.time, "time", lambda: clock[0])
    with Study.open(url, _agent()) as study:
        first = study.ask(MASS, "M-1", lease=10.0)
        clock[0] -= 1e6
        second = study.ask(MASS, "M-2", lease=10.0)
        assert study.status().waiting == 2
        assert study.tell(second, _played(1)) == (1, True)
        assert study.tell(first, _played(2)) == (2, True)
        clock[0] += 2e6
        assert (study.status().waiting, study.status().late) == (0, 0)
        with Study.open(url) as other:
            assert agent_bytes(other._learner.agent) == agent_bytes(study._learner.agent)


def test_a_writer_that_hangs_is_not_waited_for_for_ever(tmp_path) -> None:
    line = tmp_path / "queue"
    hangs = pytest.raises(TimeoutError, match="another process has been writing")
    with in_turn(line, 1.0), hangs, in_turn(line, 0.05):
        pass
    with in_turn(line, 1.0):  # whoever gave up does not keep it
        pass


def test_a_store_that_another_program_holds_is_a_sentence(url, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("contextual_lqr.study.database._PATIENCE", 0.05)
    with Study.open(url, _agent()) as study:
        held = sqlite3.connect(tmp_path / "fleet.db", isolation_level=None)
        held.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="database is locked"):
            study.tell(MASS, _played(0))
        held.execute("ROLLBACK")
        held.close()
        assert study.tell(MASS, _played(0)) == (1, True)


def test_a_connection_that_is_lost_is_made_again(postgres) -> None:
    with Study.open(postgres, _agent()) as study:
        study.tell(MASS, _played(0))
        engine = sql.create_engine(postgres.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as now:
            others = "pid <> pg_backend_pid() AND datname = current_database()"
            ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
            now.execute(sql.text(ends))
        engine.dispose()
        with suppress(StoreError):  # a sentence, if it was lost a moment ago
            study.tell(MASS, _played(1))
        assert study.tell(MASS, _played(1)).number == 2
        assert study.status().episodes == 2


def test_what_was_answered_survives_a_kill_of_postgresql() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with server(folder) as url, Study.open(url, _agent()) as study:
            told = [study.tell(MASS, _played(k)) for k in range(5)]
            leader = int((folder / "data" / "postmaster.pid").read_text().split()[0])
            children = Path(f"/proc/{leader}/task/{leader}/children")
            if not children.exists():
                pytest.skip("there is no /proc")
            for one in (leader, *map(int, children.read_text().split())):
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            for _ in range(2):  # of a connection that is lost, and of none that can be made
                for call in (lambda: study.tell(MASS, _played(5)), lambda: study.ask(MASS)):
                    with pytest.raises(StoreError, match="cannot be used"):
                        call()
            for _ in range(50):  # until the last of them has gone
                time.sleep(0.1)
                with suppress(subprocess.CalledProcessError):
                    start(folder)
                    break
            with suppress(StoreError):
                study.status()
            assert [study.tell(MASS, _played(k)).number for k in range(6)] == [1, 2, 3, 4, 5, 6]
            assert [one.number for one in told] == [1, 2, 3, 4, 5]
            with Study.open(url) as other:
                assert agent_bytes(other._learner.agent) == agent_bytes(_caught_up(study))


def _caught_up(study: Study):
    study.status()
    return study._learner.agent
