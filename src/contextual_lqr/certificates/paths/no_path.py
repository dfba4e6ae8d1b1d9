"""Why no path was found for a machine, in words."""

from __future__ import annotations

import numpy as np

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.errors import ContextError
from contextual_lqr.planning.paths.trajectory import TrajectorySolution


def why_no_path(belief: DynamicsBelief, path: TrajectorySolution) -> str:
    """What the first guess met: mostly a feature without a value.

    Raises
    ------
    ContextError
        If that is so at the start, where every path begins.
    """
    for step, (x, u) in enumerate(zip(path.states, path.inputs, strict=False)):
        if not np.isfinite(x).all():
            break
        try:
            belief.features(x, u)
        except ContextError as error:
            if not step:
                raise
            return f"no path was found: on the way of the first guess, {error}"
    return f"no path was found: {path.reason}"
