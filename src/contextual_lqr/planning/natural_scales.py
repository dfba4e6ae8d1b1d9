"""How large states and inputs typically are, by what they cost: the same in all units."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.lqr.problem import QuadraticCost


def natural_scales(
    cost: QuadraticCost, start: Float[Array, " d"], noise_level: Float[Array, " d"]
) -> Float[Array, " y"]:
    """The sizes at which each state and input alone costs as much per step as the start does.

    With noise, the start costs at least as much as an episode's noise. A state that costs nothing,
    and every one where nothing costs anything, is as many times its noise as the others are or,
    without noise, as large as it starts.
    """
    Q, R = cost.Q.mean(0), np.diagonal(cost.R.mean(0))
    W = cost.horizon * np.diag(np.square(noise_level))
    price = max(float(start @ Q @ start), float((Q * W).sum()))
    weights = np.concatenate((np.diagonal(Q), R))
    d, paid = len(start), (weights > 0) & (price > 0)
    sizes = np.sqrt(price / np.where(paid, weights, 1.0))
    noisy = noise_level > 0
    ratios = (sizes[:d] / np.where(noisy, noise_level, 1.0))[paid[:d] & noisy]
    ratio = float(np.median(ratios)) if len(ratios) else np.sqrt(cost.horizon)
    others = np.where(noisy, ratio * noise_level, np.abs(start))
    sizes[:d] = np.where(paid[:d], sizes[:d], np.where(others > 0, others, 1.0))
    sizes[d:] = np.where(paid[d:], sizes[d:], 1.0)
    return sizes
