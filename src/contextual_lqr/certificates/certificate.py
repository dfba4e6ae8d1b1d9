"""For a machine never tried: its controller, what it will cost, and whether to trust it.

The controller is the one that is optimal for the estimate. Its certificate says

    predicted      what it costs if the estimate is right
    interval       [lower, upper] for what it costs in truth, over all plausible Θ and noise:
                   below `lower` no controller can get, above `upper` this one does not
    likely excess  how far above the best possible it is, at the 95 % quantile of posterior draws
    instability    the share of posterior draws on which the closed loop grows
    extrapolation  how far the machine is from what the logs have seen

and a verdict from the last three. docs/certificate.md derives all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.confidence import BetaRule
from contextual_lqr.belief.cost_search import PlausibleMachines
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.lagrangian_bounds import lower_bounds, upper_bounds
from contextual_lqr.belief.posterior import Posterior
from contextual_lqr.belief.row_radii import row_radii
from contextual_lqr.certificates.extrapolation import Extrapolation, extrapolations
from contextual_lqr.certificates.stability import grows
from contextual_lqr.checks import (
    as_numbers,
    as_symmetric,
    require,
    require_probability,
    require_semi_definite,
)
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.lqr.moments import step_moments
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost
from contextual_lqr.lqr.solve import optimal_cost, policy_cost, solve

Verdict = Literal["trust", "caution", "do not use"]

# At 2 % for the 95 % quantile, an excess above 5 % is rarer than one in a hundred: it is about a
# square of Gaussians.
TRUSTED_EXCESS, REFUSED_EXCESS = 0.02, 0.5
REFUSED_INSTABILITY = 0.05
QUANTILE = 0.95

_CHUNK = 256  # machines at a time: some hundred megabytes


@dataclass(frozen=True)
class CostBound:
    """One end of the interval: what is certain, and the most extreme that a search has found.

    The true extreme over the plausible machines lies between the two; `gap` is their distance,
    relative to what was found.
    """

    certified: float
    searched: float

    @property
    def gap(self) -> float:
        """How much the bound may be too wide; infinite if it says nothing."""
        if not np.isfinite(self.certified) or not np.isfinite(self.searched):
            return np.inf
        return abs(self.searched - self.certified) / max(abs(self.searched), 1e-300)


@dataclass(frozen=True, eq=False)
class Certificate:
    """A machine's controller, and how good it will be."""

    context: Any
    policy: LinearPolicy
    predicted_cost: float
    lower: CostBound
    upper: CostBound
    likely_excess: float
    instability: float
    extrapolation: Extrapolation
    verdict: Verdict
    reason: str

    @property
    def interval(self) -> tuple[float, float]:
        """What the controller costs in truth lies in here, unless the confidence set is wrong."""
        return self.lower.certified, self.upper.certified

    def as_dict(self) -> dict[str, Any]:
        """All but the controller, for JSON: numbers that are not finite become None."""

        def plain(value: float) -> float | None:
            return float(value) if np.isfinite(value) else None

        return {
            "context": self.context,
            "verdict": self.verdict,
            "reason": self.reason,
            "predicted_cost": plain(self.predicted_cost),
            "lower_cost": plain(self.lower.certified),
            "lower_searched": plain(self.lower.searched),
            "upper_cost": plain(self.upper.certified),
            "upper_searched": plain(self.upper.searched),
            "likely_excess": plain(self.likely_excess),
            "instability": plain(self.instability),
            "extrapolation_score": plain(self.extrapolation.score),
            "extrapolation": self.extrapolation.place,
            "extrapolation_feature": self.extrapolation.feature,
        }


def certify(
    decoder: Decoder, context: Any, cost: QuadraticCost, start: ArrayLike, **options: Any
) -> Certificate:
    """The certificate of the machine with this context; options as for `certify_many`."""
    return certify_many(decoder, [context], cost, start, **options)[0]


