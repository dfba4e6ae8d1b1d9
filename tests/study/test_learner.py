"""The fold: from which snapshot, by whom, and how much of it a plan needs."""

from pathlib import Path

import pytest
from numpy.random import default_rng

from contextual_lqr import FormatError, Study, Trajectory
from contextual_lqr.data import TEMPLATE
from contextual_lqr.study import learner
from contextual_lqr.study.learner import agent_bytes
from contextual_lqr.testing.stores import _agent, _played

MASS = {"mass": 2.0}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/fleet.db"


def _tell(study: Study, *numbers: int) -> None:
    for k in numbers:
        study.tell(MASS, _played(k), "M-1")


def _spoil(study: Study, number: int | None) -> int:
    """Of a snapshot, what no release can read."""
    number, content = study._log.snapshot(number)
    study._log.add_snapshot(number, content.replace(b'"version', b'"Version', 1)[:-8] + b"\0" * 8)
    return number


def test_a_snapshot_that_cannot_be_read_is_made_anew(url) -> None:
    with Study.open(url, _agent()) as study:
        _tell(study, *range(20))
        study.compact()
        _tell(study, 20)
        assert _spoil(study, None) == 20
        estimate = study.decoder.estimate
    for _ in range(2):  # the second time, by the snapshot that was left
        with Study.open(url) as study:
            assert study.status().episodes == study.decoder.episodes == 21
            assert (study.decoder.estimate == estimate).all()
            learner.agent_from(study._log.snapshot()[1], "it", study._learner._own)


def test_without_a_first_snapshot_it_takes_the_fleet(url) -> None:
    with Study.open(url, _agent()) as study:
        _tell(study, 1, 2, 3)
        estimate = study.decoder.estimate
        _spoil(study, 0)
    with pytest.raises(FormatError, match="damaged"):
        Study.open(url)
    with Study.open(url, _agent()) as study:
        assert (study.decoder.estimate == estimate).all()


def test_without_a_first_snapshot_a_description_will_do(url, tmp_path) -> None:
    Path(tmp_path, "fleet.toml").write_text(TEMPLATE)
    with Study.open(url, tmp_path / "fleet.toml") as study:
        _spoil(study, 0)
    with Study.open(url) as study:
        assert study.ask({"mass": 2.5}).policy.gains.size


def test_a_plan_may_lack_an_eighth_and_nothing_else_does(url) -> None:
    with Study.open(url, _agent()) as study, Study.open(url) as other:
        _tell(study, *range(200))
        study.compact()
        assert study._learner.number == 200
        _tell(other, *range(200, 210))
        study.ask(MASS)
        assert study._learner.number == 210  # a few are learnt at once,
        _tell(other, *range(210, 230))
        study.ask(MASS)
        assert study._learner.number == 210  # more of very many later,
        _tell(other, *range(230, 260))
        study.ask(MASS)
        assert study._learner.number == 260  # and much is,
        _tell(other, *range(260, 285))
        assert study.decoder.episodes == 285  # as is all where it is shown
        assert other.decoder.episodes == 285
        assert agent_bytes(study._learner.agent) == agent_bytes(other._learner.agent)


def test_who_finds_another_one_learning_takes_half_or_waits(url, monkeypatch) -> None:
    monkeypatch.setattr(learner, "_PATIENCE", 0.05)
    monkeypatch.setattr(learner, "_NAP", 0.01)
    with Study.open(url, _agent()) as study, Study.open(url) as other:
        _tell(other, *range(40))
        with other._log.learning() as mine:
            assert mine
            study.ask(MASS)  # it has waited, and folds by itself
            assert study._learner.number == 40
            _tell(other, *range(40, 70))
            study.ask(MASS)
            assert study._learner.number == 40
            assert study.decoder.episodes == 70


def test_a_machine_that_is_kept_apart_is_planned_with_all_it_has_told(url, tmp_path) -> None:
    Path(tmp_path, "fleet.toml").write_text(TEMPLATE)
    with Study.open(url, tmp_path / "fleet.toml") as study, Study.open(url) as other:
        plan = other.ask({"mass": 2.5}, "M-1")
        for k in range(learner._FEW + 5):
            other.tell({"mass": 2.5}, _walk(plan, k), "M-1")
        study.ask({"mass": 2.5}, "M-1")
        assert study._learner.number == learner._FEW + 5


def _walk(plan, seed: int) -> Trajectory:
    rng, (_, m, d) = default_rng(seed), plan.policy.gains.shape
    return Trajectory(rng.normal(size=(5, d)), rng.normal(size=(4, m)))
