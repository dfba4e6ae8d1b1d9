"""How far to trust a planned path: by roll-outs on draws of the posterior. Nothing here is proven.

Draws are stretched as a backtest asks: as much as the errors of predictions of machines left out
exceed what was claimed (`path_calibration.py`).

The policy about the path is played on machines drawn from what is believed, with noise, which
gives the interval of its cost; and without, beside the best path of each draw, which gives the
excess. The extrapolation is that of the step of the path that asks for most: the leverage φᵀV⁻¹φ of
its features over the average of the logs, p/rows. A swing-up through angles that no log has seen is
far out, by its leverage or because they lie in a gap that leverage does not see
(`between_logs.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.certificates.certificate import Certificate, CostBound, judge
from contextual_lqr.certificates.extrapolation import Extrapolation, between, outside, place
from contextual_lqr.certificates.paths.between_logs import gaps_of, told
from contextual_lqr.certificates.paths.no_path import why_no_path
from contextual_lqr.certificates.paths.path_calibration import PathCalibration, calibration_of
from contextual_lqr.certificates.prediction import ClosedLoopPrediction, require_runs
from contextual_lqr.checks import as_count, as_covariance, require, shown
from contextual_lqr.context import Dynamics
from contextual_lqr.errors import UnsolvableError
from contextual_lqr.lqr.problem import QuadraticCost, Trajectory, as_states
from contextual_lqr.lqr.target_cost import about_target
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy
from contextual_lqr.planning.paths.path_roll_out import FARTHEST, play_draws
from contextual_lqr.planning.paths.trajectory import TrajectorySolution, solve_trajectory

# The largest leverage of a log's own rows is several times their average, so these are wider than
# those of a whole machine.
_INSIDE, _EDGE = 10.0, 30.0
_LOST = 0.5  # a run that costs this share more than the best of its machine has failed
_COMPARED = 64  # draws whose best path is searched for, from the planned one
_SEARCHED = 4  # and from everywhere: more than 5 % of these
EVERYWHERE = 25  # first guesses: all that there are
_LEVEL = 0.95
_MANY = 8  # machines: among fewer, contexts have wide gaps by chance


@dataclass(frozen=True, eq=False, repr=False)
class PathCertificate(Certificate):
    """A machine's planned path, and how good it will be, as far as posterior draws say.

    As `Certificate`, but its interval is sampled: it holds 95 % of the roll-outs, and is not
    proven. `instability` is the share of the draws on which the policy costs half as much again as
    the best path, or does not stay finite.

    Attributes
    ----------
    path : TrajectorySolution
        The path that was planned, and how its search ended.
    leverages : array, (H-1,)
        The extrapolation score of each step of the path: about 1 is usual in the logs.
    calibration : PathCalibration
        What a backtest of the fleet's own runs has shown: its `stretch` widens the draws.
    """

    path: TrajectorySolution | None = None
    leverages: Float[Array, " steps"] | None = None
    calibration: PathCalibration | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Where 95 % of the sampled costs lie."""
        return self.lower.searched, self.upper.searched

    def _facts(self) -> dict[str, object]:
        interval = "{:.4g} to {:.4g}, as sampled".format(*self.interval)
        return {**super()._facts(), "interval": interval}


def certify_path(
    decoder: Decoder,
    context: Any,
    cost: Any,
    start: ArrayLike,
    *,
    machine: str | None = None,
    noise: ArrayLike | None = None,
    input_bounds: Any = None,
    draws: int = 200,
    rng: np.random.Generator | None = None,
    calibration: PathCalibration | None = None,
) -> PathCertificate:
    """The path of one nonlinear machine, and its certificate."""
    dynamics = decoder.context_map
    assert isinstance(dynamics, Dynamics)
    require_episodes(cost)
    draws = as_count("draws", draws, 2)
    rng = np.random.default_rng(0) if rng is None else rng
    d = len(dynamics.state_names)
    x = as_states("start", start, d)
    require(x.ndim == 1, f"start must be one state, not {x.shape}")
    belief = decoder.machine(context, machine)
    assert isinstance(belief, DynamicsBelief)
    if noise is not None:
        belief = replace(belief, noise=as_covariance("noise", noise, d))
    limits: Any = {"input_bounds": limits_of(input_bounds, dynamics)}
    path = solve_trajectory(belief, cost, x, attempts=EVERYWHERE, **limits)
    if not np.isfinite(path.cost):
        return _without(decoder, belief, path)
    if calibration is None:
        calibration = calibration_of(decoder, max(cost.horizon - 1, 1), machine is not None)
    stretch = calibration.stretch
    thetas = belief.draw(draws, rng, stretch=stretch)
    levels = stretch * np.sqrt(np.diagonal(belief.noise))
    shocks = levels * rng.standard_normal((draws, cost.horizon - 1, d))
    runs = play_draws(belief, thetas, path.policy, x, shocks)
    costs = _paid(runs, cost)
    gone = float(np.isinf(costs).mean())
    excess, _ = path_excess(belief, thetas[:_COMPARED], path, x, cost, limits["input_bounds"])
    likely = float(np.quantile(excess, _LEVEL, method="higher"))
    # Noise may carry a run to where a feature has no value, though its path does not go there.
    lost = max(float((~(excess <= _LOST)).mean()), gone)
    if gone > 1 - _LEVEL:
        likely = np.inf
    leverages, found = _extrapolation(decoder, belief, path.states[:-1], path.inputs)
    if dynamics.names and decoder.store is not None and len(decoder.store) >= _MANY:
        (found,) = between([found], decoder, dynamics.keys([context]))
    gaps = gaps_of(decoder, path.states, about_target(cost).angles)
    if gaps and found.place not in ("in a gap of the data", "outside the data"):
        found = replace(found, place=gaps[0].place, feature=gaps[0].state)
    verdict, reason = judge(True, likely, lost, found)
    if gone:
        said = "of the runs explode, or go where a feature has no value"
        reason = f"{100 * gone:.2g} % {said}; {found}"
    if gaps:
        reason = f"{told(gaps, decoder)}; {reason}"
    reason = f"{reason} (sampled: {draws} draws; {calibration})"
    if path.reason and verdict != "do not use":
        verdict, reason = "caution", f"{path.reason}; {reason}"
    if beyond := outside(dynamics, context):
        if verdict == "trust":
            verdict = "caution"
        reason = f"{beyond}; {reason}"
    ends = np.quantile(costs, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], method="nearest")
    return PathCertificate(
        context,
        path.policy,  # type: ignore[arg-type]
        float(np.median(costs)),
        CostBound(-np.inf, float(ends[0])),
        CostBound(np.inf, float(ends[1])),
        likely,
        lost,
        found,
        verdict,
        reason,
        path=path,
        leverages=leverages,
        calibration=calibration,
    )


