"""What is known of Θ before any data: a law Θ₀, and how far each of its rows may be off.

    Θ_r ~ (Θ₀_r, C_r),   C_r = K_r K_rᵀ (p, p), which may be singular: what K_r misses is known

In natural sizes, where states and inputs y = [x; u] have the typical sizes s (d+m),

    ζ_j² = Σ_l (G_jl s_l)²     the size of column j of z = G y
    s_r / (ζ_j √p)             that of an entry of Θ: all of a row move its state by its own size

so that a prior means the same in all units. A fact aᵀΘ_r = value ± off conditions a row on it, by
Potter's update of the root: with k = K_rᵀa and e = kᵀk + off²,

    Θ₀_r += K_r k (value - aᵀΘ₀_r) / e,   K_r -= (1 - off / √e) / kᵀk · K_r k kᵀ
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.evidence.logged import middle_of, range_of
from contextual_lqr.belief.machines.machine_factors import square_root
from contextual_lqr.checks import (
    as_number,
    as_numbers,
    as_symmetric,
    frozen,
    record,
    require,
    require_semi_definite,
)
from contextual_lqr.context import ContextMap
from contextual_lqr.context.variables import sampled_values
from contextual_lqr.display import Displayed
from contextual_lqr.errors import ContextError, InputError

_CONTEXTS = 64  # where the law of a nominal machine is compared with it
_SINGULAR = 1e-12  # a part of a variance that is rounding


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Prior(Displayed):
    """What is known about Θ before any data.

    Parameters
    ----------
    theta : array_like, (d, p)
        Θ₀, the law as far as it is known.
    covariances : array_like, (d, p, p)
        How far off each row of it may be. An entry without variance is known; entries that vary
        together, in a singular covariance, are tied.

    Raises
    ------
    InputError
        If the shapes do not fit, or something is not a covariance.

    Examples
    --------
    >>> prior = clqr.Prior.law([[0.9, 0.0, 0.5]], off=0.3)
    >>> prior.knowing(0, [1.0, 0.0, 0.0], 0.95).theta.tolist()
    [[0.95, 0.0, 0.5]]
    """

    theta: Float[Array, "d p"]
    covariances: Float[Array, "d p p"]

    def __init__(self, theta: ArrayLike, covariances: ArrayLike) -> None:
        law = as_numbers("theta", theta, "(d, p)", 2)
        require(law.ndim == 2, f"theta must have shape (d, p), not {law.shape}")
        C = as_numbers("covariances", covariances, "(d, p, p)", 3)
        d, p = law.shape
        require(
            C.shape == (d, p, p),
            f"covariances must have shape {(d, p, p)}, a matrix for each row of theta, "
            f"not {C.shape}",
        )
        C = as_symmetric("covariances", C)
        sizes = np.sqrt(np.maximum(np.diagonal(C, axis1=1, axis2=2), 0.0))
        safe = np.where(sizes > 0, sizes, 1.0)
        require_semi_definite("covariances", C / safe[:, :, None] / safe[:, None, :])
        record(self, theta=frozen(law), covariances=frozen(C))

    @classmethod
    def law(cls, theta: ArrayLike, off: float = 0.3, sizes: ArrayLike | None = None) -> Prior:
        """A nominal law, each entry of which may be off by the fraction `off` of itself.

        Parameters
        ----------
        theta : array_like, (d, p)
            Θ₀.
        off : float
            The standard deviation of an entry, relative to its size.
        sizes : array_like, (d, p), optional
            How large entries that are small in Θ₀ may be; without it, those of 0 are known to be 0.

        Returns
        -------
        Prior
            With independent entries.
        """
        law = as_numbers("theta", theta, "(d, p)", 2)
        require(law.ndim == 2, f"theta must be one matrix, (d, p), not {law.shape}")
        large = np.abs(law)
        if sizes is not None:
            least = as_numbers("sizes", sizes, "(d, p)", 0)
            ends = zip(reversed(least.shape), reversed(law.shape), strict=False)
            fits = least.ndim <= 2 and all(a in (1, b) for a, b in ends)
            require(
                fits and (least >= 0).all(), f"sizes must be {law.shape} numbers, none negative"
            )
            large = np.maximum(large, least)
        return cls(law, _diagonal(_positive("off", off) * large))

    @classmethod
    def nominal(
        cls,
        context_map: ContextMap,
        A: ArrayLike,
        B: ArrayLike,
        context: Any,
        scales: ArrayLike,
        off: float = 0.3,
    ) -> Prior:
        """One machine from a data sheet, which may be off by a fraction of what a step changes.

        Θ₀ decodes the context into [A, B], and the others, within the bounds of the contexts, into
        machines as close to it as any law can: with a constant feature, into the same one. What a
        step changes, [A, B] - [I, 0], may be off by `off`, entry by entry; how it varies with the
        context is unknown, and may be by as much as itself. An entry that changes nothing counts as
        its share of what its row changes where states and inputs have their typical sizes.

        Parameters
        ----------
        context_map : ContextMap
            The map of the decoder.
        A, B : array_like, (d, d) and (d, m)
            The nominal machine.
        context
            Its context.
        scales : array_like, (d+m,)
            The typical sizes of the states and inputs.
        off : float
            How far off it may be, as a standard deviation.

        Returns
        -------
        Prior
            A row that changes nothing, as of a state that is always 1, is known.
        """
        parts = [as_numbers(name, value, "(d, .)", 2) for name, value in (("A", A), ("B", B))]
        d, m = len(parts[0]), parts[1].shape[-1]
        require(
            [part.shape for part in parts] == [(d, d), (d, m)],
            f"A must be (d, d) and B (d, m), not {parts[0].shape} and {parts[1].shape}",
        )
        context_map = context_map.sized(d, m)
        s, M = as_scales(scales, (0, d, m)), np.concatenate(parts, 1)
        s = np.maximum(s / s.max(), 1e-150)  # they count relative to one another
        G = context_map.matrix(context)
        change = M - np.eye(d, d + m)
        share = np.sqrt(np.square(change * s).mean(1, keepdims=True)) / s
        entries = np.hypot(change, share)  # of [A, B], as large as they may be off at most
        sized = G * s
        columns = np.where(sized.any(1), np.square(sized).sum(1), 1.0)
        spread = np.sqrt(np.square(entries * s) @ np.square(sized).T) / columns
        prior = cls(_nearest_law(context_map, context, G, M, s), _diagonal(spread))
        error = _positive("off", off) * entries
        for r in range(d):
            for j in range(d + m):
                prior = prior.knowing(r, G[:, j], M[r, j], error[r, j])
        return prior

    @classmethod
    def natural(
        cls, G: Float[Array, "p y"], scales: Float[Array, " y"], law: Float[Array, "d p"]
    ) -> Prior:
        """Nothing but sizes: entries of Θ about this law, give or take s_r / (ζ_j √p)."""
        columns = np.hypot.reduce(G * scales, axis=1)  # which does not overflow
        columns = np.where(columns > 0, columns, columns.max(initial=0.0) or 1.0)
        spread = scales[: len(law), None] / columns / np.sqrt(len(columns))
        return cls(law, _diagonal(spread))

    def knowing(self, row: int, direction: ArrayLike, value: float, off: float = 0.0) -> Prior:
        """The same prior, once direction · Θ[row] is known to be `value`, give or take `off`.

        A unit vector makes an entry known; a difference of two, with the value 0, ties them.

        Parameters
        ----------
        row : int
            The row of Θ, by the index of its state.
        direction : array_like, (p,)
            What is known of it.
        value, off : float
            Its value, and the standard deviation of that.

        Returns
        -------
        Prior
            With a smaller covariance.

        Raises
        ------
        InputError
            If the prior is certain that it is something else.
        """
        d, p = self.theta.shape
        require(row in range(d), f"row must be one of {d}, counted from 0, not {row!r}")
        a = as_numbers("direction", direction, "(p,)", 1)
        require(a.shape == (p,) and a.any(), f"direction must be {p} numbers, not all 0")
        value, off = as_number("value", value), as_number("off", off)
        require(off >= 0, f"off must be at least 0, not {off!r}")
        theta, C, K = self.theta.copy(), self.covariances.copy(), self.roots[row]
        k = a @ K
        reach, missing = float(k @ k), value - float(a @ theta[row])
        size = np.abs(a) @ (np.abs(theta[row]) + np.sqrt(np.diagonal(C[row])))
        if reach <= (_SINGULAR * size) ** 2:  # known already
            limit = 1e-9 * max(abs(value), float(size)) + 3 * off
            require(abs(missing) <= limit, f"row {row} is known, and contradicts {value:g}")
            return self
        total = math.hypot(math.sqrt(reach), off)
        unit = k / math.sqrt(reach)
        gain = K @ unit
        theta[row] += gain * (math.sqrt(reach) / total * (missing / total))
        root = K - np.outer(gain, unit) * (1 - off / total)
        if not off and np.count_nonzero(a) == 1:  # exactly
            j = int(np.flatnonzero(a)[0])
            theta[row, j], root[j] = value / a[j], 0.0
        root[np.abs(root).max(1) <= _SINGULAR * np.abs(K).max(1)] = 0.0  # but for rounding
        C[row] = root @ root.T
        return Prior(theta, C)

    @cached_property
    def roots(self) -> Float[Array, "d p p"]:
        """K_r: a root of each covariance, exactly zero where that is."""
        C = self.covariances
        K = square_root(C[:1] if (C[:1] == C).all() else C)  # of states of one size, it is one
        largest = np.abs(K).max(2, keepdims=True)
        rounding = (np.abs(K) <= np.sqrt(_SINGULAR) * largest).all(1, keepdims=True)
        return np.broadcast_to(np.where(rounding, 0.0, K), C.shape)

    @property
    def known(self) -> dict[int, Array]:
        """The rows that have no variance."""
        certain = np.flatnonzero(~self.covariances.any((1, 2)))
        return {int(r): self.theta[r] for r in certain}

    def same_as(self, other: Prior | None) -> bool:
        """Whether both say the same."""
        return other is not None and all(
            np.array_equal(*pair)
            for pair in ((self.theta, other.theta), (self.covariances, other.covariances))
        )

    def _facts(self) -> dict[str, object]:
        d, p = self.theta.shape
        variances = np.diagonal(self.covariances, axis1=1, axis2=2)
        known = np.count_nonzero(variances == 0)
        largest = f"{np.sqrt(variances.max(initial=0.0)):.3g}"
        return {"Θ": f"{d} x {p}", "known entries": known, "largest deviation": largest}


def as_scales(scales: ArrayLike, shape: tuple[int, int, int] | None) -> Float[Array, " y"]:
    """Typical sizes of states and inputs: positive numbers, as many as a map of that shape has."""
    count = None if shape is None else shape[1] + shape[2]
    sizes = as_numbers("scales", scales, "(d+m,)", 1)
    wanted = "of each state and input" if count is None else f"of {count} states and inputs"
    require(
        sizes.ndim == 1 and (sizes > 0).all() and (count is None or len(sizes) == count),
        f"scales must be the typical sizes {wanted}, all above 0, not {scales!r}",
    )
    return frozen(sizes)


def usual_matrix(context_map: ContextMap) -> Float[Array, "p y"] | None:
    """A usual |G| within the bounds of the contexts; None where there are none."""
    matrices = _samples(context_map, None)
    return None if matrices is None else middle_of(*range_of(matrices))


def with_known_rows(
    prior: Prior,
    known: Mapping[int, Array],
    shape: tuple[int, int, int] | None,
    used: Bool[Array, "d p"] | None = None,
) -> tuple[Prior, dict[int, Array]]:
    """The prior with these rows known, and all that are, if it fits the shape (p, d, m).

    Entries that are not `used` are known to be 0.
    """
    require(isinstance(prior, Prior), f"prior must be a Prior, such as Prior.law, not {prior!r}")
    if shape is None:
        raise InputError("there is a prior, but the size of Θ is not known: size the map first")
    d, p = prior.theta.shape
    require((p, d) == shape[:2], f"the prior is for a Θ of {(d, p)}, but Θ is {shape[1::-1]}")
    prior = with_zeros(prior, used)
    if known:
        theta, C = prior.theta.copy(), prior.covariances.copy()
        for r, row in known.items():
            theta[r], C[r] = row, 0.0
        prior = Prior(theta, C)
    require(len(prior.known) < d, "every row of Θ is known: there is nothing to learn")
    return prior, prior.known


def with_zeros(prior: Prior, used: Bool[Array, "d p"] | None) -> Prior:
    """The prior once all entries that are not used are known to be 0."""
    if used is None:
        return prior
    both = used[:, :, None] & used[:, None, :]
    return Prior(np.where(used, prior.theta, 0.0), np.where(both, prior.covariances, 0.0))


def _nearest_law(context_map: ContextMap, context: Any, G: Array, M: Array, s: Array) -> Array:
    """Θ with ΘG = M, and ΘG(c) as near to M as can be at other contexts c, y in sizes of s."""
    others = _samples(context_map, context)
    others = G[None] * s if others is None else others * s
    G, M = G * s, M * s
    sizes = np.abs(others).max((0, 2))
    sizes = np.where(sizes > 0, sizes, 1.0)
    wide = (others / sizes[:, None]).transpose(1, 0, 2).reshape(len(G), -1)
    require(
        np.isfinite(wide).all() and np.isfinite(M).all(),
        "sizes of the contexts, of A and B and of the scales differ by more than doubles can hold",
    )
    near = np.linalg.lstsq(wide.T, np.tile(M, len(others)).T, rcond=1e-9)[0].T
    exact = G / sizes[:, None]
    near = near + np.linalg.lstsq(exact.T, (M - near @ exact).T, rcond=1e-9)[0].T
    near[np.abs(near) <= 1e-12 * np.abs(near).max(1, keepdims=True)] = 0.0  # rounding
    found = near / sizes
    scale = (np.abs(found) @ np.abs(G) + np.abs(M)).max(1, keepdims=True)  # of what a row does
    require(
        (np.abs(found @ G - M) <= 1e-9 * scale).all(),
        "no law of this context map decodes the context into the nominal A and B",
    )
    return np.asarray(found)


def _samples(context_map: ContextMap, context: Any) -> Float[Array, "n p y"] | None:
    """Context matrices within the bounds or, without those, about the context; None if none."""
    near = {n: float(v) for n, v in context.items()} if isinstance(context, Mapping) else {}
    bounds = context_map.bounds or {}
    if not bounds or not all(
        name in near or np.isfinite(pair).all() for name, pair in bounds.items()
    ):
        return None
    try:
        rng = np.random.default_rng(0)
        return context_map.matrices(sampled_values(bounds, _CONTEXTS, rng, near))
    except ContextError:
        return None


def _diagonal(deviations: Float[Array, "d p"]) -> Float[Array, "d p p"]:
    return np.asarray(np.square(deviations)[:, :, None] * np.eye(deviations.shape[1]))


def _positive(name: str, value: Any) -> float:
    number = as_number(name, value)
    require(number > 0, f"{name} must be above 0, not {value!r}")
    return number
