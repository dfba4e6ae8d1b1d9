"""Planning problems of many kinds, by their seeds."""

import numpy as np
from numpy.random import default_rng

from contextual_lqr import (
    ConstantBeta,
    Decoder,
    DeterminantBeta,
    LinearPolicy,
    optimal_cost,
    solve,
)
from contextual_lqr.fleets import path_following, true_system
from contextual_lqr.planning import PlanningProblem

NOISE = 0.01 * np.array([0.0, 1, 1, 1, 1])


def instance(seed: int, episodes: int | None = None) -> PlanningProblem:
    """A random task, logs of good, halved and idle controllers with dither, and a fresh machine."""
    rng = default_rng([31, seed])
    path = ("circle", "parabola", "lemniscate")[seed % 3]
    fleet = path_following(path, float(rng.uniform(0.3, 1.0)))
    by_determinant = seed % 2 == 0
    decoder = Decoder(fleet.context_map, 1e-4 if by_determinant else 1.0, noise_level=NOISE)
    for _ in range(int(rng.integers(0, 21)) if episodes is None else episodes):
        context = fleet.sample_context(rng)
        gains = solve(true_system(fleet, context), fleet.cost).policy.gains
        gains = rng.choice([0.0, 0.5, 1.0]) * gains + rng.normal(scale=0.05, size=gains.shape)
        decoder.update(context, fleet.play(LinearPolicy(gains), context, rng))
    beta = DeterminantBeta(5.0, 0.01, 0.1) if by_determinant else ConstantBeta(1e4)
    G = fleet.context_map.matrix(fleet.sample_context(rng))
    return PlanningProblem(decoder, G, fleet.cost, fleet.start, beta)


def sampled_costs(now: PlanningProblem, n: int, rng: np.random.Generator) -> np.ndarray:
    """The optimal costs of machines of the confidence set, drawn uniformly."""
    costs = optimal_cost(now.systems(now.confidence_set().sample(n, rng)), now.cost, now.start)
    return costs[costs >= now.floor * (1 - 1e-9)]  # below the floor, rounding has eaten the cost