def _without(decoder: Decoder, belief: DynamicsBelief, path: TrajectorySolution) -> PathCertificate:
    """The certificate if no path was found."""
    reason = why_no_path(belief, path)
    _, found = _extrapolation(decoder, belief, path.states[:1], path.inputs[:1])
    return PathCertificate(
        belief.context,
        path.policy,  # type: ignore[arg-type]
        np.inf,
        CostBound(-np.inf, -np.inf),
        CostBound(np.inf, np.inf),
        np.inf,
        1.0,
        found,
        "do not use",
        reason,
        path=path,
    )


def path_excess(
    belief: DynamicsBelief,
    thetas: Float[Array, "n d p"],
    path: TrajectorySolution,
    start: Float[Array, " d"],
    cost: QuadraticCost,
    input_bounds: Any,
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """What the policy costs on each draw, without noise, above the best path of it; and in all."""
    assert belief.dynamics is not None
    if not np.isfinite(path.cost):
        return np.full(len(thetas), np.inf), np.full(len(thetas), np.inf)
    still = np.zeros((len(thetas), cost.horizon - 1, len(start)))
    paid = _costs(belief, thetas, path.policy, start, still, cost)
    each = DynamicsBelief.known(belief.dynamics, [belief.context] * len(thetas), thetas)
    limits: Any = {"input_bounds": limits_of(input_bounds, belief.dynamics)}
    best = np.array(solve_trajectory(each, cost, start, guess=path.policy, **limits).cost)
    searched = slice(_SEARCHED)  # whether the path is in the wrong valley
    anew = solve_trajectory(each[searched], cost, start, attempts=EVERYWHERE, **limits)
    best[searched] = np.minimum(best[searched], anew.cost)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.maximum(paid / np.minimum(best, paid) - 1, 0.0)  # NaN if both are infinite
    return np.where(np.isnan(excess), 0.0 if not np.any(paid) else np.inf, excess), paid


def require_episodes(cost: Any) -> None:
    """Refuse a cost that is not of episodes."""
    require(
        isinstance(cost, QuadraticCost),
        "nonlinear machines are planned for episodes: give a horizon, that is, a "
        f"QuadraticCost or TargetCost, not {shown(cost)}",
    )


def limits_of(bounds: Any, dynamics: Dynamics) -> Any:
    """Limits by the names of inputs, or as a pair."""
    if not isinstance(bounds, dict):
        return bounds
    names = dynamics.input_names
    require(
        set(bounds) == set(names),
        f"input_bounds must name the inputs {', '.join(names)}, not {', '.join(map(str, bounds))}",
    )
    return tuple(np.array([bounds[name][end] for name in names]) for end in (0, 1))


def _costs(
    belief: DynamicsBelief,
    thetas: Float[Array, "n d p"],
    policy: TrajectoryPolicy,
    start: Float[Array, " d"],
    shocks: Float[Array, "n steps d"],
    cost: QuadraticCost,
) -> Float[Array, " n"]:
    return _paid(play_draws(belief, thetas, policy, start, shocks), cost)


def _paid(runs: Trajectory, cost: QuadraticCost) -> Float[Array, " n"]:
    """What runs cost; infinite if they are lost."""
    lost = (np.abs(runs.states) >= FARTHEST).any((1, 2))
    return np.where(lost, np.inf, trajectory_cost(runs, cost))


def _extrapolation(
    decoder: Decoder,
    belief: DynamicsBelief,
    states: Float[Array, "steps d"],
    inputs: Float[Array, "steps m"],
) -> tuple[Float[Array, " steps"], Extrapolation]:
    """The score of every step, and of the one that asks for most."""
    steps = len(inputs)
    if not decoder.rows or not steps:
        return np.full(steps, np.inf), Extrapolation(np.inf, "outside the data", "")
    assert belief.dynamics is not None
    phi = belief.features(states, inputs)
    half = solve_triangle(decoder.factor, phi.T, transposed=True)
    whole = solve_triangle(decoder.factor, half).T  # V⁻¹φ
    shares = whole * phi * decoder.rows / phi.shape[-1]
    scores = np.maximum(shares.sum(-1), 0.0)
    at = int(scores.argmax())
    score, feature = float(scores[at]), belief.dynamics.feature_names[int(shares[at].argmax())]
    return scores, Extrapolation(score, place(score, _INSIDE, _EDGE), feature)


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
    if not np.isfinite(path.cost):
        raise UnsolvableError(why_no_path(belief, path))
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
