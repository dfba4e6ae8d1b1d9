"""Simulated fleets with a known truth."""

from collections.abc import Callable

from contextual_lqr.fleets.cart_pole import cart_pole
from contextual_lqr.fleets.chain import chain
from contextual_lqr.fleets.fleet import (
    Fleet,
    misfit,
    true_decoder,
    true_schedule,
    true_system,
)
from contextual_lqr.fleets.heating import heating
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
"""Every fleet by name; all their arguments have defaults."""

__all__ = [
    "FLEETS",
    "Fleet",
    "cart_pole",
    "chain",
    "heating",
    "misfit",
    "path_following",
    "quadrotor",
    "true_decoder",
    "true_schedule",
    "true_system",
    "vehicle",
]
