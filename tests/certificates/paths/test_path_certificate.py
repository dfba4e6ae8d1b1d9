"""Certificates of planned paths: sampled, and honest about angles that no log has seen."""

from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array

import contextual_lqr as clqr
from contextual_lqr.certificates.paths.path_certificate import path_excess

STEPS, NOISE = 40, 1e-3


def pendulum(**options: Any) -> clqr.FeatureDynamics:
    return clqr.FeatureDynamics(
        ["angle", "speed", "sin(angle)/length", "torque/(mass*length**2)"],
        states=["angle", "speed"],
        inputs=["torque"],
        bounds={"mass": (0.8, 1.2), "length": (0.8, 1.2)},
        **options,
    )


PENDULUM = pendulum()
THETA = np.array([[1.0, 0.1, 0.0, 0.0], [0.0, 1.0, 0.981, 0.1]])
COST = clqr.TargetCost([np.diag([1.0, 0.1])] * (STEPS + 1), [[[0.01]]] * STEPS, angles=[0])
NEW = {"mass": 1.0, "length": 1.0}


def learnt(
    reach: float, torque: float, episodes: int = 4, dynamics: clqr.FeatureDynamics = PENDULUM
) -> clqr.Decoder:
    """From episodes that begin within `reach` of hanging, and are short enough to stay there."""
    rng = np.random.default_rng(0)
    decoder = clqr.Decoder(dynamics, noise_level=NOISE)
    for _ in range(episodes):
        context = {name: float(rng.uniform(0.8, 1.2)) for name in ("mass", "length")}
        x, u = [np.array([np.pi + rng.uniform(-reach, reach), 0.0])], []
        for _ in range(STEPS):
            u.append(rng.uniform(-torque, torque, 1))
            x.append(
                THETA @ PENDULUM.features(context, x[-1], u[-1]) + NOISE * rng.standard_normal(2)
            )
        decoder.update(context, clqr.Trajectory(x, u))
    return decoder


def certified(decoder: clqr.Decoder, start: Any, **options: Any) -> clqr.PathCertificate:
    found = clqr.certify(
        decoder, NEW, COST, start, input_bounds=(-6, 6), **{"draws": 24, **options}
    )
    assert isinstance(found, clqr.PathCertificate)
    return found


def spent(policy: Any, start: Array, rng: np.random.Generator) -> float:
    x, u = [np.asarray(start, float)], []
    for t in range(STEPS):
        u.append(policy(t, x[-1]))
        x.append(THETA @ PENDULUM.features(NEW, x[-1], u[-1]) + NOISE * rng.standard_normal(2))
    return float(clqr.trajectory_cost(clqr.Trajectory(x, u), COST))


def test_what_was_seen_is_trusted_and_costs_what_is_said() -> None:
    found = certified(learnt(3.0, 6.0), [2.5, 0.0])
    assert found.verdict == "trust", found.reason
    assert "sampled" in found.reason
    assert "sampled" in repr(found)
    low, high = found.interval
    paid = [spent(found.policy, [2.5, 0.0], np.random.default_rng(i)) for i in range(20)]
    assert np.mean([0.98 * low <= one <= 1.02 * high for one in paid]) > 0.8


def test_angles_that_no_log_has_seen_are_not_trusted() -> None:
    found = certified(learnt(0.1, 0.3), [np.pi, 0.0])
    assert found.verdict != "trust"
    assert found.extrapolation.place == "outside the data"
    assert found.leverages is not None
    assert found.leverages.max() > 100 > 10 * found.leverages.min()


def test_nothing_is_promised_before_there_are_data() -> None:
    found = certified(clqr.Decoder(PENDULUM, noise_level=NOISE), [np.pi, 0.0], draws=4)
    assert found.verdict != "trust"


def test_a_stationary_cost_is_refused() -> None:
    with pytest.raises(clqr.InputError, match="are planned for episodes"):
        clqr.certify(learnt(1.0, 1.0), NEW, clqr.StationaryCost(np.eye(2), np.eye(1)), [0.0, 0.0])


