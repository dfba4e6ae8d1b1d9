"""What one time-varying gain can achieve on all 225 houses, chosen with the truth of all of them.

`python benchmarks/one_gain.py` takes a minute. The gains are optimised for the worst house: for
log Σ (J / J*)^β / β by L-BFGS, with β raised in steps; gradients by the adjoint of the second
moments. It says which zero-shot figures are possible for a controller of this form, if the houses
that it will meet are like those that it has seen.
"""

import numpy as np
from houses import (
    HORIZON,
    OUTDOORS,
    START,
    TARGET,
    THERMOMETER,
    Array,
    Houses,
    R,
    _open_loop,
    best_costs,
    d,
    exact_costs,
    load,
)
from scipy.optimize import minimize

SEEN = np.zeros((d, 11))  # the controller's state, of ζ
SEEN[0, 10], SEEN[1, 10] = 1, OUTDOORS / 10
SEEN[range(2, 7), range(5, 10)] = 1


def costs_and_slopes(houses: Houses, gains: Array) -> tuple[Array, Array]:
    """J (n,) of gains (T, 1, 7) on every house, and its gradient, (n, T, 7)."""
    n, steps = len(houses.A), HORIZON - 1
    step, noise = _open_loop(houses, OUTDOORS, 3, 2)
    A, B = step[:, :, :11], step[:, :, 11:]
    zeta = np.zeros((n, 11))
    zeta[:, :5] = houses.present * (START - TARGET)
    zeta[:, 5:8], zeta[:, 10] = START - TARGET, 1
    moments = [zeta[:, :, None] * zeta[:, None]]
    moments[0][:, 5, 5] += THERMOMETER**2
    weight = np.zeros((n, 11, 11))
    weight[:, :5, :5] = houses.shown[:, :, None] * houses.shown[:, None]
    loops = [A + B @ (K @ SEEN) for K in gains]
    for F in loops:
        moments.append(F @ moments[-1] @ F.transpose(0, 2, 1) + noise)
    P, slopes = weight, np.zeros((n, steps, 7))
    J = np.einsum("nij,nij->n", weight, moments[-1])
    for t in reversed(range(steps)):
        K, M, F = gains[t] @ SEEN, moments[t], loops[t]
        stage = weight + R[0, 0] * K.T @ K
        J += np.einsum("nij,nij->n", stage, M)
        # dJ/dK = 2 (R K + BᵀP F) M
        slopes[:, t] = (2 * (R[0, 0] * K + B.transpose(0, 2, 1) @ P @ F) @ M @ SEEN.T)[:, 0]
        P = stage + F.transpose(0, 2, 1) @ P @ F
    return J, slopes


def minimax(houses: Houses, best: Array) -> Array:
    """Gains whose largest J / J* is least, as far as a local search finds."""
    x = np.zeros((HORIZON - 1, 1, d))
    x[:, 0, 2] = -0.5
    for beta in (1, 3, 10, 30, 100, 300):

        def soft_maximum(x: Array, beta: float = beta) -> tuple[float, Array]:
            with np.errstate(all="ignore"):
                J, slopes = costs_and_slopes(houses, x.reshape(-1, 1, d))
            if not np.isfinite(J).all():
                return 1e10, np.zeros_like(x)
            ratio = np.log(J / best)
            share = np.exp(beta * (ratio - ratio.max()))
            value = ratio.max() + np.log(share.mean()) / beta
            slope = np.einsum("n,nti->ti", share / share.sum() / J, slopes)
            return float(value), slope.ravel()

        options = {"maxiter": 400, "maxfun": 800, "maxcor": 30}
        x = minimize(soft_maximum, x.ravel(), jac=True, method="L-BFGS-B", options=options).x
        gains = x.reshape(-1, 1, d)
        excess = exact_costs(houses, np.broadcast_to(gains, (len(best), *gains.shape))) / best - 1
        spread = " / ".join(f"{q:.2f}" for q in np.quantile(excess, [0.5, 0.9, 1.0]))
        print(f"β = {beta}: excess, median / 90 % / worst, {spread}", flush=True)
    return gains


if __name__ == "__main__":
    houses = load()
    minimax(houses, best_costs(houses))
