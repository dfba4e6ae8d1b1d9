"""A forecast as part of the system: the best inputs are those of least squares over all of them."""

import numpy as np

import contextual_lqr as clqr
from contextual_lqr.lqr.preview import Preview, best_costs, costs_of

H = 9
FORECAST = np.array([4.0, 3.0, 3.5, 6.0, 7.0, 2.0, -1.0, 0.5])  # of H - 1 steps


def house():
    """x = (1, w, y): y' = 0.8 y + 0.5 u - 0.2 w + 0.3."""
    A = np.array([[1.0, 0, 0], [0, 1, 0], [0.3, -0.2, 0.8]])
    return clqr.LinearSystem(A, [[0.0], [0], [0.5]], 0.01 * np.diag([0, 1.0, 0]))


def cost():
    Q = np.zeros((H, 3, 3))
    Q[:, 2, 2] = 1.0
    return clqr.QuadraticCost(Q, np.full((H - 1, 1, 1), 0.1))


def preview(values=FORECAST):
    changes = np.zeros((H - 1, 3))
    changes[: len(values) - 1, 1] = np.diff(values)
    return Preview(changes, (1,), 0)


def outputs(u, y, w):
    """What the house does under these inputs and that weather."""
    seen = [y]
    for one, now in zip(u, w, strict=True):
        seen.append(0.8 * seen[-1] + 0.5 * one - 0.2 * now + 0.3)
    return np.array(seen)


def test_the_best_inputs_are_those_of_least_squares_that_know_the_weather():
    free = outputs(np.zeros(H - 1), 2.0, FORECAST)
    effect = np.stack([outputs(e, 2.0, FORECAST) - free for e in np.eye(H - 1)], 1)
    stacked = np.concatenate((effect, np.sqrt(0.1) * np.eye(H - 1)))
    right = -np.concatenate((free, np.zeros(H - 1)))
    u, left, *_ = np.linalg.lstsq(stacked, right, rcond=None)

    x, system = np.array([1.0, FORECAST[0], 2.0]), preview().system(house())
    found = clqr.solve(system, cost())
    run = clqr.simulate(found.policy, system, x, np.random.default_rng(0))
    np.testing.assert_allclose(run.inputs[:, 0], u, atol=1e-9)
    np.testing.assert_allclose(run.states[:-1, 1], FORECAST)  # and it is the weather's
    np.testing.assert_allclose(clqr.optimal_cost(system, cost(), x), left[0], rtol=1e-9)


def test_what_is_measured_counts_if_the_forecast_was_wrong():
    """Two degrees off, and off for ever: the policy is the best for that weather too."""
    x = np.array([1.0, FORECAST[0] + 2, 2.0])
    policy = clqr.solve(preview().system(house()), cost()).policy
    truth = preview(FORECAST + 2).system(house())
    paid = clqr.policy_cost(policy, truth, cost(), x)
    np.testing.assert_allclose(paid, clqr.optimal_cost(truth, cost(), x), rtol=1e-12)


def test_many_machines_at_a_time_cost_what_each_does(monkeypatch):
    rng = np.random.default_rng(1)
    A = house().A + 0.05 * rng.normal(size=(5, 3, 3)) * (np.arange(3) == 2)[:, None]
    many, x = clqr.LinearSystem(A, house().B, house().noise), np.array([1.0, 4.0, 2.0])
    policy = clqr.solve(preview().system(house()), cost()).policy
    monkeypatch.setattr("contextual_lqr.lqr.preview._AT_ONCE", 2 * 12 * (H - 1))
    many = clqr.LinearSystem.unchecked(many.A, np.repeat(many.B[None], 5, 0), many.noise)
    paid, best = (
        costs_of(policy, many, cost(), x, preview()),
        best_costs(many, cost(), x, preview()),
    )
    for i in range(5):
        one = preview().system(clqr.LinearSystem(A[i], house().B, house().noise))
        np.testing.assert_allclose(paid[i], clqr.policy_cost(policy, one, cost(), x))
        np.testing.assert_allclose(best[i], clqr.optimal_cost(one, cost(), x))
