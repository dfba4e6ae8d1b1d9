"""Rules for choosing what to play: one file each, all behind the protocol `Strategy`."""

from contextual_lqr.strategies.cautious import Cautious
from contextual_lqr.strategies.certainty import CertaintyEquivalence
from contextual_lqr.strategies.optimistic import Optimism
from contextual_lqr.strategies.sampled import SampledOptimism
from contextual_lqr.strategies.strategy import Choice, PlansEpisodes, Situation, Strategy
from contextual_lqr.strategies.thompson import ThompsonSampling

__all__ = [
    "Cautious",
    "CertaintyEquivalence",
    "Choice",
    "Optimism",
    "PlansEpisodes",
    "SampledOptimism",
    "Situation",
    "Strategy",
    "ThompsonSampling",
]
