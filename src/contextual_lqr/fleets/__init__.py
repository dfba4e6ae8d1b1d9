"""Simulated fleets with a known truth."""

from collections.abc import Callable

from contextual_lqr.fleets.cart_pole import cart_pole
from contextual_lqr.fleets.chain import chain
from contextual_lqr.fleets.fleet import Fleet, misfit, true_decoder, true_schedule, true_system
from contextual_lqr.fleets.heating import heating
from contextual_lqr.fleets.nonlinear import (
    cart_pole_swing_up,
    pendulum_swing_up,
    slippery_curve,
    two_tanks,
)
from contextual_lqr.fleets.nonlinear_fleet import NonlinearFleet, true_machine
from contextual_lqr.fleets.path_following import path_following
from contextual_lqr.fleets.quadrotor import quadrotor
from contextual_lqr.fleets.vehicle import vehicle

FLEETS: dict[str, Callable[..., Fleet]] = {
    "path-following": path_following,
    "cart-pole": cart_pole,
    "quadrotor": quadrotor,
    "chain": chain,
    "vehicle": vehicle,
    "heating": heating,
}
"""Every linear fleet by name; all their arguments have defaults."""

NONLINEAR_FLEETS: dict[str, Callable[..., NonlinearFleet]] = {
    "pendulum-swing-up": pendulum_swing_up,
    "cart-pole-swing-up": cart_pole_swing_up,
    "slippery-curve": slippery_curve,
    "two-tanks": two_tanks,
}
"""Every nonlinear fleet, by name."""

__all__ = [
    "FLEETS",
    "NONLINEAR_FLEETS",
    "Fleet",
    "NonlinearFleet",
    "cart_pole",
    "cart_pole_swing_up",
    "chain",
    "heating",
    "misfit",
    "path_following",
    "pendulum_swing_up",
    "quadrotor",
    "slippery_curve",
    "true_decoder",
    "true_machine",
    "true_schedule",
    "true_system",
    "two_tanks",
    "vehicle",
]
