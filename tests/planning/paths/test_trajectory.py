"""Paths by iterative LQR: against `solve`, scipy, finite differences and the NumPy reference."""

from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array
from scipy.optimize import minimize

import contextual_lqr as clqr
from contextual_lqr import kernels
from contextual_lqr.kernels import ilqr_reference
from contextual_lqr.planning.paths.feature_batch import FeatureBatch

DT, STEPS = 0.1, 25
PENDULUM = clqr.FeatureDynamics(
    ["angle", "speed", "sin(angle)/length", "torque/(mass*length**2)"],
    states=["angle", "speed"],
    inputs=["torque"],
)
THETA = np.array([[1.0, DT, 0.0, 0.0], [0.0, 1.0, -9.81 * DT, DT]])
CONTEXT = {"mass": 1.2, "length": 0.8}


def features(context: Any, x: Array, u: Array) -> Array:
    turned = context["mass"] * context["length"] ** 2
    return np.stack(
        [x[..., 0], x[..., 1], np.sin(x[..., 0]) / context["length"], u[..., 0] / turned], -1
    )


def upright(steps: int = STEPS, **options: Any) -> clqr.TargetCost:
    options = {"target": [np.pi, 0.0], "angles": [0], **options}
    Q = [np.diag([1.0, 0.1])] * steps + [np.diag([50.0, 5.0])]
    return clqr.TargetCost(Q, [[[0.05]]] * steps, **options)


def pendulum(theta: Array = THETA, context: Any = CONTEXT) -> clqr.DynamicsBelief:
    return clqr.DynamicsBelief.known(PENDULUM, context, theta)


def uncertain(rng: np.random.Generator, size: float = 0.02) -> clqr.DynamicsBelief:
    roots = size * rng.normal(size=(2, 4, 4))
    exact = pendulum()
    return clqr.DynamicsBelief(
        exact.mean,
        roots @ roots.swapaxes(1, 2),
        exact.noise,
        exact.degrees,
        dynamics=PENDULUM,
        context=CONTEXT,
    )


def spent(inputs: Array, cost: clqr.TargetCost, start: Array) -> float:
    """The cost of inputs, by the features alone."""
    x = [np.asarray(start, float)]
    for u in inputs:
        x.append(THETA @ features(CONTEXT, x[-1], u))
    return float(clqr.trajectory_cost(clqr.Trajectory(x, inputs), cost))


@pytest.mark.parametrize("hedged", [False, True])
def test_a_linear_machine_is_solved_in_one_step(hedged: bool) -> None:
    rng = np.random.default_rng(0)
    A, B, steps = rng.normal(size=(3, 3)) / 2, rng.normal(size=(3, 2)), 12
    roots = 0.1 * rng.normal(size=(3, 5, 5))
    covariances = roots @ roots.swapaxes(1, 2)
    dynamics = clqr.FeatureDynamics(
        ["a", "b", "c", "p", "q"], states=["a", "b", "c"], inputs=["p", "q"]
    )
    cost = clqr.QuadraticCost(
        [np.eye(3)] * (steps + 1), [np.eye(2)] * steps, 0.1 * rng.normal(size=(steps, 3, 2))
    )
    machine = clqr.DynamicsBelief(
        np.hstack((A, B)), covariances, np.zeros((3, 3)), np.ones(3), dynamics=dynamics, context={}
    )
    start = rng.normal(size=3)
    path = clqr.solve_trajectory(
        machine, cost, start, aversion=float(hedged), guess=rng.normal(size=(steps, 2))
    )
    uncertainty = clqr.ModelUncertainty(covariances) if hedged else None
    exact = clqr.solve(clqr.LinearSystem(A, B), cost, uncertainty=uncertainty)
    assert path.solved
    assert path.iterations == 1
    np.testing.assert_allclose(path.gains, exact.policy.gains, atol=1e-12)
    np.testing.assert_allclose(path.cost + path.hedge, exact.cost(start), rtol=1e-12)


@pytest.mark.parametrize("limit", [None, 3.0])
def test_the_answer_is_that_of_a_general_solver(limit: float | None) -> None:
    start, cost = np.array([1.5, 0.0]), upright(8)
    bounds = None if limit is None else (-limit, limit)
    path = clqr.solve_trajectory(
        pendulum(), cost, start, input_bounds=bounds, tolerance=1e-14, check=True
    )
    found = minimize(
        lambda u: spent(u[:, None], cost, start),
        path.inputs[:, 0] + 0.05,
        bounds=None if limit is None else [(-limit, limit)] * 8,
        options={"ftol": 1e-14, "gtol": 1e-8, "maxiter": 2000},
        method="L-BFGS-B",
    )
    np.testing.assert_allclose(path.cost, spent(path.inputs, cost, start), rtol=1e-12)
    assert path.cost <= found.fun * (1 + 1e-8)
    np.testing.assert_allclose(path.inputs[:, 0], found.x, atol=2e-3)


