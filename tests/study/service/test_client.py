"""A served study is the study: the same answers, to the bit, whoever is asked."""

import inspect
from contextlib import suppress
from dataclasses import fields

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import InputError, Study, Trajectory
from contextual_lqr.fleets import chain, true_system
from contextual_lqr.study.client import StudyClient
from contextual_lqr.study.learner import agent_bytes
from contextual_lqr.study.log import StoreError
from contextual_lqr.study.tokens import Tokens
from served import served

FLEET = chain(2)


@pytest.fixture
def both(tmp_path):
    store = f"sqlite:///{tmp_path}/fleet.db"
    with (
        Study.open(store, FLEET) as here,
        served({"fleet": Study.open(store)}) as url,
        Study.open(f"{url}/fleet") as there,
    ):
        yield here, there


def played(plan, rng) -> Trajectory:
    system, x = true_system(FLEET, plan.context), FLEET.start
    states, inputs = [x], []
    for step in range(len(plan.policy.gains)):
        inputs.append(plan.input(step, x))
        x = system.A @ x + system.B @ inputs[-1] + system.noise_factor @ rng.normal(size=len(x))
        states.append(x)
    return Trajectory(states, inputs)


def same(one, other, rtol: float = 0.0) -> bool:
    """Whether two records have the same fields, to the bit or, if said, nearly."""
    if hasattr(one, "__dataclass_fields__"):
        names = [field.name for field in fields(one)]
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name), rtol) for name in names
        )
    if isinstance(one, np.ndarray):
        near = rtol and np.allclose(one, other, rtol=rtol, atol=0)
        return isinstance(other, np.ndarray) and bool(near or one.tobytes() == other.tobytes())
    if isinstance(one, tuple | list) and not isinstance(one, str):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same(*pair, rtol) for pair in pairs)
    if isinstance(one, float) and rtol and np.isclose(one, other, rtol=rtol, atol=0):
        return True
    return one == other or (one != one and other != other)


def test_every_answer_is_that_of_the_study(both) -> None:
    """To the bit; what a certificate searches for, to what rounding leaves of it."""
    here, there = both
    rng = default_rng(0)
    first = FLEET.sample_context(rng)
    nothing_known = here.certify(first), there.certify(first)  # infinite numbers
    assert same(*nothing_known, rtol=1e-9)
    for k in range(6):
        context = FLEET.sample_context(rng)
        plan = there.ask(context, machine=f"M-{k}", key=f"ask-{k}")
        assert same(plan, here.ask(context, machine=f"M-{k}", key=f"ask-{k}"))
        result = played(plan, rng)
        assert there.tell(plan, result) == (k + 1, True)
        assert there.tell(plan, result) == here.tell(plan, result) == (k + 1, False)
    context = FLEET.sample_context(rng)
    assert same(here.controller(context), there.controller(context))
    for options in ({}, {"machine": "M-1"}, {"draws": 50, "delta": 0.1, "bounds": False}):
        at = first if "machine" not in options else plan.context
        with suppress(InputError):
            assert same(here.certify(at, **options), there.certify(at, **options), rtol=1e-9)
    assert here.description == there.description
    assert list(here.export()) == list(there.export())
    assert here.cost.Q.tobytes() == there.cost.Q.tobytes()
    assert here.decoder.estimate.tobytes() == there.decoder.estimate.tobytes()
    assert agent_bytes(here._learner.agent) == agent_bytes(there._agent())
    ours, theirs = vars(here.status()), vars(there.status())
    assert {**theirs, "store": ours["store"]} == ours
    assert "http://127.0.0.1" in repr(there)
    assert there.compact() == 6


@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_a_live_episode_is_told_even_if_it_breaks_off(both, adapt) -> None:
    here, there = both
    context = FLEET.sample_context(default_rng(2))
    system, x = true_system(FLEET, context), FLEET.start
    with suppress(RuntimeError), there.episode(context, adapt, machine="M-1") as episode:
        for _ in range(5):
            x = system.A @ x + system.B @ episode.act(x)
            episode.observe(x)
        raise RuntimeError("the machine has stopped")
    assert here.decoder.rows == 5
    assert here.status().waiting == 0


