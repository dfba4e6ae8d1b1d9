"""From a fleet's logs to a decoder: the description of a fleet, its logs, what they teach."""

from contextual_lqr.data.description import FleetDescription, Quantity
from contextual_lqr.data.fitted_fleet import FittedFleet
from contextual_lqr.data.fitting import fit
from contextual_lqr.data.fleet_toml.first_description import describe_table
from contextual_lqr.data.fleet_toml.fleet_file import TEMPLATE
from contextual_lqr.data.fleet_toml.toml_errors import DescriptionError
from contextual_lqr.data.misfit import MachineReport, MisfitReport
from contextual_lqr.data.screening import LogReport
from contextual_lqr.data.survey import LogSurvey, QuantityReport, check_logs, survey_logs

__all__ = [
    "TEMPLATE",
    "DescriptionError",
    "FittedFleet",
    "FleetDescription",
    "LogReport",
    "LogSurvey",
    "MachineReport",
    "MisfitReport",
    "Quantity",
    "QuantityReport",
    "check_logs",
    "describe_table",
    "fit",
    "survey_logs",
]
