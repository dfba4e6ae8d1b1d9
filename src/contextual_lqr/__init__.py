"""One decoder from context to dynamics, learnt from a fleet; control of machines never tried."""

from contextual_lqr.agent import Agent, Episode, Output
from contextual_lqr.certificates import (
    Certificate,
    blind_directions,
    certify,
    certify_many,
    rank_candidates,
)
from contextual_lqr.confidence import (
    ConfidenceSet,
    ConstantRadius,
    DeterminantRadius,
    PaperRadius,
)
from contextual_lqr.context import BlockContext, ContextMap, FeatureContext, FunctionContext
from contextual_lqr.decoder import Decoder
from contextual_lqr.errors import (
    ContextError,
    ContextualLQRError,
    FormatError,
    InputError,
    UnsolvableError,
)
from contextual_lqr.kernels import set_threads
from contextual_lqr.lqr import (
    CostGradient,
    Solution,
    Status,
    cost_gradient,
    optimal_cost,
    policy_cost,
    simulate,
    solve,
)
from contextual_lqr.plan import Plan
from contextual_lqr.problem import LinearPolicy, LinearSystem, QuadraticCost, Spread, Trajectory
from contextual_lqr.strategies import (
    Cautious,
    CertaintyEquivalence,
    Optimism,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
)

__all__ = [
    "Agent",
    "BlockContext",
    "Cautious",
    "CertaintyEquivalence",
    "Certificate",
    "ConfidenceSet",
    "ConstantRadius",
    "ContextError",
    "ContextMap",
    "ContextualLQRError",
    "CostGradient",
    "Decoder",
    "DeterminantRadius",
    "Episode",
    "FeatureContext",
    "FormatError",
    "FunctionContext",
    "InputError",
    "LinearPolicy",
    "LinearSystem",
    "Optimism",
    "Output",
    "PaperRadius",
    "Plan",
    "QuadraticCost",
    "SampledOptimism",
    "Solution",
    "Spread",
    "Status",
    "Strategy",
    "ThompsonSampling",
    "Trajectory",
    "UnsolvableError",
    "blind_directions",
    "certify",
    "certify_many",
    "cost_gradient",
    "optimal_cost",
    "policy_cost",
    "rank_candidates",
    "set_threads",
    "simulate",
    "solve",
]
