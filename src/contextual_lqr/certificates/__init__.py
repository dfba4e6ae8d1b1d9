"""For a machine never tried: its controller, how far to trust it, and what to run next."""

from contextual_lqr.certificates.backtest import backtest
from contextual_lqr.certificates.backtest_records import Backtest
from contextual_lqr.certificates.certificate import Certificate, CostBound
from contextual_lqr.certificates.certify import certify, certify_many
from contextual_lqr.certificates.experiment_design import rank_candidates, unexcited_directions
from contextual_lqr.certificates.gain_schedule import GainSchedule, gain_schedule
from contextual_lqr.certificates.paths.path_backtest import PathBacktest
from contextual_lqr.certificates.paths.path_calibration import PathCalibration
from contextual_lqr.certificates.paths.path_certificate import PathCertificate
from contextual_lqr.certificates.plots import (
    plot_backtest,
    plot_certificates,
    plot_closed_loop,
    plot_tradeoff,
)

__all__ = [
    "Backtest",
    "Certificate",
    "CostBound",
    "GainSchedule",
    "PathBacktest",
    "PathCalibration",
    "PathCertificate",
    "backtest",
    "certify",
    "certify_many",
    "gain_schedule",
    "plot_backtest",
    "plot_certificates",
    "plot_closed_loop",
    "plot_tradeoff",
    "rank_candidates",
    "unexcited_directions",
]
