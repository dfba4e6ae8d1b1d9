"""Contexts that change during an episode: the belief along a schedule, and its certificate."""

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    Decoder,
    FeatureContext,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Schedule,
    TimeVaryingSystem,
    certify,
    optimal_cost,
    policy_cost,
    simulate,
)
from contextual_lqr.errors import InputError
from contextual_lqr.fleets import true_schedule, true_system, vehicle
from contextual_lqr.lqr.rollout import rollout

STEPS, START = 14, [1.0, 0.0]
COST = QuadraticCost(Q=[np.eye(2)] * (STEPS + 1), R=[np.eye(1)] * STEPS)


def cart(mass: float, deviation: float = 0.0) -> LinearSystem:
    A = [[1, 0.5], [0, 0.9 + deviation]]
    return LinearSystem(A, [[0], [0.5 / mass]], 1e-4 * np.eye(2))


def along(masses: np.ndarray, deviation: float = 0.0) -> TimeVaryingSystem:
    carts = [cart(mass, deviation) for mass in masses]
    return TimeVaryingSystem([c.A for c in carts], [c.B for c in carts], 1e-4 * np.eye(2))


def learnt(seed: int, deviation: float = 0.0, machines: int = 12) -> Decoder:
    rng, decoder = default_rng(seed), Decoder(FeatureContext(["1", "1/mass"]), 1e-4)
    for i, mass in enumerate(rng.uniform(1, 5, machines)):
        somebody = LinearPolicy(rng.normal(scale=0.3, size=(STEPS, 1, 2)))
        own = cart(mass, deviation * rng.standard_normal())
        for _ in range(3):
            decoder.update({"mass": mass}, simulate(somebody, own, START, rng), machine=f"{i}")
    return decoder


@pytest.mark.parametrize("deviation", [0.0, 0.03])
def test_one_law_and_one_machine_are_drawn_for_all_steps(deviation: float) -> None:
    decoder = learnt(0, deviation)
    assert bool(decoder.deviations.any()) == (deviation > 0)
    masses = np.linspace(1, 4, 6)
    belief = decoder.schedule({"mass": masses})
    for h, mass in enumerate(masses):
        one = decoder.machine({"mass": mass})
        np.testing.assert_allclose(belief.mean[h], one.mean, rtol=1e-9, atol=1e-12)
        scale = np.abs(one.covariances).max()
        np.testing.assert_allclose(belief.covariances[h], one.covariances, atol=1e-8 * scale)
    n = 40_000
    drawn = belief.draw(n, default_rng(1), stretch=np.ones(n))
    M = np.concatenate((drawn.A, drawn.B), -1) - belief.mean
    # Student's variance is degrees / (degrees - 2) times that of its Gaussian.
    between = np.einsum("nrhi,nrkj->rhkij", M.swapaxes(1, 2), M.swapaxes(1, 2)) / n
    expected = np.einsum("hrqi,krqj->rhkij", belief.halves, belief.halves)
    expected *= (belief.degrees / (belief.degrees - 2))[:, None, None, None, None]
    np.testing.assert_allclose(between, expected, atol=0.06 * np.abs(expected).max())
    assert drawn.noise.shape == (n, 1, 2, 2)
    assert belief.system.steps == 6


@pytest.mark.parametrize("deviation", [0.0, 0.03])
def test_a_schedule_that_stays_is_a_context(deviation: float) -> None:
    decoder = learnt(1, deviation)
    fixed = certify(decoder, {"mass": 3.3}, COST, START)
    still = certify(decoder, Schedule({"mass": [3.3] * STEPS}), COST, START)
    np.testing.assert_allclose(still.policy.gains, fixed.policy.gains, rtol=1e-6, atol=1e-9)
    assert still.predicted_cost == pytest.approx(fixed.predicted_cost, rel=1e-8)
    assert still.verdict == fixed.verdict
    assert still.extrapolation == fixed.extrapolation
    assert still.likely_excess == pytest.approx(fixed.likely_excess, rel=0.5)
    low, high = still.interval
    if deviation:  # more unknowns are to lie in their ellipsoid than one machine has
        assert low <= fixed.interval[0] * (1 + 1e-6)
        assert high >= fixed.interval[1] * (1 - 1e-6)
    else:
        assert (low, high) == pytest.approx(fixed.interval, rel=1e-6)


