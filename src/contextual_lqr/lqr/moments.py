"""What a machine is expected to do: the second moments of its steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array


def step_moments(
    M: Float[Array, "n d y"],
    noise: Float[Array, "d d"],
    gains: Float[Array, "n steps m d"],
    start: Float[Array, " d"],
    dither: float = 0.0,
) -> Iterator[Float[Array, "n y y"]]:
    """E[y yᵀ] of y = [x; u] at every step: x' = M y + w, u = K x + noise of deviation `dither`."""
    n, d, y = M.shape
    with np.errstate(over="ignore"):
        E = np.diag(np.repeat([0.0, np.square(float(dither))], [d, y - d]))
    X = np.broadcast_to(np.outer(start, start), (n, d, d))
    for K in gains.swapaxes(0, 1):
        step = np.concatenate((np.broadcast_to(np.eye(d), (n, d, d)), K), 1)
        with np.errstate(over="ignore", invalid="ignore"):
            moment = step @ X @ step.swapaxes(1, 2) + E
            X = M @ moment @ M.swapaxes(1, 2) + noise
        yield moment
