"""What more columns explain if they have one coefficient for all machines.

    x' = law + C γ + w        γ the same for all: by Fisher's F, on the rows of all machines

Rows are those of triangular factors, which stand for all rows of a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import fdtrc

from contextual_lqr.certificates.model_tests.explained import EXACT, orthonormal

_FREE = 10  # machines, beyond twice the rank, from which on their spread can be told


class Shared(NamedTuple):
    """For each column of X what the columns explain of what the law leaves; and each by itself."""

    p_values: Float[Array, " d"]
    noisy: Array  # (d,)
    share: Float[Array, " d"]  # of the sum of squares
    size: Float[Array, " d"]  # root mean square, beyond chance
    alone: Float[Array, "q d"]  # shares of what all of them explain

    @classmethod
    def of(
        cls, law: Array, columns: Array, X: Array, rows: int, bias: float = 0.0
    ) -> Shared | None:
        """Of columns (k, q) beyond a law (k, p), for X (k, d); None if they say nothing.

        A part `bias` of what the law leaves is allowed for.
        """
        p, q = law.shape[1], law.shape[1] + columns.shape[1]
        stack = np.concatenate((law, columns, X), -1)
        size = np.abs(stack).max(0)
        R = np.asarray(np.linalg.qr(stack / np.where(size > 0, size, 1.0), mode="r"))
        by_law, rank = span(R[:, :p])
        by_more, more = span(R[:, p:q], by_law)
        left = R[:, q:] - by_law @ (by_law.T @ R[:, q:])
        explained = np.square(by_more.T @ left).sum(0)
        total = np.square(left).sum(0)
        free = rows - rank - more
        noisy = total > EXACT**2 * np.square(R[:, q:]).sum(0)
        if more == 0 or free <= 0 or not noisy.any():
            return None
        beyond = np.maximum(explained - bias * total, 0.0)
        F = beyond / more / (np.maximum(total - explained, 1e-300) / free)
        own = R[:, p:q] - by_law @ (by_law.T @ R[:, p:q])
        # A column that is one of the step itself, as in a history, adds nothing but rounding.
        lengths = np.square(own).sum(0)
        lengths[lengths <= 1e-14 * np.square(R[:, p:q]).sum(0)] = np.inf
        sizes = [
            effect_of(float(explained[r]), more, float(total[r]), rows - rank)[1]
            for r in range(len(total))
        ]
        part = np.where(explained > 0, explained, 1.0)
        return cls(
            np.where(noisy, fdtrc(more, free, F), 1.0),
            noisy,
            explained / np.where(total > 0, total, 1.0),
            np.array(sizes) * size[q:],
            np.square(own.T @ left) / lengths[:, None] / part,
        )


def span(columns: Array, to: Array | None = None) -> tuple[Array, int]:
    """An orthonormal basis of what the columns add to the span of others, and its rank."""
    to = np.zeros((len(columns), 0)) if to is None else to
    rest = columns - to @ (to.T @ columns)
    rest = rest - to @ (to.T @ rest)
    sizes = np.linalg.norm(columns, axis=0)
    U, values, _ = np.linalg.svd(rest / np.where(sizes > 0, sizes, 1.0), full_matrices=False)
    rank = int((values > 1e-7).sum())
    return U[:, :rank], rank


def effect_of(part: float, q: float, left: float, free: float) -> tuple[float, float]:
    """The share of the variance left/free that q columns explain, beyond chance, and its root."""
    after = (left - part) / max(free - q, 1.0)
    before = left / max(free, 1.0)
    effect = float(np.clip(1 - after / max(before, 1e-300), 0, 1))
    return effect, float(np.sqrt(effect * before))


def mean_is_zero(scores: Float[Array, "n q"]) -> float:
    """The p-value of what machines score having mean zero, whatever their spread; 0 if too few.

    Hotelling's T²: machines may differ in noise, and in what they are.
    """
    length = np.linalg.norm(scores, axis=0)
    Q, kept = orthonormal((scores / np.where(length > 0, length, 1.0))[None], scores[None, :, :0])
    n, rank = len(scores), int(kept.sum())
    if n < 2 * rank + _FREE or rank == 0:
        return 0.0
    u = min(float((Q[0].sum(0) ** 2).sum()) / n, 1.0)
    return float(fdtrc(rank, n - rank, (n - rank) / rank * u / max(1 - u, 1e-300)))


def by_state(p: Array, among: Array) -> Iterator[tuple[int, float]]:
    """Each state that is tested, and its p-value, by Bonferroni's rule."""
    for r in np.flatnonzero(among).tolist():
        yield r, min(float(p[r] * among.sum()), 1.0)


def root_mean_squares(factors: Array, counts: Array, some: slice) -> Float[Array, " y"]:
    """Of some columns."""
    columns = factors[..., some]
    size = np.abs(columns).max((0, 1))
    part = columns / np.where(size > 0, size, 1.0)
    return np.asarray(size * np.sqrt((part**2).sum((0, 1)) / max(int(counts.sum()), 1)))
