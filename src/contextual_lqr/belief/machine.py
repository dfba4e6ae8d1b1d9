"""What is believed about one machine: all that planning, certificates and prediction see.

Row r of the machine's [A, B] has the mean `mean[r]` and the covariance `covariances[r]`. Both are
known only as well as the variance of row r, which has `degrees[r]` degrees of freedom, so that
draws of a row are Student-t: wide while there is little data.

    y = [x; u], of size d+m        x' = [A, B] y + w        E[w wᵀ] = noise
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import as_count, as_numbers, require
from contextual_lqr.display import Displayed, batch_fact
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.python_control import state_space
from contextual_lqr.lqr.time_varying import TimeVaryingSystem
from contextual_lqr.lqr.triangular_root import triangular_root


@dataclass(frozen=True, eq=False, repr=False)
class MachineBelief(Displayed):
    """What is believed about one machine, or about a batch of them.

    Attributes
    ----------
    mean
        The expected [A, B], (..., d, d+m).
    covariances
        The covariance of each row of [A, B], (..., d, d+m, d+m); zero for a row that is known.
    noise
        The covariance of a step's noise, (d, d), a diagonal matrix.
    degrees
        The degrees of freedom of each row's variance, (d,), or (..., d) where machines differ.
    identified
        Whether there are as many observations as unknowns, so that this is more than the prior.
    """

    mean: Float[Array, "*batch d y"]
    covariances: Float[Array, "*batch d y y"]
    noise: Float[Array, "d d"]
    degrees: Float[Array, "*machines d"]
    identified: bool = True

    def __getitem__(self, member: int | slice | Array) -> MachineBelief:
        """One machine of the batch, or some of them."""
        degrees = self.degrees if self.degrees.ndim == 1 else self.degrees[member]
        mean, covariances = self.mean[member], self.covariances[member]
        return replace(self, mean=mean, covariances=covariances, degrees=degrees)

    def with_noise(self, noise: Float[Array, "d d"]) -> MachineBelief:
        """The same machine, with known noise."""
        return replace(self, noise=np.diag(np.diagonal(noise)))

    @cached_property
    def system(self) -> LinearSystem:
        """The expected machine."""
        return as_system(self.mean, self.noise)

    def to_control(self, dt: float | bool = True) -> Any:
        """The expected machine as a `control.StateSpace`, sampled at `dt`, for python-control.

        Parameters
        ----------
        dt : float or True
            The sampling time; True means discrete time with an unspecified step.

        Returns
        -------
        control.StateSpace
            Its outputs are the states.
        """
        require(self.mean.ndim == 2, "to_control takes one machine, not a batch: choose one")
        return state_space(self.system.A, self.system.B, dt)

    def step(self, states: ArrayLike, inputs: ArrayLike) -> Float[Array, "*batch d"]:
        """The expected next states of states (..., d) and inputs (..., m)."""
        x, u = moves_of(self.mean.shape, states, inputs)
        return np.asarray((self.mean @ np.concatenate((x, u), -1)[..., None])[..., 0])

    @cached_property
    def prediction_gram(self) -> Float[Array, "*batch y y"]:
        """Y: the unknown part of the effect of y has, in units of the noise, the variance yᵀYy.

        The mean over the rows that have noise and are not known. With rows of covariance σ_r² Y,
        as a shared law has them, it is that Y.
        """
        variances = np.diagonal(self.noise)
        unknown = self.covariances.any((-2, -1)).reshape(-1, len(variances)).any(0)
        rows = (variances > 0) & unknown
        if not rows.any():
            return np.zeros(self.covariances.shape[:-3] + self.covariances.shape[-2:])
        relative = self.covariances[..., rows, :, :] / variances[rows, None, None]
        return np.asarray(relative.mean(-3))

    def draw(
        self, n: int, rng: np.random.Generator, *, stretch: float | Float[Array, " n"] = 1.0
    ) -> LinearSystem:
        """`n` plausible machines for each of the batch, (n, ...), each with a noise of its own.

        `stretch` multiplies their deviations from the mean.
        """
        return as_system(*self._drawn(n, rng, stretch))

    def _drawn(
        self, n: int, rng: np.random.Generator, stretch: float | Float[Array, " n"]
    ) -> tuple[Array, Array]:
        """The matrices that `draw` draws, and their noises."""
        batch, y = self.mean.shape[:-2], self.mean.shape[-1]
        scale, steps, factors = drawn_rows(self.degrees, self.mean.shape[:-1], y, n, rng, stretch)
        # L ε for each row of each machine, as products of tall matrices.
        rows = np.moveaxis(steps, 0, -2) @ self.roots.mT
        deviations = np.moveaxis(rows, -2, 0) * scale[..., None]
        deviations *= factors.reshape((-1,) + (1,) * (len(batch) + 2))
        return self.mean + deviations, scale[..., :, None] * self.noise * scale[..., None, :]

    def _facts(self) -> dict[str, object]:
        *batch, d, y = self.mean.shape
        variances = np.einsum("...ii->...i", self.covariances)
        return {"states": d, "inputs": y - d, **certainty_facts(self, variances, batch)}

    @cached_property
    def roots(self) -> Float[Array, "*batch d y y"]:
        """A root of each covariance, exactly zero where that is, and NaN where it is not finite."""
        finite = np.isfinite(self.covariances).all((-2, -1))[..., None, None]
        return np.where(finite, triangular_root(np.where(finite, self.covariances, 0.0)), np.nan)


def drawn_rows(
    degrees: Array,
    shape: tuple[int, ...],
    q: int,
    n: int,
    rng: np.random.Generator,
    stretch: float | Float[Array, " n"],
) -> tuple[Array, Array, Array]:
    """For n draws of rows of this shape: their scales, q normal numbers each, and the stretch.

    A row's variance and the noise that it was estimated with are drawn together.
    """
    n = as_count("n", n, 0)
    factors = as_numbers("stretch", stretch, "() or (n,)", 0)
    require(factors.shape in ((), (n,)), f"stretch must be a number or {n} of them")
    scale = np.sqrt(degrees / rng.chisquare(degrees, (n, *shape)))
    return scale, rng.standard_normal((n, *shape, q)), factors


def certainty_facts(belief: Any, variances: Array, batch: Sequence[int]) -> dict[str, object]:
    """How certain a belief is, and about how many machines."""
    largest = f"{np.sqrt(variances.max(initial=0.0)):.3g}"
    identified = "yes" if belief.identified else "no"
    facts = {"largest deviation": largest, "identified": identified}
    return {**facts, **batch_fact(tuple(batch))}


def moves_of(shape: tuple[int, ...], states: ArrayLike, inputs: ArrayLike) -> tuple[Array, Array]:
    """States and inputs of a machine [A, B] of this shape, as arrays of one batch."""
    x = as_numbers("states", states, "(..., d)", 1)
    u = as_numbers("inputs", inputs, "(..., m)", 1)
    d, m = shape[-2], shape[-1] - shape[-2]
    require(
        (x.shape[-1], u.shape[-1]) == (d, m),
        f"states must be (..., {d}) and inputs (..., {m}), not {x.shape} and {u.shape}",
    )
    try:
        batch = np.broadcast_shapes(x.shape[:-1], u.shape[:-1])
    except ValueError:
        raise InputError(
            f"states {x.shape} and inputs {u.shape} must have the same leading axes"
        ) from None
    return np.broadcast_to(x, (*batch, d)), np.broadcast_to(u, (*batch, m))


@overload
def as_system(M: Array, noise: Array, varying: Literal[False] = False) -> LinearSystem: ...
@overload
def as_system(M: Array, noise: Array, varying: Literal[True]) -> TimeVaryingSystem: ...
@overload
def as_system(M: Array, noise: Array, varying: bool) -> LinearSystem | TimeVaryingSystem: ...
def as_system(
    M: Float[Array, "*batch d y"], noise: Float[Array, "*noises d d"], varying: bool = False
) -> LinearSystem | TimeVaryingSystem:
    """The system of [A, B] = M; if it is varying, the last batch axis is that of its steps."""
    d, kind = M.shape[-2], TimeVaryingSystem if varying else LinearSystem
    A, B = np.ascontiguousarray(M[..., :d]), np.ascontiguousarray(M[..., d:])
    return kind.unchecked(A, B, noise)


def stacked(beliefs: Sequence[MachineBelief], batch: tuple[int, ...]) -> MachineBelief:
    """Beliefs about single machines, of one noise, as one batch of this shape."""
    means = np.stack([one.mean for one in beliefs])
    covariances = np.stack([one.covariances for one in beliefs])
    return replace(
        beliefs[0],
        mean=means.reshape(*batch, *means.shape[1:]),
        covariances=covariances.reshape(*batch, *covariances.shape[1:]),
    )