def test_many_are_those_of_each() -> None:
    decoder = learnt(3.0, 6.0)
    contexts = [NEW, {"mass": 1.1, "length": 0.9}]
    many = clqr.certify_many(decoder, contexts, COST, [3.0, 0.0], input_bounds=(-6, 6), draws=8)
    one = clqr.certify(decoder, contexts[1], COST, [3.0, 0.0], input_bounds=(-6, 6), draws=8)
    assert many[1].predicted_cost == one.predicted_cost


def test_outside_its_bounds_a_context_is_caution_at_most() -> None:
    decoder = learnt(3.0, 6.0, dynamics=pendulum(allow_outside=True))
    found = clqr.certify(decoder, {**NEW, "mass": 1.25}, COST, [2.5, 0.0], draws=24)
    assert found.verdict == "caution"
    assert "mass" in found.reason
    assert "0.8 to 1.2" in found.reason


def test_a_machine_halfway_between_two_kinds_is_caution_at_most() -> None:
    rng, decoder = np.random.default_rng(0), clqr.Decoder(PENDULUM, noise_level=NOISE)
    for i in range(12):
        context = {"mass": (0.8, 1.2)[i % 2], "length": float(rng.uniform(0.8, 1.2))}
        x, u = [np.array([rng.uniform(0, 2 * np.pi), 0.0])], rng.uniform(-6, 6, (STEPS, 1))
        for torque in u:
            ahead = THETA @ PENDULUM.features(context, x[-1], torque)
            x.append(ahead + NOISE * rng.standard_normal(2))
        decoder.update(context, clqr.Trajectory(x, u), machine=f"{i}")
    for mass, verdict in ((0.8, "trust"), (1.0, "caution")):
        found = clqr.certify(decoder, {**NEW, "mass": mass}, COST, [1.0, 0.0], draws=24)
        assert found.verdict == verdict, found.reason
        assert ("in a gap of the data, along mass" in found.reason) == (verdict == "caution")


def test_a_noise_that_is_given_widens_what_it_may_cost() -> None:
    decoder = learnt(3.0, 6.0)
    quiet, loud = (
        certified(decoder, [2.5, 0.0], noise=level**2 * np.eye(2)) for level in (NOISE, 50 * NOISE)
    )
    assert np.ptp(loud.interval) > 3 * np.ptp(quiet.interval)


def test_noise_that_takes_runs_to_where_features_have_no_value_is_not_trusted() -> None:
    rng = np.random.default_rng(0)
    names = {"states": ["level"], "inputs": ["pump"]}
    tank = clqr.FeatureDynamics(["level", "pump", "sqrt(level)"], **names)
    decoder = clqr.Decoder(tank)
    for i in range(20):
        x, u = [np.array([0.5])], rng.uniform(0.3, 1.1, (40, 1))
        for pump in u:
            x.append(x[-1] + 0.1 * pump - 0.1 * np.sqrt(x[-1]) + 0.01 * rng.standard_normal(1))
        decoder.update({}, clqr.Trajectory(x, u), machine=f"tank {i}")
    for target, trusted in ((0.3, True), (0.02, False)):
        cost = clqr.TargetCost([[[10.0]]] * 31, [[[0.05]]] * 30, target=[target])
        found = clqr.certify(decoder, {}, cost, [0.5], input_bounds=(-1, 2), draws=64)
        assert (found.verdict == "trust") == trusted
        assert (found.instability == 0) == trusted
        assert np.isfinite(found.likely_excess) == trusted
        assert np.isfinite(found.predicted_cost) == trusted
        assert ("% of the runs explode, or go where" in found.reason) != trusted


def test_a_policy_is_no_good_where_the_best_path_explodes_too() -> None:
    growing = clqr.FeatureDynamics(["x", "x**2", "u"], states=["x"], inputs=["u"])
    machine = clqr.DynamicsBelief.known(growing, {}, [[0.5, 0.01, 1.0]])
    cost, limits = clqr.TargetCost([[[1.0]]] * 21, [[[1.0]]] * 20), (-0.1, 0.1)
    path = clqr.solve_trajectory(machine, cost, [2.0], input_bounds=limits)
    thetas = np.array([[[0.5, square, 1.0]] for square in (0.01, 5.0)])
    excess, paid = path_excess(machine, thetas, path, np.array([2.0]), cost, limits)
    assert excess[0] < 1e-6
    assert np.isinf(excess[1])
    assert np.isinf(paid[1])
