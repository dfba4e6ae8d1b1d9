"""Nonlinear fleets: a pendulum, a cart and pole, a car on a slippery curve, two tanks.

Each is its equations of motion in explicit Euler steps of `dt`: x' = x + dt f(context, x, u). So
their features are exact, and what is to be learnt are the numbers before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contextual_lqr.context import FeatureDynamics
from contextual_lqr.fleets.nonlinear_fleet import NonlinearFleet
from contextual_lqr.fleets.physics import checked_ranges, evenly, require_steps
from contextual_lqr.lqr.target_cost import TargetCost

_Terms = Mapping[str, Mapping[str, float]]
_Range = tuple[float, float]
GRAVITY = 9.81


def pendulum_swing_up(
    mass: _Range = (0.7, 1.3),
    length: _Range = (0.7, 1.3),
    dt: float = 0.05,
    horizon: int = 101,
    noise: float = 1e-3,
) -> NonlinearFleet:
    """Pendulums (kg, m) that hang, to be brought upright by a torque too weak to lift them."""
    turned = "(mass*length**2)"
    return _fleet(
        {
            "angle": {"speed": 1.0},
            "speed": {
                "sin(angle)/length": 1.5 * GRAVITY,
                f"torque/{turned}": 3.0,
                f"speed/{turned}": -0.1,
            },
        },
        ["torque"],
        checked_ranges({"mass": mass, "length": length}),
        (dt, horizon, noise),
        weights=([1.0, 0.1], [0.01]),
        start=[np.pi, 0.0],
        limits=([-3.0], [3.0]),
        names=(("angle [rad]", "speed [rad/s]"), ("torque [N m]",)),
        units={"mass": "kg", "length": "m"},
        angles=[0],
    )


def cart_pole_swing_up(
    cart_mass: _Range = (0.8, 1.5),
    pole_mass: _Range = (0.1, 0.4),
    length: _Range = (0.4, 0.8),
    dt: float = 0.02,
    horizon: int = 126,
    noise: float = 1e-3,
) -> NonlinearFleet:
    """Carts with poles (kg; m to the tip's mass) that hang, to be swung up at the cart's home."""
    S, C = "sin(angle)", "cos(angle)"
    D = f"(cart_mass + pole_mass*{S}**2)"
    return _fleet(
        {
            "position": {"velocity": 1.0},
            "angle": {"rate": 1.0},
            "velocity": {
                f"force/{D}": 1.0,
                f"pole_mass*length*{S}*rate**2/{D}": 1.0,
                f"pole_mass*{S}*{C}/{D}": -GRAVITY,
            },
            "rate": {
                f"force*{C}/(length*{D})": -1.0,
                f"pole_mass*rate**2*{S}*{C}/{D}": -1.0,
                f"(cart_mass + pole_mass)*{S}/(length*{D})": GRAVITY,
            },
        },
        ["force"],
        checked_ranges({"cart_mass": cart_mass, "pole_mass": pole_mass, "length": length}),
        (dt, horizon, noise),
        weights=([2.0, 2.0, 0.1, 0.1], [0.01]),
        start=[0.0, np.pi, 0.0, 0.0],
        limits=([-20.0], [20.0]),
        names=(
            ("position [m]", "angle [rad]", "velocity [m/s]", "angular rate [rad/s]"),
            ("force [N]",),
        ),
        units={"cart_mass": "kg", "pole_mass": "kg", "length": "m"},
        angles=[1],
    )


def slippery_curve(
    speed: _Range = (8.0, 16.0),
    grip: _Range = (0.3, 0.9),
    curve: _Range = (0.0, 0.015),
    dt: float = 0.05,
    horizon: int = 61,
    noise: float = 1e-3,
) -> NonlinearFleet:
    """Cars (m/s; friction of the road; 1/m of its curve) that start off the centre of the lane.

    Tyres grip as much as the road allows: grip · tanh(8 α / grip), α the angle of their slip.
    """
    front = "grip*tanh(8*((drift + 1.2*yaw_rate)/speed - steering)/grip)"
    rear = "grip*tanh(8*(drift - 1.4*yaw_rate)/(speed*grip))"
    return _fleet(
        {
            "offset": {"drift": 1.0, "speed*sin(heading)": 1.0},
            "heading": {"yaw_rate": 1.0, "speed*curve": -1.0},
            "drift": {front: -0.54 * GRAVITY, rear: -0.46 * GRAVITY, "speed*yaw_rate": -1.0},
            "yaw_rate": {front: -0.4 * GRAVITY, rear: 0.4 * GRAVITY},
        },
        ["steering"],
        checked_ranges({"speed": speed, "grip": grip, "curve": curve}, positive=False),
        (dt, horizon, noise),
        weights=([1.0, 5.0, 0.0, 0.1], [5.0]),
        start=[1.5, 0.0, 0.0, 0.0],
        limits=([-0.5], [0.5]),
        names=(
            ("offset [m]", "heading [rad]", "drift [m/s]", "yaw rate [rad/s]"),
            ("steering [rad]",),
        ),
        units={"speed": "m/s", "grip": "", "curve": "1/m"},
    )


def two_tanks(
    upper_area: _Range = (0.5, 2.0),
    lower_area: _Range = (0.5, 2.0),
    dt: float = 0.5,
    horizon: int = 81,
    noise: float = 1e-3,
) -> NonlinearFleet:
    """Tanks (m²), one above the other, each draining with the root of its level: hold the lower."""
    upper, lower = "sqrt(max(upper, 0.001))", "sqrt(max(lower, 0.001))"
    return _fleet(
        {
            "upper": {f"{upper}/upper_area": -0.3, "pump/upper_area": 1.0},
            "lower": {f"{upper}/lower_area": 0.3, f"{lower}/lower_area": -0.3},
        },
        ["pump"],
        checked_ranges({"upper_area": upper_area, "lower_area": lower_area}),
        (dt, horizon, noise),
        weights=([0.01, 1.0], [0.1]),
        start=[0.2, 0.2],
        limits=([0.0], [0.8]),
        names=(("upper [m]", "lower [m]"), ("pump [m³/s]",)),
        units={"upper_area": "m²", "lower_area": "m²"},
        target=([1.0, 1.0], [0.3]),
    )


def _fleet(
    terms: _Terms,
    inputs: Sequence[str],
    ranges: dict[str, _Range],
    steps: tuple[float, int, float],
    *,
    weights: tuple[ArrayLike, ArrayLike],
    start: ArrayLike,
    limits: tuple[ArrayLike, ArrayLike],
    names: tuple[tuple[str, ...], tuple[str, ...]],
    units: Mapping[str, str],
    angles: Sequence[int] = (),
    target: tuple[ArrayLike, ArrayLike] = (0.0, 0.0),
) -> NonlinearFleet:
    """A fleet by its equations: of each state the terms of its rate of change, with numbers."""
    dt, horizon, noise = steps
    require_steps(dt, horizon, noise)
    lists = {state: list(dict.fromkeys((state, *own))) for state, own in terms.items()}
    dynamics = FeatureDynamics(lists, states=list(terms), inputs=list(inputs), bounds=ranges)
    theta = np.zeros((len(terms), len(dynamics.feature_names)))
    for row, (state, own) in enumerate(terms.items()):
        theta[row, dynamics.feature_names.index(state)] = 1.0
        for text, number in own.items():
            theta[row, dynamics.feature_names.index(text)] += dt * number
    Q, R = (np.diag(np.asarray(one, float)) for one in weights)
    options: dict[str, Any] = {"target": target[0], "input_target": target[1], "angles": angles}
    return NonlinearFleet(
        context_map=dynamics,
        cost=TargetCost([Q] * horizon, [R] * (horizon - 1), **options),
        start=np.array(start, float),
        noise=noise**2 * np.eye(len(terms)),
        input_bounds=(np.array(limits[0], float), np.array(limits[1], float)),
        sample_context=evenly(ranges),
        _truth=theta,
        states=names[0],
        inputs=names[1],
        units=units,
    )
