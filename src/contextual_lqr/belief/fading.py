"""Memory that fades: what a column was, further and further back, in a few numbers.

    w₁' = keep w₁ + (1 - keep) y        w₂' = keep w₂ + (1 - keep) w₁        …

wₖ is a mean of the past, k spacings old on average, where spacing = 1 / (1 - keep) samples; with
keep = 0 it is the sample k steps ago. n such stages span what a filter of order n with its poles at
keep makes of the whole past (Laguerre's functions are the same space in another basis), and come
near any other with poles about there: a long history without many numbers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.signal import lfilter
from scipy.special import bdtr

FORGOTTEN = 0.05  # of what was before the first sample


def keep_of(spacing: float) -> float:
    """How much of a stage stays in a step."""
    return 1.0 - 1.0 / spacing


def forgotten_after(stages: int, spacing: float) -> int:
    """After how many steps the last stage has forgotten what was before the first sample.

    A sample moves on by a stage with probability 1 - keep in each step; what is left of the state
    before is the share that has not come through all of them.
    """
    steps = stages
    while stages and bdtr(stages - 1, steps, 1.0 / spacing) > FORGOTTEN:
        steps += 1
    return steps


def faded(column: Float[Array, " T *rest"], stages: int, spacing: float) -> list[Array]:
    """[column, w₁, …, w_stages], as if the column had been what it is first for ever."""
    found, keep = [column], keep_of(spacing)
    for _ in range(stages):
        first, now = found[-1][:1], found[-1][:-1]
        if keep:
            now, _ = lfilter([1.0 - keep], [1.0, -keep], now, axis=0, zi=keep * first)
        found.append(np.concatenate((first, now)))
    return found
