"""Contexts: from what is known of one machine to its context matrix G, in [A, B] = Θ G(context).

Or, where machines are not linear, to features of context, state and input: x' = Θ φ(c, x, u).
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from contextual_lqr.context.base import ContextMap
from contextual_lqr.context.block import BlockContext
from contextual_lqr.context.dynamics import Dynamics
from contextual_lqr.context.feature import FeatureContext
from contextual_lqr.context.feature_dynamics import FeatureDynamics
from contextual_lqr.context.function import FunctionContext
from contextual_lqr.context.function_dynamics import FunctionDynamics
from contextual_lqr.context.schedule import Schedule
from contextual_lqr.context.variables import shown
from contextual_lqr.errors import FormatError

__all__ = [
    "BlockContext",
    "ContextMap",
    "Dynamics",
    "FeatureContext",
    "FeatureDynamics",
    "FunctionContext",
    "FunctionDynamics",
    "Schedule",
    "context_map_from",
]

_DESCRIBABLE = {kind.__name__: kind for kind in (BlockContext, FeatureContext, FeatureDynamics)}


def context_map_from(description: Any) -> ContextMap:
    """The map that `describe` described, exact to the bit."""
    arguments = dict(description) if isinstance(description, Mapping) else {}
    kind = arguments.pop("kind", None)
    if not isinstance(kind, str) or kind not in _DESCRIBABLE:
        kinds = " or ".join(_DESCRIBABLE)
        raise FormatError(f"a context map has the kind {kinds}, unlike {shown(description)}")
    make: Callable[..., ContextMap] = _DESCRIBABLE[kind]
    fields = signature(make).parameters.keys()
    if odd := fields ^ arguments.keys():
        odd_ones, needed = (", ".join(sorted(map(str, keys))) for keys in (odd, fields))
        raise FormatError(f"a {kind} is described by {needed}; missing or unknown: {odd_ones}")
    try:
        return make(**arguments)
    except (TypeError, ValueError) as error:
        raise FormatError(f"the description of a {kind} is wrong: {error}") from error
