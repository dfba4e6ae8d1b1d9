"""From a fleet's logs to a decoder: the description of a fleet, its logs, what they teach."""

from contextual_lqr.logs.description import FleetDescription, Quantity
from contextual_lqr.logs.fitted import FittedFleet
from contextual_lqr.logs.places import DescriptionError

__all__ = ["DescriptionError", "FittedFleet", "FleetDescription", "Quantity"]
