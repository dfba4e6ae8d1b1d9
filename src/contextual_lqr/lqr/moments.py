"""What a machine is expected to do: the second moments of its steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array


def step_moments(
    M: Float[Array, "n *steps d y"],
    noise: Float[Array, "d d"],
    gains: Float[Array, "n steps m d"],
    start: Float[Array, " d"],
    dither: float = 0.0,
) -> Iterator[Float[Array, "n y y"]]:
    """E[y yᵀ] of y = [x; u] at every step: x' = M y + w, u = K x + noise of deviation `dither`.

    M may differ from step to step.
    """
    n, (d, y) = len(M), M.shape[-2:]
    M = np.broadcast_to(M if M.ndim == 4 else M[:, None], (n, gains.shape[1], d, y))
    with np.errstate(over="ignore"):
        E = np.diag(np.repeat([0.0, np.square(float(dither))], [d, y - d]))
    X = np.broadcast_to(np.outer(start, start), (n, d, d))
    for h, K in enumerate(gains.swapaxes(0, 1)):
        step = np.concatenate((np.broadcast_to(np.eye(d), (n, d, d)), K), 1)
        with np.errstate(over="ignore", invalid="ignore"):
            moment = step @ X @ step.swapaxes(1, 2) + E
            X = M[:, h] @ moment @ M[:, h].swapaxes(1, 2) + noise
        yield moment


def usual_moments(
    M: Float[Array, "n *steps d y"],
    noise: Float[Array, "d d"],
    gains: Float[Array, "n steps m d"],
    start: Float[Array, " d"],
) -> Float[Array, "n y y"]:
    """E[y yᵀ] averaged over the steps; where that is not finite, something large that is."""
    n, y = len(M), M.shape[-1]
    total = np.zeros((n, y, y))
    with np.errstate(over="ignore", invalid="ignore"):
        for moment in step_moments(M, noise, gains, start):
            total += moment / gains.shape[1]
    return np.where(np.isfinite(total), total, np.finfo(float).max ** 0.25)
