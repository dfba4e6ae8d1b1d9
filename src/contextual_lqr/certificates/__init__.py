"""For a machine never tried: its controller, how far to trust it, and what to run next."""

from contextual_lqr.certificates.certificate import Certificate, certify, certify_many
from contextual_lqr.certificates.experiment_design import rank_candidates, unexcited_directions

__all__ = ["Certificate", "certify", "certify_many", "rank_candidates", "unexcited_directions"]
