"""Rules for choosing what to play: one file each, all behind the protocol `Strategy`."""

from contextual_lqr.planning.cautious import Cautious
from contextual_lqr.planning.certainty_equivalence import CertaintyEquivalence
from contextual_lqr.planning.optimism import Optimism
from contextual_lqr.planning.problem import Choice, PlanningProblem, PlansEpisodes, Strategy
from contextual_lqr.planning.sampled_optimism import SampledOptimism
from contextual_lqr.planning.thompson_sampling import ThompsonSampling

__all__ = [
    "Cautious",
    "CertaintyEquivalence",
    "Choice",
    "Optimism",
    "PlanningProblem",
    "PlansEpisodes",
    "SampledOptimism",
    "Strategy",
    "ThompsonSampling",
]
