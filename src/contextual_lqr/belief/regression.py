"""Ridge regression from a triangular factor: what the rows [z x'] say about Θ in x' = Θ z + w.

factor of the rows  [ D  E ]    D (p, p), E (p, d), T (d, d); D and T upper triangular
                    [ 0  T ]
data alone          DᵀD = Σ zzᵀ,   TᵀT = Σ of the squared residuals of least squares
with the prior      QR of [ D  E ]  =  [ R  RΘ̂ᵀ ],   V = RᵀR = Λ + Σ zzᵀ,  Λ diagonal
                          [ √Λ 0 ]     [ 0   ·  ]

The paper has Λ = λI, which says how large entries of Θ are, in whatever units. Unless λ is given, Λ
is a tiny part of the mean of z², column by column: the same in all units, and next to no prior.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.factors import solve_triangle, triangle
from contextual_lqr.checks import all_finite, as_numbers, frozen, read_only, require
from contextual_lqr.errors import InputError

NATURAL = 1e-10  # Λ as a part of the mean of z²: next to nothing, but well above rounding


@dataclass(frozen=True, eq=False)
class Regression:
    """Ridge regression of `rows` rows, of factor `data`, on p unknowns a coordinate.

    `known` has the rows of Θ, by the number of their state, that are given. `ignored` rows were so
    large that they held nothing but rounding.
    """

    p: int
    data: Float[Array, "k k"]
    regularisation: float | None
    known: Mapping[int, Array]
    rows: int = 0
    ignored: int = 0

    @property
    def d(self) -> int:
        """The number of states."""
        return len(self.data) - self.p

    def merged(self, other: Regression) -> Regression:
        """The regression on the rows of both."""
        sizes, its = (self.p, self.d), (other.p, other.d)
        require(sizes == its, f"the sizes (p, d) of Θ differ: {sizes} and {its}")
        data = triangle(self.data, other.data)
        rows, ignored = self.rows + other.rows, self.ignored + other.ignored
        return replace(self, data=data, rows=rows, ignored=ignored)

    @cached_property
    def prior(self) -> Float[Array, " p"]:
        """The diagonal of Λ."""
        if self.regularisation is not None:
            return np.full(self.p, self.regularisation)
        squares = np.square(self.data[:, : self.p]).sum(0) / max(self.rows, 1)
        # A column that is always zero has no size of its own.
        return np.asarray(NATURAL * np.where(squares > 0, squares, squares.max() or 1.0))

    @property
    def log_det_prior(self) -> float:
        """The logarithm of det Λ."""
        if self.regularisation is not None:
            return float(self.p * np.log(self.regularisation))
        return float(np.log(self.prior).sum())

    @property
    def sizes(self) -> Float[Array, " d"]:
        """The root mean square of each coordinate of x'; 1 where there is nothing."""
        squares = np.square(self.data[:, self.p :]).sum(0) / max(self.rows, 1)
        return np.asarray(np.where(squares > 0, np.sqrt(squares), 1.0))

    @cached_property
    def _solved(self) -> tuple[Array, Array, Array]:
        """R, Θ̂, and the factor of what Θ̂ and the prior leave unexplained."""
        p = self.p
        joint = triangle(
            self.data, np.hstack((np.diag(np.sqrt(self.prior)), np.zeros((p, self.d))))
        )
        R = np.asfortranarray(joint[:p, :p])
        columns = solve_triangle(R, joint[:p, p:])  # R Θ̂ᵀ = the right-hand block
        theta = np.ascontiguousarray(columns.T)
        for i, row in self.known.items():
            theta[i] = row
        return read_only(R), read_only(theta), joint[p:, p:]

    @property
    def factor(self) -> Float[Array, "p p"]:
        """R."""
        return self._solved[0]

    @property
    def estimate(self) -> Float[Array, "d p"]:
        """Θ̂."""
        return self._solved[1]

    @property
    def penalised_residuals(self) -> Float[Array, " d"]:
        """For each coordinate θ, Σ (x' - θ̂z)² + θ̂ᵀΛθ̂; for a known row, Σ (x' - θz)²."""
        p, left = self.p, self._solved[2]
        squares = np.einsum("ij,ij->j", left, left)
        for i, row in self.known.items():
            squares[i] = ((self.data[:, p + i] - self.data[:, :p] @ row) ** 2).sum()
        return np.asarray(squares)

    def noise(self) -> Float[Array, "d d"] | None:
        """The covariance of the residuals of least squares; None if too few rows."""
        p, d = self.p, self.d
        D, E, T = self.data[:p, :p], self.data[:p, p:], self.data[p:, p:]
        lengths = np.linalg.norm(D, axis=0)
        U, spread, _ = np.linalg.svd(D / np.where(lengths > 0, lengths, 1))
        unknowns = int((spread > 1e-12 * spread[0]).sum()) if lengths.any() else 0
        if self.rows <= unknowns:
            return None
        # What D cannot reach is residual too: where data leave Θ open, QR has moved some into E.
        residual = np.zeros((p + d, d))
        residual[unknowns:p], residual[p:] = U[:, unknowns:].T @ E, T
        for i, row in self.known.items():  # they were not fitted, and cost no degree of freedom
            residual[:p, i] = E[:, i] - D @ row
            residual[:p, i] = U.T @ residual[:p, i]
            residual[:, i] *= np.sqrt(1 - unknowns / self.rows)
        return np.asarray(residual.T @ residual / (self.rows - unknowns))


