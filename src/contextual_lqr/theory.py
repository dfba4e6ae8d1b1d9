"""The paper's bounds, evaluated: β, det V, regret, and the episodes that a target accuracy takes.

    d, p, H        coordinates of a state, columns of Θ (the paper's p + p'), states of an episode
    λ              regularisation, V = λI + Σ zzᵀ; the paper has λ = 1
    c_q            ‖P_h‖ and ‖R_h‖ at most (cost per squared state)
    c_theta        ‖Θ*‖_F at most
    c_w            sub-Gaussian constant of the noise of each coordinate (state): its standard
                   deviation where it is Gaussian
    c_x            ‖[x; u]‖ and ‖z‖, z = G [x; u], at most (state)

Regret, suboptimality and ε are in the unit of the cost; δ is a probability; log means ln. What is
corrected in the paper's proof, and why, is in docs/theory.md, by the numbers given here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.confidence import DeterminantBeta, self_normalised
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import as_numbers, require, require_probability
from contextual_lqr.context import ContextMap
from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost
from contextual_lqr.lqr.solve import Solution, solve

_MOST_EPISODES = 10**60  # beyond this a number of episodes says nothing more


@dataclass(frozen=True)
class Regularity:
    """Assumption regularity: the sizes and constants that every bound here is made of."""

    state_size: int
    columns: int
    horizon: int
    c_q: float
    c_theta: float
    c_w: float
    c_x: float
    regularisation: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("state_size", 1), ("columns", 1), ("horizon", 2)):
            value = getattr(self, name)
            require(
                isinstance(value, int | np.integer) and value >= least,
                f"{name} must be a whole number of at least {least}, not {value!r}",
            )
        for name in ("c_q", "c_theta", "c_w", "c_x"):
            value = getattr(self, name)
            require(0 <= value < np.inf, f"{name} must be finite and not negative, not {value!r}")
        require(
            0 < self.regularisation < np.inf,
            f"regularisation must be a positive number, not {self.regularisation!r}",
        )


@dataclass(frozen=True)
class RegretBound:
    """The three sums of Proposition main's proof; `total` bounds the regret of all episodes.

    `trivial` is what any policy that keeps Assumption regularity can lose at most, K H c_q c_x².
    """

    cost_noise: float
    promise_noise: float
    model_error: float
    trivial: float

    @property
    def total(self) -> float:
        """The bound of the Proposition, in units of cost."""
        return self.cost_noise + self.promise_noise + self.model_error


# -- the constants -----------------------------------------------------------------------------


def regularity(
    theta: ArrayLike,
    context_map: ContextMap,
    contexts: Sequence[Any] | Mapping[str, Any],
    cost: QuadraticCost,
    start: ArrayLike,
    noise: ArrayLike,
    *,
    regularisation: float = 1.0,
    margin: float = 1.0,
    chance: float = 1e-9,
) -> Regularity:
    """The constants of Assumption regularity for machines [A, B] = Θ G(context), over `contexts`.

    `noise` is the covariance of a step's noise, taken as Gaussian: c_w is its largest standard
    deviation. Optimal play exceeds c_x at a step with at most the probability `chance`; noise that
    is Gaussian has no bound that is never broken (correction 4). `margin` is room for play that is
    not optimal: c_q and c_x are multiplied by it.
    """
    theta = as_numbers("theta", theta, "(d, p)", 2)
    noise = as_numbers("noise", noise, "(d, d)", 2)
    require_probability("chance", chance)
    require(1 <= margin < np.inf, f"margin must be at least 1, not {margin!r}")
    G = context_map.matrices(contexts)
    require(len(G), "contexts must hold at least one context")
    require(
        theta.ndim == 2 and theta.shape[1] == G.shape[1],
        f"theta must have one column for each of the {G.shape[1]} rows of G, not shape "
        f"{theta.shape}",
    )
    d = len(theta)
    M = theta @ G
    systems = LinearSystem(M[..., :d], M[..., d:], noise)
    solution = solve(systems, cost, check=True)
    x = as_numbers("start", start, "(d,)", 1)
    return Regularity(
        state_size=d,
        columns=theta.shape[1],
        horizon=cost.horizon,
        c_q=margin * largest_value(solution, cost),
        c_theta=float(np.linalg.norm(theta)),
        c_w=float(np.sqrt(np.diagonal(noise).max())),
        c_x=margin * _extent(solution, systems, G, x, chance),
        regularisation=regularisation,
    )


def estimated_regularity(
    decoder: Decoder,
    contexts: Sequence[Any] | Mapping[str, Any],
    cost: QuadraticCost,
    start: ArrayLike,
    delta: float = 0.1,
    **options: float,
) -> Regularity:
    """The same from what a decoder has learnt, without the truth; `options` are `regularity`'s.

    c_w, c_q and c_x are those of the estimate: estimates, not bounds. c_theta is a bound, with
    probability 1-δ given c_w: ‖Θ*‖ ≤ ‖Θ̂‖ + √(β / λ_min(V)) with √β = √λ ‖Θ*‖ + b, solved for ‖Θ*‖.
    """
    require_probability("delta", delta)
    given = decoder.regularisation
    require(given, "the constants depend on λ: give the decoder one, Decoder(map, λ)")
    assert given is not None
    noise = decoder.noise_estimate
    found = regularity(
        decoder.estimate,
        decoder.context_map,
        contexts,
        cost,
        start,
        noise,
        regularisation=given,
        **options,
    )
    b = np.sqrt(DeterminantBeta(0.0, found.c_w, delta)(decoder))
    least = float(np.linalg.svd(decoder.factor, compute_uv=False)[-1])  # √λ_min(V)
    share = math.sqrt(given) / least
    require(
        share < 1 - 1e-9,
        "the data leave a direction of Θ quite open, so its norm has no bound: learn from more "
        "episodes, with inputs that vary",
    )
    return replace(found, c_theta=float((found.c_theta + b / least) / (1 - share)))


def largest_value(solution: Solution, cost: QuadraticCost) -> float:
    """c_q: the largest ‖P_h‖ and ‖R_h‖ (correction 7: the proof needs R too)."""
    values = np.linalg.eigvalsh(solution.value_matrices)[..., -1].max()
    inputs = np.linalg.eigvalsh(cost.R)[..., -1].max(initial=0.0)
    return float(max(values, inputs))


def _extent(
    solution: Solution,
    systems: LinearSystem,
    G: Float[Array, "n p y"],
    start: Float[Array, " d"],
    chance: float,
) -> float:
    """What ‖[x; u]‖ and ‖G [x; u]‖ of optimal play exceed at a step with at most this probability.

    A Gaussian vector of mean μ and covariance S has norm at most
    ‖μ‖ + √tr S + √(2 ‖S‖ log(1/chance)), by the concentration of its 1-Lipschitz norm.
    """
    K = solution.policy.gains
    d, room = len(start), 2 * math.log(1 / chance)
    mean, S = np.broadcast_to(start, (len(G), d)), np.zeros((len(G), d, d))
    largest = 0.0
    for h in range(K.shape[-3]):
        y = np.concatenate([np.broadcast_to(np.eye(d), S.shape), K[:, h]], 1)  # [x; u] = y x
        for T in (y, G @ y):
            spread = np.linalg.eigvalsh(T @ S @ T.swapaxes(1, 2))
            centre = np.linalg.norm((T @ mean[..., None])[..., 0], axis=1)
            around = np.sqrt(np.maximum(spread.sum(1), 0)) + np.sqrt(
                np.maximum(room * spread[:, -1], 0)
            )
            largest = max(largest, float((centre + around).max()))
        F = systems.A + systems.B @ K[:, h]
        mean = (F @ mean[..., None])[..., 0]
        S = F @ S @ F.swapaxes(1, 2) + systems.noise
    return largest


# -- the bounds --------------------------------------------------------------------------------


def log_det_bound(constants: Regularity, rows: float) -> float:
    """log(det V / λ^p) ≤ p log(1 + n c_x² / (λp)) after n rows (Lemma detbound, n = kH there)."""
    require(0 <= rows < np.inf, f"rows must be a number of rows, at least 0, not {rows!r}")
    p, each = constants.columns, constants.c_x**2 / constants.regularisation
    return float(p * np.log1p(rows * each / p))


def beta(constants: Regularity, episodes: float, delta: float) -> float:
    """β of the set made from k whole episodes (eq. beta_k); squared unit of the state.

    β = (√λ c_Θ + c_w √(2d (log d + ½ log_det_bound(kH) + log 1/δ)))².
    """
    require_probability("delta", delta)
    require(0 <= episodes < np.inf, f"episodes must be at least 0, not {episodes!r}")
    spread = log_det_bound(constants, episodes * constants.horizon) / 2
    return self_normalised(
        constants.state_size,
        constants.regularisation,
        constants.c_theta,
        constants.c_w,
        spread,
        delta,
    )


def regret_bound(constants: Regularity, episodes: float, delta: float) -> RegretBound:
    """Proposition main: with probability 1-δ the regret of K episodes is at most `total`.

    Three events may fail, each with probability δ/3 (correction 15): the confidence sets, of beta
    β at δ/3, and two martingales. With N = K(H-1) steps and Λ = log_det_bound(N), the sums are

        cost_noise     c_q c_x² √(2 K Σ_{h<H} (H-h)² log(6/δ))           δ of the proof
        promise_noise  c_q c_x² √(2 N log(6/δ))                          δ'
        model_error    E √(N (H-1) Λ c²/log(1 + c²))                     δ''

    where E = 2 c_q c_x (1 + c_Θ) √β, and no step counts more than E c: c is the lesser of c_x/√λ
    and D/E, D = c_q c_x² max(1, c_Θ²).
    """
    require_probability("delta", delta)
    require(1 <= episodes < np.inf, f"episodes must be at least 1, not {episodes!r}")
    r, H = constants, constants.horizon
    steps = episodes * (H - 1)
    each = r.c_q * r.c_x**2  # a stage costs at most this
    unlikely = 2 * math.log(6 / delta)
    squares = (H - 1) * H * (2 * H - 1) / 6  # Σ (H-h)² over h = 1 .. H-1
    slope = 2 * r.c_q * r.c_x * (1 + r.c_theta) * math.sqrt(beta(r, episodes, delta / 3))
    cap = r.c_x / math.sqrt(r.regularisation)
    if slope > 0:
        cap = min(cap, each * max(1.0, r.c_theta**2) / slope)
    # min(c², v²) ≤ c²/log(1+c²) · log(1+v²), and Σ log(1+v²) ≤ (H-1) log(det V / λ^p).
    potential = (H - 1) * log_det_bound(r, steps) * (cap**2 / math.log1p(cap**2) if cap else 1.0)
    return RegretBound(
        cost_noise=each * math.sqrt(episodes * squares * unlikely),
        promise_noise=each * math.sqrt(steps * unlikely),
        model_error=slope * math.sqrt(steps * potential),
        trivial=episodes * H * each,
    )


def suboptimality_bound(constants: Regularity, episodes: float, delta: float) -> float:
    """Theorem main: the most that an unseen machine costs too much, with probability 1-δ.

    Regret(K)/K at δ/2, and two martingales over the contexts: 2 H c_q c_x² √(2 log(8/δ) / K). It
    is for the optimistic decoder of the new context, in a set drawn from the K (correction 16).
    """
    require_probability("delta", delta)
    each = constants.horizon * constants.c_q * constants.c_x**2
    regret = regret_bound(constants, episodes, delta / 2).total
    return regret / episodes + 2 * each * math.sqrt(2 * math.log(8 / delta) / episodes)


def episodes_needed(constants: Regularity, epsilon: float, delta: float) -> int:
    """The K of Theorem main: from K episodes on, `suboptimality_bound` is at most ε.

    The Theorem has K on both sides; here it is solved for, by bisection.
    """
    require_probability("delta", delta)
    require(0 < epsilon < np.inf, f"epsilon must be a positive cost, not {epsilon!r}")
    r = constants
    # log²(1+s)/s falls from s = 4 on, and with it the bound: s = K H c_x²/(λp), the slowest of its
    # logarithms.
    growth = (r.horizon - 1) * r.c_x**2 / (r.regularisation * r.columns)
    low = max(1, math.ceil(min(4 / growth, float(_MOST_EPISODES)))) if growth > 0 else 1

    def enough(episodes: int) -> bool:
        return suboptimality_bound(r, float(episodes), delta) <= epsilon

    if enough(low):
        return low
    high = 2 * low
    while not enough(high):
        low, high = high, 2 * high
        require(
            high <= _MOST_EPISODES,
            f"more than {_MOST_EPISODES:.0e} episodes would be needed for epsilon {epsilon!r}",
        )
    while high - low > 1 and high / low > 1 + 1e-12:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
