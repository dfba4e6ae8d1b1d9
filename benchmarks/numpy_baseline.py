"""The plain batched NumPy solution of the finite-horizon LQR problem, the benchmark's yardstick."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def solve(A: Array, B: Array, Q: Array, R: Array, start: Array) -> tuple[Array, Array, Array]:
    """Return gains (n, H-1, m, d) with u = K x, values (n, H, d, d) and costs (n,).

    The systems A (n, d, d), B (n, d, m) share the costs Q (H, d, d), R (H-1, m, m); the cost is
    the one from start (n, d).
    """
    n, d, m = B.shape
    horizon = len(Q)
    At, Bt = A.swapaxes(1, 2), B.swapaxes(1, 2)
    gains = np.empty((n, horizon - 1, m, d))
    values = np.empty((n, horizon, d, d))
    values[:, -1] = P = np.broadcast_to(Q[-1], (n, d, d))
    for h in range(horizon - 2, -1, -1):
        PA = P @ A
        BtPA = Bt @ PA
        K = -np.linalg.solve(R[h] + Bt @ P @ B, BtPA)
        P = Q[h] + At @ PA + BtPA.swapaxes(1, 2) @ K
        P = (P + P.swapaxes(1, 2)) / 2
        gains[:, h], values[:, h] = K, P
    return gains, values, np.einsum("ni,nij,nj->n", start, P, start)
