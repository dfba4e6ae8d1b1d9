"""Heating a room to its set point on a cold morning: two thermal masses, one heater.

State [1, air (K), walls (K)], temperatures above the set point; input the heater (kW). It is 20 K
colder outside than the set point. The room's air has a capacity of 0.5 kWh/K and gives its heat to
the walls over 0.4 kW/K; the walls have the capacity C, and lose heat over the conductance U:

    0.5 air'  = 0.4 (walls - air) + heater
    C walls'  = 0.4 (air - walls) + U (-20 - walls)

the model with two resistances and two capacities that Bacher and Madsen, "Identifying suitable
models for the heat dynamics of buildings" (2011), call TiTe. Time is in hours. It is affine in 1,
1/C and U/C; one step of it, exp(A dt), is so nearly, because the walls are slow.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.context import FeatureContext
from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.fleets.physics import checked_ranges, physical_fleet

AIR, EXCHANGE, OUTSIDE = 0.5, 0.4, -20.0


def heating(
    capacity: tuple[float, float] = (2.0, 8.0),
    loss: tuple[float, float] = (0.05, 0.2),
    dt: float = 0.25,
    horizon: int = 48,
    noise: float = 0.05,
) -> Fleet:
    """Walls with a capacity (kWh/K) and a heat loss (kW/K); `noise` is a standard deviation (K)."""
    ranges = checked_ranges({"capacity": capacity, "loss": loss})

    def equations(context: Mapping[str, float]) -> tuple[Array, Array]:
        C, U = context["capacity"], context["loss"]
        A, B = np.zeros((3, 3)), np.zeros((3, 1))
        A[1] = 0, -EXCHANGE / AIR, EXCHANGE / AIR
        A[2] = U * OUTSIDE / C, EXCHANGE / C, -(EXCHANGE + U) / C
        B[1] = 1 / AIR
        return A, B

    return physical_fleet(
        equations,
        FeatureContext(["1", "1/capacity", "10*loss/capacity"], states=3, inputs=1, bounds=ranges),
        dt,
        horizon,
        noise,
        weights=([0.0, 1.0, 0.0], [0.1]),
        start=[1.0, -4.0, -6.0],
        states=("constant", "air [K]", "walls [K]"),
        inputs=("heater [kW]",),
        units={"capacity": "kWh/K", "loss": "kW/K"},
        state_limit=(2.0, 25.0, 25.0),
    )
