"""Certificates of constant gains: held against the truth, and as careful as those of episodes."""

from dataclasses import replace

import numpy as np
import pytest

from contextual_lqr import (
    Decoder,
    FeatureContext,
    InputError,
    LinearSystem,
    StationaryCost,
    StationaryPolicy,
    Trajectory,
    certify,
    certify_many,
    optimal_cost,
    policy_cost,
)
from contextual_lqr.certificates.certificate import judge, thin
from contextual_lqr.certificates.extrapolation import Extrapolation
from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.certificates.margins import LoopMargins, loop_margins, settling_steps
from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.certificates.model_tests.unmodelled import (
    in_the_long_run,
    push_costs,
)
from contextual_lqr.certificates.tradeoff import tradeoff

COST = StationaryCost(np.diag([1.0, 0.1]), [[0.1]])


def truth(mass: float) -> LinearSystem:
    return LinearSystem([[1, 0.1], [0.3, 0.98]], [[0], [0.5 / mass]], 1e-4 * np.eye(2))


def learnt(machines: int, steps: int, seed: int = 0) -> Decoder:
    """From machines that fall over unless they are held, by a gain that holds them all."""
    rng = np.random.default_rng(seed)
    bounds = {"mass": (1.0, 4.0)}
    decoder = Decoder(FeatureContext(["1", "1/mass"], states=2, inputs=1, bounds=bounds))
    for _ in range(machines):
        mass = float(rng.uniform(1, 4))
        system, x = truth(mass), rng.standard_normal(2)
        states, inputs = [x], []
        for _ in range(steps):
            u = [[-4.0, -3.0]] @ x + rng.standard_normal(1)
            x = system.A @ x + system.B @ u + 0.01 * rng.standard_normal(2)
            states.append(x)
            inputs.append(u)
        decoder.update({"mass": mass}, Trajectory(states, inputs))
    return decoder


def test_what_a_certificate_says_is_true() -> None:
    decoder, masses = learnt(20, 30), [1.2, 2.0, 3.5]
    found = certify_many(decoder, [{"mass": m} for m in masses], COST, [0.1, 0.0], draws=60)
    for mass, one in zip(masses, found, strict=True):
        assert isinstance(one.policy, StationaryPolicy)
        paid, best = policy_cost(one.policy, truth(mass), COST), optimal_cost(truth(mass), COST)
        assert one.verdict == "trust"
        assert paid / best - 1 <= one.likely_excess <= 0.02
        assert one.lower.searched <= best <= paid <= one.upper.searched
        assert one.upper.certified == np.inf  # nothing is proven
        assert one.margins is not None
        assert one.margins.half_life < 100
        assert one.as_dict()["half_life"] == one.margins.half_life
        assert "deviations halve in" in repr(one)


def test_few_data_are_not_trusted() -> None:
    one = certify(learnt(2, 4), {"mass": 4.0}, COST, [0.1, 0.0], draws=60)
    assert one.verdict != "trust"


def test_what_has_no_certificate() -> None:
    decoder = learnt(3, 10)
    with pytest.raises(InputError, match="without a discount"):
        certify(decoder, {"mass": 2.0}, StationaryCost(np.eye(2), [[1]], discount=0.9), [0, 0])
    with pytest.raises(InputError, match="costs 0 on average"):
        certify(decoder, {"mass": 2.0}, COST, [0, 0], noise=np.zeros((2, 2)))


def test_a_finding_forbids_trust_in_the_long_run() -> None:
    found = Finding("memory", 1e-9, 0.01, 1e-9, 0, 1, "{0} remembers")
    assert in_the_long_run((found,), COST.over(20)) == in_the_long_run((), COST) == ""
    assert in_the_long_run((found,), COST).startswith("state 1 remembers: ")
    decoder = learnt(20, 30)
    check = fleet_check(decoder, COST, np.array([0.1, 0.0]))
    for key in [key for key in decoder.kept if key[0] == "check"]:
        decoder.kept[key] = replace(check, findings=(found,))
    one = certify(decoder, {"mass": 2.0}, COST, [0.1, 0.0], draws=20)
    assert one.verdict == "caution"
    assert one.reason.startswith("state 1 remembers")
    one = certify(decoder, {"mass": 2.0}, COST, [0.1, 0.0], draws=20, states=["angle", "rate"])
    assert one.reason.startswith("angle remembers")


def test_margins_are_where_loops_become_unstable() -> None:
    A, B, K = np.array([[1.0, 0.1], [0.3, 0.98]]), np.array([[0.0], [0.2]]), [[-4.0, -3.0]]
    (one,) = loop_margins(np.hstack((A, B))[None], np.array([K]))
    radius = [np.abs(np.linalg.eigvals(A + f * B @ K)).max() for f in np.linspace(*one.gain, 200)]
    assert max(radius) <= 1 + 1e-6
    turn = np.exp(1j * np.radians(one.phase))
    assert np.abs(np.linalg.eigvals(A + turn * B @ K)).max() <= 1 + 1e-6
    assert one.half_life == pytest.approx(
        np.log(0.5) / np.log(np.abs(np.linalg.eigvals(A + B @ K)).max())
    )
    # A disk margin is exact for one input: on the edge of the disk a loop is on the edge, too.
    circle = 1 + 2 * one.disk / (2 * np.exp(1j * np.linspace(0, 2 * np.pi, 720)) - one.disk)
    edge = [np.abs(np.linalg.eigvals(A + f * B @ K)).max() for f in circle]
    assert max(edge) == pytest.approx(1, abs=1e-3)
    (gone,) = loop_margins(np.hstack((2 * A, B))[None], np.zeros((1, 1, 2)))
    assert gone == LoopMargins(0.0, np.inf)
    assert str(gone) == "the loop of the estimate is not stable"
    assert settling_steps([3.0, np.inf]) == 15
    inside = Extrapolation(0.1, "inside the data", "1")
    trusted = judge(True, 0.001, 0.0, inside)
    assert thin(trusted, one) == trusted
    assert thin(trusted, LoopMargins(0.1, 5.0))[0] == "caution"


