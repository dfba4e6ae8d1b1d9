"""A study: what it plans while others play, live episodes, kills, descriptions, functions."""

import multiprocessing
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import Agent, FunctionContext, InputError, Study, Trajectory
from contextual_lqr.data import TEMPLATE
from contextual_lqr.fleets import Fleet, chain, true_system
from contextual_lqr.study.asking import expected
from contextual_lqr.study.learner import agent_bytes


@pytest.fixture
def fleet() -> Fleet:
    return chain(2)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/fleet.db"


def played(fleet, plan, rng) -> Trajectory:
    system, x = true_system(fleet, plan.context), fleet.start
    states, inputs = [x], []
    for step in range(len(plan.policy.gains)):
        inputs.append(plan.input(step, x))
        noise = system.noise_factor @ rng.standard_normal(len(x))
        x = system.A @ x + system.B @ inputs[-1] + noise
        states.append(x)
    return Trajectory(states, inputs)


def test_learning_through_a_study_is_learning(fleet, url) -> None:
    rng = default_rng(0)
    with Study.open(url, fleet) as study:
        for k in range(6):
            plan = study.ask(fleet.sample_context(rng), machine=f"M-{k}")
            study.tell(plan, played(fleet, plan, rng))
        context = fleet.sample_context(rng)
        assert study.certify(context).verdict == "trust"
        assert study.status().machines == {f"M-{k}": 1 for k in range(6)}
        agent = fleet.agent()
        for record in study.export():
            agent.tell(
                record["context"], Trajectory(record["states"], record["inputs"]), record["machine"]
            )
        assert (study.decoder.estimate == agent.decoder.estimate).all()
        assert (study.controller(context).gains == agent.controller(context).gains).all()


def test_who_asks_while_others_play_probes_less_of_the_same(fleet, url) -> None:
    rng = default_rng(1)
    with Study.open(url, fleet) as study:
        for _ in range(2):
            first = study.ask(fleet.sample_context(rng))
            study.tell(first, played(fleet, first, rng))
        context = fleet.sample_context(rng)
        alone = study.ask(context, key="alone")
        after = [study.ask(context, key=f"{k}") for k in range(4)]
        sizes = [float(np.trace(one.dither.sum(0))) for one in (alone, *after)]
        assert sizes[-1] < sizes[0]
        gains = [one.policy.gains for one in (alone, *after)]
        spread = max(np.abs(one - gains[0]).max() for one in gains)
        assert spread <= 0.5 * np.abs(gains[0]).max()  # the policy is that of what is known
        before = study.decoder
        soon = expected(before, study._log.open_asks())
        law, later = (one.law(one.context_map.matrix(context)) for one in (before, soon))
        assert np.trace(later.prediction_gram) < np.trace(law.prediction_gram)


@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_a_live_episode_is_told_even_if_it_breaks_off(fleet, url, adapt) -> None:
    rng = default_rng(2)
    with Study.open(url, fleet) as study:
        context = fleet.sample_context(rng)
        system = true_system(fleet, context)
        with suppress(RuntimeError), study.episode(context, adapt, machine="M-1") as episode:
            x = fleet.start
            for _ in range(5):
                x = system.A @ x + system.B @ episode.act(x)
                episode.observe(x)
            raise RuntimeError("the machine has stopped")
        assert study.decoder.rows == 5
        assert study.status().waiting == 0
        assert study.status().machines == {"M-1": 1}


def _tells(url: str, seed: int, told) -> None:
    fleet, rng = chain(2), default_rng(seed)
    with Study.open(url) as study:
        while True:
            context = fleet.sample_context(rng)
            d, m = fleet.cost.state_size, fleet.cost.input_size
            number, _ = study.tell(
                context, Trajectory(rng.normal(size=(4, d)), rng.normal(size=(3, m)))
            )
            told.send(number)


