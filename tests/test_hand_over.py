"""python-control as an independent reference: its gains are ours with the other sign."""

import control
import numpy as np
import pytest

import contextual_lqr as clqr

CART = clqr.LinearSystem([[1, 0.1], [0, 0.95]], [[0], [0.05]])
Q, R = np.diag([1.0, 0.3]), np.array([[0.01]])


def test_a_loop_closed_there_is_stable() -> None:
    cost = clqr.QuadraticCost(np.tile(Q, (500, 1, 1)), np.tile(R, (499, 1, 1)))
    gain = clqr.solve(CART, cost).policy.gains[0]
    plant = control.ss(CART.A, CART.B, np.eye(2), 0, dt=0.1)
    _, loop = control.create_statefbk_iosystem(plant, -gain)
    assert np.abs(np.linalg.eigvals(loop.A)).max() < 1


@pytest.mark.parametrize("seed", range(10))
def test_the_first_gain_of_a_long_horizon_is_the_stationary_one(seed: int) -> None:
    """Unstable systems of any size, with a cross term in the cost."""
    rng = np.random.default_rng(seed)
    d, m, H = int(rng.integers(1, 6)), int(rng.integers(1, 4)), 500
    A, B = rng.standard_normal((d, d)), rng.standard_normal((d, m))
    half = rng.standard_normal((d + m, d + m))
    W = half @ half.T + 0.1 * np.eye(d + m)
    Q, R, N = W[:d, :d], W[d:, d:], W[:d, d:]
    stages = [np.broadcast_to(M, (n, *M.shape)) for M, n in ((Q, H), (R, H - 1), (N, H - 1))]
    found = clqr.solve(clqr.LinearSystem(A, B), clqr.QuadraticCost(*stages))
    K, P, _ = control.dlqr(A, B, Q, R, N)
    np.testing.assert_allclose(-found.policy.gains[0], K, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.value_matrices[0], P, rtol=1e-7, atol=1e-7)
