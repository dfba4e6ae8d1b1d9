"""Cart and pole, linearised about upright: keep the pole up and bring the cart home.

State [position (m), velocity (m/s), angle (rad), angular rate (rad/s)], input a force in units of
10 N on the cart. A uniform pole of length L is hinged on the cart without friction. With l = L / 2,
cart mass M, pole mass m and D = 4 M + m, near upright

    angle''    = 3 g (M + m) / (l D) angle - 3 / (l D) force
    position'' = -3 g m / D angle + 4 / D force

which are the equations of Florian, "Correct equations for the dynamics of the cart-pole system"
(2007), for small angles. They are affine in 1, (M + m)/(l D), 1/(l D), m/D and 1/D; one step of
them, exp(A dt), is so only nearly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.fleets.physics import by_column, checked_ranges, physical_fleet

GRAVITY, FORCE_UNIT = 9.81, 10.0


def cart_pole(
    cart_mass: tuple[float, float] = (0.5, 2.0),
    pole_mass: tuple[float, float] = (0.1, 0.5),
    length: tuple[float, float] = (0.6, 2.0),
    dt: float = 0.04,
    horizon: int = 25,
    noise: float = 2e-3,
) -> Fleet:
    """Carts (kg) with poles (kg, m); `noise` is a standard deviation in the unit of each state."""
    ranges = checked_ranges({"cart_mass": cart_mass, "pole_mass": pole_mass, "length": length})
    D = "(4*cart_mass + pole_mass)"
    gravity = f"2*(cart_mass + pole_mass)/(length*{D})"
    pull = f"pole_mass/{D}"
    context_map = by_column(
        states=[["1"], ["1"], ["1", gravity, pull], ["1", gravity, pull]],
        inputs=[[f"4/{D}", f"2/(length*{D})"]],
        bounds=ranges,
    )

    def equations(context: Mapping[str, float]) -> tuple[Array, Array]:
        M, m, half = context["cart_mass"], context["pole_mass"], context["length"] / 2
        D = 4 * M + m
        A, B = np.zeros((4, 4)), np.zeros((4, 1))
        A[0, 1] = A[2, 3] = 1
        A[1, 2], A[3, 2] = -3 * GRAVITY * m / D, 3 * GRAVITY * (M + m) / (half * D)
        B[1, 0], B[3, 0] = FORCE_UNIT * 4 / D, -FORCE_UNIT * 3 / (half * D)
        return A, B

    return physical_fleet(
        equations,
        context_map,
        dt,
        horizon,
        noise,
        weights=([1.0, 0.1, 10.0, 0.1], [0.1]),
        start=[0.1, 0.0, 0.05, 0.0],
        states=("position [m]", "velocity [m/s]", "angle [rad]", "angular rate [rad/s]"),
        inputs=("force [10 N]",),
        units={"cart_mass": "kg", "pole_mass": "kg", "length": "m"},
        state_limit=(2.0, 6.0, 0.8, 5.0),
    )
