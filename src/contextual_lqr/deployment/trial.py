"""A controller on posterior draws: what it costs, whether it grows, what its limits add.

What a set-point and integrators do is seen where they act: the run goes from the start to the
target, on plausible machines, with noise, clipped as the controller clips. The excess is that of
the gain over each draw's own best, for states and integrators about rest. Without an integrator a
draw rests beside the target, because the feed-forward is that of the machine as expected:

    x = F x + B (ū - K x̄) + offset        how far x[held] is from the target is `missed`
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.certificates.certification import QUANTILE
from contextual_lqr.certificates.margins import settling_steps
from contextual_lqr.certificates.prediction import ClosedLoopPrediction, require_runs
from contextual_lqr.certificates.saturation import LARGEST, Saturation, compared, paired_noise
from contextual_lqr.deployment.controller import Controller
from contextual_lqr.deployment.task import Task
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.solve import optimal_cost, policy_cost
from contextual_lqr.lqr.stationary import StationaryPolicy


@dataclass(frozen=True)
class Trial:
    """At the 95 % quantile of draws: the excess; the share of draws that grow; the limits.

    `missed` is how far each held state may rest from its target, at the same quantile.
    """

    excess: float
    growing: float
    saturation: Saturation
    missed: Float[Array, " held"]


def tried(
    controller: Controller, drawn: LinearSystem, start: Float[Array, " d"], rng: np.random.Generator
) -> Trial:
    """The controller on drawn machines, each with a noise of its own."""
    task, n = controller.task, len(controller.task.moving)
    controller.meet(start)
    systems, cost = task.with_integrators(*task.parts(drawn)[:2])
    moving, d = list(task.moving), systems.state_size
    noise = np.zeros((len(drawn.A), d, d))
    noise[:, :n, :n] = drawn.noise[:, moving][:, :, moving]
    systems = LinearSystem.unchecked(systems.A, systems.B, noise)
    loops = systems.A + systems.B @ controller.gain
    modes = np.abs(np.linalg.eigvals(loops)).max(-1)
    paid = np.asarray(policy_cost(StationaryPolicy(controller.gain), systems, cost))
    best = np.asarray(optimal_cost(systems, cost))
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.maximum((paid - best) / best, 0.0)
    excess = np.where(np.isfinite(excess), excess, np.inf)
    usual = float(np.median(np.minimum(modes, 1 - 1e-6)))
    steps = settling_steps([np.log(0.5) / np.log(max(usual, 1e-3))])
    shocks = np.sqrt(np.einsum("nii->ni", drawn.noise[:, moving][:, :, moving]))[:, None]
    shocks = shocks * paired_noise(rng, len(modes), steps, n)
    free = run(controller, drawn, start, shocks, clip=False)
    held = run(controller, drawn, start, shocks)
    return Trial(
        float(np.quantile(excess, QUANTILE, method="higher")),
        float((modes >= 1).mean()),
        compared(_cost(controller, *free[:2]), _cost(controller, *held[:2]), held[2], QUANTILE),
        np.quantile(_missed(controller, drawn, start), QUANTILE, axis=0, method="higher"),
    )


def _missed(
    controller: Controller, drawn: LinearSystem, start: Float[Array, " d"]
) -> Float[Array, "draws held"]:
    """How far held states rest from their targets; what is integrated does not."""
    task, n = controller.task, len(controller.task.moving)
    A, B, _ = task.parts(drawn)
    rest, feed = controller.rest
    K, held = controller.gain[:, :n], list(task.held)
    if task.integrated or not held:  # integrators hold what they can, and how is a matter of gain
        return np.zeros((len(A), len(held)))
    push = _offset(task, drawn, start) + (B @ (feed - K @ rest)[:, None])[..., 0]
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.linalg.solve(np.eye(n) - A - B @ K, push[..., None])[..., 0]
    target = np.array(list(controller.target.values()))
    return np.asarray(np.abs(x[:, held] - target))


def _offset(task: Task, systems: LinearSystem, start: Float[Array, " d"]) -> Float[Array, "*b n"]:
    """What constants and disturbances add at every step."""
    push = task.disturbance(systems) @ start[list(task.measured)]
    return np.asarray(task.parts(systems)[2] + push)


def predicted_run(
    controller: Controller,
    belief: MachineBelief,
    start: Float[Array, " d"],
    steps: int,
    rng: np.random.Generator,
    *,
    runs: int = 500,
    band: float = 0.9,
) -> ClosedLoopPrediction:
    """The band of runs to the set-point on posterior draws; what is constant stays at its start."""
    require_runs(runs, band)
    drawn = belief.draw(runs, rng)
    controller.meet(start)
    moving, d, m = list(controller.task.moving), len(start), len(controller.gain)
    shocks = np.sqrt(np.einsum("nii->ni", drawn.noise[:, moving][:, :, moving]))[:, None]
    shocks = shocks * rng.standard_normal((runs, steps, len(moving)))
    moved, inputs, clipped = run(controller, drawn, start, shocks)
    expected = run(controller, belief.system, start, np.zeros((steps, len(moving))))

    def whole(part: Array) -> Array:
        states = np.broadcast_to(start, (*part.shape[:-1], d)).copy()
        states[..., moving] = part
        return states

    gain = np.zeros((m, d))
    gain[:, moving] = controller.gain[:, : len(moving)]
    return ClosedLoopPrediction.of(
        StationaryPolicy(gain).over(steps),
        (whole(moved), inputs),
        (whole(expected[0]), expected[1]),
        _cost(controller, moved, inputs),
        band,
        LARGEST,
        float(clipped.mean()),
    )


def run(
    controller: Controller,
    systems: LinearSystem,
    start: Float[Array, " d"],
    shocks: Float[Array, "*runs steps n"],
    *,
    clip: bool = True,
) -> tuple[Float[Array, "*runs H n"], Float[Array, "*runs steps m"], Bool[Array, "*runs steps"]]:
    """States that move, inputs, and which steps are clipped, on many machines at once."""
    task, gain = controller.task, controller.gain
    A, B, _ = task.parts(systems)
    offset = _offset(task, systems, start)
    rest, feed = controller.rest
    (*batch, steps, n), m = shocks.shape, len(gain)
    low, high = (task.limits.low, task.limits.high) if clip else (-np.inf, np.inf)
    x = np.broadcast_to(start[list(task.moving)], (*batch, n))
    q = (x - rest) @ controller.lead.T
    own = [task.held.index(i) for i in task.integrated]
    target = np.array(list(controller.target.values()))[own] if own else np.zeros(0)
    states, inputs = np.empty((*batch, steps + 1, n)), np.empty((*batch, steps, m))
    clipped = np.zeros((*batch, steps), bool)
    states[..., 0, :] = x
    with np.errstate(over="ignore", invalid="ignore"):
        for h in range(steps):
            asked = feed + (x - rest) @ gain[:, :n].T + q @ gain[:, n:].T
            u = np.clip(asked, low, high)
            away = x[..., list(task.integrated)] - target
            push = away @ gain[:, n:].T
            winds = (((asked > high) & (push > 0)) | ((asked < low) & (push < 0))).any(-1)
            q = np.clip(np.where(winds[..., None], q, q + away), -LARGEST, LARGEST)
            moved = (A @ x[..., None] + B @ u[..., None])[..., 0] + offset
            x = moved + shocks[..., h, :]
            x = np.clip(np.where(np.isnan(x), LARGEST, x), -LARGEST, LARGEST)
            states[..., h + 1, :], inputs[..., h, :] = x, u
            clipped[..., h] = (u != asked).any(-1)
    return states, inputs, clipped


def _cost(
    controller: Controller, states: Float[Array, "*runs H n"], inputs: Float[Array, "*runs steps m"]
) -> Float[Array, "*runs"]:
    """Of states and inputs about rest."""
    cost, n = controller.task.cost_with_integrators, states.shape[-1]
    x, u = states - controller.rest[0], inputs - controller.rest[1]
    total = np.einsum("...hi,ij,...hj->...", x, cost.Q[:n, :n], x)
    total += np.einsum("...hi,ij,...hj->...", u, cost.R, u)
    if cost.N is not None:
        total += 2 * np.einsum("...hi,ij,...hj->...", x[..., :-1, :], cost.N[:n], u)
    return np.asarray(total)
