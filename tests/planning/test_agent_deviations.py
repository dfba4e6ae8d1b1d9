"""Agents of machines that deviate from the law: each machine's own rows count."""

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    Agent,
    FeatureContext,
    LinearSystem,
    MachineBelief,
    QuadraticCost,
    simulate,
    solve,
)
from contextual_lqr.belief.own_rows import OwnRows
from contextual_lqr.lqr.problem import LinearPolicy

COST = QuadraticCost(Q=[np.diag([1, 0.1])] * 12, R=[0.1 * np.eye(1)] * 11)
START = [1.0, 0.0]
MAP = FeatureContext(["1", "1/mass"], bounds={"mass": (1.0, 5.0)})


def machine(mass: float, factors: np.ndarray) -> LinearSystem:
    A = [[1, 0.2], [-0.3 * factors[0], 0.95 + 0.3 * (factors[1] - 1)]]
    return LinearSystem(A, [[0], [1.5 * factors[2] / mass]], 1e-4 * np.eye(2))


@pytest.fixture(scope="module")
def fleet() -> list[tuple[str, float, LinearSystem]]:
    rng = default_rng(3)
    masses = rng.uniform(1, 5, 8)
    return [(f"m{i}", mass, machine(mass, np.exp(0.2 * rng.normal(size=3))))
            for i, mass in enumerate(masses)]  # fmt: skip


def taught(fleet, deviations) -> Agent:
    agent = Agent(MAP, COST, START, deviations=deviations)
    rng = default_rng(4)
    for _ in range(2):
        for label, mass, system in fleet:
            policy = LinearPolicy(rng.normal(scale=0.2, size=(11, 1, 2)))
            agent.tell({"mass": mass}, simulate(policy, system, START, rng), label)
    return agent


def test_own_rows_are_bayes_rule() -> None:
    rng = default_rng(0)
    root = rng.normal(size=(2, 3, 3))
    covariances = root @ root.transpose(0, 2, 1)
    before = MachineBelief(
        rng.normal(size=(2, 3)), covariances, np.diag([0.04, 0.09]), np.full(2, 1e12)
    )
    own, Y, after = OwnRows(before), rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    for k, (y, x) in enumerate(zip(Y, after, strict=True), 1):
        own.add(y, x)
        for r, variance in enumerate((0.04, 0.09)):
            precision = np.linalg.inv(covariances[r]) + Y[:k].T @ Y[:k] / variance
            told = Y[:k].T @ after[:k, r] / variance
            mean = np.linalg.solve(
                precision, told + np.linalg.solve(covariances[r], before.mean[r])
            )
            assert own.belief.mean[r] == pytest.approx(mean, rel=1e-6, abs=1e-8)
            assert own.belief.covariances[r] == pytest.approx(
                np.linalg.inv(precision), rel=1e-6, abs=1e-9
            )


def test_a_known_row_stays_known_and_an_exact_one_is_learnt() -> None:
    covariances = np.stack([np.zeros((3, 3)), np.eye(3)])
    before = MachineBelief(np.eye(2, 3), covariances, np.zeros((2, 2)), np.full(2, 50.0))
    own, rng, truth = OwnRows(before), default_rng(1), np.array([0.3, -1.2, 2.0])
    for _ in range(5):
        y = rng.normal(size=3)
        own.add(y, np.array([y[0], truth @ y]))
    assert (own.belief.mean[0] == [1, 0, 0]).all()
    assert not own.belief.covariances[0].any()
    assert own.belief.mean[1] == pytest.approx(truth, abs=1e-6)


@pytest.mark.filterwarnings("ignore:no linear law")  # of the paper's agent
def test_a_plan_for_a_machine_is_nearer_to_its_own_optimum(fleet) -> None:
    agent, paper = taught(fleet, "estimated"), taught(fleet, None)
    assert agent.decoder.deviations.any()
    nearer = 0
    for label, mass, system in fleet:
        best = solve(system, COST).policy.gains
        own = agent.ask({"mass": mass}, label).policy.gains
        law = paper.ask({"mass": mass}).policy.gains
        nearer += np.abs(own - best).max() < np.abs(law - best).max()
    assert nearer >= 7  # of 8


def test_a_label_never_seen_is_a_machine_never_seen(fleet) -> None:
    one, other = taught(fleet, "estimated"), taught(fleet, "estimated")
    plan = one.ask({"mass": 2.0}, "new")
    assert (plan.policy.gains == other.ask({"mass": 2.0}).policy.gains).all()
    assert plan.machine == "new"


@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_an_episode_is_learnt_as_its_machine(fleet, adapt) -> None:
    agent, rng = taught(fleet, "estimated"), default_rng(5)
    label, mass, system = fleet[2]
    rows = dict(zip(agent.decoder.machine_labels, agent.decoder.population.factors.rows,
                    strict=True))[label]  # fmt: skip
    with agent.episode({"mass": mass}, adapt, machine=label) as episode:
        x = np.array(START)
        while not episode.finished:
            x = system.A @ x + system.B @ episode.act(x) + 0.01 * rng.normal(size=2)
            episode.observe(x)
    assert len(agent.decoder.machine_labels) == len(fleet)
    place = agent.decoder.machine_labels.index(label)
    assert agent.decoder.population.factors.rows[place] == rows + 11
    assert np.abs(episode.trajectory.states).max() < 3


def test_a_controller_may_be_a_machines_own(fleet) -> None:
    agent = taught(fleet, "estimated")
    label, mass, system = fleet[0]
    best = solve(system, COST).policy.gains
    own = agent.controller({"mass": mass}, label).gains
    never = agent.controller({"mass": mass}).gains
    assert np.abs(own - best).max() < np.abs(never - best).max()
