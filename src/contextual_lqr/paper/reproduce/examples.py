"""Example trajectories (the paper's figure 2): how a learnt controller follows a path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.fleets import Fleet, true_decoder
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.rollout import simulate
from contextual_lqr.lqr.solve import solve
from contextual_lqr.paper.reproduce.config import Config, Setting, Trial
from contextual_lqr.paper.reproduce.summary import Measurements
from contextual_lqr.paper.reproduce.trial import bench, learn

MASSES, ENVIRONMENTS, DECAY = (0.1, 1.0), (1, 3, 10), 0.7


class Example(NamedTuple):
    """Positions (H, 2) on one path with one mass; `learnt` maps environments trained on to them."""

    path: str
    decay: float
    mass: float
    targets: Float[Array, "H 2"]
    optimal: Float[Array, "H 2"]
    learnt: dict[int, Float[Array, "H 2"]]

    def distance(self, environments: int) -> float:
        """How far the learnt trajectory is from the optimal one, at the worst point."""
        off = self.learnt[environments] - self.optimal
        return float(np.sqrt((off**2).sum(1)).max())


def examples(measured: Measurements) -> list[Example]:
    """Every path with the paper's masses and decay, learnt by a typical run.

    Typical is the run whose control error is the (lower) median after the last number of
    environments shown. Where there is no decay of 0.7 the first is taken; masses outside the range
    are left out. All trajectories of a panel have the same noise.
    """
    config = measured.config
    decay = DECAY if DECAY in config.decays else config.decays[0]
    low, high = config.masses
    masses = [mass for mass in MASSES if low <= mass <= high] or [low]
    counts = [k for k in ENVIRONMENTS if k <= config.episodes]
    found = []
    for path in config.paths:
        setting = Setting(path, decay)
        fleet = bench(config, setting).fleet
        errors = measured.of("control_error", config.lead)[config.settings.index(setting)]
        typical = int(
            np.argsort(errors[:, max(counts) - 1], kind="stable")[(config.seeds - 1) // 2]
        )
        trial = Trial(setting, config.lead, config.first_seed + typical)
        left, _ = learn(config, trial, max(counts))
        for mass in masses:
            learnt = {
                k: _positions(fleet, left[k - 1].estimate, mass, config)
                for k in counts
                if k <= len(left)
            }
            optimal = _positions(fleet, true_decoder(fleet), mass, config)
            found.append(Example(path, decay, mass, _targets(fleet), optimal, learnt))
    return found


def _positions(fleet: Fleet, theta: Array, mass: float, config: Config) -> Float[Array, "H 2"]:
    """Play the controller of a decoder on the true machine."""
    G, d = fleet.context_map.matrix({"mass": mass}), len(fleet.start)
    believed, true = theta @ G, true_decoder(fleet) @ G
    policy = solve(LinearSystem(believed[:, :d], believed[:, d:]), fleet.cost, check=True).policy
    machine = LinearSystem(true[:, :d], true[:, d:], fleet.noise)
    rng = np.random.default_rng([config.first_seed, 4])
    states = simulate(policy, machine, fleet.start, rng).states
    return states[:, 1:3]


def _targets(fleet: Fleet) -> Float[Array, "H 2"]:
    return -fleet.cost.Q[:, 0, 1:3]
