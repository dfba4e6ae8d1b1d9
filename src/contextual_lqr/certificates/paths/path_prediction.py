"""What a machine that is not linear will do along its planned path: runs on posterior draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.certificates.paths.path_calibration import calibration_of
from contextual_lqr.certificates.paths.path_certificate import (
    EVERYWHERE,
    limits_of,
    require_episodes,
)
from contextual_lqr.certificates.prediction import ClosedLoopPrediction, require_runs
from contextual_lqr.lqr.problem import as_states
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.planning.paths.path_roll_out import FARTHEST, play_draws
from contextual_lqr.planning.paths.trajectory import solve_trajectory


def predict_path(
    decoder: Decoder,
    context: Any,
    cost: Any,
    start: ArrayLike,
    rng: np.random.Generator,
    *,
    machine: str | None = None,
    input_bounds: Any = None,
    runs: int = 500,
    band: float = 0.9,
) -> ClosedLoopPrediction:
    """Play the policy that `certify` gives on `runs` plausible machines, stretched as there."""
    require_runs(runs, band)
    require_episodes(cost)
    belief = decoder.machine(context, machine)
    assert isinstance(belief, DynamicsBelief)
    assert belief.dynamics is not None
    d, steps = len(belief.mean), cost.horizon - 1
    x = as_states("start", start, d)
    limits: Any = limits_of(input_bounds, belief.dynamics)
    path = solve_trajectory(belief, cost, x, attempts=EVERYWHERE, input_bounds=limits)
    stretch = calibration_of(decoder, max(steps, 1), machine is not None).stretch
    levels = stretch * np.sqrt(np.diagonal(belief.noise))
    shocks = levels * rng.standard_normal((runs, steps, d))
    thetas = belief.draw(runs, rng, stretch=stretch)
    played = play_draws(belief, thetas, path.policy, x, shocks)
    at_limit = np.zeros(played.inputs.shape, bool)
    if path.policy.input_bounds is not None:
        low, high = path.policy.input_bounds
        at_limit = (played.inputs <= low) | (played.inputs >= high)
    return ClosedLoopPrediction.of(
        path.policy,
        (played.states, played.inputs),
        (path.states, path.inputs),
        np.asarray(trajectory_cost(played, cost)),
        band,
        FARTHEST,
        float(at_limit.any(-1).mean()),
    )
