"""The decoder's posterior, when the noise level is only roughly known.

Each coordinate has noise of unknown variance v with the prior noise_level² / v ~ χ²(1), worth one
observation, so that residuals correct it as data come; given v, a row of Θ is Gaussian about the
estimate with covariance v V⁻¹, V = RᵀR. For a machine with the context matrix G that makes rows of
[A, B] = Θ G of covariance v GᵀV⁻¹G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.belief.machine import MachineBelief

if TYPE_CHECKING:
    from contextual_lqr.belief.decoder import Decoder


@dataclass(frozen=True, eq=False)
class Posterior:
    """Θ̂ and R, the variance of each coordinate's noise, and the degrees of freedom of these.

    `row_variance` is what multiplies V⁻¹: the variance, or zero where the row of Θ is known.
    """

    estimate: Float[Array, "d p"]
    factor: Float[Array, "p p"]
    variance: Float[Array, " d"]
    row_variance: Float[Array, " d"]
    noise: Float[Array, "d d"]
    degrees: float
    identified: bool

    @classmethod
    def of(cls, decoder: Decoder, noise_level: Float[Array, " d"] | None = None) -> Posterior:
        """The posterior of what a decoder has learnt, its noise level or another assumed."""
        estimate, factor = decoder.estimate, decoder.factor
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

    def machine(self, G: Float[Array, "*batch p y"]) -> MachineBelief:
        """What is believed about the machine with this context matrix, or about many."""
        Y = self.half(G)
        Y = Y.swapaxes(-1, -2) @ Y
        covariances = self.row_variance[:, None, None] * Y[..., None, :, :]
        degrees = np.full(len(self.variance), self.degrees)
        return MachineBelief(self.estimate @ G, covariances, self.noise, degrees, self.identified)

    def half(self, G: Float[Array, "*batch p y"]) -> Float[Array, "*batch p y"]:
        """R⁻ᵀG, half of GᵀV⁻¹G."""
        p, y = G.shape[-2:]
        flat = np.moveaxis(G, -2, 0).reshape(p, -1)  # one solve for all
        half = solve_triangle(self.factor, flat, transposed=True)
        return np.ascontiguousarray(np.moveaxis(half.reshape(p, *G.shape[:-2], y), 0, -2))

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[Array, "n d p"], Float[Array, "n d d"]]:
        """`n` decoders, each with the covariance of the noise that goes with it."""
        d, p = self.estimate.shape
        scale = np.sqrt(self.degrees / rng.chisquare(self.degrees, (n, d)))
        steps = rng.standard_normal((n, d, p)) * (np.sqrt(self.row_variance) * scale)[..., None]
        deviations = solve_triangle(self.factor, steps.reshape(-1, p).T).T.reshape(n, d, p)
        noise = scale[:, :, None] * self.noise * scale[:, None]
        return np.asarray(self.estimate + deviations), noise
