"""Processes that are forked while other threads use a study."""

import fcntl
import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from contextual_lqr import Study
from contextual_lqr.study import forking
from contextual_lqr.study.queue import in_turn, only_one
from contextual_lqr.testing.stores import _agent, _played

MASS = {"mass": 2.0}
fork = multiprocessing.get_context("fork")


def _plays(study: Study, child: int) -> None:
    for k in range(3):
        plan = study.ask(MASS, f"M-{child}")
        study.tell(plan, _played(1000 * child + k))


@pytest.mark.slow  # what would hang does so where nothing slows the threads down
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_study_goes_on_in_processes_that_are_forked(kind, tmp_path, request) -> None:
    url = request.getfixturevalue("postgres") if kind == "postgresql" else ""
    with Study.open(url or f"sqlite:///{tmp_path}/fleet.db", _agent()) as study:
        stop = threading.Event()

        def busy(thread: int) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                study.tell(MASS, _played(10**6 * thread + number), f"T-{thread}")
                study.controller(MASS)

        threads = [threading.Thread(target=busy, args=(k,)) for k in (1, 2)]
        for one in threads:
            one.start()
        children = [fork.Process(target=_plays, args=(study, k)) for k in range(1, 5)]
        for child in children:
            child.start()
        for child in children:
            child.join(50)
        codes = [child.exitcode for child in children]
        for child in children:
            child.kill()
        stop.set()
        for one in threads:
            one.join()
        assert codes == [0] * 4
        told = study.status().machines
        assert [told[f"M-{k}"] for k in range(1, 5)] == [3] * 4
        assert study.decoder.episodes == study.status().episodes


def test_a_place_in_line_is_not_inherited(tmp_path: Path) -> None:
    line, done = tmp_path / "queue", fork.Event()
    with in_turn(line, 1.0):
        child = fork.Process(target=done.wait, args=(30,))
        child.start()
    with in_turn(line, 1.0):  # though the child is still there
        assert child.is_alive()
    done.set()
    child.join()


def test_only_one(tmp_path: Path) -> None:
    line = tmp_path / "learn"
    with only_one(line) as mine:
        with only_one(line) as theirs:
            assert (mine, theirs) == (True, False)
        other = os.open(line, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
    with only_one(line) as mine:
        assert mine
    with only_one(tmp_path / "nowhere" / "learn") as mine:  # as if nobody else were
        assert mine


def test_a_fork_waits_for_threads_that_are_undivided() -> None:
    inside, leave, order = threading.Event(), threading.Event(), []

    def work() -> None:
        with forking.undivided(), forking.undivided():
            inside.set()
            leave.wait(10)
            order.append("worked")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    threading.Timer(0.1, leave.set).start()
    child = fork.Process(target=int)
    child.start()
    order.append("forked")
    child.join()
    thread.join()
    assert order == ["worked", "forked"]
    assert child.exitcode == 0
