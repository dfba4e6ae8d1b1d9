"""One decoder from context to dynamics, learnt from a fleet; control of machines never tried."""

from importlib import import_module

from contextual_lqr.belief.confidence import ConfidenceSet, ConstantBeta, DeterminantBeta, PaperBeta
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.output_history import OutputHistory
from contextual_lqr.belief.output_memory import OutputController, OutputMemory
from contextual_lqr.belief.plots import plot_decoder
from contextual_lqr.belief.prior import Prior
from contextual_lqr.belief.schedule import ScheduleBelief
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
from contextual_lqr.checks import in_words as _in_words
from contextual_lqr.context import (
    BlockContext,
    ContextMap,
    Dynamics,
    FeatureContext,
    FeatureDynamics,
    FunctionContext,
    FunctionDynamics,
    Schedule,
)
from contextual_lqr.deployment.controller import Controller
from contextual_lqr.errors import (
    ContextError,
    ContextualLQRError,
    FormatError,
    InputError,
    UnsolvableError,
)
from contextual_lqr.kernels import set_threads
from contextual_lqr.lqr.long_run import StationarySolution
from contextual_lqr.lqr.problem import (
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    QuadraticCost,
    Trajectory,
)
from contextual_lqr.lqr.rollout import simulate
from contextual_lqr.lqr.solve import (
    CostGradient,
    Solution,
    cost_gradient,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.lqr.stationary import StationaryCost, StationaryPolicy
from contextual_lqr.lqr.status import Status
from contextual_lqr.lqr.target_cost import TargetCost
from contextual_lqr.lqr.time_varying import TimeVaryingSystem
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy
from contextual_lqr.planning import (
    Cautious,
    CertaintyEquivalence,
    Optimism,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
)
from contextual_lqr.planning.agent import Agent, Output
from contextual_lqr.planning.episode import Episode
from contextual_lqr.planning.paths.trajectory import TrajectorySolution, solve_trajectory
from contextual_lqr.planning.plan import Plan

__all__ = [
    "Agent",
    "Backtest",
    "BlockContext",
    "Cautious",
    "CertaintyEquivalence",
    "Certificate",
    "ConfidenceSet",
    "ConstantBeta",
    "ContextError",
    "ContextMap",
    "ContextualLQRError",
    "Controller",
    "CostBound",
    "CostGradient",
    "Decoder",
    "DeterminantBeta",
    "Dynamics",
    "DynamicsBelief",
    "Episode",
    "FeatureContext",
    "FeatureDynamics",
    "FittedFleet",
    "FleetDescription",
    "FormatError",
    "FunctionContext",
    "FunctionDynamics",
    "GainSchedule",
    "InputError",
    "LinearPolicy",
    "LinearSystem",
    "MachineBelief",
    "ModelUncertainty",
    "Optimism",
    "Output",
    "OutputController",
    "OutputHistory",
    "OutputMemory",
    "PaperBeta",
    "PathBacktest",
    "PathCalibration",
    "PathCertificate",
    "Plan",
    "Prior",
    "QuadraticCost",
    "SampledOptimism",
    "Schedule",
    "ScheduleBelief",
    "Solution",
    "StationaryCost",
    "StationaryPolicy",
    "StationarySolution",
    "Status",
    "Strategy",
    "Study",
    "TargetCost",
    "ThompsonSampling",
    "TimeVaryingSystem",
    "Trajectory",
    "TrajectoryPolicy",
    "TrajectorySolution",
    "UnsolvableError",
    "backtest",
    "certify",
    "certify_many",
    "cost_gradient",
    "fit",
    "gain_schedule",
    "optimal_cost",
    "plot_backtest",
    "plot_certificates",
    "plot_closed_loop",
    "plot_decoder",
    "plot_tradeoff",
    "policy_cost",
    "rank_candidates",
    "set_threads",
    "simulate",
    "solve",
    "solve_trajectory",
    "trajectory_cost",
    "unexcited_directions",
]

_LATER = {  # what takes longer to import than all the rest, or needs an extra
    "FittedFleet": "data",
    "FleetDescription": "data",
    "fit": "data",
    "Study": "study",
}

for _name in __all__:  # an argument of the wrong kind is named in a sentence of ours
    if _name not in _LATER:
        globals()[_name] = _in_words(globals()[_name])


def __getattr__(name: str) -> object:
    """What is for logs and studies is imported when it is asked for."""
    if name in _LATER:
        room = import_module(f"contextual_lqr.{_LATER[name]}")
        return _in_words(getattr(room, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
