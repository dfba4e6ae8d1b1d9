"""A car that keeps its lane at constant speed: the single-track model, a known LPV benchmark.

State [lateral offset (m), its rate (m/s), heading error (rad), its rate (rad/s)] with respect to a
straight lane, input the steering angle in units of 0.1 rad. With mass m, speed v, cornering
stiffnesses c_f and c_r of the axles at distances f and r from the centre of mass, and m ρ² the yaw
inertia, equation 2.45 of Rajamani, "Vehicle Dynamics and Control" (2012), has entries that are
affine in 1, 1/m and 1/(m v):

    offset''  = [-(c_f + c_r) offset' - (f c_f - r c_r) heading'] / (m v)
                + [(c_f + c_r) heading + c_f steering] / m
    heading'' = [-(f c_f - r c_r) offset' - (f² c_f + r² c_r) heading'] / (m v ρ²)
                + [(f c_f - r c_r) heading + f c_f steering] / (m ρ²)

The tyres are stiff: at 15 m/s a light car forgets its lateral velocity within two or three steps.
So one step, exp(A dt), needs features of the second order too: 1/(m v)² for both rates, 1/(m² v)
for heading and steering.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.fleets.physics import by_column, checked_ranges, physical_fleet

# N/rad for each axle (two tyres); m; m². The figures are those of the book's passenger car.
FRONT, REAR, TO_FRONT, TO_REAR, GYRATION = 160_000.0, 160_000.0, 1.1, 1.58, 2873 / 1573
STEERING_UNIT = 0.1


def vehicle(
    mass: tuple[float, float] = (1000.0, 2500.0),
    speed: tuple[float, float] = (15.0, 35.0),
    dt: float = 0.03,
    horizon: int = 50,
    noise: float = 5e-3,
) -> Fleet:
    """Cars (kg) at speeds (m/s); `noise` is a standard deviation in the unit of each state."""
    ranges = checked_ranges({"mass": mass, "speed": speed})
    a, b = "(1500/mass)", "(30000/(mass*speed))"
    context_map = by_column(
        states=[
            ["1"],
            ["1", b, f"{b}**2"],
            ["1", a, f"{a}*{b}"],
            ["1", b, f"{b}**2"],
        ],
        inputs=[[a, f"{a}*{b}"]],
        bounds=ranges,
    )

    def equations(context: Mapping[str, float]) -> tuple[Array, Array]:
        m, v = context["mass"], context["speed"]
        both, turning = FRONT + REAR, TO_FRONT * FRONT - TO_REAR * REAR
        yaw = TO_FRONT**2 * FRONT + TO_REAR**2 * REAR
        A, B = np.zeros((4, 4)), np.zeros((4, 1))
        A[0, 1] = A[2, 3] = 1
        A[1, 1:] = -both / (m * v), both / m, -turning / (m * v)
        A[3, 1:] = np.array([-turning / (m * v), turning / m, -yaw / (m * v)]) / GYRATION
        B[[1, 3], 0] = FRONT / m * STEERING_UNIT * np.array([1, TO_FRONT / GYRATION])
        return A, B

    return physical_fleet(
        equations,
        context_map,
        dt,
        horizon,
        noise,
        weights=([1.0, 0.05, 1.0, 0.05], [0.5]),
        start=[0.5, 0.0, 0.0, 0.0],
        states=("offset [m]", "offset rate [m/s]", "heading [rad]", "heading rate [rad/s]"),
        inputs=("steering [0.1 rad]",),
        units={"mass": "kg", "speed": "m/s"},
        state_limit=(3.0, 6.0, 0.8, 3.0),
    )