def certify_many(
    decoder: Decoder,
    contexts: Sequence[Any] | Mapping[str, Any],
    cost: QuadraticCost,
    start: ArrayLike,
    *,
    noise: ArrayLike | None = None,
    beta: str | float | BetaRule = "determinant",
    delta: float = 0.05,
    draws: int = 200,
    bounds: bool = True,
    rng: np.random.Generator | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[Certificate]:
    """The certificates of many machines: a sequence of contexts, or a mapping name -> array.

    `noise` is the covariance of a step's noise if it is known; else it is estimated. `beta` says
    which Θ are plausible: "determinant" holds however the logs came about, "regression" is sharper
    and takes their inputs as chosen without regard to the noise; a number or a rule is the β of a
    `ConfidenceSet`. `delta` is the probability with which the interval may miss. `draws` is the
    number of posterior draws, from `rng` (by default always the same). Without `bounds` the ends
    are only searched for, in less than half the time, and not certain. `progress` is told how many
    machines have been done since it was last called.
    """
    task = _Task(decoder, cost, start, noise, beta, delta, draws, bounds, rng)
    matrices = decoder.context_map.matrices(contexts)
    named = one_by_one(contexts)
    certificates: list[Certificate] = []
    for first in range(0, len(matrices), _CHUNK):
        part = slice(first, first + _CHUNK)
        # What overflows is no error here: it ends as an infinite cost, and `do not use`.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            certificates += task.certificates(named[part], matrices[part])
        if progress is not None:
            progress(len(named[part]))
    return certificates


class _Task:
    """What is the same for all machines: the task, the noise, the plausible Θ and draws of it."""

    def __init__(
        self,
        decoder: Decoder,
        cost: QuadraticCost,
        start: ArrayLike,
        noise: ArrayLike | None,
        beta: str | float | BetaRule,
        delta: float,
        draws: int,
        bounds: bool,
        rng: np.random.Generator | None,
    ) -> None:
        d = len(decoder.estimate)
        x = as_numbers("start", start, "(d,)", 1)
        require(x.shape == (d,), f"start must be {d} numbers, one for each state, not {x.shape}")
        require_probability("delta", delta)
        require(draws >= 1, f"draws must be at least 1, not {draws!r}")
        require(cost.horizon >= 2, "an episode must have at least two states, and one input")
        require(cost.batch_shape == (), "one cost is for all machines: it must have no batch axes")
        self.decoder, self.cost, self.start, self.bounds = decoder, cost, x, bounds
        known = None if noise is None else _covariance(noise, d)
        self.reach = row_radii(decoder, beta, delta, known)
        level = (
            np.full(d, decoder.noise_level) if known is None else np.sqrt(np.diagonal(known).copy())
        )
        rng = np.random.default_rng(0) if rng is None else rng
        self.thetas, self.noises = Posterior(decoder, level).draw(draws, rng)

    def certificates(self, contexts: list[Any], G: Float[Array, "n p y"]) -> list[Certificate]:
        decoder, cost, x, reach = self.decoder, self.cost, self.start, self.reach
        machines = PlausibleMachines.of(decoder, G, reach.rows, reach.joint, cost, x)
        nominal = solve(machines.systems(reach.noise), cost)
        good = np.asarray(nominal.solved)
        n = len(G)
        gains = np.where(good[:, None, None, None], nominal.policy.gains, 0.0)
        policy = LinearPolicy(gains)
        predicted = np.asarray(nominal.cost(x))

        highest = machines.highest(policy, reach.most_noise)
        lowest = machines.lowest(reach.least_noise)
        upper, lower = np.full(n, np.inf), np.full(n, machines.floor(reach.least_noise))
        if self.bounds:
            upper, multipliers = upper_bounds(machines, policy, reach.most_noise)
            lower = lower_bounds(machines, reach.least_noise, multipliers)
        # The bounds hold to rounding; an interval that excludes what was found would puzzle.
        upper, lower = np.fmax(upper, highest), np.fmin(lower, lowest)
        upper[np.isnan(upper)] = np.inf
        excess, unstable = self._on_draws(G, policy)
        moments = _usual_moments(machines.centre, reach.noise, gains, x)
        columns = (
            contexts,
            gains,
            predicted.tolist(),
            good.tolist(),
            map(CostBound, lower.tolist(), lowest.tolist()),
            map(CostBound, upper.tolist(), highest.tolist()),
            excess.tolist(),
            unstable.tolist(),
            extrapolations(decoder, G, moments),
        )
        return [
            Certificate(
                c, LinearPolicy(K), J, low, high, over, loose, far, *_judge(ok, over, loose, far)
            )
            for c, K, J, ok, low, high, over, loose, far in zip(*columns, strict=True)
        ]

    def _on_draws(
        self, G: Float[Array, "n p y"], policy: LinearPolicy
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The excess over each draw's optimum at the quantile, and the share of growing draws."""
        draws, d, p = self.thetas.shape
        (paid, best), unstable = np.empty((2, len(G), draws)), np.empty(len(G))
        for i, one in enumerate(G):
            M = (self.thetas.reshape(-1, p) @ one).reshape(draws, d, -1)
            A, B = np.ascontiguousarray(M[..., :d]), np.ascontiguousarray(M[..., d:])
            drawn = LinearSystem.unchecked(A, B, self.noises)
            own = LinearPolicy(policy.gains[i])
            paid[i] = policy_cost(own, drawn, self.cost, self.start)
            best[i] = optimal_cost(drawn, self.cost, self.start)
            unstable[i] = grows(drawn, own.gains, self.cost).mean()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = (paid - best) / np.abs(best)
        ratio = np.where(np.isfinite(ratio), np.maximum(ratio, 0.0), np.inf)
        return np.quantile(ratio, QUANTILE, axis=1, method="higher"), unstable


def _judge(
    solved: bool, excess: float, unstable: float, place: Extrapolation
) -> tuple[Verdict, str]:
    """The verdict, and why."""
    near = f"likely within {_percent(excess)} of the best possible"
    if not solved:
        return "do not use", "the estimate has no optimal controller here"
    if unstable > REFUSED_INSTABILITY:
        return "do not use", f"{place}; the loop grows on {unstable:.0%} of the posterior draws"
    if not excess <= REFUSED_EXCESS:
        return "do not use", f"{place}; it may cost {_percent(excess)} more than the best possible"
    if unstable > 0:
        return "caution", f"{place}; the loop grows on {unstable:.1%} of the posterior draws"
    if excess > TRUSTED_EXCESS:
        return "caution", f"{place}; it may cost {_percent(excess)} more than the best possible"
    if place.place == "outside the data":
        return "caution", f"{place}; {near}, if the features hold there"
    return "trust", f"{place}; {near}"


def _percent(part: float) -> str:
    if not np.isfinite(part) or part > 10:
        return "over 1000 %"
    return f"{100 * part:.2g} %" if part < 1 else f"{100 * part:.0f} %"


def _usual_moments(
    M: Float[Array, "n d y"],
    noise: Float[Array, "d d"],
    gains: Float[Array, "n steps m d"],
    start: Float[Array, " d"],
) -> Float[Array, "n y y"]:
    """E[y yᵀ] averaged over the steps; where that is not finite, something large that is."""
    n, _, y = M.shape
    total = np.zeros((n, y, y))
    with np.errstate(over="ignore", invalid="ignore"):
        for moment in step_moments(M, noise, gains, start):
            total += moment / gains.shape[1]
    return np.where(np.isfinite(total), total, np.finfo(float).max ** 0.25)


def _covariance(noise: ArrayLike, d: int) -> Array:
    W = as_numbers("noise", noise, "(d, d)", 2)
    require(W.shape == (d, d), f"noise must have shape ({d}, {d}), not {W.shape}")
    W = as_symmetric("noise", W)
    require_semi_definite("noise, a covariance,", W)
    return W
