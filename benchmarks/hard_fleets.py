"""Fleets that are hard for an agent: unstable machines, many states, long episodes, odd units."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy import ndarray as Array

import contextual_lqr as clqr
from contextual_lqr.fleets import FLEETS, Fleet
from contextual_lqr.fleets.physics import Ranges, evenly, steady_cost

Equations = Callable[[Mapping[str, float]], tuple[Array, Array]]


def euler_fleet(
    equations: Equations,
    features: list[str],
    ranges: Ranges,
    dt: float,
    horizon: int,
    noise: float,
    weights: tuple[list[float], list[float]],
    start: list[float],
) -> Fleet:
    """Machines x' = x + dt (A x + B u), so that a law in features of A and B is exact."""

    def step(context: Mapping[str, float]) -> tuple[Array, Array]:
        A, B = equations(context)
        return np.eye(len(A)) + dt * A, dt * B

    d = len(start)
    return Fleet(
        context_map=clqr.FeatureContext(features, bounds=ranges).sized(d, len(weights[1])),
        cost=steady_cost(horizon, *map(np.array, weights)),
        start=np.array(start),
        noise=noise**2 * np.eye(d),
        sample_context=evenly(ranges),
        _truth=step,
    )


def levitator() -> Fleet:
    """A magnet below a coil: gap, velocity, current; voltage. Open-loop 1.17 to 1.33 a step."""

    def equations(c: Mapping[str, float]) -> tuple[Array, Array]:
        pull = 23.1 / c["mass"]
        A = np.array([[0, 1, 0], [pull, 0, -pull], [0, 0, -10.0]])
        return A, np.array([[0], [0], [10.0]])

    ranges = {"mass": (0.53, 2.0)}
    return euler_fleet(
        equations, ["1", "1/mass"], ranges, 0.05, 40, 0.01, ([1, 1, 0.1], [0.1]), [1, 0, 0]
    )


def segway() -> Fleet:
    """Position, velocity, tilt, tilt rate; force. Open-loop 1.22 to 1.41 a step."""

    def equations(c: Mapping[str, float]) -> tuple[Array, Array]:
        A, B = np.zeros((4, 4)), np.zeros((4, 1))
        A[0, 1] = A[2, 3] = 1
        A[1, 2], A[3, 2] = -2.0 / c["mass"], 9.81 / c["length"]
        B[1, 0], B[3, 0] = 5.0 / c["mass"], -5.0 / (c["mass"] * c["length"])
        return A, B

    ranges = {"mass": (0.7, 1.5), "length": (0.58, 2.03)}
    features = ["1", "1/mass", "1/length", "1/(mass*length)"]
    weights = ([1, 0.1, 10, 0.1], [0.1])
    return euler_fleet(equations, features, ranges, 0.1, 40, 0.01, weights, [0.5, 0, 0.2, 0])


def drivetrain() -> Fleet:
    """Motor speed, twist of the shaft, load speed; torque. A weakly damped resonance."""

    def equations(c: Mapping[str, float]) -> tuple[Array, Array]:
        J, k = c["inertia"], c["stiffness"]
        A = np.array([[-0.2, -k, 0], [1, 0, -1], [0, k / J, -0.1 / J]])
        return A, np.array([[1.0], [0], [0]])

    ranges = {"inertia": (1.0, 5.0), "stiffness": (2.0, 8.0)}
    features = ["1", "stiffness", "1/inertia", "stiffness/inertia"]
    return euler_fleet(equations, features, ranges, 0.1, 30, 0.01, ([1, 1, 1], [0.1]), [1, 0, 0.5])


def many_states() -> Fleet:
    """Six masses between two walls, pushed at four of them: d = 12, m = 4."""
    n, T = 6, 2 * np.eye(6) - np.eye(6, k=1) - np.eye(6, k=-1)
    pushed = np.eye(n)[:, [0, 2, 3, 5]]

    def equations(c: Mapping[str, float]) -> tuple[Array, Array]:
        w = 1 / c["mass"]
        A = np.block([[np.zeros((n, n)), np.eye(n)], [-w * T, -0.3 * w * T]])
        return A, np.vstack((np.zeros_like(pushed), w * pushed))

    ranges = {"mass": (0.5, 2.0)}
    start = [*np.sin(np.pi * np.arange(1, 7) / 7), *np.zeros(6)]
    weights = ([1.0] * 12, [0.1] * 4)
    return euler_fleet(equations, ["1", "1/mass"], ranges, 0.2, 30, 0.005, weights, start)


def long_episodes() -> Fleet:
    """A servo of which an episode has 200 states."""

    def equations(c: Mapping[str, float]) -> tuple[Array, Array]:
        A = np.array([[0, 1], [0, -0.5 / c["inertia"]]])
        return A, np.array([[0], [1 / c["inertia"]]])

    ranges = {"inertia": (0.5, 3.0)}
    return euler_fleet(
        equations, ["1", "1/inertia"], ranges, 0.1, 200, 0.01, ([1, 0.1], [0.1]), [1, 0]
    )


HARD: dict[str, Callable[[], Fleet]] = {
    **FLEETS,
    "levitator": levitator,
    "segway": segway,
    "drivetrain": drivetrain,
    "d = 12, m = 4": many_states,
    "horizon 200": long_episodes,
}

SCALES = (100.0, 1.0, 0.01)


def rescaled(fleet: Fleet, scales: tuple[float, ...] = SCALES) -> Fleet:
    """The same machines, with states and inputs in other units: `scales`, over and over."""
    d, m = fleet.cost.state_size, fleet.cost.input_size
    D, E = np.resize(scales, d), np.resize(scales, m)
    truth = fleet._truth

    def step(context: Mapping[str, float]) -> tuple[Array, Array]:
        if callable(truth):
            A, B = truth(context)
        else:
            A, B = np.hsplit(truth @ fleet.context_map.matrix(context), [d])
        return D[:, None] * A / D, D[:, None] * B / E

    cost = clqr.QuadraticCost(
        fleet.cost.Q / np.outer(D, D), fleet.cost.R / np.outer(E, E), indefinite=False
    )
    limit = fleet.state_limit
    return replace(
        fleet,
        cost=cost,
        start=D * fleet.start,
        noise=np.outer(D, D) * fleet.noise,
        _truth=step,
        state_limit=None if limit is None else tuple(D * np.asarray(limit)),
    )
