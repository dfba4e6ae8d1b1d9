"""Machines logged under controllers that were tuned to each of them."""

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    Decoder,
    FeatureContext,
    LinearSystem,
    QuadraticCost,
    Trajectory,
    certify,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.certificates.model_tests.free_inputs import deceived

STEPS, START, NOISE = 24, np.array([1.0, -0.5]), 0.02
COST = QuadraticCost(Q=[np.eye(2)] * (STEPS + 1), R=[0.01 * np.eye(2)] * STEPS)
LAW = np.array([[0.9, 0.3, 0.5, 0.1], [-0.2, 0.8, -0.1, 0.4]])
SHARED = solve(LinearSystem(LAW[:, :2], LAW[:, 2:]), COST).policy  # holds all machines


def machine(context: float, variation: float, rng: np.random.Generator) -> LinearSystem:
    M = LAW * (1 + 0.1 * context) * (1 + variation * rng.standard_normal(LAW.shape))
    return LinearSystem(M[:, :2], M[:, 2:], NOISE**2 * np.eye(2))


def logged(
    variation: float,
    dither: float,
    *,
    tuned: bool,
    machines: int = 40,
    units: object = (1, 1, 1, 1),
) -> Decoder:
    rng, decoder, scale = default_rng(0), Decoder(FeatureContext(["1", "c"])), np.array(units)
    for i, context in enumerate(rng.uniform(-1, 1, machines)):
        own = machine(context, variation, rng)
        policy = solve(own, COST).policy if tuned else SHARED
        for _ in range(3):
            states, inputs = [START * rng.uniform(0.5, 1.5, 2)], []
            for t in range(STEPS):
                u = policy(t, states[-1])
                u = u + dither * np.sqrt(np.mean(u**2)) * rng.standard_normal(2)
                x = own.A @ states[-1] + own.B @ u + NOISE * rng.standard_normal(2)
                states.append(x)
                inputs.append(u)
            run = Trajectory(states * scale[:2], inputs * scale[2:])
            decoder.update({"c": context}, run, machine=f"{i}")
    return decoder


def test_what_was_tuned_to_each_machine_deceives_the_law() -> None:
    decoder = logged(0.2, 0.05, tuned=True)
    assert "tuned to each of them" in deceived(decoder.population)
    assert "input" not in deceived(decoder.population, ["x", "y", "left", "right"]).split(":")[0]
    one = certify(decoder, {"c": 0.0}, COST, START, bounds=False)
    assert one.verdict != "trust"


@pytest.mark.parametrize("tuned", [True, False])
def test_machines_that_obey_the_law_are_trusted_however_they_were_logged(tuned: bool) -> None:
    decoder = logged(0.0, 0.3, tuned=tuned)
    assert deceived(decoder.population) == ""
    one, rng = certify(decoder, {"c": 0.3}, COST, START, bounds=False), default_rng(1)
    truth = machine(0.3, 0.0, rng)
    assert one.verdict == "trust", one.reason
    assert policy_cost(one.policy, truth, COST, START) < 1.05 * optimal_cost(truth, COST, START)


@pytest.mark.parametrize("seed", range(3))
def test_deviating_machines_under_one_controller_do_not_deceive(seed: int) -> None:
    assert deceived(logged(0.1, 0.3, tuned=False, machines=30 + seed).population) == ""


def test_units_do_not_matter() -> None:
    plain, scaled = (
        deceived(logged(0.2, 0.05, tuned=True, units=units).population)
        for units in ((1, 1, 1, 1), (1e6, 1e-6, 1e3, 1e-5))
    )
    assert plain == scaled != ""


def test_few_machines_say_nothing() -> None:
    assert deceived(logged(0.2, 0.1, tuned=True, machines=4).population) == ""
    assert deceived(None) == ""
