"""For a machine never tried: its controller, how far to trust it, and what to run next."""

from contextual_lqr.certificates.backtest import Backtest, backtest
from contextual_lqr.certificates.certificate import Certificate, CostBound, certify, certify_many
from contextual_lqr.certificates.experiment_design import rank_candidates, unexcited_directions

__all__ = [
    "Backtest",
    "Certificate",
    "CostBound",
    "backtest",
    "certify",
    "certify_many",
    "rank_candidates",
    "unexcited_directions",
]
