"""What is unknown of a machine never seen, as the C file needs it to hedge.

Row r of [A, B] has the covariance σ_r² GᵀV_r⁻¹G + S_r, with G = Σₗ fₗ Gₗ, fₗ features of a context:

    hedge (σ_r² hᵀh + S_r),   h = Σₗ fₗ hₗ,   [h₁, h₂, …] the triangle of W_r [G₁, G₂, …]

for the columns of states that move and of inputs. Rows that share V are one group, with one half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.deployment.task import Task


class Doubt(NamedTuple):
    """The rows that are not known, as places among the states that move."""

    rows: list[int]
    groups: list[int]  # of each row
    scales: list[float]  # of each row
    halves: Float[Array, "groups features k z"]
    spread: Float[Array, "rows z z"] | None


def doubt_of(
    decoder: Decoder, task: Task, matrices: Float[Array, "features p y"], hedge: float
) -> Doubt:
    """What a gain hedges against, at any context."""
    d, m = len(task.names), task.cost.input_size
    columns = [*task.moving, *range(d, d + m)]
    some, discount = matrices[:, :, columns], hedge * task.cost.discount
    posterior, population = decoder.posterior, decoder.population
    deviating = np.zeros(d, bool) if population is None else population.deviating
    plain = posterior.halves(some)  # (features, k, p, z): k = 1 if all rows share it
    rows, groups, scales, spread = [], [], [], []
    halves: list[Array] = []
    shared: int | None = None
    for place, r in enumerate(task.moving):
        own = population.deviations[r] if population is not None and deviating[r] else None
        variance = float(posterior.row_variance[r])
        if own is not None and population is not None:
            variance = float(population.variances[r])
            half = population.pooled.half(r, some)
        elif not variance:
            continue
        else:
            half = plain[:, min(r, plain.shape[1] - 1)]
        if own is None and plain.shape[1] == 1 and shared is not None:
            groups.append(shared)
        else:
            groups.append(len(halves))
            shared = len(halves) if own is None and plain.shape[1] == 1 else shared
            halves.append(_triangle(half))
        rows.append(place)
        scales.append(discount * variance)
        S = np.zeros((d + m, d + m)) if own is None else own
        spread.append(discount * S[np.ix_(columns, columns)])
    z = len(columns)
    found = np.stack(halves) if halves else np.zeros((0, len(matrices), 0, z))
    return Doubt(rows, groups, scales, found, np.stack(spread) if np.any(spread) else None)


def _triangle(half: Float[Array, "features p z"]) -> Float[Array, "features k z"]:
    """The same halves up to a rotation, with as few rows as they have columns together."""
    features, _, z = half.shape
    R = np.asarray(np.linalg.qr(np.concatenate(list(half), 1))[1])
    return np.ascontiguousarray(R.reshape(len(R), features, z).swapaxes(0, 1))
