"""For a machine never tried: its controller, how far to trust it, and what to run next."""

from contextual_lqr.certificates.advice import blind_directions, rank_candidates
from contextual_lqr.certificates.certificate import Certificate, certify, certify_many

__all__ = ["Certificate", "blind_directions", "certify", "certify_many", "rank_candidates"]