def test_the_truth_lies_in_the_interval_and_little_is_lost() -> None:
    masses, excesses = np.linspace(1.2, 4.5, STEPS), []
    for seed in range(3):
        decoder, truth = learnt(seed), along(masses)
        one = certify(decoder, Schedule({"mass": masses}), COST, START)
        paid = float(policy_cost(one.policy, truth, COST, START))
        low, high = one.interval
        assert low <= paid <= high
        assert low <= one.lower.searched * (1 + 1e-9)
        assert one.upper.searched <= high * (1 + 1e-9)
        excesses.append(paid / float(optimal_cost(truth, COST, START)) - 1)
        if one.verdict == "trust":
            assert excesses[-1] < 0.05
        frozen = certify(decoder, {"mass": masses[0]}, COST, START, bounds=False)
        assert paid < policy_cost(frozen.policy, truth, COST, START)
    assert np.mean(excesses) < 0.01


def test_what_is_said_of_schedules() -> None:
    decoder = learnt(2)
    plan = Schedule([{"mass": mass} for mass in np.linspace(1, 40, STEPS)])
    one = certify(decoder, plan, COST, START, bounds=False)
    assert one.extrapolation.score >= max(
        certify(decoder, {"mass": mass}, COST, START, bounds=False).extrapolation.score * 0.99
        for mass in (1.0, 2.5, 5.0)
    )
    assert one.as_dict()["context"][0] == {"mass": 1.0}
    assert "steps 14" in repr(plan)
    with pytest.raises(InputError, match="the schedule has 3 contexts, but the cost 14 steps"):
        certify(decoder, Schedule({"mass": [1.0, 2.0, 3.0]}), COST, START)
    with pytest.raises(InputError, match="a schedule is for a machine never seen"):
        certify(decoder, plan, COST, START, machine="1")
    with pytest.raises(InputError, match="all of one length"):
        Schedule({"mass": [1.0, 2.0], "speed": [1.0, 2.0, 3.0]})
    with pytest.raises(InputError, match="numbers alone"):
        Schedule({"mass": 1.0})
    with pytest.raises(InputError, match="at least one step"):
        Schedule([])


def test_a_car_that_accelerates_is_steered_as_by_who_knows_it() -> None:
    """benchmarks/schedules.py, in small."""
    steps, rng = 49, default_rng(7)
    fleet = vehicle(speed=(8.0, 32.0), horizon=steps + 1)
    decoder = Decoder(fleet.context_map, noise_level=fleet.noise_level, deviations=None)
    mild = LinearPolicy(np.tile([[[-0.5, -0.3, -3.0, -0.3]]], (steps, 1, 1)))
    for _ in range(40):
        car = fleet.sample_context(rng)
        shocks = fleet.noise_level * rng.standard_normal((steps, 4))
        steering = rng.standard_normal((steps, 1))
        own = true_system(fleet, car)
        decoder.update(car, rollout(mild, own, fleet.start, shocks, offsets=steering))
    plan = Schedule({"mass": 1500.0, "speed": np.linspace(10, 30, steps)})
    truth, frozen = true_schedule(fleet, plan), {"mass": 1500.0, "speed": 10.0}
    best = float(optimal_cost(truth, fleet.cost, fleet.start))
    along, stays = (
        float(policy_cost(one.policy, truth, fleet.cost, fleet.start)) / best - 1
        for context in (plan, frozen)
        for one in [certify(decoder, context, fleet.cost, fleet.start, bounds=False)]
    )
    assert along < 0.01
    assert stays > along + 0.005


def test_a_belief_along_a_schedule_shows_itself_and_takes_a_noise_that_is_known() -> None:
    belief = learnt(3).schedule({"mass": np.linspace(1, 4, 6)})
    assert repr(belief).startswith("<ScheduleBelief: states 2, inputs 1, steps 6, largest dev")
    quiet = belief.with_noise(np.diag([1e-6, 4e-6]))
    np.testing.assert_array_equal(quiet.noise, np.diag([1e-6, 4e-6]))
    np.testing.assert_array_equal(quiet.mean, belief.mean)
