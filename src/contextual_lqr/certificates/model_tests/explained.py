"""Sums of squares of a fleet's factors, and what tests make of them; for `misspecification`.

Columns of a factor are made orthogonal to one another by Gram and Schmidt's method, twice, with
dependent ones left out and counted: the degrees of freedom are right whatever the rank.

    Y, Y⁻, X'   as in misspecification.py      n machines, d states, y = d + m
    M           Θ G, the law of all machines   z = X' less its own law, the residual of X' on Y
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from scipy.special import chdtrc, chdtri, fdtrc, gammainc, gammaincinv

CURVES = ("signs", "squares", "sizes", "steps")  # beyond Y, as `lagged_rows` has them

ROBUST_FROM, TRIMMED = 8, 0.05  # from so many machines on, this part of them is left out

SAME = 1e-5  # fitted laws that differ by at most this are one: they amplify rounding

_DEPENDENT = 1e-9  # a column less than this part of itself away from the others is one of them
EXACT = 1e-10  # residuals below this part of the states are rounding
_CHUNK = 2048  # machines at a time


class Law(NamedTuple):
    """One Θ for all machines, by least squares: M = Θ G for each, and the rank of Θ's row."""

    M: Float[Array, "n d y"]
    rank: int

    @classmethod
    def fitted(cls, T: Array, G: Array, d: int) -> Law:
        """The law of machines with these factors and context matrices."""
        y = G.shape[2]
        # z = G y: the rows of T's first block, with those of X' beside them. All others are zero.
        Z = (T[:, :y, :y] @ G.swapaxes(1, 2)).reshape(-1, G.shape[1])
        X = T[:, :y, -d:].reshape(len(Z), d)
        R = np.asarray(np.linalg.qr(np.concatenate((Z, X), 1), mode="r"))
        Z, X = R[:, : Z.shape[1]], R[:, Z.shape[1] :]
        length = np.linalg.norm(Z, axis=0)
        length = np.where(length > 0, length, 1.0)
        theta, _, rank, _ = np.linalg.lstsq(Z / length, X, rcond=_DEPENDENT)
        return cls((theta.T / length) @ G, int(rank))


class Addition(NamedTuple):
    """What more columns explain of what a machine's own law leaves: all, and each by itself."""

    all: Array  # (n, d)
    rank: Array  # (n,)
    single: Array  # (n, columns, d)
    single_rank: Array  # (n, columns)

    @classmethod
    def of(cls, columns: Array, Q: Array, z: Array) -> Addition:
        """Of these columns, where Q spans Y."""
        L, separate = orthonormal(columns, Q)
        alone = _without(Q, columns)
        length = _squares(alone)
        apart = length > _DEPENDENT**2 * _squares(columns)
        by_one = (alone.swapaxes(1, 2) @ z) ** 2 / np.where(apart, length, 1.0)[..., None]
        return cls(
            _squares(L.swapaxes(1, 2) @ z), separate.sum(1), by_one * apart[..., None], apart
        )

    def best(self, r: int) -> tuple[int, float]:
        """The column that explains most of state r by itself, and how much for each machine."""
        mean = self._alone(r)
        j = int(mean.argmax())
        return j, float(mean[j])

    def nearly_as_good(self, r: int, some: slice) -> int | None:
        """The best of some columns, if it explains more than half as much as the best of all."""
        mean = self._alone(r)
        j = int(np.arange(len(mean))[some][mean[some].argmax()])
        return j if mean[j] > 0.5 * mean.max() else None

    def _alone(self, r: int) -> Array:
        return np.asarray(self.single[..., r].sum(0) / np.maximum(self.single_rank.sum(0), 1))


class Explained(NamedTuple):
    """For each machine and state, sums of squares; and the degrees of freedom they have.

    `left` is that of X' less its own law; `lag` what the machine's own coefficient of M y⁻ explains
    of it, and `before` what Y⁻ does. `deviation` is what the machine's own law explains of X' less
    the law of all. `curves` are sign Y, Y |Y|, [|Y|, 1] and tY without what is in Y and Y⁻; z as
    above, and Q spans Y.
    """

    rows: Array  # (n,)
    size: Array  # (n, d), of X' itself
    rank: Array  # (n,), of Y
    left: Array  # (n, d)
    deviation: Array  # (n, d)
    lag: Array  # (n, d)
    lag_rank: Array  # (n, d)
    before: Addition
    curves: Array  # (n, k, 4y + 1)
    z: Array  # (n, k, d)
    Q: Array  # (n, k, y)

    @classmethod
    def joined(cls, parts: Sequence[Explained]) -> Explained:
        """Those of all machines."""

        def join(many: Sequence[Any]) -> Any:
            if isinstance(many[0], Addition):
                return Addition(*(np.concatenate(one) for one in zip(*many, strict=True)))
            return np.concatenate(many)

        return cls(*(join(many) for many in zip(*parts, strict=True)))

    @property
    def free(self) -> Array:
        """The degrees of freedom of `left`."""
        return np.asarray(self.rows - self.rank)

    @property
    def exact(self) -> Bool[Array, " d"]:
        """Which states have no noise: their own laws leave rounding alone."""
        return np.asarray(self.left.sum(0) <= EXACT**2 * self.size.sum(0))


