"""The fleets that `broken_fleets.py` breaks: six simulated ones and five plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array
from support_broken import Machines

import contextual_lqr as clqr
from contextual_lqr import fleets


@dataclass(frozen=True, eq=False)
class Base:
    """A fleet that obeys its law exactly, and which velocity each input drives."""

    fleet: fleets.Fleet
    drives: tuple[tuple[int, int], ...] = ()

    def machines(self, contexts: Sequence[Any]) -> Machines:
        """The machines with these contexts as the law has them."""
        M = fleets.true_decoder(self.fleet) @ self.fleet.context_map.matrices(contexts)
        d = M.shape[1]
        return Machines(M[..., :d], M[..., d:], self.fleet.noise, drives=self.drives)

    def sizes(self) -> tuple[Array, Array]:
        """How large states and inputs are along the task: root mean squares."""
        rng = np.random.default_rng(0)
        machines = self.machines([self.fleet.sample_context(rng) for _ in range(20)])
        system = clqr.LinearSystem(machines.A, machines.B, machines.noise)
        gains = clqr.solve(system, self.fleet.cost).policy.gains
        shocks = machines.shocks(5, gains.shape[1], rng)
        x, _, u = machines.run(gains, self.fleet.start, shocks, rng)
        return tuple(np.sqrt((one**2).mean((0, 1, 2))) for one in (x, u))  # type: ignore[return-value]

    @property
    def moving(self) -> Array:
        """Which states move at all: a constant coordinate has no noise and no error."""
        return np.diagonal(self.fleet.noise) > 0


def _plain(
    features: dict[str, Array], bounds: dict[str, tuple[float, float]], start: Array, weight: float
) -> fleets.Fleet:
    """Machines with [A, B] the sum of features times matrices, and an ordinary task."""
    theta = np.concatenate(list(features.values()), 1)
    d, y = theta.shape[0], next(iter(features.values())).shape[1]
    horizon = 25
    return fleets.Fleet(
        clqr.FeatureContext(list(features), states=d, inputs=y - d, bounds=bounds),
        clqr.QuadraticCost(
            np.broadcast_to(np.eye(d), (horizon, d, d)),
            np.broadcast_to(weight * np.eye(y - d), (horizon - 1, y - d, y - d)),
        ),
        start,
        1e-4 * np.eye(d),
        lambda rng: {name: float(rng.uniform(*pair)) for name, pair in bounds.items()},
        theta,
    )


def motor(dt: float = 0.1) -> Base:
    """Angle and speed of a motor, by the inertia it turns."""
    law = {
        "1": np.array([[1, dt, 0], [0, 1, 0]]),
        "1/inertia": dt * np.array([[0, 0, 0], [0, -0.5, 1]]),
    }
    return Base(_plain(law, {"inertia": (0.5, 2.0)}, np.array([1.0, 0.0]), 0.1), ((0, 1),))


def spring(dt: float = 0.2) -> Base:
    """A mass on a spring, by both."""
    law = {
        "1": np.array([[1, dt, 0], [0, 0.98, 0]]),
        "stiffness/mass": np.array([[0, 0, 0], [-dt, 0, 0]]),
        "1/mass": np.array([[0, 0, 0], [0, 0, dt]]),
    }
    bounds = {"mass": (0.5, 2.0), "stiffness": (0.5, 2.0)}
    return Base(_plain(law, bounds, np.array([1.0, 0.0]), 0.1), ((0, 1),))


def levitator(dt: float = 0.05) -> Base:
    """A magnet holds a mass in the air: gap, its rate, current; without control it falls."""
    law = {
        "1": np.array([[1, dt, 0, 0], [4 * dt, 1, 0, 0], [0, 0, 1 - 5 * dt, 5 * dt]]),
        "1/mass": np.array([[0, 0, 0, 0], [0, 0, -6 * dt, 0], [0, 0, 0, 0]]),
    }
    return Base(_plain(law, {"mass": (0.5, 1.5)}, np.array([0.3, 0.0, 0.0]), 0.1))


def random(seed: int, d: int, m: int, radius: float) -> Base:
    """Any system of this spectral radius, and how it changes with a and b."""
    rng = np.random.default_rng([417, seed, d])
    A = rng.standard_normal((d, d))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    law = {"1": np.hstack((A, rng.standard_normal((d, m)) / 2))}
    for name in ("a", "b"):
        law[name] = 0.15 * rng.standard_normal((d, d + m)) / np.sqrt(d)
    B = law["1"][:, d:]
    drives = tuple((j, int(np.abs(B[:, j]).argmax())) for j in range(m))
    bounds = {"a": (-1.0, 1.0), "b": (-1.0, 1.0)}
    return Base(_plain(law, bounds, rng.standard_normal(d), 0.3), drives)


def bases(seed: int) -> dict[str, Base]:
    """The six simulated fleets and five plain ones; the random ones depend on the seed."""
    return {
        "path-following": Base(fleets.path_following(), ((0, 3), (1, 4))),
        "cart-pole": Base(fleets.cart_pole(), ((0, 1),)),
        "quadrotor": Base(fleets.quadrotor(), ((0, 5), (1, 6))),
        "chain": Base(fleets.chain(n=2), ((0, 2), (1, 3))),
        "vehicle": Base(fleets.vehicle(), ((0, 1),)),
        "heating": Base(fleets.heating()),
        "motor": motor(),
        "spring": spring(),
        "levitator": levitator(),
        "random stable": random(seed, 3, 1, 0.9),
        "random unstable": random(seed, 4, 2, 1.1),
    }
