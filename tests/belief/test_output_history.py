"""Outputs become states: shifts are exact, and a long history is a Kalman filter and an LQR."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_are

import contextual_lqr as clqr

SIZES = st.builds(
    clqr.OutputHistory,
    outputs=st.integers(1, 3),
    inputs=st.integers(1, 2),
    n=st.integers(1, 4),
    delay=st.integers(0, 3),
    input_history=st.none() | st.integers(1, 4),
    measured=st.integers(0, 2),
    constant=st.booleans(),
    spacing=st.sampled_from([1.0, 1.0, 2.5]),
)


@settings(max_examples=12)
@given(SIZES, st.integers(0, 2**32 - 1))
def test_every_known_row_shifts_and_the_memory_is_the_trajectory(history, seed):
    rng, H = np.random.default_rng(seed), history.lost + 5
    y, u = rng.normal(size=(2, H, history.outputs)), rng.normal(size=(2, H - 1, history.inputs))
    w = np.repeat(rng.normal(size=(2, 1, history.measured)), H, 1)  # they stay
    found = history.trajectory(y, u, w if history.measured else None)
    assert found.states.shape == (2, 5, history.state_size)
    moves = np.concatenate((found.states[:, :-1], found.inputs), -1)
    known = list(history.known_states)
    assert np.allclose(
        (moves @ history.shift.T)[..., known], found.states[:, 1:, known], atol=1e-12
    )
    features = ["1", "1/mass"]
    context_map = clqr.FeatureContext(features, states=history.state_size, inputs=history.inputs)
    rows = history.known(context_map)
    G = context_map.matrix({"mass": rng.uniform(1, 5)})
    assert list(rows) == known
    for i, row in rows.items():
        assert np.allclose(row @ G, history.shift[i], atol=1e-12)

    memory = history.memory()
    at = (w[0, 0],) if history.measured else ()
    first = memory.see(y[0, 0], None, *at)
    assert np.array_equal(first, history.at_rest(y[0, 0], None, *at))
    for t in range(1, H):
        x = memory.see(y[0, t], u[0, t - 1], *at)
        if t >= history.lost and history.spacing == 1:
            assert np.array_equal(x, found.states[0, t - history.lost])
    if history.spacing > 1:  # what was before the episode is all but forgotten
        assert np.abs(x - found.states[0, -1]).max() < 0.2
    cost = history.cost(np.eye(history.outputs), np.eye(history.inputs), 5)
    paid = (y[0, -5:] ** 2).sum() + (u[0, -4:] ** 2).sum()
    assert np.isclose(clqr.trajectory_cost(found, cost)[0], paid)


def test_a_long_history_is_a_kalman_filter_and_an_lqr_in_one():
    A, B, C = np.array([[1, 0.1], [0, 0.9]]), np.array([[0.005], [0.1]]), np.array([[1.0, 0]])
    W, V = 0.5 * B @ B.T, np.array([[1e-4]])
    S = solve_discrete_are(A.T, C.T, W, V)
    L = A @ S @ C.T / (C @ S @ C.T + V)  # of the predictor
    n, H, steps = 40, 90, 60
    history = clqr.OutputHistory(1, 1, n)
    M, power = history.shift.copy(), np.eye(2)
    for i in range(n):
        M[0, i], M[0, n + i - 1 if i else -1] = (C @ power @ L)[0, 0], (C @ power @ B)[0, 0]
        power = power @ (A - L @ C)
    assert np.abs(power).max() < 1e-6  # that the history is long enough
    noise = np.zeros((history.state_size,) * 2)
    noise[0, 0] = (C @ S @ C.T + V)[0, 0]
    cost = history.cost([[1.0]], [[0.1]], H)
    policy = clqr.solve(clqr.LinearSystem(M[:, :-1], M[:, -1:], noise), cost).policy
    controller = history.controller(policy)
    own = clqr.QuadraticCost([C.T @ C] * H, [[[0.1]]] * (H - 1))
    K = clqr.solve(clqr.LinearSystem(A, B), own).policy.gains
    rng = np.random.default_rng(0)
    x, guess = np.zeros(2), np.zeros(2)  # at rest at 0, as the controller assumes
    for t in range(steps):
        y = C @ x + 1e-2 * rng.normal(size=1) if t else np.zeros(1)
        seen = guess + (S @ C.T / (C @ S @ C.T + V) @ (y - C @ guess))
        u = controller.input(y)
        assert np.allclose(u, K[t] @ seen, atol=1e-5)
        guess = A @ seen + B @ u
        x = A @ x + B @ u + np.sqrt(0.5) * B @ rng.normal(size=1) + 0.3 * (t == 10)


def test_where_a_machine_rests_is_estimated_as_least_squares_has_it():
    """With its law known: the level that makes the outputs most likely, held near the first."""
    history = clqr.OutputHistory(2, 1, n=3, spacing=4.0)
    rng, d = np.random.default_rng(3), history.state_size
    M, N = history.shift.copy(), np.diag([0.04, 0.25])
    M[:2] = 0.15 * rng.normal(size=(2, d + 1)) + 0.3 * np.eye(2, d + 1)
    noise = np.zeros((d, d))
    noise[:2, :2] = N
    machine = clqr.LinearSystem(M[:, :d], M[:, d:], noise)
    memory = history.memory(machine)
    y, u = rng.normal(size=(7, 2)), rng.normal(size=(6, 1))
    states = [memory.see(y[0])]
    states += [memory.see(y[t + 1], u[t]) for t in range(6)]

    def played(level):
        """The states if it had been at rest there, and the errors of the predictions."""
        x, errors = history.at_rest(level), []
        x[:2] = y[0]
        for t in range(6):
            z = np.append(x, u[t])
            errors.append(y[t + 1] - M[:2] @ z)
            x = M @ z
            x[:2] = y[t + 1]
        return x, np.concatenate([np.linalg.solve(np.sqrt(N), one) for one in errors])

    base = played(y[0])[1]
    slope = np.stack([played(y[0] + e)[1] - base for e in np.eye(2)], 1)
    rows = np.concatenate((slope, np.linalg.solve(np.sqrt(N), np.eye(2))))  # the first output
    level = y[0] - np.linalg.lstsq(rows, np.append(base, [0, 0]), rcond=None)[0]
    assert np.allclose(states[-1], played(level)[0], atol=1e-12)
    assert np.abs(level - y[0]).max() > 0.01  # that there was something to estimate
    without = clqr.LinearSystem(M[:, :d], M[:, d:])
    told, plain = history.memory(without), history.memory()
    assert np.array_equal(told.see(y[0]), plain.see(y[0]))
    assert np.array_equal(told.see(y[1], u[0]), plain.see(y[1], u[0]))


def test_it_learns_a_machine_from_outputs_alone():
    """The exact recursion of a mass on a spring with a late force, from its position."""
    history = clqr.OutputHistory(outputs=1, inputs=1, n=2, delay=1)
    springs = clqr.FeatureContext(["1", "1/mass"], states=history.state_size, inputs=1)
    decoder = clqr.Decoder(springs, known=history.known(springs))
    rng = np.random.default_rng(1)
    for mass in rng.uniform(1, 4, size=6):
        y, u = [1.0, 0.9], rng.normal(size=39)
        for t in range(1, 39):
            late = u[t - 1] if t else 0.0
            y.append(1.9 * y[t] - (1 - 0.1 / mass) * y[t - 1] + 0.1 / mass * late)
        decoder.update({"mass": mass}, history.trajectory(np.array(y)[:, None], u[:, None]))
    row = np.append(decoder.system({"mass": 2.5}).A[0], decoder.system({"mass": 2.5}).B[0])
    assert np.allclose(row, [1.9, -0.96, 0.04, 0, 0], atol=1e-6)
    assert decoder.population.deviations[list(history.known_states)].max() == 0


def test_what_does_not_fit_is_refused_in_a_sentence():
    history = clqr.OutputHistory(outputs=1, inputs=1, n=3, delay=2)
    with pytest.raises(clqr.InputError, match="shorter than the history: 5 outputs, but 6"):
        history.trajectory(np.zeros((5, 1)), np.zeros((4, 1)))
    with pytest.raises(clqr.InputError, match="n must be at least 1"):
        clqr.OutputHistory(1, 1, 0)
    memory = history.memory()
    memory.see([1.0])
    with pytest.raises(clqr.InputError, match="say what was played"):
        memory.see([1.0])
    with pytest.raises(clqr.InputError, match='a feature "1" is missing'):
        history.known(clqr.FeatureContext(["mass"], states=7, inputs=1))
    with pytest.raises(clqr.InputError, match="gains have shape"):
        history.controller(clqr.LinearPolicy(np.zeros((3, 1, 2))))
    policy = clqr.LinearPolicy(np.zeros((3, 1, history.state_size)))
    with pytest.raises(clqr.InputError, match="the machine has 2 states and 1 inputs"):
        history.controller(policy, machine=clqr.LinearSystem(np.eye(2), np.ones((2, 1))))
    with pytest.raises(clqr.InputError, match="machine must be a"):
        history.controller(policy, machine="m1")
    with pytest.raises(clqr.InputError, match="spacing must be from 1 to"):
        clqr.OutputHistory(1, 1, 3, spacing=0.5)
