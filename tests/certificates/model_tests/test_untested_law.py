"""Machines as few as the law has features obey any law: what they say of others is not trusted."""

from __future__ import annotations

import numpy as np
import pytest

import contextual_lqr as clqr

START = [1.0, 0.0]
COST = clqr.QuadraticCost(Q=[np.eye(2)] * 15, R=[np.eye(1)] * 14)


def fleet(masses: list[float], spread: float = 0.0, scale: float = 1.0) -> clqr.Decoder:
    """Carts, three episodes each, whose inputs are stronger or weaker than their labels say."""
    rng = np.random.default_rng(0)
    decoder = clqr.Decoder(clqr.FeatureContext(["1", "1/mass"]))
    for i, mass in enumerate(masses):
        B = [[0], [0.5 / mass * (1 + spread * (-1) ** i)]]
        system = clqr.LinearSystem([[1, 0.5], [0, 0.9]], B, 1e-4 * np.eye(2))
        for _ in range(3):
            gains = clqr.LinearPolicy(rng.normal(scale=0.5, size=(14, 1, 2)))
            run = clqr.simulate(gains, system, START, rng)
            told = clqr.Trajectory(np.asarray(run.states) * scale, run.inputs)
            decoder.update({"mass": mass}, told, machine=f"cart {i}")
    return decoder


def verdict(decoder: clqr.Decoder, mass: float, machine: str | None = None) -> tuple[str, str]:
    """What is said of a cart."""
    one = clqr.certify(decoder, {"mass": mass}, COST, START, machine=machine, bounds=False)
    return one.verdict, one.reason


def test_two_machines_fit_any_law_of_two_features():
    """A spread of 30 % cannot be seen in them, so that nothing may be trusted."""
    decoder = fleet([1.0, 3.0], spread=0.3)
    assert not decoder.deviations.any()
    said, why = verdict(decoder, 2.0)
    assert said == "caution"
    assert "any law with these features fits them" in why


def test_a_machine_with_data_of_its_own_needs_no_law():
    """The law passes through each of the two."""
    assert verdict(fleet([1.0, 3.0], spread=0.3), 1.0, "cart 0")[0] == "trust"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_third_machine_tests_the_law(scale: float):
    """In all units: it shows that they obey it, or that they do not."""
    cost = clqr.QuadraticCost(COST.Q / scale**2, COST.R)
    start = np.array(START) * scale
    for spread, said in ((0.0, "trust"), (0.3, "do not use")):
        decoder = fleet([1.0, 2.0, 3.0], spread, scale)
        one = clqr.certify(decoder, {"mass": 2.2}, cost, start, bounds=False)
        assert one.verdict == said


def test_many_machines_of_two_contexts_say_nothing_of_a_third():
    """They show how machines of these contexts differ, which is enough for another of these."""
    decoder = fleet([1.0, 3.0] * 3)
    assert verdict(decoder, 2.0)[0] == "caution"
    assert verdict(decoder, 3.0)[0] == "trust"


def test_deviations_that_are_given_need_no_test():
    """Who knows that machines do not differ may say so."""
    rng = np.random.default_rng(1)
    system = clqr.LinearSystem([[1, 0.5], [0, 0.9]], [[0], [0.5]], 1e-4 * np.eye(2))
    for deviations, said in ((np.zeros((2, 3, 3)), "trust"), ("estimated", "caution")):
        decoder = clqr.Decoder(clqr.FeatureContext(["1"]), deviations=deviations)
        for _ in range(3):
            gains = clqr.LinearPolicy(rng.normal(scale=0.5, size=(14, 1, 2)))
            run = clqr.simulate(gains, system, START, rng)
            decoder.update({}, run, machine="the only one")
        assert clqr.certify(decoder, {}, COST, START, bounds=False).verdict == said


def test_a_schedule_is_judged_by_its_farthest_step():
    """A context of which nothing was logged is one of its steps."""
    decoder = fleet([1.0, 3.0] * 3)
    for last, said in ((3.0, "trust"), (2.0, "caution")):
        plan = clqr.Schedule({"mass": np.array([1.0] * 13 + [last])})
        assert clqr.certify(decoder, plan, COST, START, bounds=False).verdict == said


def test_a_law_that_fits_two_kinds_of_machines_is_not_trusted_halfway():
    """Though there are many machines, no two alike, and the leverage between them is small."""
    rng = np.random.default_rng(0)
    decoder = fleet([*rng.uniform(1.0, 1.05, 6), *rng.uniform(3.8, 4.0, 6)])
    said, why = verdict(decoder, 1.6)
    assert said == "caution"
    assert why.startswith("in a gap of the data, along 1/mass; likely within")
    assert why.endswith("if the features hold there")
    assert verdict(decoder, 3.9)[0] == verdict(decoder, 1.02)[0] == "trust"
    assert verdict(fleet(list(np.linspace(1.0, 4.0, 12))), 1.6)[0] == "trust"
