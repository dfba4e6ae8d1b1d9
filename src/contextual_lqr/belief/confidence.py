"""Plausible decoders: the ellipsoid around the estimate, and the rules for its beta β.

    { Θ : tr[(Θ - Θ̂) V (Θ - Θ̂)ᵀ] ≤ β },   V = RᵀR     (eq. confidence-ball)

With Y = (Θ - Θ̂) Rᵀ it is the ball ‖Y‖_F² ≤ β; everything here is a triangular solve away from it.
About a prior, each row has a V_r of its own, V_r⁻¹ = W_rᵀW_r, and Θ_r - Θ̂_r = Y_r W_r.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.special import chdtri

from contextual_lqr import kernels
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.checks import as_numbers, require, require_probability
from contextual_lqr.errors import InputError


@runtime_checkable
class BetaRule(Protocol):
    """The squared beta β of the confidence set, for what a decoder has learnt."""

    def __call__(self, decoder: Decoder) -> float:
        """Return β."""
        ...


@dataclass(frozen=True)
class ConstantBeta:
    """Always the same β, as in the paper's experiments (10⁴).

    Parameters
    ----------
    value : float
        β.
    """

    value: float

    def __post_init__(self) -> None:
        _at_least("value", self.value, 0)

    def __call__(self, decoder: Decoder) -> float:
        """Return β."""
        return self.value


@dataclass(frozen=True)
class PaperBeta:
    """β = (√λ c_Θ + c_w √(2d (log d + (p/2) log(1 + kH c_x²/(λp)) + log 1/δ)))²  (eq. beta_k).

    p counts all columns of Θ (the paper's p + p'), kH all states seen; λ = 1 is the paper's V = I.

    Parameters
    ----------
    c_theta, c_w, c_x : float
        Bounds on ‖Θ‖, on the size of the noise (sub-Gaussian) and on ‖z‖.
    delta : float
        The probability that the set may miss Θ.
    """

    c_theta: float
    c_w: float
    c_x: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("c_theta", "c_w", "c_x"):
            _at_least(name, getattr(self, name), 0)
        require_probability("delta", self.delta)

    def __call__(self, decoder: Decoder) -> float:
        """Return β."""
        p = decoder.estimate.shape[1]
        require(
            decoder.regularisation is not None,
            "the paper's β depends on λ: give the decoder one, Decoder(context_map, λ)",
        )
        states = decoder.rows + decoder.ignored_rows + decoder.episodes
        spread = p * np.log1p(states * self.c_x**2 / (decoder.regularisation * p)) / 2
        return _beta(decoder, self.c_theta, self.c_w, float(spread), self.delta)


@dataclass(frozen=True)
class DeterminantBeta:
    """β = (√λ c_Θ + c_w √(2d (log d + ½ log(det V / λ^p) + log 1/δ)))².

    The bound of the same proof before det V is bounded in turn: no c_x, and much smaller. With a
    prior, that prior takes the place of c_Θ: the first term is c_w times the χ² limit of how far Θ
    may be from it, for half of δ.

    Parameters
    ----------
    c_theta, c_w : float
        Bounds on ‖Θ‖ and on the size of the noise (sub-Gaussian).
    delta : float
        The probability that the set may miss Θ.
    """

    c_theta: float
    c_w: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("c_theta", "c_w"):
            _at_least(name, getattr(self, name), 0)
        require_probability("delta", self.delta)

    def __call__(self, decoder: Decoder) -> float:
        """Return β."""
        if decoder.prior is not None:
            found = decoder.shrunk
            free = found.ranks > 0
            away = math.sqrt(chdtri(found.ranks[free].sum(), self.delta / 2))
            noise = 2 * (np.log(free.sum()) + found.log_dets.max() / 2 + np.log(2 / self.delta))
            return float(self.c_w**2 * (away + np.sqrt(free.sum() * noise)) ** 2)
        spread = (decoder.log_det - decoder.regression.log_det_prior) / 2
        return _beta(decoder, self.c_theta, self.c_w, float(spread), self.delta)


def self_normalised(
    d: int, regularisation: float, c_theta: float, c_w: float, spread: float, delta: float
) -> float:
    """β = (√λ c_Θ + c_w √(2d (log d + spread + log 1/δ)))², the radius of both rules."""
    inside = 2 * d * (np.log(d) + max(spread, 0.0) + np.log(1 / delta))
    return float((np.sqrt(regularisation) * c_theta + c_w * np.sqrt(inside)) ** 2)


def _ruled(rule: BetaRule, decoder: Decoder) -> float:
    """What a rule gives, if it is one: a function of a decoder."""
    try:
        return rule(decoder)
    except TypeError:
        try:
            signature(rule).bind(decoder)
        except TypeError:
            raise InputError(f"beta must be a function of the decoder, not {rule!r}") from None
        raise


def _beta(decoder: Decoder, c_theta: float, c_w: float, spread: float, delta: float) -> float:
    d = decoder.estimate.shape[0] - len(decoder.known)
    most = float(decoder.regression.prior.max())
    return self_normalised(d, most, c_theta, c_w, spread, delta)


class ConfidenceSet:
    """The ellipsoid tr[(Θ - Θ̂) V (Θ - Θ̂)ᵀ] ≤ β around a decoder's estimate, as it stands.

    What the decoder learns later does not change it.

    Parameters
    ----------
    decoder : Decoder
        Its estimate is the centre, its factor gives the axes.
    beta : float or rule
        β, or a rule that gives it: `ConstantBeta`, `PaperBeta`, `DeterminantBeta` or your own
        function of the decoder.

    Examples
    --------
    >>> decoder = clqr.Decoder(clqr.FeatureContext(["1"], states=1, inputs=1), 1.0)
    >>> plausible = clqr.ConfidenceSet(decoder, clqr.ConstantBeta(4.0))
    >>> bool(plausible.contains([[1.0, -1.0]])), bool(plausible.contains([[2.0, 1.0]]))
    (True, False)
    """

    def __init__(self, decoder: Decoder, beta: float | BetaRule) -> None:
        self.beta = float(_ruled(beta, decoder) if callable(beta) else beta)
        _at_least("beta", self.beta, 0)
        self.estimate: Float[Array, "d p"] = decoder.estimate
        self._factor = decoder.factor
        self._W = None if decoder.prior is None else decoder.shrunk.W
        # Rows of Θ that are known have no spread: no member of the set moves them.
        self.free: Float[Array, "d 1"] = np.ones((len(self.estimate), 1))
        self._moving = len(self.estimate) - len(decoder.known)
        if decoder.known:
            self.free[list(decoder.known)] = 0.0

    @property
    def factor(self) -> Float[Array, "p p"]:
        """The R of V = RᵀR."""
        require(
            self._W is None,
            "with a prior or scales the rows of Θ have no V in common: give the decoder a "
            "regularisation instead",
        )
        return self._factor

    def distance(self, theta: ArrayLike) -> Any:
        """tr[(Θ - Θ̂) V (Θ - Θ̂)ᵀ], a number for one Θ and an array for a stack; inf on overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = self._decoders("theta", theta) - self.estimate
            if self._W is None:
                Y = deviation @ self._factor.T
                squared = (Y * Y).sum((-2, -1))
            else:
                each = zip(self._W, np.moveaxis(deviation, -2, 0), strict=True)
                squared = np.sum([_length(W, row) for W, row in each], axis=0)
            squared = np.where((deviation * (1 - self.free)).any((-2, -1)), np.inf, squared)
        return np.where(np.isnan(squared), np.inf, squared)[()]

    def contains(self, theta: ArrayLike) -> Any:
        """Whether Θ is in the set, for one Θ or a stack."""
        return self.distance(theta) <= self.beta

    def sample(self, n: int, rng: np.random.Generator) -> Float[Array, "n d p"]:
        """`n` decoders, exactly uniform in the ellipsoid.

        Θ = Θ̂ + √β r U R⁻ᵀ: U uniform on the unit sphere of R^{dp}, r = s^{1/(dp)}, s uniform.
        """
        _count(n)
        d, p = self.estimate.shape
        U = rng.standard_normal((n, d, p))
        if self._moving < d:
            U *= self.free
        r = rng.random(n) ** (1 / (self._moving * p))
        reach = math.sqrt(self.beta)
        if self._W is not None:
            sizes = reach * r / np.sqrt(np.square(U).sum((1, 2)))
            return np.asarray(self.estimate + self._from_ball(U * sizes[:, None, None]))
        return np.asarray(kernels.sample_ellipsoid(U, self._factor, self.estimate, reach, r))

    def draw(
        self, n: int, rng: np.random.Generator, scale: ArrayLike = 1.0
    ) -> Float[Array, "n d p"]:
        """`n` decoders from the Gaussian of the same shape: rows with covariance scale² V⁻¹.

        `scale` is a number or one for each state coordinate: with the noise's standard deviation,
        these are posterior draws.
        """
        _count(n)
        d, p = self.estimate.shape
        spread = as_numbers("scale", scale, "() or (d,)", 0)
        require(
            spread.shape in ((), (d,)) and bool((spread >= 0).all()),
            f"scale must be a number or {d} numbers, none negative, not {scale!r}",
        )
        Y = rng.standard_normal((n, d, p)) * self.free
        Y *= spread[:, None] if spread.ndim else spread
        return np.asarray(self.estimate + self._from_ball(Y))

    def lowest_linear(self, direction: ArrayLike) -> Float[Array, "*batch d p"]:
        """The Θ in the set that minimises Σ direction ∘ Θ, for one direction or a stack.

        In closed form: Θ̂ - √β D V⁻¹ / √tr(D V⁻¹ Dᵀ); for a direction of zero, Θ̂ itself.
        """
        D = self._decoders("direction", direction) * self.free
        largest = np.abs(D).max((-2, -1), keepdims=True)
        D = D / np.where(largest > 0, largest, 1)  # only the direction counts; squares stay finite
        Y = self._solve(D, transposed=True)
        length = np.sqrt((Y * Y).sum((-2, -1), keepdims=True))
        unit = Y / np.where(length > 0, length, 1)
        return np.asarray(self.estimate - self._from_ball(np.sqrt(self.beta) * unit))

    def _from_ball(self, Y: Float[Array, "*batch d p"]) -> Float[Array, "*batch d p"]:
        """Θ - Θ̂ = Y R⁻ᵀ."""
        return self._solve(Y, transposed=False)

    def _solve(self, Y: Array, *, transposed: bool) -> Array:
        """Y R⁻ᵀ, or Y R⁻¹ if transposed, by one triangular solve for all members."""
        if self._W is not None:
            W = self._W.mT if transposed else self._W
            return np.asarray((Y[..., None, :] @ W)[..., 0, :])
        p = Y.shape[-1]
        X = solve_triangle(self._factor, Y.reshape(-1, p).T, transposed=transposed, overwrite=True)
        return X.T.reshape(Y.shape)

    def _decoders(self, name: str, value: ArrayLike) -> Array:
        array = as_numbers(name, value, "(..., d, p)", 2)
        require(
            array.shape[-2:] == self.estimate.shape,
            f"{name} must have shape (..., {self.estimate.shape[0]}, {self.estimate.shape[1]}), "
            f"not {array.shape}",
        )
        return array


def _length(W: Float[Array, "p p"], deviation: Float[Array, "*batch p"]) -> Array:
    """‖Y‖² of the shortest Y with Y W = deviation; infinite if there is none."""
    sizes = np.linalg.norm(W, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    _, q, Qt = np.linalg.svd(W / sizes)
    turned = (deviation / sizes) @ Qt.T
    real = q > 1e-9 * q[0]
    Y = turned[..., real] / q[real]
    out = np.abs(turned[..., ~real]).max(-1, initial=0.0) > 1e-6 * np.abs(turned).max(-1)
    return np.where(out, np.inf, np.square(Y).sum(-1))


def _at_least(name: str, value: float, least: float) -> None:
    require(
        least <= value < np.inf,
        f"{name} must be a finite number of at least {least}, not {value!r}",
    )


def _count(n: int) -> None:
    require(n >= 0, f"the number of decoders to draw must be at least 0, not {n!r}")