def test_what_a_push_costs_in_the_long_run() -> None:
    system, gain = truth(2.0), np.array([[-4.0, -3.0]])
    (costs,) = push_costs(LinearSystem(system.A[None], system.B[None]), gain[None], COST)
    for r in range(2):
        z = np.zeros(2)
        for _ in range(2000):
            z = (system.A + system.B @ gain) @ z + np.eye(2)[r]
        assert costs[r] == pytest.approx(z @ (COST.Q + gain.T @ COST.R @ gain) @ z)


def test_the_parts_of_a_sweep_add_up() -> None:
    belief = learnt(10, 20).machine({"mass": 2.0})
    for cost in (COST, COST.over(15)):
        found = tradeoff(belief, cost, [0.1, 0.0], factors=[0.1, 1.0, 10.0], draws=20)
        assert (np.diff(found.effort) < 0).all()
        assert (np.diff(found.state) > 0).all()
        assert (
            (found.state_band[:, 0] <= found.state) & (found.state <= found.state_band[:, 1])
        ).all()
        steps = 1 if isinstance(cost, StationaryCost) else 14
        best = optimal_cost(belief.system, cost, [0.1, 0.0]) / steps
        assert found.state[1] ** 2 + found.effort[1] ** 2 == pytest.approx(best)


def test_machines_with_an_offset_have_certificates() -> None:
    """A state that is always 1 carries the offset; to balance it is part of the cost."""
    rng, cost = np.random.default_rng(3), StationaryCost(np.diag([0, 1.0]), [[0.1]], constant=[0])
    about = FeatureContext(["1", "1/mass"], states=2, inputs=1, bounds={"mass": (1.0, 4.0)})
    decoder = Decoder(about, known={0: [1.0, 0, 0, 0, 0, 0]}, noise_level=[0.0, 0.05])

    def offset(mass: float) -> LinearSystem:
        return LinearSystem([[1, 0], [0.4, 0.9]], [[0], [0.5 / mass]], np.diag([0, 0.05**2]))

    for mass in rng.uniform(1, 4, 20):
        system, x = offset(mass), np.array([1.0, 0.0])
        states, inputs = [x], rng.standard_normal((30, 1))
        for u in inputs:
            x = system.A @ x + system.B @ u + [0, 0.05 * rng.standard_normal()]
            states.append(x)
        decoder.update({"mass": mass}, Trajectory(states, inputs))
    found = certify(decoder, {"mass": 2.0}, cost, [1.0, 0.0], draws=50)
    paid = policy_cost(found.policy, offset(2.0), cost, [1.0, 0.0])
    best = optimal_cost(offset(2.0), cost, [1.0, 0.0])
    without = optimal_cost(offset(2.0), cost, [0.0, 0.0])
    assert found.verdict == "trust"
    assert found.lower.searched < paid < found.upper.searched
    assert found.predicted_cost == pytest.approx(paid, rel=0.1)
    assert paid < 1.02 * best
    assert best > 2 * without
    assert found.margins is not None
    assert found.margins.half_life < 10


def test_why_there_is_no_gain_is_said() -> None:
    """A mode that grows and is out of reach, or that the cost does not see."""
    still = Decoder(FeatureContext(["1"], states=2, inputs=1), known={0: [1.2, 0.0, 0.0]})
    rng = np.random.default_rng(0)
    states, inputs = [rng.standard_normal(2)], rng.standard_normal((9, 1))
    for u in inputs:
        states.append(np.array([1.2 * states[-1][0], 0.5 * states[-1][1] + u[0]]))
    still.update({}, Trajectory(states, inputs))
    found = certify(still, {}, StationaryCost(np.eye(2), [[1.0]]), [1.0, 0.0], draws=4)
    assert found.verdict == "do not use"
    assert "not stabilisable" in found.reason
    blind = StationaryCost(np.zeros((2, 2)), [[1.0]])
    unseen = certify(learnt(5, 20), {"mass": 2.0}, blind, [0.1, 0.0], draws=4)
    assert unseen.verdict == "do not use"
    assert "not detectable" in unseen.reason


def test_a_push_where_a_state_is_always_1_costs_what_the_others_pay() -> None:
    system, gain = truth(2.0), np.array([[-4.0, -3.0]])
    (alone,) = push_costs(LinearSystem(system.A[None], system.B[None]), gain[None], COST)
    A, B = np.eye(3), np.zeros((3, 1))
    A[1:, 1:], A[2, 0], B[1:] = system.A, 0.7, system.B
    cost = StationaryCost(np.diag([0, *np.diagonal(COST.Q)]), COST.R, constant=[0])
    wide = np.concatenate(([[0.5]], gain), 1)
    (found,) = push_costs(LinearSystem(A[None], B[None]), wide[None], cost)
    np.testing.assert_allclose(found, [0.0, *alone], rtol=1e-9)
