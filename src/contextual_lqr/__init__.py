"""One decoder from context to dynamics, learnt from a fleet; control of machines never tried."""

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
from contextual_lqr.problem import LinearPolicy, LinearSystem, QuadraticCost, Spread, Trajectory

__all__ = [
    "BlockContext",
    "ConfidenceSet",
    "ConstantRadius",
    "ContextError",
    "ContextMap",
    "ContextualLQRError",
    "CostGradient",
    "Decoder",
    "DeterminantRadius",
    "FeatureContext",
    "FormatError",
    "FunctionContext",
    "InputError",
    "LinearPolicy",
    "LinearSystem",
    "PaperRadius",
    "QuadraticCost",
    "Solution",
    "Spread",
    "Status",
    "Trajectory",
    "UnsolvableError",
    "cost_gradient",
    "optimal_cost",
    "policy_cost",
    "set_threads",
    "simulate",
    "solve",
]
