"""Draws of the decoder from what has been learnt, when the noise level is only roughly known.

Each coordinate has noise of unknown variance v with the prior noise_level² / v ~ χ²(1), worth one
observation, so that residuals correct it as data come; given v, a row of Θ is Gaussian about the
estimate with covariance v V⁻¹. Rows of Θ are then Student-t: wide while there is little data.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.confidence import ConfidenceSet
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.factors import solve_triangle


class Posterior:
    """The posterior of Θ and of the noise, which is roughly `level` in each coordinate."""

    def __init__(self, decoder: Decoder, level: Float[Array, " d"]) -> None:
        p = decoder.estimate.shape[1]
        inverse = solve_triangle(decoder.factor, np.eye(p))
        # The rows less the unknowns they were spent on, tr(Σzzᵀ V⁻¹) = p - λ tr(V⁻¹).
        free = decoder.rows - p + decoder.regularisation * (inverse**2).sum()
        self.degrees = 1 + max(float(free), 0.0)
        # A coordinate declared exact is as unknown as the others before data; it has no noise.
        self.exact = level == 0
        assumed = np.where(self.exact, level.max(), level)
        self.squares = assumed**2 + decoder.penalised_residuals
        self._set = ConfidenceSet(decoder, 1.0)

    @property
    def variance(self) -> Float[Array, " d"]:
        """The noise of each coordinate, by its mean degree of belief."""
        return np.asarray(self.squares / self.degrees)

    @property
    def row_variance(self) -> Float[Array, " d"]:
        """The same, but zero where the row of Θ is known: what multiplies V⁻¹."""
        return np.asarray(self.variance * self._set.free[:, 0])

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[Array, "n d p"], Float[Array, "n d d"]]:
        """`n` decoders, each with the covariance of the noise that goes with it."""
        variances = self.squares / rng.chisquare(self.degrees, (n, len(self.squares)))
        deviations = self._set.draw(n, rng) - self._set.estimate
        thetas = self._set.estimate + np.sqrt(variances)[..., None] * deviations
        noise = np.zeros((n, *2 * variances.shape[1:]))
        np.einsum("nii->ni", noise)[...] = np.where(self.exact, 0.0, variances)
        return np.asarray(thetas), noise
