"""The paper's experiment in plain, batched NumPy: what ours is held against.

One setting, one seed, as somebody would write it who knows NumPy and the pitfalls: candidates and
test masses are batches, the statistics a triangular factor. It shares no code with the library and
draws the same random numbers, so that its rows can be held against ours.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def riccati(A: Array, B: Array, Q: Array, R: Array, W: Array) -> tuple[Array, Array, Array]:
    """Gains (n, H-1, m, d), value matrices at the start (n, d, d) and constants (n,)."""
    n, d, m = B.shape
    At, Bt = A.swapaxes(1, 2), B.swapaxes(1, 2)
    gains, constants = np.empty((n, len(R), m, d)), np.zeros(n)
    P = np.broadcast_to(Q[-1], (n, d, d))
    for h in range(len(R) - 1, -1, -1):
        constants = constants + np.einsum("nij,ij->n", P, W)
        BtP = Bt @ P
        gains[:, h] = K = -np.linalg.solve(R[h] + BtP @ B, BtP @ A)
        P = Q[h] + At @ P @ A + (BtP @ A).swapaxes(1, 2) @ K
        P = (P + P.swapaxes(1, 2)) / 2
    return gains, P, constants


def policy_costs(K: Array, A: Array, B: Array, Q: Array, R: Array, W: Array, x: Array) -> Array:
    """The expected cost of gains (n, H-1, m, d) on systems (n, d, d), (n, d, m)."""
    P, constants = np.broadcast_to(Q[-1], A.shape), np.zeros(len(A))
    for h in range(len(R) - 1, -1, -1):
        constants = constants + np.einsum("nij,ij->n", P, W)
        F, Kh = A + B @ K[:, h], K[:, h]
        P = Q[h] + Kh.swapaxes(1, 2) @ R[h] @ Kh + F.swapaxes(1, 2) @ P @ F
    return np.asarray(np.einsum("i,nij,j->n", x, P, x) + constants)


def triangle(rows: Array) -> Array:
    """R of QR, its diagonal positive; the largest rows first: 1e12 may stand beside 1."""
    R = np.linalg.qr(rows[np.argsort(-np.abs(rows).max(1), kind="stable")], mode="r")
    return np.asarray(R * np.where(np.diagonal(R) < 0, -1.0, 1.0)[:, None])


def task(path: str, decay: float, H: int) -> tuple[Array, Array, Array, Array]:
    """Θ*, Q, R and the start of path following."""
    theta = np.zeros((5, 7))
    theta[0, 0] = theta[1, 1] = theta[2, 2] = theta[1, 3] = theta[2, 4] = 1
    theta[3, 3] = theta[4, 4] = decay
    theta[3, 5] = theta[4, 6] = 1
    t = np.arange(1, H + 1) / H
    c, s = np.cos(2 * np.pi * t), np.sin(2 * np.pi * t)
    x, y = {"circle": (c, s), "parabola": (t, t**2)}.get(path, (c / (1 + s**2), s * c / (1 + s**2)))
    Q = np.zeros((H, 5, 5))
    Q[:, 0, 0] = x**2 + y**2
    Q[:, 0, 1], Q[:, 0, 2] = -x, -y
    Q[:, 1, 0], Q[:, 2, 0] = -x, -y
    Q[:, 1, 1] = Q[:, 2, 2] = 1
    return theta, Q, np.stack([np.eye(2)] * (H - 1)), np.array([1, x[0], y[0], 0, 0])


def experiment(
    path: str,
    decay: float,
    train: Array,
    test: Array,
    shocks: Array,
    rng: np.random.Generator,
    samples: int = 100,
    beta: float = 1e4,
    noise: float = 1e-4,
) -> dict[str, Array]:
    """Rows of one trial, an episode for each training mass; shocks are (episodes, H-1, 5)."""
    theta, Q, R, start = task(path, decay, shocks.shape[1] + 1)
    W = noise * np.diag([0.0, 1, 1, 1, 1])
    floor = start @ Q[0] @ start + (Q[1:] * W).sum()  # what any machine must cost

    def systems(decoders: Array, masses: Array) -> tuple[Array, Array]:
        return decoders[..., :5], decoders[..., 5:] / masses[:, None, None]

    A_test, B_test = systems(np.broadcast_to(theta, (len(test), 5, 7)), test)
    _, P, constant = riccati(A_test, B_test, Q, R, W)
    best_test = np.einsum("i,nij,j->n", start, P, start) + constant
    data: Array = np.zeros((0, 12))  # the triangle of all rows [z, x'] so far
    prior = np.hstack((np.eye(7), np.zeros((7, 5))))
    factor: Array = np.eye(7)
    estimate: Array = np.zeros((5, 7))
    rows: dict[str, list[float]] = {}
    total = 0.0
    for mass, w in zip(train, shocks, strict=True):
        off = theta - estimate
        distance = ((off @ factor.T) ** 2).sum()
        U = rng.standard_normal((samples, 5, 7))
        r = rng.random(samples) ** (1 / 35)
        U *= (np.sqrt(beta) * r / np.sqrt((U**2).sum((1, 2))))[:, None, None]
        candidates = estimate + np.linalg.solve(factor, U.reshape(-1, 7).T).T.reshape(U.shape)
        gains, P, constant = riccati(*systems(candidates, np.full(samples, mass)), Q, R, W)
        promised = np.einsum("i,nij,j->n", start, P, start) + constant
        promised = np.where(promised < (1 - 1e-9) * floor, np.inf, promised)
        best = int(np.argmin(promised))
        K = gains[best]
        A, B = theta[:, :5], theta[:, 5:] / mass
        x, states, seen = start, [start], []
        for h in range(len(K)):
            u = K[h] @ x
            after = A @ x + B @ u + w[h]
            seen.append(np.concatenate((x, u / mass, after)))
            x = after
            states.append(x)
        new = np.array(seen)
        new = new[np.abs(new).max(1) * np.finfo(float).eps <= np.sqrt(noise)]
        data = triangle(np.vstack((data, new)))
        joint = triangle(np.vstack((data, prior)))
        factor = joint[:7, :7]
        estimate = np.linalg.solve(factor, joint[:7, 7:]).T
        one = A[None], B[None]
        _, P, constant = riccati(*one, Q, R, W)
        optimal = start @ P[0] @ start + constant[0]
        regret = policy_costs(K[None], *one, Q, R, W, start)[0] - optimal
        total += regret
        learnt = np.broadcast_to(estimate, (len(test), 5, 7))
        gains, _, _ = riccati(*systems(learnt, test), Q, R, W)
        errors = policy_costs(gains, A_test, B_test, Q, R, W, start) - best_test
        for name, value in {
            "mass": mass,
            "decoder_error": np.sqrt(((estimate - theta) ** 2).sum()),
            "control_error": errors.mean(),
            "worst_control_error": errors.max(),
            "regret": regret,
            "cumulative_regret": total,
            "largest_state": np.abs(states).max(),
            "promised_cost": promised[best],
            "confidence_distance": distance,
            "confidence_radius": beta,
        }.items():
            rows.setdefault(name, []).append(value)
    return {name: np.array(column) for name, column in rows.items()}


def same_trial(config: Any, trial: Any) -> dict[str, Array]:
    """The trial of a `contextual_lqr.paper` configuration, from the same random numbers."""
    seed = np.random.SeedSequence([trial.seed, 2]).generate_state(1, np.uint64)[0]
    shocks = np.random.default_rng([trial.seed, 1]).standard_normal(
        (config.episodes, config.horizon - 1, 5)
    )
    shocks *= np.sqrt(config.noise) * np.array([0, 1, 1, 1, 1])
    return experiment(
        trial.setting.path,
        trial.setting.decay,
        config.training_masses(),
        config.unseen_masses(),
        shocks,
        np.random.default_rng(int(seed)),
        config.samples,
        config.beta,
        config.noise,
    )
