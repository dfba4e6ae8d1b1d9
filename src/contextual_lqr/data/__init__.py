"""From a fleet's logs to a decoder: the description of a fleet, its logs, what they teach."""

from contextual_lqr.data.description import FleetDescription, Quantity
from contextual_lqr.data.fitted import FittedFleet
from contextual_lqr.data.toml_errors import DescriptionError

__all__ = ["DescriptionError", "FittedFleet", "FleetDescription", "Quantity"]
