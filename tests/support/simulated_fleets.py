"""Three small fleets whose truth is known, and what their mediocre controllers log.

Ranges are those of the training contexts.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from numpy.random import Generator

from contextual_lqr import (
    BlockContext,
    Decoder,
    FeatureContext,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Trajectory,
    solve,
)
from contextual_lqr.context import ContextMap
from contextual_lqr.fleets import path_following, true_decoder
from contextual_lqr.lqr.rollout import rollout


class SimulatedFleet(NamedTuple):
    """A fleet, the range of its training contexts, and its truth."""

    context_map: ContextMap
    cost: QuadraticCost
    start: Array
    noise: Array
    ranges: dict[str, tuple[float, float]]
    theta: Array
    dither: float
    logged_for: dict[str, float]

    def contexts(self, n: int, rng: Generator) -> dict[str, Array]:
        """Contexts of the training range."""
        return {name: rng.uniform(low, high, n) for name, (low, high) in self.ranges.items()}

    def outside(self, n: int, rng: Generator, times: float = 3.0) -> dict[str, Array]:
        """Contexts `times` outside the range: one name, or all, at a multiple or a fraction."""
        found = self.contexts(n, rng)
        names = list(found)
        for i in range(n):
            chosen = names if rng.random() < 0.3 else [names[rng.integers(len(names))]]
            for name in chosen:
                low, high = self.ranges[name]
                found[name][i] = times * high if rng.random() < 0.5 else low / times
        return found

    def systems(self, contexts: dict[str, Array]) -> LinearSystem:
        """The machines as they really are."""
        M = self.theta @ self.context_map.matrices(contexts)
        d = len(self.start)
        return LinearSystem(M[..., :d], M[..., d:], self.noise)


def log(
    fleet: SimulatedFleet, episodes: int, rng: Generator
) -> tuple[dict[str, Array], Trajectory]:
    """Episodes under half the gains that suit one machine of the range, with dither."""
    one = {name: np.array([value]) for name, value in fleet.logged_for.items()}
    gains = 0.5 * solve(fleet.systems(one), fleet.cost).policy.gains[0]
    contexts = fleet.contexts(episodes, rng)
    systems = fleet.systems(contexts)
    m, d = gains.shape[1:]
    offsets, shocks = [], []
    for _ in gains:
        offsets.append(fleet.dither * rng.standard_normal((episodes, m)))
        shocks.append(rng.standard_normal((episodes, d)) * np.sqrt(np.diagonal(fleet.noise)))
    noise, dither = np.stack(shocks, 1), np.stack(offsets, 1)
    return contexts, rollout(LinearPolicy(gains), systems, fleet.start, noise, offsets=dither)


def learnt(fleet: SimulatedFleet, episodes: int, rng: Generator) -> Decoder:
    """A decoder fitted to such logs."""
    decoder = Decoder(fleet.context_map, 1e-4, noise_level=0.01)
    decoder.update_many(*log(fleet, episodes, rng))
    return decoder


def path() -> SimulatedFleet:
    """The paper's objects of different mass, on a circle."""
    fleet = path_following("circle")
    masses = [["1/mass", 0], [0, "1/mass"]]
    free = BlockContext(np.eye(5), masses, bounds={"mass": (None, None)})
    return SimulatedFleet(
        free,
        fleet.cost,
        fleet.start,
        fleet.noise,
        {"mass": (0.1, 10.0)},
        true_decoder(fleet),
        0.1,
        {"mass": 0.2},
    )


def chain(dt: float = 0.2, horizon: int = 20) -> SimulatedFleet:
    """Three masses between walls, joined by springs and dampers, a force on each: d = 6, m = 3."""
    L = 2 * np.eye(3) - np.eye(3, k=1) - np.eye(3, k=-1)
    zero, one = np.zeros((3, 3)), np.eye(3)
    features = ["1", "stiffness/mass", "damping/mass", "1/mass"]
    blocks = [
        np.block([[one, dt * one, zero], [zero, one, zero]]),
        np.block([[zero, zero, zero], [-dt * L, zero, zero]]),
        np.block([[zero, zero, zero], [zero, -dt * L, zero]]),
        np.block([[zero, zero, zero], [zero, zero, dt * one]]),
    ]
    return SimulatedFleet(
        FeatureContext(features, states=6, inputs=3),
        _regulation(6, 3, horizon),
        np.array([1.0, -0.5, 0.5, 0, 0, 0]),
        1e-4 * np.eye(6),
        {"mass": (0.5, 2.0), "stiffness": (0.5, 2.0), "damping": (0.1, 0.5)},
        np.concatenate(blocks, 1),
        0.5,
        {"mass": 1.0, "stiffness": 1.0, "damping": 0.3},
    )


def spring(dt: float = 0.2, horizon: int = 20) -> SimulatedFleet:
    """One mass on a spring: B depends on 1/mass and A on stiffness/mass."""
    blocks = np.array(
        [[[1, dt, 0], [0, 0.98, 0]], [[0, 0, 0], [-dt, 0, 0]], [[0, 0, 0], [0, 0, dt]]]
    )
    return SimulatedFleet(
        FeatureContext(["1", "stiffness/mass", "1/mass"], states=2, inputs=1),
        _regulation(2, 1, horizon),
        np.array([1.0, 0.0]),
        1e-4 * np.eye(2),
        {"mass": (0.5, 2.0), "stiffness": (0.5, 2.0)},
        np.concatenate(blocks, 1),
        0.5,
        {"mass": 1.0, "stiffness": 1.0},
    )


FLEETS: dict[str, Callable[[], SimulatedFleet]] = {"path": path, "chain": chain, "spring": spring}


def _regulation(d: int, m: int, horizon: int) -> QuadraticCost:
    Q = np.broadcast_to(np.eye(d), (horizon, d, d))
    return QuadraticCost(Q, np.broadcast_to(0.1 * np.eye(m), (horizon - 1, m, m)))
