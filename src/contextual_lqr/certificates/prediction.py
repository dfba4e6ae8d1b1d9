"""What the closed loop of a machine never tried will do: runs on posterior draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.checks import as_numbers, require
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost
from contextual_lqr.lqr.solve import solve

_LARGEST = 1e150  # a run that explodes is followed no further than this


@dataclass(frozen=True, eq=False)
class ClosedLoopPrediction:
    """The band of states and inputs over runs: low, middle and high, and what the estimate expects.

    Each run has a Θ and a noise level of its own, drawn from the posterior, and its own shocks.
    """

    policy: LinearPolicy
    states: Float[Array, "3 H d"]
    inputs: Float[Array, "3 steps m"]
    expected_states: Float[Array, "H d"]
    expected_inputs: Float[Array, "steps m"]
    costs: Float[Array, " runs"]
    exploded: int


def predict_closed_loop(
    belief: MachineBelief,
    cost: QuadraticCost,
    start: ArrayLike,
    rng: np.random.Generator,
    *,
    runs: int = 500,
    band: float = 0.9,
) -> ClosedLoopPrediction:
    """Play the controller of the expected machine on `runs` plausible ones.

    The band holds this share of them. A run counts as exploded when a state passes 10¹⁵⁰; it is
    held there.
    """
    require(runs >= 2, f"runs must be at least 2, not {runs!r}")
    require(0 < band < 1, f"band must be between 0 and 1, not {band!r}")
    d = len(belief.mean)
    x = as_numbers("start", start, "(d,)", 1)
    require(x.shape == (d,), f"start must be {d} numbers, one for each state, not {x.shape}")
    policy = solve(belief.system, cost, check=True).policy
    drawn = belief.draw(runs, rng)
    M = np.concatenate((drawn.A, drawn.B), -1)
    M = np.concatenate((M, belief.mean[None]))  # the last is the expected machine, without noise
    deviations = np.sqrt(np.einsum("nii->ni", drawn.noise))
    deviations = np.concatenate((deviations, np.zeros((1, d))))
    now = np.broadcast_to(x, (runs + 1, d))
    states, inputs = [now], []
    costs = np.zeros(runs + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for h, K in enumerate(policy.gains):
            u = now @ K.T
            costs += _quadratic(now, cost.Q[h]) + _quadratic(u, cost.R[h])
            if cost.N is not None:
                costs += 2 * (now @ cost.N[h] * u).sum(-1)
            y = np.concatenate((now, u), 1)
            shock = deviations * rng.standard_normal((runs + 1, d))
            now = (M @ y[..., None])[..., 0] + shock
            now = np.clip(np.where(np.isnan(now), _LARGEST, now), -_LARGEST, _LARGEST)
            states.append(now)
            inputs.append(u)
        costs += _quadratic(now, cost.Q[-1])
    X, U = np.stack(states, 1), np.stack(inputs, 1)
    ends = [(1 - band) / 2, 0.5, (1 + band) / 2]
    return ClosedLoopPrediction(
        policy,
        np.quantile(X[:-1], ends, axis=0, method="nearest"),
        np.quantile(U[:-1], ends, axis=0, method="nearest"),
        X[-1],
        U[-1],
        costs[:-1],
        int((np.abs(X[:-1]) >= _LARGEST).any((1, 2)).sum()),
    )


def _quadratic(x: Float[Array, "n d"], Q: Float[Array, "d d"]) -> Float[Array, " n"]:
    return np.asarray(((x @ Q) * x).sum(-1))
