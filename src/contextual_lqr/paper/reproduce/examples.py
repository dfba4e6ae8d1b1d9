"""Example trajectories (the paper's figure 2): how a learnt controller follows a path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machine import as_system
from contextual_lqr.fleets import Fleet, true_decoder, true_system
from contextual_lqr.lqr.rollout import simulate
from contextual_lqr.lqr.solve import solve
from contextual_lqr.paper.reproduce.config import Setting, Trial
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
        return float(np.linalg.norm(self.learnt[environments] - self.optimal, axis=1).max())


def examples(measured: Measurements) -> list[Example]:
    """Every path with the paper's masses and decay, learnt by a typical run.

    Typical is the run whose control error is the (lower) median after the last number of
    environments shown. Where there is no decay of 0.7 the first is taken; masses outside the range
    are left out. All trajectories of a panel have the same noise.
    """
    config, found = measured.config, []
    decay = DECAY if DECAY in config.decays else config.decays[0]
    low, high = config.masses
    counts = [k for k in ENVIRONMENTS if k <= config.episodes]
    for path in config.paths:
        setting = Setting(path, decay)
        fleet = bench(config, setting).fleet
        errors = measured.of("control_error")[config.settings.index(setting), :, counts[-1] - 1]
        typical = int(np.argsort(errors, kind="stable")[(config.seeds - 1) // 2])
        left, _ = learn(
            config, Trial(setting, config.lead, config.first_seed + typical), counts[-1]
        )
        targets = -fleet.cost.Q[:, 0, 1:3]
        for mass in [mass for mass in MASSES if low <= mass <= high] or [low]:
            thetas = {k: left[k - 1].estimate for k in counts if k <= len(left)}
            optimal, *learnt = (
                _positions(fleet, theta, {"mass": mass}, config.first_seed)
                for theta in (true_decoder(fleet), *thetas.values())
            )
            shown = dict(zip(thetas, learnt, strict=True))
            found.append(Example(path, decay, mass, targets, optimal, shown))
    return found


def _positions(fleet: Fleet, theta: Array, context: dict[str, float], seed: int) -> Array:
    """Play the controller of a decoder on the true machine."""
    believed = as_system(theta @ fleet.context_map.matrix(context), fleet.noise)
    policy = solve(believed, fleet.cost, check=True).policy
    rng = np.random.default_rng([seed, 4])
    return simulate(policy, true_system(fleet, context), fleet.start, rng).states[:, 1:3]