def test_the_gradient_vanishes_but_where_a_limit_holds() -> None:
    start, cost, limit = np.array([0.3, 0.0]), upright(), 6.0
    path = clqr.solve_trajectory(
        pendulum(), cost, start, input_bounds=(-limit, limit), tolerance=1e-15
    )
    u, step = path.inputs.copy(), 1e-5
    slopes = np.empty(STEPS)
    for t in range(STEPS):
        ends = []
        for sign in (1, -1):
            u[t] += sign * step
            ends.append(spent(u, cost, start))
            u[t] -= sign * step
        slopes[t] = (ends[0] - ends[1]) / (2 * step)
    low, high = u[:, 0] == -limit, u[:, 0] == limit
    assert (low | high).any()
    size = spent(0 * u, cost, start)
    assert (slopes[low] >= -1e-6 * size).all()
    assert (slopes[high] <= 1e-6 * size).all()
    assert np.abs(slopes[~(low | high)]).max() < 1e-6 * size


@pytest.mark.parametrize("limit", [None, 4.0])
@pytest.mark.parametrize("aversion", [0.0, 3.0])
def test_compiled_and_reference_take_the_same_steps(limit: float | None, aversion: float) -> None:
    rng = np.random.default_rng(3)
    cost, steps = upright(8), 8
    machine, start = uncertain(rng), rng.normal(size=(4, 2))
    problem = kernels.PathProblem(
        machine.mean[None],
        aversion * machine.covariances[None] if aversion else None,
        cost.Q[None],
        cost.R[None],
        0.01 * rng.normal(size=(1, steps, 2, 1)),
        cost.target[None],
        cost.input_target[None],
        None if limit is None else np.array([[-limit]]),
        None if limit is None else np.array([[limit]]),
        np.array([2 * np.pi, 0.0]),
    )
    batch = FeatureBatch(machine, (4,))
    guess = kernels.Guess(rng.normal(size=(4, steps, 1)))
    options: dict[str, Any] = {"iterations": 40, "tolerance": 1e-9}
    one = ilqr_reference.ilqr(problem, batch.features, start, guess, **options)
    by_function = batch.features._replace(program=None)
    for other in (batch.features, by_function):
        two = kernels.ilqr(problem, other, start, guess, **options)
        np.testing.assert_array_equal(one.status, two.status)
        np.testing.assert_array_equal(one.iterations, two.iterations)
        for name in ("states", "inputs", "gains", "cost", "hedge"):
            np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-6, atol=1e-8)


def test_a_function_plans_as_its_expressions_do() -> None:
    own = clqr.FunctionDynamics(features, ["angle", "speed"], ["torque"])
    own.features(CONTEXT, [0.0, 0.0], [0.0])
    machine = clqr.DynamicsBelief.known(own, CONTEXT, THETA)
    options: Any = {"input_bounds": (-8, 8), "iterations": 15}
    one, two = (
        clqr.solve_trajectory(m, upright(12), [0.5, 0.0], **options) for m in (machine, pendulum())
    )
    np.testing.assert_allclose(one.inputs, two.inputs, atol=1e-5)


def test_functions_of_several_machines_are_asked_for_each_machine() -> None:
    contexts = [{"mass": 1.2, "length": 0.8}, {"mass": 0.9, "length": 1.1}]
    own = clqr.FunctionDynamics(features, ["angle", "speed"], ["torque"])
    own.features(CONTEXT, [0.0, 0.0], [0.0])
    options: Any = {"input_bounds": (-8, 8), "iterations": 15}
    one, two = (
        clqr.solve_trajectory(
            clqr.DynamicsBelief.known(map_, contexts, np.array([THETA] * 2)),
            upright(12),
            [0.5, 0.0],
            **options,
        )
        for map_ in (own, PENDULUM)
    )
    np.testing.assert_allclose(one.inputs, two.inputs, atol=1e-5)
    assert not np.allclose(one.inputs[0], one.inputs[1])


def test_a_path_that_leaves_where_a_function_has_values_is_no_path() -> None:
    def draining(context: Any, x: Array, u: Array) -> Array:
        if (x < 0).any():
            raise ValueError("an empty tank")
        return np.stack([np.sqrt(x[..., 0]), u[..., 0]], -1)

    tanks = clqr.FunctionDynamics(draining, ["level"], ["inflow"])
    tanks.features({}, [1.0], [0.0])
    cost = clqr.QuadraticCost([np.eye(1)] * 7, [np.eye(1)] * 6)
    for theta, fits in (([[0.9, 1.0]], True), ([[-1.0, 1.0]], False)):
        machines = clqr.DynamicsBelief.known(tanks, [{}, {}], np.array([theta] * 2))
        path = clqr.solve_trajectory(machines, cost, [[2.0], [3.0]])
        assert np.isfinite(path.cost).all() == fits


