"""Simulated fleets with a known truth."""

from contextual_lqr.fleets.fleet import Fleet, true_decoder, true_system
from contextual_lqr.fleets.path_following import path_following

__all__ = ["Fleet", "path_following", "true_decoder", "true_system"]
