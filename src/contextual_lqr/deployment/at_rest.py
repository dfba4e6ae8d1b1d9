"""Where a machine stays at a target: the feed-forward.

At rest, x = A x + B u + offset with x[held] = target. Of all (x, u) that fulfil this, the cheapest
by (x - target)ᵀQ(x - target) + uᵀRu is a linear equation in (x, u) and multipliers,

    [H  Eᵀ] [x, u]   [Q target, 0]              H = blkdiag(Q, R)
    [E  0 ] [  λ ] = [-offset, target]          E = [A - I, B; I_held, 0]

solved in sizes that make its rows and columns equal, so that no unit matters. If no input holds the
target, what it answers is not at rest.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

EQUILIBRATIONS = 10  # by square roots of the largest entries: few are enough
SINGULAR = 1e-11  # pivots of the equilibrated equations below this are rounding
UNHELD = 1e-7  # relative: what may be left of a movement for the machine to be at rest


def at_rest(
    A: Float[Array, "n n"],
    B: Float[Array, "n m"],
    offset: Float[Array, " n"],
    Q: Float[Array, "n n"],
    R: Float[Array, "m m"],
    held: list[int],
    target: Float[Array, " held"],
) -> tuple[Float[Array, " n"], Float[Array, " m"]] | None:
    """The state and the input at rest at the target; None if there are none."""
    (n, m), s = B.shape, len(held)
    K, right = np.zeros((2 * n + m + s,) * 2), np.zeros(2 * n + m + s)
    K[:n, :n], K[n : n + m, n : n + m] = Q, R
    K[n + m : 2 * n + m, : n + m] = np.concatenate((A - np.eye(n), B), 1)
    K[2 * n + m + np.arange(s), held] = 1.0
    K[: n + m, n + m :] = K[n + m :, : n + m].T
    right[:n] = Q[:, held] @ target
    right[n + m : 2 * n + m], right[2 * n + m :] = -offset, target
    size = np.ones(len(K))
    for _ in range(EQUILIBRATIONS):
        largest = np.abs(size[:, None] * K * size).max(1)
        size /= np.sqrt(np.where(largest > 0, largest, 1.0))
    scaled = size[:, None] * K * size
    z = np.linalg.lstsq(scaled, size * right, rcond=SINGULAR)[0]
    left = np.abs(scaled @ z - size * right)[n + m :]
    if not (left <= UNHELD * np.abs(z[: n + m]).max()).all():
        return None
    z *= size
    return z[:n], z[n : n + m]
