"""A quadrotor in a vertical plane, about hover, with a payload below it.

State [1, x (m), z (m), tilt (rad), x rate, z rate (m/s), tilt rate (rad/s)]; inputs the thrust
beyond the weight of the empty vehicle (N), and the torque in units of 0.1 N m. A payload is fixed
some way (the arm) below a vehicle of 0.5 kg. With m the mass of both and J the inertia about their
common centre of mass, which is where x and z are taken, near hover (a small tilt, and a thrust near
the weight of both)

    x'' = g tilt,   z'' = thrust / m - g payload / m,   tilt'' = torque / J
    m = 0.5 + payload,   J = 0.005 + 0.5 payload / m arm²

the planar model of every textbook (for instance Mahony, Kumar and Corke, "Multirotor Aerial
Vehicles", 2012). The constant first coordinate carries the payload's weight: without a reaction
the vehicle sinks. Powers of A vanish beyond the second, so exp(A dt) is linear in 1, 1/m and 1/J
exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.context import FeatureContext
from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.fleets.physics import checked_ranges, physical_fleet

GRAVITY, EMPTY, INERTIA, TORQUE_UNIT = 9.81, 0.5, 0.005, 0.1


def quadrotor(
    payload: tuple[float, float] = (0.0, 0.4),
    arm: tuple[float, float] = (0.05, 0.2),
    dt: float = 0.05,
    horizon: int = 30,
    noise: float = 2e-3,
) -> Fleet:
    """Payloads (kg) on arms (m); `noise` is a standard deviation in the unit of each state."""
    ranges = checked_ranges({"payload": payload, "arm": arm}, positive=False)
    mass = f"({EMPTY} + payload)"
    inertia = f"({INERTIA} + {EMPTY}*payload*arm**2/{mass})"
    features = {"1": "1", "1/mass": f"{EMPTY}/{mass}", "1/inertia": f"{INERTIA}/{inertia}"}

    def equations(context: Mapping[str, float]) -> tuple[Array, Array]:
        m = EMPTY + context["payload"]
        J = INERTIA + EMPTY * context["payload"] / m * context["arm"] ** 2
        A, B = np.zeros((7, 7)), np.zeros((7, 2))
        A[1, 4] = A[2, 5] = A[3, 6] = 1
        A[4, 3], A[5, 0] = GRAVITY, -GRAVITY * context["payload"] / m
        B[5, 0], B[6, 1] = 1 / m, TORQUE_UNIT / J
        return A, B

    return physical_fleet(
        equations,
        FeatureContext(features, states=7, inputs=2, bounds=ranges),
        dt,
        horizon,
        noise,
        weights=([0, 1, 1, 1, 0.1, 0.1, 0.1], [0.02, 0.02]),
        start=[1, 0.5, -0.5, 0, 0, 0, 0],
        states=(
            "constant",
            *("x [m]", "z [m]", "tilt [rad]", "x rate [m/s]", "z rate [m/s]", "tilt rate [rad/s]"),
        ),
        inputs=("thrust [N]", "torque [0.1 N m]"),
        units={"payload": "kg", "arm": "m"},
        state_limit=(2.0, 5.0, 8.0, 1.5, 8.0, 10.0, 8.0),
    )