def test_a_log_moves_through_the_service(both, tmp_path) -> None:
    here, there = both
    rng = default_rng(3)
    with Study.open(f"sqlite:///{tmp_path}/other.db", FLEET) as other:
        for k in range(3):
            plan = other.ask(FLEET.sample_context(rng), f"M-{k}")
            other.tell(plan, played(plan, rng))
        for record in other.export():
            assert there.import_(record).new
            assert not there.import_(record).new
        assert other.decoder.estimate.tobytes() == here.decoder.estimate.tobytes()


def test_what_a_study_refuses_a_served_one_refuses(both) -> None:
    _, there = both
    context = FLEET.sample_context(default_rng(0))
    for odd in (
        {"key": ""},
        {"key": "x" * 65},
        {"lease": -1.0},
        {"lease": np.inf},
        {"worker": "x" * 1000},
        {"start": [1.0]},
    ):
        with pytest.raises(InputError):
            there.ask(context, **odd)
    short = Trajectory(np.zeros((2, 1)), np.zeros((1, 1)))
    for about, match in (("no such key", "nobody asked"), (context, "an episode here has states")):
        with pytest.raises(InputError, match=match):
            there.tell(about, short)
    with pytest.raises(InputError, match="contexts of names, finite numbers"):
        there.ask({"k": object()})
    with pytest.raises(InputError, match="states: Input should be a valid list"):
        there.import_({"states": None})
    with pytest.raises(InputError, match="finite numbers"):
        there.import_({"states": object()})
    with pytest.raises(InputError, match="certifies without rng"):
        there.certify(context, rng=default_rng(0))
    assert there.status().waiting == 0


def test_addresses_that_are_none(both) -> None:
    _, there = both
    name = there._service.name
    for url, match in (
        ("http://127.0.0.1:1", "an address such as"),
        ("http://user:secret@127.0.0.1/fleet", "not in the address"),
        (f"{name}?token=1", "an address such as"),
    ):
        with pytest.raises(InputError, match=match):
            Study.open(url)
    with pytest.raises(InputError, match="has its fleet"):
        Study.open(name, FLEET)
    with pytest.raises(InputError, match="no option tokn"):
        Study.open(name, tokn="x")
    with pytest.raises(InputError, match="no such study"), Study.open(name + "s") as other:
        other.status()
    with (
        Study.open("http://127.0.0.1:1/fleet", patience=0.2) as nobody,
        pytest.raises(StoreError, match=r"does not answer: .*try again"),
    ):
        nobody.status()
    with pytest.warns(UserWarning, match="unencrypted"):
        Study.open("http://fleet.example/fleet", token="clqr_x")


def test_nothing_of_a_study_is_forgotten() -> None:
    inherited = {"open", "episode"}  # which is made of ask, tell and _twin
    public = {name for name in vars(Study) if not name.startswith("_")} - inherited
    assert public <= set(vars(StudyClient))
    for name in public - {"decoder", "cost", "description"}:
        theirs, ours = (inspect.signature(getattr(one, name)) for one in (Study, StudyClient))
        assert ours == theirs


def test_a_study_on_postgresql_is_served_the_same(postgres) -> None:
    study = Study.open(postgres, FLEET)
    made, text = Tokens(study._log).create("engineer")
    context, rng = FLEET.sample_context(default_rng(0)), default_rng(1)
    with served({"fleet": study}) as url, Study.open(f"{url}/fleet", token=text) as there:
        plan = there.ask(context, machine="M-1")
        assert there.tell(plan, played(plan, rng)) == (1, True)
        assert list(there.export()) == list(study.export())
        assert there.decoder.estimate.tobytes() == study.decoder.estimate.tobytes()
        Tokens(study._log).revoke(made.id)
        with pytest.raises(InputError, match="give a token"):
            there.status()
