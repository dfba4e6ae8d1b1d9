"""The decoder's posterior, when the noise level is only roughly known.

Each coordinate has noise of unknown variance v with the prior noise_level² / v ~ χ²(1), worth one
observation, so that residuals correct it as data come; given v, a row of Θ is Gaussian about the
estimate with covariance v V⁻¹, V = RᵀR. For a machine with the context matrix G that makes rows of
[A, B] = Θ G of covariance v GᵀV⁻¹G. About a prior each row has a V of its own (`shrinkage.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.factors import solve_triangle, triangle
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.shrinkage import Shrunk

if TYPE_CHECKING:
    from contextual_lqr.belief.decoder import Decoder


@dataclass(frozen=True, eq=False)
class Posterior:
    """Θ̂ and R, the variance of each coordinate's noise, and the degrees of freedom of these.

    `row_variance` is what multiplies V⁻¹: the variance, or zero where the row of Θ is known. About
    a prior there is no R, but V_r⁻¹ = W_rᵀW_r, and the degrees are those of each row.
    """

    estimate: Float[Array, "d p"]
    factor: Float[Array, "p p"] | None
    variance: Float[Array, " d"]
    row_variance: Float[Array, " d"]
    noise: Float[Array, "d d"]
    degrees: float | Float[Array, " d"]
    identified: bool
    W: Float[Array, "d p p"] | None = None

    @classmethod
    def of(cls, decoder: Decoder, noise_level: Float[Array, " d"] | None = None) -> Posterior:
        """The posterior of what a decoder has learnt, its noise level or another assumed."""
        if decoder.prior is not None:
            return cls.about(decoder.shrunk, decoder, decoder.given_prior is not None)
        factor, estimate = decoder.factor, decoder.estimate
        d, p = estimate.shape
        inverse = solve_triangle(factor, np.eye(p))
        # The rows less the unknowns they were spent on, tr(Σzzᵀ V⁻¹) = p - tr(Λ V⁻¹).
        squares, given = inverse**2, decoder.regularisation
        kept = given * squares.sum() if given else decoder.regression.prior @ squares.sum(1)
        free = decoder.rows - p + kept
        degrees = 1 + max(float(free), 0.0)
        # A coordinate declared exact is as unknown as the others before data; it has no noise.
        level = np.broadcast_to(decoder.noise_level if noise_level is None else noise_level, (d,))
        assumed = np.where(level == 0, level.max(), level)
        variance = (assumed**2 + decoder.penalised_residuals) / degrees
        row_variance = variance.copy()
        row_variance[list(decoder.known)] = 0.0
        noise = np.diag(np.where(level == 0, 0.0, variance))
        return cls(estimate, factor, variance, row_variance, noise, degrees, decoder.rows >= p)

    @classmethod
    def about(cls, found: Shrunk, decoder: Decoder, informed: bool) -> Posterior:
        """The posterior about a prior, which may say where Θ is, or its sizes alone."""
        d, p = found.theta.shape
        exact = np.broadcast_to(np.asarray(decoder.noise_level) == 0, (d,))
        rows = found.variances.copy()
        rows[list(decoder.known)] = 0.0
        return cls(
            found.theta,
            None,
            found.variances,
            rows,
            np.diag(np.where(exact, 0.0, found.variances)),
            found.row_degrees,
            informed or decoder.rows >= p,
            found.W,
        )

    @property
    def _R(self) -> Float[Array, "p p"]:
        assert self.factor is not None  # as always where there is no W
        return self.factor

    @cached_property
    def deviations(self) -> Float[Array, "d p"]:
        """The standard deviation of each entry of Θ."""
        W = self.W
        if W is None:
            W = solve_triangle(self._R, np.eye(len(self._R)), transposed=True)[None]
        return np.asarray(np.sqrt(self.row_variance)[:, None] * np.linalg.norm(W, axis=1))

    def halves(self, G: Float[Array, "*batch p y"]) -> Float[Array, "*batch k p y"]:
        """W_r G for each row r, or R⁻ᵀG, k = 1, for all: halves of GᵀV_r⁻¹G."""
        return self.half(G)[..., None, :, :] if self.W is None else self.W @ G[..., None, :, :]

    def machine(self, G: Float[Array, "*batch p y"]) -> MachineBelief:
        """What is believed about the machine with this context matrix, or about many."""
        Y = self.halves(G)
        covariances = self.row_variance[:, None, None] * (Y.mT @ Y)
        degrees = np.broadcast_to(self.degrees, len(self.variance)).astype(float)
        return MachineBelief(self.estimate @ G, covariances, self.noise, degrees, self.identified)

    def half(self, G: Float[Array, "*batch p y"]) -> Float[Array, "*batch p y"]:
        """R⁻ᵀG, half of GᵀV⁻¹G; about a prior, of its mean over the rows that are not known."""
        p, y = G.shape[-2:]
        if self.W is not None:
            free = self.W[self.row_variance > 0]
            return np.asarray(triangle(free.reshape(-1, p) / np.sqrt(max(len(free), 1))) @ G)
        flat = np.moveaxis(G, -2, 0).reshape(p, -1)  # one solve for all
        half = solve_triangle(self._R, flat, transposed=True)
        return np.ascontiguousarray(np.moveaxis(half.reshape(p, *G.shape[:-2], y), 0, -2))

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[Array, "n d p"], Float[Array, "n d d"]]:
        """`n` decoders, each with the covariance of the noise that goes with it."""
        d, p = self.estimate.shape
        scale = np.sqrt(self.degrees / rng.chisquare(self.degrees, (n, d)))
        steps = rng.standard_normal((n, d, p)) * (np.sqrt(self.row_variance) * scale)[..., None]
        if self.W is None:
            deviations = solve_triangle(self._R, steps.reshape(-1, p).T).T.reshape(n, d, p)
        else:
            deviations = (steps[..., None, :] @ self.W)[..., 0, :]
        noise = scale[:, :, None] * self.noise * scale[:, None]
        return np.asarray(self.estimate + deviations), noise
