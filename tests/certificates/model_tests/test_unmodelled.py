"""What findings may cost, against simulations of the machines that they describe."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

import contextual_lqr as clqr
from contextual_lqr import LinearPolicy, LinearSystem, QuadraticCost, policy_cost, solve
from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.certificates.model_tests.late_inputs import late_excess
from contextual_lqr.certificates.model_tests.unmodelled import (
    findings_of,
    push_costs,
    unmodelled,
)

D, M, STEPS, N = 3, 2, 8, 4


def task(seed: int, cross: bool) -> tuple[LinearSystem, QuadraticCost, np.ndarray, np.ndarray]:
    """Some machines, a cost with or without a cross term, their best gains, a start."""
    rng = default_rng(seed)
    A, B = rng.normal(0, 0.5, (N, D, D)), rng.normal(0, 1, (N, D, M))
    system = LinearSystem(A, B, 0.01 * np.eye(D))
    term = 0.1 * rng.standard_normal((STEPS, D, M)) if cross else None
    cost = QuadraticCost(
        np.broadcast_to(np.eye(D), (STEPS + 1, D, D)),
        np.broadcast_to(0.5 * np.eye(M), (STEPS, M, M)),
        term,
    )
    return system, cost, solve(system, cost).policy.gains, rng.standard_normal(D)


@given(st.integers(0, 10**6), st.booleans())
def test_a_push_costs_what_a_simulation_pays_for_it(seed: int, cross: bool) -> None:
    system, cost, gains, _ = task(seed, cross)
    found = push_costs(system, gains, cost)
    for i in range(N):
        for r in range(D):
            x, paid = np.zeros(D), 0.0
            for t in range(STEPS):
                u = gains[i, t] @ x
                paid += x @ cost.Q[t] @ x + u @ cost.R[t] @ u
                paid += 0.0 if cost.N is None else 2 * x @ cost.N[t] @ u
                x = system.A[i] @ x + system.B[i] @ u + np.eye(D)[r]
            assert found[i, r] == pytest.approx(paid + x @ cost.Q[-1] @ x, rel=1e-9)


def finding(kind: str, size: float, state: int, regressor: int | None = None) -> Finding:
    """What a test says."""
    return Finding(kind, 1e-9, 0.5, size, state, regressor, f"{kind} of {size}")  # type: ignore[arg-type]


def test_of_what_tests_find_about_one_state_the_worst_counts() -> None:
    system, cost, gains, start = task(0, False)
    predicted = np.asarray(policy_cost(LinearPolicy(gains), system, cost, start))
    none, said = unmodelled((), system, gains, cost, start, predicted)
    assert none.tolist() == [0.0] * N
    assert said == [""] * N
    push = push_costs(system, gains, cost) / predicted[:, None]
    found = (finding("memory", 0.1, 0), finding("memory", 0.2, 0), finding("memory", 0.1, 2))
    total, said = unmodelled(found, system, gains, cost, start, predicted)
    np.testing.assert_allclose(total, 0.04 * push[:, 0] + 0.01 * push[:, 2], rtol=1e-12)
    assert set(said) <= {"memory of 0.2", "memory of 0.1"}
    rows = np.random.default_rng(0).normal(size=(2, D + M + 1))
    late = tuple(
        replace(finding("late input", 0.0, r, D), late_row=tuple(row)) for r, row in enumerate(rows)
    )
    total, _ = unmodelled(late, system, gains, cost, start, predicted)
    more = late_excess(0, late, system, gains, cost, start)
    np.testing.assert_allclose(total, more, rtol=1e-12)


def test_what_is_not_linear_may_be_in_step_with_the_run() -> None:
    """The cost of a run that is pushed along: (√J + √c)², the most that two runs add up to."""
    system, cost, gains, start = task(0, False)
    predicted = np.asarray(policy_cost(LinearPolicy(gains), system, cost, start))
    total, _ = unmodelled((finding("nonlinear", 0.2, 0),), system, gains, cost, start, predicted)
    pushed = 0.04 * push_costs(system, gains, cost)[:, 0]
    whole = np.square(np.sqrt(predicted) + np.sqrt(pushed))
    np.testing.assert_allclose(predicted * (1 + total), whole, rtol=1e-12)


def test_a_fault_is_larger_where_the_run_goes_farther_and_where_inputs_are_stronger() -> None:
    system, cost, gains, start = task(1, False)
    predicted = np.asarray(policy_cost(LinearPolicy(gains), system, cost, start))

    def missed(one: Finding) -> np.ndarray:
        return unmodelled((one,), system, gains, cost, start, predicted)[0]

    memory = finding("memory", 0.1, 0)
    weak = replace(memory, strengths=tuple(np.abs(system.B[:, 0]).max(0) / 3))
    strong = replace(memory, strengths=tuple(np.abs(system.B[:, 0]).max(0)))
    np.testing.assert_allclose(missed(strong), missed(memory), rtol=1e-12)
    assert missed(weak).max() == pytest.approx((9 * missed(memory))[missed(weak).argmax()])
    # Squares grow with the square of the run's states, their cost with the fourth power.
    square = replace(finding("nonlinear", 1e-9, 0, 1), power=2, usual=1e-3)
    twice = unmodelled((square,), system, gains, cost, 2 * start, predicted)[0]
    np.testing.assert_allclose(twice, 4 * missed(square), rtol=1e-2)
    np.testing.assert_allclose(
        missed(replace(square, usual=1e3)), missed(finding("nonlinear", 1e-9, 0)), rtol=1e-12
    )


@pytest.mark.parametrize("scale", [1e-8, 1e12])
def test_any_units(scale: float) -> None:
    """States and inputs in other units: the same part of the cost."""
    system, cost, gains, start = task(3, True)
    assert cost.N is not None
    other = LinearSystem(system.A, system.B, scale**2 * system.noise)
    units = QuadraticCost(cost.Q / scale**2, cost.R / scale**2, cost.N / scale**2)
    found = (finding("memory", 0.1, 0),)
    predicted = [
        np.asarray(policy_cost(LinearPolicy(gains), s, c, x))
        for s, c, x in ((system, cost, start), (other, units, scale * start))
    ]
    usual, _ = unmodelled(found, system, gains, cost, start, predicted[0])
    found = (finding("memory", 0.1 * scale, 0),)
    scaled, _ = unmodelled(found, other, gains, units, scale * start, predicted[1])
    np.testing.assert_allclose(scaled, usual, rtol=1e-9)


def test_a_delay_under_feedback_is_counted_even_if_a_state_explains_it_better() -> None:
    """With little dither the input a step before is nearly a state a step before."""
    rng, decoder = np.random.default_rng(0), clqr.Decoder(clqr.FeatureContext(["1", "1/mass"]))
    cost = clqr.QuadraticCost([np.diag([1.0, 0.3])] * 30, [0.05 * np.eye(1)] * 29)
    for number in range(40):
        mass, x, before = rng.uniform(1, 3), np.array([1.0, 0.0]), np.zeros(1)
        gain = rng.normal([-1.0, -1.5], 0.2)
        states, inputs = [x], []
        for _ in range(30):
            u = np.array([gain @ x]) + 0.05 * rng.normal(size=1)
            late = np.array([0.0, 0.2 / mass]) * before
            x = np.array([[1.0, 0.2], [0.0, 0.9]]) @ x + late + 0.002 * rng.normal(size=2)
            before = u
            states.append(x)
            inputs.append(u)
        decoder.update({"mass": mass}, clqr.Trajectory(states, inputs), f"M-{number}")
    found = findings_of(decoder, cost)
    assert any(one.kind == "late input" or one.maybe_late == 2 for one in found)
    policy = clqr.solve(decoder.system({"mass": 2.0}), cost).policy
    system = decoder.machines([{"mass": 2.0}]).system
    predicted = np.atleast_1d(clqr.policy_cost(policy, system, cost, [1.0, 0.0]))
    start = np.array([1.0, 0.0])
    counted, _ = unmodelled(found, system, policy.gains[None], cost, start, predicted)
    about = [one for one in found if one.late == 2]
    more = late_excess(0, about, system, policy.gains[None], cost, start)
    assert counted[0] >= more[0] > 0.02


def test_an_actuator_that_saturates_unlogged_is_not_trusted() -> None:
    """Logs say what was asked for; half of it arrives where most is asked."""
    cost = clqr.QuadraticCost([np.eye(2)] * 25, [0.1 * np.eye(1)] * 24)
    for most in (np.inf, 0.6):
        rng, decoder = default_rng(1), clqr.Decoder(clqr.FeatureContext(["1", "1/mass"]))
        for number in range(20):
            mass, states, inputs = rng.uniform(1, 2), [np.array([1.0, 0.0])], []
            for _ in range(24):
                u = np.array([[-1.5, -1.5]]) @ states[-1] + 0.4 * rng.standard_normal(1)
                push = np.array([0.0, 0.1 / mass]) * np.clip(u, -most, most)
                x = np.array([[1.0, 0.1], [0.0, 0.98]]) @ states[-1] + push
                states.append(x + 0.01 * rng.standard_normal(2))
                inputs.append(u)
            decoder.update({"mass": mass}, clqr.Trajectory(states, inputs), f"M-{number}")
        one = clqr.certify(decoder, {"mass": 1.5}, cost, [1.0, 0.0], bounds=False)
        assert (one.verdict == "trust") == (most == np.inf)
        assert ("nonlinear, as when actuators saturate" in one.reason) == (most != np.inf)
