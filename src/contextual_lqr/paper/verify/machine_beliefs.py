"""Whether beliefs about machines hold what they say, on fleets whose machines deviate from the law.

Each run draws a fleet: a law, covariances of the deviations, machines with a few episodes each, and
one machine more. What is believed about that one is held against the truth before its first
episode, and after some of its own. An interval is that of vᵀrow for one row of [A, B] and one
direction v, drawn by chance: one a run, so that runs are independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.context import FeatureContext
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.paper.verify.checks import Check, Numbers

FLEET = "random fleets"
OWN_EPISODES = (0, 1, 3, 10)
CONFIDENCE = 0.95
_REFUTED = 0.99  # of the interval that must hold the promise: there are four of them
_MACHINES, _EPISODES, _STEPS = 24, 2, 15
PLAYED = _MACHINES * _EPISODES + OWN_EPISODES[-1]  # episodes of a run


def run_machines(seed: int) -> pl.DataFrame:
    """One fleet, a row for each number of own episodes: the error, and what it is held against."""
    rng = np.random.default_rng([20, 15, seed])
    d, m = int(rng.integers(1, 4)), 1
    y = d + m
    context_map = FeatureContext(["1", "c"], states=d, inputs=m)
    theta = rng.standard_normal((d, 2 * y)) * np.repeat([0.5, 0.3], y) / np.sqrt(y)
    noise, size = 10 ** rng.uniform(-2, -1), 10 ** rng.uniform(-2, -0.7)
    roots = size * rng.standard_normal((d, y, y)) / np.sqrt(y)  # S_r = root rootᵀ

    def machine() -> tuple[dict[str, float], Float[Array, "d y"]]:
        context = {"c": float(rng.uniform(-1, 1))}
        deviation = np.einsum("rij,rj->ri", roots, rng.standard_normal((d, y)))
        return context, theta @ context_map.matrix(context) + deviation

    decoder = Decoder(context_map, noise**2, noise_level=noise)
    for i in range(_MACHINES):
        context, M = machine()
        for _ in range(_EPISODES):
            decoder.update(context, _episode(M, noise, rng), machine=f"machine {i}")
    context, M = machine()
    row, direction = int(rng.integers(d)), rng.standard_normal(y)
    rows, shown = [], 0
    for own in OWN_EPISODES:
        for _ in range(own - shown):
            decoder.update(context, _episode(M, noise, rng), machine="new")
        shown = own
        belief = decoder.machine(context, "new" if own else None)
        rows.append(
            {
                "seed": seed,
                "own_episodes": own,
                "error": float(direction @ (M[row] - belief.mean[row])),
                "deviation": float(np.sqrt(direction @ belief.covariances[row] @ direction)),
                "degrees": float(belief.degrees[row]),
                "deviating": bool(decoder.deviations[row].any()),
            }
        )
    return pl.DataFrame(rows)


def _episode(M: Float[Array, "d y"], noise: float, rng: np.random.Generator) -> Trajectory:
    """A run under random inputs, from a random state."""
    d, y = M.shape
    states = [rng.standard_normal((1, d))[0]]
    inputs = rng.standard_normal((_STEPS, y - d))
    for u in inputs:
        step = M @ np.concatenate((states[-1], u))
        states.append(step + noise * rng.standard_normal(d))
    return Trajectory(np.array(states), inputs)


def belief_coverage(rows: pl.DataFrame) -> Iterator[Check]:
    """6. Intervals at 95 % of a machine's [A, B] hold the truth in 95 % of the fleets.

    It fails where the fleets refute it: the 99 % Clopper-Pearson interval lies below.
    """
    from scipy.stats import binomtest, t  # takes a second to import

    for (own,), some in rows.group_by("own_episodes", maintain_order=True):
        reach = t.ppf((1 + CONFIDENCE) / 2, some["degrees"].to_numpy())
        errors = np.abs(some["error"].to_numpy()) / some["deviation"].to_numpy()
        runs, covered = len(errors), int((errors <= reach).sum())
        low, high = map(float, binomtest(covered, runs).proportion_ci(_REFUTED, method="exact"))
        unseen = some.filter(~pl.col("deviating"))
        said = (
            f"the truth is in {covered} of {runs} intervals at 95 % (99 % interval of the share "
            f"{low:.3f} to {high:.3f})"
        )
        if high < CONFIDENCE:
            said += f": short by {CONFIDENCE - high:.3f} at least"
        elif low > CONFIDENCE:
            said += ": wider than need be"
        if len(unseen):
            said += f"; in {len(unseen)} fleets no deviation of that row was found"
        numbers: Numbers = {"runs": runs, "covered": covered, "low": low, "high": high}
        numbers |= {"promised": CONFIDENCE, "without_deviations": len(unseen)}
        numbers["median_degrees"] = float(np.median(some["degrees"].to_numpy()))
        yield Check(f"beliefs, {_named(own)}", FLEET, high >= CONFIDENCE, said, numbers)


def _named(own: Any) -> str:
    return f"{own} own episode{'' if own == 1 else 's'}"