def row_noise(
    regression: Regression, theta: Float[Array, "d p"], used: Bool[Array, "d p"]
) -> Float[Array, "d d"] | None:
    """As `Regression.noise`, where each row of Θ has columns of its own; None if too few rows."""
    unknowns = used.sum(1) * ~np.isin(np.arange(len(theta)), list(regression.known))
    if regression.rows <= unknowns.max():
        return None
    left = regression.data[:, regression.p :] - regression.data[:, : regression.p] @ theta.T
    left = left / np.sqrt(regression.rows - unknowns)
    return np.asarray(left.T @ left)


def factor_of(
    blocks: Iterable[Float[Array, "rows k"]], limit: float, data: Float[Array, "k k"] | None
) -> tuple[Float[Array, "k k"], int, int]:
    """The factor of blocks of rows [z x'] and of those before them, and how many it took and left.

    x' = Θz is rounded to about ε·max(|z|, |x'|); where that exceeds the noise, above the `limit`, a
    row holds nothing but rounding.
    """
    used = ignored = 0
    for rows in blocks:
        kept = rows
        if not np.abs(rows).max() <= limit:
            if not all_finite(rows):
                raise InputError("states or inputs overflow when the context is applied to them")
            kept = rows[np.abs(rows).max(1) <= limit]
        data = triangle(kept) if data is None else triangle(data, kept)
        used, ignored = used + len(kept), ignored + len(rows) - len(kept)
    assert data is not None  # there is at least one block
    return data, used, ignored


def as_known_rows(
    known: Mapping[int, ArrayLike], shape: tuple[int, int, int] | None
) -> dict[int, Array]:
    """The known rows of Θ, by the number of their state, if they fit its shape."""
    rows = {i: frozen(as_numbers(f"known row {i}", row, "(p,)", 1)) for i, row in known.items()}
    if rows and shape is None:
        raise InputError("rows are known, but not the size of Θ: size the context map first")
    for i, row in rows.items():
        p, d, _ = shape or (0, 0, 0)
        require(
            isinstance(i, int) and 0 <= i < d and row.shape == (p,),
            f"known row {i} has shape {row.shape}, but Θ has {d} rows of {p}",
        )
    require(not shape or len(rows) < shape[1], "every row of Θ is known: there is nothing to learn")
    return rows


def listed(known: Mapping[int, Array]) -> dict[str, list[float]]:
    """Known rows as JSON holds them."""
    return {str(i): row.tolist() for i, row in sorted(known.items())}


def listed_level(level: float | Array | None) -> Any:
    """A noise level as JSON holds it."""
    return None if level is None else np.asarray(level).tolist()


def as_noise_level(level: ArrayLike | None) -> float | Float[Array, " d"] | None:
    """A number or one for each state, not negative and not all zero; None if it is not known."""
    if level is None:
        return None
    levels = as_numbers("noise_level", level, "() or (d,)", 0)
    require(
        levels.ndim <= 1 and (levels >= 0).all() and levels.max(initial=0.0) > 0,
        "noise_level must be positive, or a number for each state with some of them 0, "
        f"not {level!r}",
    )
    return frozen(levels) if levels.ndim else float(levels)


def as_regularisation(value: float | None) -> float | None:
    """A positive number, or None."""
    if value is None:
        return None
    good = isinstance(value, (int, float, np.floating, np.integer)) and 0 < value < np.inf
    require(
        good and not isinstance(value, bool),
        f"regularisation must be a positive number, not {value!r}",
    )
    return float(value)
