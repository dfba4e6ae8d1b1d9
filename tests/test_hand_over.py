"""Gains go to python-control with the other sign."""

import control
import numpy as np

import contextual_lqr as clqr

CART = clqr.LinearSystem([[1, 0.1], [0, 0.95]], [[0], [0.05]])
Q, R = np.diag([1.0, 0.3]), np.array([[0.01]])


def test_python_control_has_our_gains_with_the_other_sign() -> None:
    long = clqr.QuadraticCost(np.tile(Q, (500, 1, 1)), np.tile(R, (499, 1, 1)))
    ours = clqr.solve(CART, long).policy.gains[0]
    theirs, _, _ = control.dlqr(CART.A, CART.B, Q, R)
    np.testing.assert_allclose(-ours, theirs, rtol=1e-9)
    plant = control.ss(CART.A, CART.B, np.eye(2), 0, dt=0.1)
    _, loop = control.create_statefbk_iosystem(plant, -ours)
    assert np.abs(np.linalg.eigvals(loop.A)).max() < 1
