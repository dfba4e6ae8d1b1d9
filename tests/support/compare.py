"""How results are compared, and the problems most tests begin with."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy import ndarray as Array

from contextual_lqr import (
    LinearSystem,
    QuadraticCost,
    cost_gradient,
    kernels,
    optimal_cost,
    solve,
)
from problems import (
    recipes,
)

single = recipes(batches=st.just(()))
I2 = np.eye(2)


def t(M: Array) -> Array:
    return M.swapaxes(-1, -2)


def assert_near(found: Any, expected: Any, tolerance: float) -> None:
    """Relative to the largest entry."""
    largest = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * largest)


def same_bits(a: Any, b: Any) -> bool:
    if kernels.compiled is None:  # only the compiled kernels promise the same bits in any batch
        return np.allclose(a, b, rtol=1e-9, atol=0, equal_nan=True)
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def everything(system: LinearSystem, cost: QuadraticCost, start: Array) -> dict[str, Any]:
    solution, gradient = solve(system, cost), cost_gradient(system, cost, start)
    return {
        **{"gains": solution.policy.gains, "P": solution.value_matrices},
        **{"c": solution.value_constants, "cost": solution.cost(start)},
        **{"optimal cost": optimal_cost(system, cost, start), **gradient._asdict()},
        **{"status": solution.status, "failed_step": solution.failed_step},
    }
