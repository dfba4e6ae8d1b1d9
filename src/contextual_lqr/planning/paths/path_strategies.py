"""What the strategies choose for machines that are not linear: paths instead of gains alone.

While there are fewer observations than unknowns, inputs that excite. From then on iterative LQR on
the expected machine, hedged more or less by the covariance along the path. `Cautious` judges the
candidates, and doing nothing, by roll-outs on draws of the posterior; re-planned step by step, the
search begins from the rest of the path before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.lqr.target_cost import about_target
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy
from contextual_lqr.planning.paths.path_roll_out import play_draws
from contextual_lqr.planning.paths.trajectory import TrajectorySolution, solve_trajectory
from contextual_lqr.planning.problem import Choice, PlanningProblem

if TYPE_CHECKING:
    from contextual_lqr.planning.cautious import Cautious

ATTEMPTS = 13  # first guesses: four times of arrival, each by three ways round
_HOLDS = 20  # how many times exciting inputs change in an episode, about
_LARGEST = float(np.finfo(float).max)


def planned_path(
    problem: PlanningProblem, *, aversion: float, warm: TrajectoryPolicy | None = None
) -> TrajectorySolution:
    """The path of the expected machine; from scratch, or from the one before."""
    machine = problem.machine
    assert isinstance(machine, DynamicsBelief)
    found = solve_trajectory(
        machine,
        problem.cost,
        problem.start,
        input_bounds=problem.input_bounds,
        aversion=aversion,
        guess=warm,
        attempts=1 if warm is not None else ATTEMPTS,
    )
    if warm is not None and not np.isfinite(found.cost):
        return planned_path(problem, aversion=aversion)
    return found


def certain_path(problem: PlanningProblem, rng: np.random.Generator, dither: float) -> Choice:
    """The path of the expected machine as if it were the true one, with dither."""
    if not problem.machine.identified:
        return exciting(problem, rng)
    path = _continued(problem, 0.0)
    m, steps = problem.cost.input_size, problem.cost.horizon - 1
    covariance = np.broadcast_to(dither**2 * np.eye(m), (steps, m, m))
    return _choice(path, float(path.cost), covariance if dither else None)


def drawn_path(problem: PlanningProblem, rng: np.random.Generator) -> Choice:
    """The path of one draw of the posterior."""
    machine = problem.machine
    assert isinstance(machine, DynamicsBelief)
    if not machine.identified:
        return exciting(problem, rng)
    theta = machine.draw(1, rng)[0]
    believed = DynamicsBelief.known(machine.dynamics, machine.context, theta)  # type: ignore[arg-type]
    path = solve_trajectory(
        believed, problem.cost, problem.start, input_bounds=problem.input_bounds, attempts=ATTEMPTS
    )
    return replace(_choice(path, float(path.cost), None), theta=theta)


def cautious_path(rule: Cautious, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
    """Among paths that hedge more or less, and doing nothing, what is good on the draws."""
    machine = problem.machine
    assert isinstance(machine, DynamicsBelief)
    if not machine.identified:
        return exciting(problem, rng)
    paths = [planned_path(problem, aversion=0.0)]
    for aversion in rule.aversions:
        paths.append(planned_path(problem, aversion=aversion, warm=paths[-1].policy))
    candidates = [one.policy for one in paths] + [_idle(problem)]
    aversions = [0.0, *rule.aversions, np.inf]
    n, steps = rule.draws + rule.stress, problem.cost.horizon - 1
    stretch = np.repeat([1.0, rule.stretch], [rule.draws, rule.stress])
    thetas = machine.draw(n, rng, stretch=stretch)
    shocks = rng.standard_normal((n, steps, len(problem.start))) * np.sqrt(
        np.diagonal(machine.noise)
    )
    runs = [play_draws(machine, thetas, one, problem.start, shocks) for one in candidates]
    costs = np.stack([_costs(problem, run) for run in runs])
    plain = costs[:, : rule.draws]
    score = np.quantile(plain, rule.level, axis=1, method="higher")
    refused = ~(costs.max(1) <= rule.max_cost_ratio * np.median(plain[-1]))
    if rule.state_limit is not None:
        beyond = [(np.abs(run.states) > rule.state_limit).any((1, 2)).mean() for run in runs]
        refused |= np.array(beyond) > 1 - rule.confidence
    refused[-1] = False  # doing nothing is what remains
    best = int(np.argmin(np.where(refused, np.inf, score)))
    path = paths[best] if best < len(paths) else None
    return Choice(
        candidates[best],
        min(float(np.median(plain[best])), _LARGEST),
        diagnostics={
            "aversion": float(aversions[best]),
            "upper_cost": min(float(score[best]), _LARGEST),
            "refused": int(refused.sum()),
            "path": "idle" if path is None else path.reason or "converged",
        },
    )


def next_input(
    rule: Cautious, problem: PlanningProblem, rng: np.random.Generator
) -> Float[Array, " m"]:
    """The first input of the path for the rest of the episode, hedged as little as `rule` does."""
    if not problem.machine.identified:
        if "exciting" not in problem.memory:
            problem.memory["exciting"] = exciting(problem, rng).policy
        policy = problem.memory["exciting"]
        step = policy.inputs.shape[0] - problem.cost.horizon + 1
        return np.asarray(policy(step, problem.start))
    return _continued(problem, rule.aversions[0]).policy(0, problem.start)


def exciting(problem: PlanningProblem, rng: np.random.Generator) -> Choice:
    """Inputs anywhere within their limits, held for a while, to learn anything at all."""
    cost = about_target(problem.cost)
    steps, m = cost.horizon - 1, cost.input_size
    change = rng.random((steps, m)) < min(1.0, _HOLDS / max(steps, 1))
    place = np.cumsum(change, 0, dtype=np.int64)
    levels = rng.uniform(-1, 1, (steps + 1, m))
    wave = np.take_along_axis(levels, place, 0)
    if problem.input_bounds is not None and np.isfinite(problem.input_bounds).all():
        low, high = problem.input_bounds
        inputs = (low + high) / 2 + (high - low) / 2 * wave
    else:  # a tenth of the size at which inputs cost as much as the start does
        e, _ = cost.errors(problem.start[None], np.zeros((0, m)))
        paid = float(e[0] @ cost.Q.mean(0) @ e[0])
        weight = np.einsum("tii->i", cost.R) / max(steps, 1)
        inputs = 0.1 * np.sqrt(paid / np.where(weight > 0, weight, np.inf)) * wave
        if problem.input_bounds is not None:
            inputs = np.clip(inputs, *problem.input_bounds)
    policy = _without_feedback(problem, inputs)
    return Choice(policy, _LARGEST, diagnostics={"path": "exciting inputs"})


def _continued(problem: PlanningProblem, aversion: float) -> TrajectorySolution:
    """The path from here, beginning from the rest of the last one of this episode, if any."""
    last, steps = problem.memory.get("path"), problem.cost.horizon - 1
    warm = None if last is None else last.rest(last.inputs.shape[0] - steps)
    found = planned_path(problem, aversion=aversion, warm=warm)
    problem.memory["path"] = found.policy
    return found


def _idle(problem: PlanningProblem) -> TrajectoryPolicy:
    inputs = np.array(about_target(problem.cost).input_target)
    if problem.input_bounds is not None:
        inputs = np.clip(inputs, *problem.input_bounds)
    return _without_feedback(problem, inputs)


def _without_feedback(problem: PlanningProblem, inputs: Array) -> TrajectoryPolicy:
    steps, m = inputs.shape
    d = len(problem.start)
    still = np.repeat(problem.start[None], steps + 1, 0)
    gains, angles = np.zeros((steps, m, d)), about_target(problem.cost).angles
    return TrajectoryPolicy(still, inputs, gains, angles, problem.input_bounds)


def _costs(problem: PlanningProblem, run: Trajectory) -> Float[Array, " draws"]:
    return np.asarray(trajectory_cost(run, problem.cost))


def _choice(path: TrajectorySolution, promised: float, dither: Array | None) -> Choice:
    said = {"path": path.reason or "converged"}
    return Choice(path.policy, min(promised, _LARGEST), dither=dither, diagnostics=said)