def test_what_was_answered_survives_a_kill(fleet, url) -> None:
    Study.open(url, fleet).close()
    spawn, answered = multiprocessing.get_context("spawn"), []
    for kill in range(2):
        pipes, workers = [], []
        for worker in range(2):
            mine, theirs = spawn.Pipe(duplex=False)
            workers.append(spawn.Process(target=_tells, args=(url, 10 * kill + worker, theirs)))
            workers[-1].start()
            theirs.close()
            pipes.append(mine)
        answered += [pipe.recv() for pipe in pipes]
        time.sleep(0.1 + 0.05 * kill)
        for one in workers:
            os.kill(one.pid, signal.SIGKILL)
        for pipe in pipes:
            while True:
                try:
                    answered.append(pipe.recv())
                except EOFError:
                    break
        for one in workers:
            one.join()
    with Study.open(url) as study, Study.open(url) as other:
        numbers = [one.number for one in study._log.episodes()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert set(answered) <= set(numbers)
        assert len(answered) == len(set(answered))
        assert study.decoder.episodes == len(numbers)
        assert agent_bytes(study._learner.agent) == agent_bytes(other._learner.agent)


def test_a_key_is_that_of_one_episode(fleet, url) -> None:
    rng = default_rng(3)
    with Study.open(url, fleet) as study:
        plan = study.ask(fleet.sample_context(rng), machine="M-1")
        first, second = (played(fleet, plan, rng) for _ in range(2))
        assert study.tell(plan, first, key="run 1") == (1, True)
        assert study.tell(plan, first, key="run 1", worker="again") == (1, False)
        for what, told in (
            ("states or inputs", {"trajectory": second}),
            ("machine", {"trajectory": first, "machine": "M-2"}),
        ):
            with pytest.raises(InputError, match=f"'run 1' belongs to episode 1, .* {what}: give"):
                study.tell(plan, key="run 1", **told)
        with pytest.raises(InputError, match="which differs in context: give"):
            study.tell(fleet.sample_context(rng), first, "M-1", key="run 1")
        assert study.status().episodes == 1
        assert study.tell(plan, second, key="run 2") == (2, True)


def test_a_description_makes_a_study(tmp_path, url) -> None:
    (tmp_path / "fleet.toml").write_text(TEMPLATE)
    with Study.open(url, tmp_path / "fleet.toml") as study:
        assert study.decoder.state()[0]["deviations"] == "estimated"
        assert study._log.description == TEMPLATE
        for mass, states in enumerate(default_rng(0).standard_normal((5, 20, 2)), 1):
            study.tell({"mass": float(mass)}, Trajectory(states, np.zeros((19, 1))), f"M-{mass}")
        assert "hardly excite force" in study.certify({"mass": 2.0}, bounds=False).reason
    with Study.open(url, tmp_path / "fleet.toml") as again:
        assert again.status().episodes == 5


def test_certificates_count_the_limits_of_inputs(fleet, url) -> None:
    agent = Agent(
        fleet.context_map, fleet.cost, fleet.start, noise_level=0.01, input_bounds=(-0.01, 0.01)
    )
    rng = default_rng(0)
    with Study.open(url, agent) as study:
        for _ in range(6):
            plan = study.ask(fleet.sample_context(rng))
            study.tell(plan, played(fleet, plan, rng))
        found = study.certify(plan.context, bounds=False)
        free = study.certify(plan.context, bounds=False, input_bounds=None)
    assert found.saturation is not None
    assert free.saturation is None


def test_functions_must_be_given_again(fleet, url) -> None:
    cost = fleet.cost
    size = cost.state_size + cost.input_size
    own = FunctionContext(lambda c: np.kron([[1.0], [c["a"]]], np.eye(size)))
    agent = Agent(own, cost, fleet.start)
    Study.open(url, agent).close()
    with pytest.raises(InputError, match="context_map"):
        Study.open(url)
    with Study.open(url, context_map=own) as study:
        assert study.ask({"a": 1.0}).key


def test_what_does_not_fit_is_refused(fleet, url) -> None:
    with Study.open(url, fleet) as study:
        context = fleet.sample_context(default_rng(0))
        for odd in ({"key": ""}, {"key": "x" * 65}, {"lease": -1.0}, {"worker": 3}):
            with pytest.raises(InputError):
                study.ask(context, **odd)
        with pytest.raises(InputError, match="nobody asked"):
            study.tell("no such key", Trajectory(np.zeros((2, 1)), np.zeros((1, 1))))
        with pytest.raises(InputError, match="contexts of names, finite numbers"):
            study.ask({"k": object()})
        with pytest.raises(InputError, match="not an episode as export writes it"):
            study.import_({"states": []})
        assert study.status().waiting == 0
    with pytest.raises(InputError, match="fleet must be an Agent"):
        Study.open(url, 3)
