"""Paths of least cost for machines that are not linear, by iterative LQR in the kernels.

    x' = Θ φ(context, x, u),  a cost about a target,  low ≤ u ≤ high

Each member of a batch is a machine, a start, a cost and a first guess. What a path costs has many
valleys (a pendulum swings up to the left or to the right, at once or after three swings), and a
descent ends in that of its first guess: `attempts` begins from several, and keeps the cheapest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.checks import (
    as_count,
    as_input_bounds,
    as_number,
    as_numbers,
    broadcast_batches,
    record,
    require,
    shown,
)
from contextual_lqr.display import Displayed, batch_fact
from contextual_lqr.errors import UnsolvableError
from contextual_lqr.lqr.batches import flatten, unflatten
from contextual_lqr.lqr.problem import QuadraticCost, as_states
from contextual_lqr.lqr.status import PATH_REASONS, Status, failure
from contextual_lqr.lqr.target_cost import TURN, about_target
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy
from contextual_lqr.planning.paths.feature_batch import FeatureBatch
from contextual_lqr.planning.paths.first_guesses import first_guesses


@dataclass(frozen=True, eq=False, repr=False)
class TrajectorySolution(Displayed):
    """A planned path for every member of a batch, and how its search ended.

    A member whose search failed says so in `status`, and why in `reason`; its path is the best
    that was found, with infinite cost if there is none.

    Attributes
    ----------
    policy : TrajectoryPolicy
        The path, its inputs, and the gains about it.
    cost : array, (...)
        What the path costs, without noise.
    hedge : array, (...)
        What is added by not knowing the machine, at the `aversion` that was asked for.
    status, iterations : array of int, (...)
        A `Status` for each member, and how many steps its search took.
    """

    policy: TrajectoryPolicy
    cost: Float[Array, "*batch"]
    hedge: Float[Array, "*batch"]
    status: Int[Array, "*batch"]
    iterations: Int[Array, "*batch"]

    @property
    def states(self) -> Float[Array, "*batch H d"]:
        """The planned path."""
        return self.policy.states

    @property
    def inputs(self) -> Float[Array, "*batch steps m"]:
        """The inputs along it."""
        return self.policy.inputs

    @property
    def gains(self) -> Float[Array, "*batch steps m d"]:
        """How inputs answer to what states are away from it; 0 where an input is at a limit."""
        return self.policy.gains

    @property
    def solved(self) -> np.bool_ | Bool[Array, "*batch"]:
        """Whether each search converged."""
        return np.asarray(self.status == kernels.SOLVED)[()]

    @cached_property
    def reason(self) -> str:
        """Which member failed first, and why; empty if all converged."""
        return failure(self.status, reasons=PATH_REASONS) if np.any(self.status) else ""

    def _facts(self) -> dict[str, object]:
        facts = self.policy._facts()
        if not self.status.ndim:
            ended = PATH_REASONS.get(Status(int(self.status)), "converged")
            return {**facts, "cost": f"{float(self.cost):.4g}", "status": ended}
        converged = f"{int(self.solved.sum())} of {self.status.size} converged"
        return {**facts, **batch_fact(self.status.shape), "status": converged}


def solve_trajectory(
    machine: DynamicsBelief,
    cost: QuadraticCost,
    start: ArrayLike,
    *,
    input_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    aversion: float = 0.0,
    guess: ArrayLike | TrajectoryPolicy | None = None,
    attempts: int = 1,
    iterations: int = 200,
    tolerance: float = 1e-9,
    check: bool = False,
) -> TrajectorySolution:
    """The path of least cost of a machine that is not linear, and gains about it.

    By iterative LQR on the expected machine: linearise along the path, solve, step as far as the
    cost falls, until it no longer does. Of linear machines it is `solve`, in one step.

    Parameters
    ----------
    machine : DynamicsBelief
        What `decoder.machine(context)` says, or a batch of machines.
    cost : TargetCost or QuadraticCost
        What the path costs, about its target or about 0.
    start : array_like, (..., d)
        The first state, or a batch of them, which broadcasts against machines and costs.
    input_bounds : pair of array_like, () or (m,), optional
        The lowest and the highest inputs, which the path keeps.
    aversion : float
        How much to hedge against what is not known of the machine, in posterior covariances along
        the path: a hedged path keeps to what the logs have seen.
    guess : array_like (..., H-1, m) or TrajectoryPolicy, optional
        The inputs to begin with, or a policy about an earlier path; no inputs unless given.
    attempts : int
        How many first guesses to try, the given one first; the others arrive at the target sooner
        or later, and stay. The cheapest path is kept.
    iterations : int
        The most steps of one search.
    tolerance : float
        A search has converged when a step is expected to save less than this share of the cost.
    check : bool
        Raise if a member has not converged; otherwise its `status` says so, and nothing is raised.

    Returns
    -------
    TrajectorySolution
        Path, inputs, gains, cost and status of each member.

    Raises
    ------
    InputError
        If sizes or batches do not fit together.
    UnsolvableError
        With `check`: it names the first member that has not converged, and why.

    Examples
    --------
    >>> pendulum = clqr.FeatureDynamics(
    ...     {"angle": ["angle", "speed"], "speed": ["speed", "sin(angle)/length", "torque"]},
    ...     states=["angle", "speed"],
    ...     inputs=["torque"],
    ... )
    >>> theta = [[1.0, 0.1, 0.0, 0.0], [0.0, 1.0, -1.0, 0.1]]
    >>> machine = clqr.DynamicsBelief.known(pendulum, {"length": 1.0}, theta)
    >>> upright = clqr.TargetCost(
    ...     Q=[np.diag([1.0, 0.1])] * 60 + [100 * np.eye(2)],
    ...     R=[[[0.01]]] * 60,
    ...     target=[np.pi, 0.0],
    ...     angles=[0],
    ... )
    >>> path = clqr.solve_trajectory(
    ...     machine, upright, [0.0, 0.0], input_bounds=(-8, 8), attempts=4
    ... )
    >>> path  # doctest: +ELLIPSIS
    <TrajectorySolution: states 2, inputs 1, steps 60, cost ..., status converged>
    >>> print(f"{abs(path.states[-1, 0]) / np.pi:.2f} half turns")
    1.00 half turns
    """
    require(
        isinstance(machine, DynamicsBelief),
        f"machine must be what decoder.machine says of dynamics, not {shown(machine)}",
    )
    require(isinstance(cost, QuadraticCost), f"cost must be a TargetCost, not {shown(cost)}")
    cost = about_target(cost)
    assert machine.dynamics is not None
    d, m = len(machine.dynamics.state_names), len(machine.dynamics.input_names)
    require(
        (cost.state_size, cost.input_size) == (d, m),
        f"the machine has {d} states and {m} inputs, but the cost is for {cost.state_size} states "
        f"and {cost.input_size} inputs",
    )
    attempts = as_count("attempts", attempts, 1, 10_000)
    iterations = as_count("iterations", iterations, 0)
    aversion, tolerance = as_number("aversion", aversion), as_number("tolerance", tolerance)
    require(aversion >= 0, f"aversion must be at least 0, not {aversion}")
    require(tolerance >= 0, f"tolerance must be at least 0, not {tolerance}")
    x = as_states("start", start, d)
    bounds = None if input_bounds is None else as_input_bounds(input_bounds, m)
    T = cost.horizon - 1
    warm = _as_guess(guess, T, m, d)
    shape = broadcast_batches(
        {
            "machine": machine.mean.shape[:-2],
            "cost": cost.batch_shape,
            "target": cost.target.shape[:-2],
            "start": x.shape[:-1],
            "guess": warm.inputs.shape[:-2],
        }
    )
    covariances = aversion * machine.covariances if aversion and T else None
    problem = kernels.PathProblem(
        flatten(machine.mean, 2, shape),
        None if covariances is None else flatten(covariances, 3, shape),
        flatten(cost.Q, 3, shape),
        flatten(cost.R, 3, shape),
        None if cost.N is None else flatten(cost.N, 3, shape),
        flatten(cost.target, 2, shape),
        flatten(cost.input_target, 2, shape),
        None if bounds is None else bounds[0][None],
        None if bounds is None else bounds[1][None],
        np.where(np.isin(np.arange(d), cost.angles), TURN, 0.0),
    )
    n = math.prod(shape)
    full = np.ascontiguousarray(np.broadcast_to(x, (*shape, d))).reshape(n, d)
    batch = FeatureBatch(machine, shape)
    options: dict[str, Any] = {"iterations": iterations, "tolerance": tolerance}
    options["threads"] = kernels.threads()
    found = kernels.ilqr(problem, batch.features, full, _spread(warm, shape), **options)
    for other in first_guesses(attempts - 1, problem, batch.features, full):
        found = _cheaper(found, kernels.ilqr(problem, batch.features, full, other, **options))
    solution = TrajectorySolution(
        record(
            object.__new__(TrajectoryPolicy),
            states=unflatten(found.states, shape),
            inputs=unflatten(found.inputs, shape),
            gains=unflatten(found.gains, shape),
            angles=cost.angles,
            input_bounds=bounds,
        ),
        unflatten(np.where(np.isfinite(found.cost), found.cost, np.inf), shape),
        unflatten(found.hedge, shape),
        unflatten(found.status, shape),
        unflatten(found.iterations, shape),
    )
    if check and solution.reason:
        raise UnsolvableError(solution.reason)
    return solution


def _as_guess(guess: ArrayLike | TrajectoryPolicy | None, T: int, m: int, d: int) -> kernels.Guess:
    """The first guess, with batch axes of its own."""
    if guess is None:
        return kernels.Guess(np.zeros((T, m)))
    if isinstance(guess, TrajectoryPolicy):
        require(
            guess.gains.shape[-3:] == (T, m, d),
            f"the guess is of {guess.gains.shape[-3]} steps, {guess.gains.shape[-1]} states and "
            f"{guess.gains.shape[-2]} inputs, but the problem of {T}, {d} and {m}",
        )
        return kernels.Guess(guess.inputs, guess.states, guess.gains)
    inputs = as_numbers("guess", guess, "(..., H-1, m)", 2)
    require(
        inputs.shape[-2:] == (T, m), f"guess must have shape (..., {T}, {m}), not {inputs.shape}"
    )
    return kernels.Guess(inputs)


def _spread(guess: kernels.Guess, shape: tuple[int, ...]) -> kernels.Guess:
    """The same for every member."""
    n = math.prod(shape)
    parts = [
        None if one is None else np.broadcast_to(one, (*shape, *one.shape[-core:]))
        for one, core in zip(guess, (2, 2, 3), strict=True)
    ]
    return kernels.Guess(
        *(
            None if one is None else np.ascontiguousarray(one).reshape(n, *one.shape[len(shape) :])
            for one in parts
        )  # type: ignore[arg-type]
    )


def _cheaper(one: kernels.Paths, other: kernels.Paths) -> kernels.Paths:
    """For each member the path of lower cost and hedge."""
    with np.errstate(invalid="ignore"):
        better = ~(one.cost + one.hedge <= other.cost + other.hedge)
    better &= np.isfinite(other.cost)
    for mine, others in zip(one, other, strict=True):
        mine[better] = others[better]
    return one
