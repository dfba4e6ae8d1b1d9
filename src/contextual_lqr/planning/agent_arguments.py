"""What an agent is made of, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import as_numbers, require, shown
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.target_cost import TargetCost
from contextual_lqr.planning import (
    CertaintyEquivalence,
    Optimism,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
)

_PAY_NO_HEED = (CertaintyEquivalence, Optimism, SampledOptimism, ThompsonSampling)
_OF_LINEAR = (Optimism, SampledOptimism)


def as_level(cost: Any, noise_level: ArrayLike) -> Float[Array, " d"]:
    """The noise level of each state of such a cost."""
    require(isinstance(cost, QuadraticCost), f"cost must be a QuadraticCost, not {shown(cost)}")
    d = cost.state_size
    level = as_numbers("noise_level", noise_level, "() or (d,)", 0)
    require(
        level.shape in ((), (d,)) and (level >= 0).all() and level.max() > 0,
        f"noise_level must be positive, or {d} numbers with some of them 0, not {level}",
    )
    return np.broadcast_to(level, (d,))


def require_planned(curved: bool, cost: QuadraticCost, strategy: Any, incumbent: Any) -> None:
    """A strategy that can plan for such machines, linear or `curved`, and such a cost."""
    require(
        strategy is None or isinstance(strategy, Strategy),
        f"strategy must have choose and next_input, as Cautious() has, not {strategy!r}",
    )
    require(not cost.batch_shape, f"cost must be one, not a batch of shape {cost.batch_shape}")
    require(
        incumbent is None or not isinstance(strategy, _PAY_NO_HEED),
        f"{type(strategy).__name__} pays no heed to an incumbent: use Cautious",
    )
    require(
        not curved or (incumbent is None and not isinstance(strategy, _OF_LINEAR)),
        "of machines that are not linear, Cautious, CertaintyEquivalence and ThompsonSampling "
        "plan, and none with an incumbent",
    )
    require(
        curved or not isinstance(cost, TargetCost),
        "linear machines are held about 0: give a QuadraticCost",
    )
    d, limit = cost.state_size, np.shape(getattr(strategy, "state_limit", None) or 1.0)
    require(limit in ((), (d,)), f"state_limit must be a number or {d} of them, not {limit}")


def require_random(beta: Any, seed: Any) -> None:
    """A β, or a rule for it, and where draws come from."""
    require(
        beta is None or callable(beta) or 0 <= beta < np.inf,
        f"beta must be a finite number of at least 0, or a rule, not {beta!r}",
    )
    require(
        isinstance(seed, np.random.Generator) or (isinstance(seed, int | np.integer) and seed >= 0),
        f"seed must be a whole number of at least 0, or a Generator, not {seed!r}",
    )
