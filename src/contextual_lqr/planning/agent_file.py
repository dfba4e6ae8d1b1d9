"""An agent as numbers that a file can hold, and the agent of such numbers again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.confidence import BetaRule, ConstantBeta, DeterminantBeta, PaperBeta
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap
from contextual_lqr.errors import FormatError, OwnRuleError
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.target_cost import TargetCost
from contextual_lqr.planning.cautious import Cautious
from contextual_lqr.planning.certainty_equivalence import CertaintyEquivalence
from contextual_lqr.planning.incumbent import Incumbent
from contextual_lqr.planning.optimism import Optimism
from contextual_lqr.planning.problem import Strategy
from contextual_lqr.planning.region import restore
from contextual_lqr.planning.sampled_optimism import SampledOptimism
from contextual_lqr.planning.thompson_sampling import ThompsonSampling

if TYPE_CHECKING:
    from contextual_lqr.planning.agent import Agent

FORMAT_VERSION = 2
REMEMBERED = 1024  # decoders that `output` draws from: a sample of all, once there are more
_STRATEGIES = (Cautious, CertaintyEquivalence, Optimism, SampledOptimism, ThompsonSampling)
_BETAS = (ConstantBeta, DeterminantBeta, PaperBeta)
_KNOWN: dict[str, type[Any]] = {kind.__name__: kind for kind in (*_STRATEGIES, *_BETAS)}


def agent_state(agent: Agent) -> tuple[dict[str, Any], dict[str, Array]]:
    """All that an agent is: what JSON can hold, and its arrays."""
    decoder, arrays = agent.decoder.state()
    arrays |= {"Q": agent.cost.Q, "R": agent.cost.R, "start": agent.start}
    if agent.cost.N is not None:
        arrays["N"] = agent.cost.N
    if isinstance(agent.cost, TargetCost):
        arrays |= {"target": agent.cost.target, "input_target": agent.cost.input_target}
        arrays["angles"] = np.array(agent.cost.angles, np.int64)
    if agent.input_bounds is not None:
        arrays["input_bounds"] = np.stack(agent.input_bounds)
    arrays |= agent.region.state()
    if isinstance(agent.incumbent, np.ndarray):
        arrays["incumbent"] = agent.incumbent
    if agent._played:
        arrays |= {"played": np.stack(agent._played), "estimates": np.stack(agent._estimates)}
    state = {
        "decoder": decoder,
        "random": agent._rng.bit_generator.state,
        "strategy": written(agent.strategy),
        "beta": written(agent.beta),
        "indefinite": agent.cost.indefinite,
        "told_plans": agent._told_plans,
        "own_incumbent": callable(agent.incumbent),
        "own_beta": agent.beta is not None and written(agent.beta) is None,
    }
    return state, arrays


def restored(
    kind: type[Agent],
    state: Mapping[str, Any],
    arrays: Mapping[str, Array],
    name: str,
    context_map: ContextMap | None,
    strategy: Strategy | None,
    beta: BetaRule | None,
    incumbent: Incumbent | None,
) -> Agent:
    """The agent of a state; `name` says in an error where it came from."""
    try:
        for what, given, own in (
            ("strategy", strategy, state["strategy"] is None),
            ("beta", beta, state["own_beta"]),
            ("incumbent", incumbent, state.get("own_incumbent", False)),
        ):
            if own and given is None:
                raise OwnRuleError(
                    f"{name} was saved with a {what} of your own, which cannot be written "
                    f"down: give the same one as {what}="
                )
        decoder = Decoder.from_state(state["decoder"], arrays, context_map, name)
        m = arrays["R"].shape[-1]
        bounds = arrays.get("input_bounds")
        require(bounds is None or bounds.shape == (2, m), "its input_bounds are not a pair")
        agent = kind(
            decoder.context_map,
            cost_of(state, arrays),
            arrays["start"],
            read(state["strategy"]) if strategy is None else strategy,
            decoder.noise_level,
            decoder.regularisation,
            read(state["beta"]) if beta is None else beta,
            input_bounds=None if bounds is None else (bounds[0], bounds[1]),
            region=arrays.get("region"),
            incumbent=arrays.get("incumbent") if incumbent is None else incumbent,
        )
        restore(agent.region, arrays, arrays["data"].shape)
        decoder.context_map = agent.decoder.context_map
        agent.decoder = decoder
        played, estimates = (arrays.get(n, np.zeros((0,))) for n in ("played", "estimates"))
        require(
            played.shape == estimates.shape
            and (not len(played) or played.shape[1:] == decoder.estimate.shape)
            and np.isfinite(played).all()
            and np.isfinite(estimates).all(),
            "its decoders played and estimated do not fit together",
        )
        agent._played, agent._estimates = list(played), list(estimates)
        agent._told_plans = state["told_plans"]
        require(
            type(agent._told_plans) is int and agent._told_plans >= len(played) <= REMEMBERED,
            f"it counts {agent._told_plans!r} plans, and holds {len(played)}",
        )
        agent._rng.bit_generator.state = state["random"]
    except (FormatError, OwnRuleError):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"{name} is damaged: {error}") from error
    return agent


def cost_of(state: Mapping[str, Any], arrays: Mapping[str, Array]) -> QuadraticCost:
    """The cost of an agent of such numbers."""
    Q, R, N = arrays["Q"], arrays["R"], arrays.get("N")
    if "target" not in arrays:
        return QuadraticCost(Q, R, N, indefinite=state["indefinite"])
    return TargetCost(
        Q,
        R,
        N,
        target=arrays["target"],
        input_target=arrays["input_target"],
        angles=arrays["angles"].tolist(),
    )


def written(rule: Any) -> Any:
    """A rule as its name and fields; None for one that is not ours, or holds one that is not."""
    try:
        return _written(rule)
    except LookupError:
        return None


def _written(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return list(value)
    if value is None or isinstance(value, int | float | str):
        return value
    if _KNOWN[type(value).__name__] is not type(value):
        raise LookupError
    fields = {one.name: _written(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return {"kind": type(value).__name__, "fields": fields}


def read(text: Any) -> Any:
    """The rule that `written` wrote."""
    if isinstance(text, list):
        return tuple(text)
    if not isinstance(text, dict):
        return text
    if text.get("kind") not in _KNOWN or not isinstance(text.get("fields"), dict):
        raise FormatError(f"there is no rule {text.get('kind')!r}")
    return _KNOWN[text["kind"]](**{name: read(value) for name, value in text["fields"].items()})
