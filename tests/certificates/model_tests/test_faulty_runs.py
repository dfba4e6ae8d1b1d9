"""What faults of actuators cost, against runs that have them."""

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import default_rng

from contextual_lqr import LinearSystem, QuadraticCost, solve
from contextual_lqr.certificates.model_tests.actuators import WAYS
from contextual_lqr.certificates.model_tests.faulty_runs import faulty_runs
from contextual_lqr.certificates.model_tests.finding import Finding

N, D, M, STEPS = 3, 3, 2, 9


def fault(way: str, limit: float, j: int, p_value: float = 0.0) -> Finding:
    """An actuator that does this instead."""
    return Finding("actuator", p_value, 0.1, 0.0, 0, D + j, way, way=way, limit=limit)


def task(cross: bool) -> tuple[LinearSystem, QuadraticCost, Array, Array]:
    """Machines without noise, a cost, their best gains, a start."""
    rng = default_rng(3)
    A, B = rng.normal(0, 0.5, (N, D, D)), rng.normal(0, 1, (N, D, M))
    Q, R = np.tile(np.eye(D), (STEPS + 1, 1, 1)), np.tile(0.5 * np.eye(M), (STEPS, 1, 1))
    cost = QuadraticCost(Q, R, 0.1 * rng.standard_normal((STEPS, D, M)) if cross else None)
    system = LinearSystem(A, B, np.zeros((D, D)))
    return system, cost, solve(system, cost).policy.gains, rng.standard_normal(D)


def instead(way: str, u: Array, before: Array, t: int) -> Array:
    """What the actuator adds to the input."""
    return {
        "signs": np.sign(u),
        "squares": u * np.abs(u),
        "sizes": np.abs(u),
        "offset": np.ones_like(u),
        "steps": t * u,
        "turns": np.sign(u - before),
        "fifths": u**5,
    }[way]


def paid(i: int, way: str, rate: float, j: int, cross: bool) -> float:
    """The cost of a run in which input j adds so much of that."""
    system, cost, gains, x = task(cross)
    total, before = 0.0, gains[i, 0] @ x
    for t in range(STEPS):
        u = gains[i, t] @ x
        total += x @ cost.Q[t] @ x + u @ cost.R[t] @ u
        total += 0.0 if cost.N is None else 2 * x @ cost.N[t] @ u
        acting = u.copy()
        acting[j] += rate * instead(way, u, before, t)[j]
        x, before = system.A[i] @ x + system.B[i] @ acting, u
    return float(total + x @ cost.Q[-1] @ x)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_small_fault_costs_what_its_run_pays(way: str, cross: bool) -> None:
    rate, j = 1e-6, 1
    system, cost, gains, start = task(cross)
    (found,) = faulty_runs([fault(way, rate, j)], system, gains, cost, start)
    usual = [paid(i, way, 0.0, j, cross) for i in range(N)]
    more = [abs(paid(i, way, rate, j, cross) - usual[i]) for i in range(N)]
    np.testing.assert_allclose(found, more, rtol=1e-3, atol=1e-3 * rate)


def run_of_held(way: str, rate: float, j: int) -> tuple[float, Array]:
    """What a run costs in which inputs act twice, now and a step later, and what it costs more.

    States 1 and 2 hold what was asked of both inputs, and so does the controller; what acts, then
    as now, is what the actuator did.
    """
    rng = default_rng(5)
    A, B = np.zeros((D, D)), np.zeros((D, M))
    A[0], B[0], B[1:] = rng.normal(0, 0.5, D), rng.normal(0, 1, M), np.eye(M)
    system = LinearSystem(A[None], B[None], np.zeros((D, D)))
    cost = QuadraticCost(np.tile(np.eye(D), (STEPS + 1, 1, 1)), np.tile(np.eye(M), (STEPS, 1, 1)))
    gains, x = solve(system, cost).policy.gains, np.array([1.3, 0.4, -0.7])
    (found,) = faulty_runs([fault(way, rate, j)], system, gains, cost, x)

    def done(u: Array, before: Array, t: int) -> Array:
        more = np.zeros(M)
        more[j] = rate * instead(way, u, before, t)[j]
        return more

    total, before = 0.0, gains[0, 0] @ x
    last = x[1:]  # what was asked a step ago, and before that
    for t in range(STEPS):
        u = gains[0, t] @ x
        total += x @ cost.Q[t] @ x + u @ cost.R[t] @ u
        now, then = done(u, before, t), done(x[1:], last, t)
        last, before = x[1:], u
        x = A @ x + B @ u
        x[0] += B[0] @ now + A[0, 1:] @ then
    return float(total + x @ cost.Q[-1] @ x), found


@pytest.mark.parametrize("way", WAYS)
def test_a_fault_also_acts_where_states_hold_the_input(way: str) -> None:
    rate = 1e-6
    usual, _ = run_of_held(way, 0.0, 1)
    paid, found = run_of_held(way, rate, 1)
    np.testing.assert_allclose(found, abs(paid - usual), rtol=1e-3, atol=1e-3 * rate)


def test_what_looks_like_an_end_counts_as_one() -> None:
    system, cost, gains, start = task(False)
    found, doubt, none = (
        faulty_runs([fault("fifths", 0.01, 1, p)], system, gains, cost, start)
        for p in (0.0, 0.05, 0.5)
    )
    np.testing.assert_array_equal(doubt, found)
    assert (none < found).all()


def test_an_actuator_that_ends_gives_no_less_than_nothing() -> None:
    system, cost, gains, start = task(False)
    far, farther = (
        faulty_runs([fault("fifths", g, 1)], system, gains, cost, start) for g in (1e30, 1e40)
    )
    np.testing.assert_allclose(far, farther, rtol=1e-9)


@pytest.mark.parametrize("cross", [False, True])
def test_what_is_merely_not_excluded_costs_the_second_order(cross: bool) -> None:
    """Half of what the run pays with the fault one way and the other, beyond what it pays without.

    An offset is the same whatever the run: there that is exact.
    """
    rate, j = 0.3, 0
    system, cost, gains, start = task(cross)
    (found,) = faulty_runs([fault("offset", rate, j, 0.5)], system, gains, cost, start)
    for i in range(N):
        both = paid(i, "offset", rate, j, cross) + paid(i, "offset", -rate, j, cross)
        assert found[i] == pytest.approx(both / 2 - paid(i, "offset", 0.0, j, cross), rel=1e-9)


def test_where_noise_drives_the_run_it_counts() -> None:
    system, cost, gains, _ = task(cross=False)
    noisy = LinearSystem(system.A, system.B, 0.1 * np.eye(D))
    for start, expected in ((noisy, True), (system, False)):
        (found,) = faulty_runs([fault("steps", 0.1, 0)], start, gains, cost, np.zeros(D))
        assert (found > 0).all() == expected
