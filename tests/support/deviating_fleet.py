"""A small fleet whose machines deviate from its law by as much as a test asks for."""

import numpy as np
from numpy import ndarray as Array

from contextual_lqr import Decoder, FeatureContext, Trajectory

NOISE = 0.01
LAW = np.array([[1, 0.1, 0, 0, 0, 0], [0, 1, 0, 0, -0.05, 0.1]])  # of 1 and 1/inertia


def context_map() -> FeatureContext:
    return FeatureContext(["1", "1/inertia"], states=2, inputs=1)


def contexts(n: int) -> list[dict[str, float]]:
    return [{"inertia": float(value)} for value in np.linspace(0.5, 2.0, n)]


def machines(n: int, deviation: float, rng: np.random.Generator) -> Array:
    """[A, B] (n, 2, 3) of machines whose velocities deviate from the law."""
    M = LAW @ context_map().matrices(contexts(n))
    M[:, 1] += deviation * rng.standard_normal((n, 3))
    return M


def episode(M: Array, steps: int, rng: np.random.Generator, noise: float = NOISE) -> Trajectory:
    """A run under random inputs, from a random state."""
    states, inputs = [rng.standard_normal(2)], rng.standard_normal((steps, 1))
    for u in inputs:
        y = np.concatenate((states[-1], u))
        states.append(M @ y + noise * rng.standard_normal(2))
    return Trajectory(np.array(states), inputs)


def learnt(
    n: int, deviation: float, rng: np.random.Generator, episodes: int = 2, steps: int = 15
) -> tuple[Decoder, Array]:
    """A decoder of n machines "m0", "m1", ... and what they truly are."""
    decoder = Decoder(context_map(), 1e-4, noise_level=NOISE)
    truth = machines(n, deviation, rng)
    for i, (context, M) in enumerate(zip(contexts(n), truth, strict=True)):
        for _ in range(episodes):
            decoder.update(context, episode(M, steps, rng), machine=f"m{i}")
    return decoder, truth