def test_members_are_solved_as_if_alone() -> None:
    rng = np.random.default_rng(4)
    contexts = [{"mass": m, "length": s} for m, s in rng.uniform(0.8, 1.3, (3, 2))]
    machines = clqr.DynamicsBelief.known(PENDULUM, contexts, np.array([THETA] * 3))
    starts = rng.normal(size=(2, 3, 2))
    options: Any = {"input_bounds": (-7, 7)}
    together = clqr.solve_trajectory(machines, upright(), starts, **options)
    assert together.cost.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        alone = clqr.solve_trajectory(
            pendulum(context=contexts[j]), upright(), starts[i, j], **options
        )
        np.testing.assert_array_equal(together.inputs[i, j], alone.inputs)


def test_more_attempts_swing_up_what_one_does_not() -> None:
    cost, options = upright(80), {"input_bounds": (-3, 3)}
    once = clqr.solve_trajectory(pendulum(), cost, [0.0, 0.0], **options)
    often = clqr.solve_trajectory(pendulum(), cost, [0.0, 0.0], attempts=7, **options)
    away = (often.states[-1, 0] - np.pi) % (2 * np.pi)
    assert min(away, 2 * np.pi - away) < 0.1
    assert often.cost < 0.8 * once.cost


def test_a_warm_start_takes_fewer_steps_and_a_turn_is_no_difference() -> None:
    cost, options = upright(60), {"input_bounds": (-8, 8)}
    cold = clqr.solve_trajectory(pendulum(), cost, [0.5, 0.0], attempts=3, **options)
    warm = clqr.solve_trajectory(
        pendulum(), cost, [0.51 + 2 * np.pi, 0.0], guess=cold.policy, **options
    )
    assert warm.iterations < cold.iterations
    np.testing.assert_allclose(warm.cost, cold.cost, rtol=0.02)


def test_hedging_keeps_to_what_is_known() -> None:
    rng = np.random.default_rng(5)
    machine = uncertain(rng, 0.15)
    plain, hedged = (
        clqr.solve_trajectory(machine, upright(30), [0.5, 0.0], aversion=a, attempts=3)
        for a in (0.0, 30.0)
    )
    roots = np.linalg.cholesky(machine.covariances)
    doubt = [
        np.square(
            roots.swapaxes(1, 2) @ machine.features(p.states[:-1], p.inputs)[:, None, :, None]
        )
        for p in (plain, hedged)
    ]
    assert doubt[1].sum() < 0.9 * doubt[0].sum()
    assert plain.cost < hedged.cost


def test_failures_say_why() -> None:
    runaway = clqr.FeatureDynamics(["x**3", "u"], states=["x"], inputs=["u"])
    machine = clqr.DynamicsBelief.known(runaway, {}, [[1.0, 1.0]])
    cost = clqr.QuadraticCost([np.eye(1)] * 31, [np.eye(1)] * 30)
    path = clqr.solve_trajectory(machine, cost, [3.0])
    assert clqr.Status(int(path.status)) is clqr.Status.DIVERGED
    assert path.cost == np.inf
    assert "initial inputs" in path.reason
    with pytest.raises(clqr.UnsolvableError, match="initial inputs"):
        clqr.solve_trajectory(machine, cost, [3.0], check=True)
    path = clqr.solve_trajectory(pendulum(), upright(), [0.5, 0.0], iterations=2)
    assert clqr.Status(int(path.status)) is clqr.Status.NOT_CONVERGED
    assert "used up" in path.reason
    tank = clqr.FeatureDynamics(["sqrt(x)", "u"], states=["x"], inputs=["u"])
    for theta in ([[1.0, 1.0]], [[-1.0, 1.0]]):
        machine = clqr.DynamicsBelief.known(tank, {}, theta)
        path = clqr.solve_trajectory(machine, cost, [2.0], guess=np.full((30, 1), 0.1))
        assert np.isfinite(path.states).all() or not path.solved


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": [0.0]}, "2 coordinates"),
        ({"cost": clqr.QuadraticCost([np.eye(3)] * 2, [np.eye(1)])}, "3 states"),
        ({"guess": np.zeros((3, 1))}, "guess must have shape"),
        ({"attempts": 0}, "attempts must be at least 1"),
        ({"aversion": -1.0}, "aversion must be at least 0"),
        ({"machine": clqr.LinearSystem([[1.0]], [[1.0]])}, "machine must be a DynamicsBelief"),
        ({"input_bounds": (1, -1)}, "low <= high"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], said: str) -> None:
    given = {"machine": pendulum(), "cost": upright(), "start": [0.0, 0.0], **change}
    with pytest.raises(clqr.InputError, match=said):
        clqr.solve_trajectory(**given)


def test_a_target_is_not_for_linear_machines() -> None:
    with pytest.raises(clqr.InputError, match="solve_trajectory"):
        clqr.solve(clqr.LinearSystem(np.eye(2), np.ones((2, 1))), upright())