def in_units(factors: Array, matrices: Array) -> tuple[Array, Array, Array]:
    """Factors and context matrices in units of what each column is over the fleet, and these."""
    y = matrices.shape[-1]
    size = np.abs(factors).max((0, 1))
    size[:y] = size[y : 2 * y] = np.maximum(size[:y], size[y : 2 * y])
    size = np.where(size > 0, size, 1.0)
    return factors / size, matrices * size[:y], size


def explained(T: Float[Array, "n k k"], rows: Array, M: Float[Array, "n d y"]) -> Explained:
    """What the factors of machines say, whose numbers of rows and whose laws these are."""
    parts = [slice(i, i + _CHUNK) for i in range(0, len(T), _CHUNK)]
    return Explained.joined([_explained(T[some], rows[some], M[some]) for some in parts])


def _explained(T: Array, rows: Array, M: Array) -> Explained:
    d, y = M.shape[1:]
    Y, before, curves, _, after = np.split(T, [y, 2 * y, 6 * y + 1, T.shape[-1] - d], axis=2)
    Q, kept = orthonormal(Y, Y[..., :0])
    z = _without(Q, after)
    # M y⁻ may cancel where y⁻ is large: what is left of it must stand out from rounding in y⁻.
    lag = before @ M.swapaxes(1, 2)
    scale = np.sqrt(_squares(before)).sum(1)[:, None] * np.abs(M).max(2)
    residual = _without(Q, lag)
    length = _squares(residual)
    real = length > (_DEPENDENT * scale) ** 2
    return Explained(
        rows=rows,
        size=_squares(after),
        rank=kept.sum(1),
        left=_squares(z),
        deviation=_squares(Q.swapaxes(1, 2) @ (after - Y @ M.swapaxes(1, 2))),
        lag=(residual * z).sum(1) ** 2 / np.where(real, length, 1.0) * real,
        lag_rank=real,
        before=Addition.of(before, Q, z),
        # What the previous step explains is memory, and is not counted again as a bend.
        curves=apart(np.concatenate((Q, orthonormal(before, Q)[0]), 2), curves),
        z=z,
        Q=Q,
    )


def orthonormal(columns: Array, to: Array) -> tuple[Array, Array]:
    """Orthonormal columns with the same span, orthogonal to those of `to`; zero where dependent."""
    n, rows, many = columns.shape
    Q = np.concatenate((to, np.zeros((n, rows, many))), 2)
    kept = np.zeros((n, many), bool)
    first = to.shape[2]
    for j in range(many):
        column = columns[..., j : j + 1]
        v = _without(Q[..., : first + j], column)
        length, size = np.sqrt(_squares(v)), np.sqrt(_squares(column))
        kept[:, j] = (length > _DEPENDENT * size)[:, 0]
        Q[..., first + j] = np.where(kept[:, j, None], v[..., 0], 0.0) / np.where(
            kept[:, j, None], length, 1.0
        )
    return Q[..., first:], kept


def _without(Q: Array, columns: Array) -> Array:
    """The columns less their parts along Q; twice, for what rounding has left the first time."""
    for _ in range(2):
        columns = columns - Q @ (Q.swapaxes(1, 2) @ columns)
    return columns


def apart(Q: Array, columns: Array) -> Array:
    """The same; 0 where a column is one of them."""
    rest = _without(Q, columns)
    return rest * (_squares(rest) > _DEPENDENT**2 * _squares(columns))[:, None]


def _squares(columns: Array) -> Array:
    return np.asarray(np.einsum("nij,nij->nj", columns, columns))


def p_values(explained: Array, ranks: Array, left: Array, free: Array) -> tuple[Array, Array]:
    """The pooled ratio of mean squares of each state, and its p-value, machine by machine.

    `explained` and `left` are (n, d), their degrees of freedom (n, d) or (n, 1).
    """
    q, v = (np.broadcast_to(one, left.shape).astype(float) for one in (ranks, free))
    noise = left.sum(0) / np.maximum(np.maximum(v, 0).sum(0), 1)
    mean = explained.sum(0) / np.maximum(q.sum(0), 1e-300)
    ratio = np.where((noise > 0) & (q.sum(0) > 0), mean / np.where(noise > 0, noise, 1), 1.0)
    # F of each machine, against its own noise; and the χ² that is as improbable.
    good = (q > 0) & (v > 0) & (left > 0)
    q1, v1 = np.where(good, q, 1.0), np.where(good, v, 1.0)
    F = np.where(good, explained / q1 / (np.where(good, left, 1.0) / v1), 0.0)
    chi = np.where(good, chdtri(q1, np.clip(fdtrc(q1, v1, F), 1e-300, 1.0)), 0.0)
    return ratio, np.array([_tail(chi[good[:, r], r], q[good[:, r], r]) for r in range(len(ratio))])


def _tail(chi: Array, q: Array) -> float:
    """The p-value of a sum of χ² with q degrees of freedom, without the largest of them.

    Without them the sum is less by chance alone: of χ² that is cut off at its quantile c the mean
    is q P(χ²(q+2) ≤ c) / P(χ²(q) ≤ c).
    """
    n = len(chi)
    if n < ROBUST_FROM:
        return float(chdtrc(q.sum(), chi.sum())) if n else 1.0
    out = int(np.ceil(TRIMMED * n))
    kept = np.argsort(chi / q)[: n - out]
    usual, part = q.mean(), 1 - out / n
    less = gammainc(usual / 2 + 1, gammaincinv(usual / 2, part)) / part
    return float(chdtrc(q[kept].sum(), chi[kept].sum() / less))
