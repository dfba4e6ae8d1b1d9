"""What one controller can achieve on houses that it has not seen, chosen with the truth of others.

`python benchmarks/one_gain.py` takes some minutes. Gains are optimised for the worst house: for
log Σ (J / J*)^β / β by L-BFGS, with β raised in steps; gradients by the adjoint of the second
moments. All 225 houses first, then 150 of them, and the worst of the other 75: for gains of every
step, and for forms of few numbers, which can fit the houses seen less well. It says which zero-shot
figures are possible for a controller of this form, if nothing of a house is known.
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


def forms() -> dict[str, Array]:
    """Controllers u = K x with K = basis · numbers: which entries of K go together."""
    steps = HORIZON - 1

    def basis(each: tuple[int, ...], shared: tuple[int, ...]) -> Array:
        columns = np.zeros((steps * len(each) + len(shared), steps, d))
        for k, (t, i) in enumerate((t, i) for t in range(steps) for i in each):
            columns[k, t, i] = 1
        for k, i in enumerate(shared, steps * len(each)):
            columns[k, :, i] = 1
        return columns.reshape(len(columns), -1).T

    return {
        "every gain of every step": basis((0, 2, 3, 4, 5, 6), ()),
        "a push for each step, one feedback": basis((0,), (2, 3, 4, 5, 6)),
        "a push for each step, one feedback of the reading": basis((0,), (2,)),
        "one push, one feedback of the reading": basis((), (0, 2)),
    }


def minimax(houses: Houses, best: Array, basis: Array) -> Array:
    """Gains of this form whose largest J / J* is least, as far as a local search finds."""
    first = np.zeros((HORIZON - 1, d))
    first[:, 0], first[:, 2] = 0.5, -0.5
    x = np.linalg.lstsq(basis, first.ravel(), rcond=None)[0]
    for beta in (1, 3, 10, 30, 100):

        def soft_maximum(x: Array, beta: float = beta) -> tuple[float, Array]:
            with np.errstate(all="ignore"):
                J, slopes = costs_and_slopes(houses, (basis @ x).reshape(-1, 1, d))
            if not np.isfinite(J).all():
                return 1e10, np.zeros_like(x)
            ratio = np.log(J / best)
            share = np.exp(beta * (ratio - ratio.max()))
            value = ratio.max() + np.log(share.mean()) / beta
            slope = np.einsum("n,nti->ti", share / share.sum() / J, slopes)
            return float(value), basis.T @ slope.ravel()

        options = {"maxiter": 400, "maxfun": 800, "maxcor": 30}
        x = minimize(soft_maximum, x, jac=True, method="L-BFGS-B", options=options).x
    return (basis @ x).reshape(-1, 1, d)


def main() -> None:
    """For each form, on all houses and on six splits."""
    houses = load()
    best = best_costs(houses)
    for name, basis in forms().items():
        for seed in (None, *range(6)):
            order = np.arange(len(best))
            if seed is not None:
                order = np.random.default_rng(seed).permutation(len(best))
            old, new = (order, order) if seed is None else (order[:150], order[150:])
            gains = minimax(houses.some(old), best[old], basis)
            excess = exact_costs(houses, np.broadcast_to(gains, (len(best), *gains.shape)))
            excess = excess / best - 1
            last = new[excess[new].argmax()]
            told = "all houses" if seed is None else f"seed {seed}"
            print(
                f"{name}, {told}: worst of those seen {excess[old].max():.2f}, of the others "
                f"{excess[last]:.2f} (house {last}), their median {np.median(excess[new]):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
