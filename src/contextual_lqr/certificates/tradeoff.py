"""What is gained if inputs cost less: the state's part of the cost against the inputs'.

For each factor f the controller is the best for (Q, f R); its two parts are counted with the
weights of the task, √E[xᵀQx] and √E[uᵀRu] of a step, on the machine as it is estimated and on
draws of what is believed about it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.certificates.backtest import hedged_policy
from contextual_lqr.checks import altered, as_numbers, require
from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost
from contextual_lqr.lqr.solve import policy_cost
from contextual_lqr.lqr.stationary import Cost, Policy, StationaryPolicy

FACTORS = tuple(float(f"{one:.2g}") for one in np.logspace(-2, 2, 13))
_BAND = (0.05, 0.95)


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """For each factor of R: both parts, of the estimate and at 5 and 95 % of the draws.

    `held` is the share of draws whose loop does not grow without bound: the cost is finite.
    """

    factors: Float[Array, " n"]
    state: Float[Array, " n"]
    effort: Float[Array, " n"]
    state_band: Float[Array, "n 2"]
    effort_band: Float[Array, "n 2"]
    held: Float[Array, " n"]


def tradeoff(
    belief: MachineBelief,
    cost: Cost,
    start: ArrayLike,
    *,
    factors: ArrayLike = FACTORS,
    hedge: float = 0.0,
    draws: int = 200,
    rng: np.random.Generator | None = None,
) -> Tradeoff:
    """Sweep over factors of R, for a machine and over what is believed about it."""
    times = as_numbers("factors", factors, "(n,)", 1)
    require(
        times.ndim == 1 and times.size and (times > 0).all(),
        "factors of R must be positive numbers, one at least",
    )
    x = as_numbers("start", start, "(d,)", 1)
    drawn = belief.draw(draws, np.random.default_rng(0) if rng is None else rng)
    rows = []
    for factor in times.tolist():
        policy = hedged_policy(belief, altered(cost, R=factor * cost.R), hedge)
        own, all_drawn = (_parts(policy, one, cost, x) for one in (belief.system, drawn))
        held = np.isfinite(all_drawn).all(0)
        bands = np.full((2, 2), np.inf)
        if held.any():
            bands = np.quantile(all_drawn[:, held], _BAND, axis=1, method="nearest").T
        rows.append((own.ravel(), bands, held.mean()))
    own, bands, held = (np.array(part) for part in zip(*rows, strict=True))
    return Tradeoff(times, own[:, 0], own[:, 1], bands[:, 0], bands[:, 1], held)


def _parts(policy: Policy, system: LinearSystem, cost: Cost, start: Array) -> Float[Array, 2 * n]:
    """What states and inputs cost in a step, as root mean squares."""
    if isinstance(cost, QuadraticCost):
        parts = (cost.Q, np.zeros_like(cost.R)), (np.zeros_like(cost.Q), cost.R)
        J = [policy_cost(policy, system, QuadraticCost(*part), start) for part in parts]
        return np.asarray(np.sqrt(np.array(J) / (cost.horizon - 1)))
    assert isinstance(policy, StationaryPolicy)
    K = policy.gain
    F = np.atleast_3d(system.A + system.B @ K).reshape(-1, *system.A.shape[-2:])
    found = []
    for weights in (cost.Q, K.T @ cost.R @ K):
        P, _ = kernels.lyapunov(F, weights[None], batch=len(F))
        J = (P * system.noise.reshape(-1, *F.shape[1:])).sum((1, 2))
        found.append(np.where(np.isnan(J), np.inf, np.maximum(J, 0.0)))
    return np.asarray(np.sqrt(np.array(found).reshape(2, *system.batch_shape)))
