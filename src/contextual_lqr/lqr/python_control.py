"""Systems as python-control writes them. Its gains have the other sign, u = -K x."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.errors import MissingExtraError


def state_space(A: Float[Array, "d d"], B: Float[Array, "d m"], dt: float | bool) -> Any:
    """x' = A x + B u with all states as outputs, a `control.StateSpace` of this sampling time."""
    try:
        import control
    except ImportError as error:
        raise MissingExtraError("python-control", "control") from error
    d, m = B.shape
    return control.StateSpace(A, B, np.eye(d), np.zeros((d, m)), dt)
