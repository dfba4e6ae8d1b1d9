"""A lower bound on the cost of every machine in the confidence set, by Lagrangian relaxation.

Every Θ of the set moves a step by ξ = (Θ - Θ̂) z with ‖ξ‖² ≤ β zᵀV⁻¹z, z = G y and y = [x; u]. So
for any multipliers λ_h ≥ 0 the linear-quadratic problem of the estimate with ξ as a further input,

    x' = A x + B u + ξ + w,    stage cost + λ_h (‖ξ‖² - β yᵀ Y y),   Y = GᵀV⁻¹G,

costs at most what the most optimistic Θ costs. It is concave in λ; where it has no finite minimum
the bound is -∞. λ = 0 lets ξ do everything: it gives the floor, the cost of what cannot be avoided.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.confidence import ConfidenceSet
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.checks import record
from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost
from contextual_lqr.lqr.solve import optimal_cost, solve
from contextual_lqr.planning.problem import PlanningProblem

_SCALES = np.logspace(-4, 3, 10)
_POWERS = np.array([4.0, 2.0, 1.0, 0.5, 0.2, 0.05, 0.01])[:, None]


def lower_bound(
    problem: PlanningProblem, plausible: ConfidenceSet, rounds: int = 4, tolerance: float = 1e-2
) -> float:
    """The largest bound found over λ, one multiplier a step.

    At the maximum E‖ξ_h‖² = β E[yᵀYy] where λ_h > 0. The fixed point that multiplies λ_h by the
    root of their ratio is iterated, the best of several powers of the factor taken each time.
    """
    steps = problem.cost.horizon - 1
    relaxed = _Relaxed(problem, plausible)
    nominal = solve(problem.systems(plausible.estimate), problem.cost)
    shapes = [np.ones(steps), 1 / np.arange(1.0, steps + 1)]
    if nominal.solved:
        shapes.append(np.einsum("hii->h", nominal.value_matrices[1:]))
    tried = (_SCALES[:, None, None] * np.stack(shapes)).reshape(-1, steps)
    bounds = relaxed.bounds(tried)
    best = int(bounds.argmax())
    top, multipliers = float(bounds[best]), tried[best]
    for _ in range(rounds if np.isfinite(top) else 0):
        moved, allowed = relaxed.moments(multipliers)
        factor = np.log(np.maximum(moved, 1e-300) / np.maximum(allowed, 1e-300)) / 2
        tried = multipliers * np.exp(_POWERS * np.clip(factor, -1.5, 1.5))
        bounds = relaxed.bounds(tried)
        best = int(bounds.argmax())
        gain = float(bounds[best]) - top
        if not gain > 0:
            break
        top, multipliers = float(bounds[best]), tried[best]
        if gain < tolerance * abs(top):
            break
    return max(top, problem.floor)


class _Relaxed:
    """The relaxed problem, for any multipliers."""

    def __init__(self, problem: PlanningProblem, plausible: ConfidenceSet) -> None:
        self._cost, self._start = problem.cost, problem.start
        nominal = problem.systems(plausible.estimate)
        self._d, self._m = nominal.state_size, nominal.input_size
        B = np.concatenate([nominal.B, np.eye(self._d)], 1)
        self._system = LinearSystem.unchecked(nominal.A.copy(), B, problem.noise)
        half = solve_triangle(plausible.factor, problem.context_matrix, transposed=True)
        self._Y = plausible.beta * (half.T @ half)

    def bounds(self, multipliers: Float[Array, "n steps"]) -> Float[Array, " n"]:
        """The relaxed problem's optimal cost; -inf where it has none."""
        cost = self._relaxed_cost(multipliers)
        J = optimal_cost(self._system, cost, self._start)
        return np.where(np.isfinite(J), J, -np.inf)

    def moments(
        self, multipliers: Float[Array, " steps"]
    ) -> tuple[Float[Array, " steps"], Float[Array, " steps"]]:
        """E‖ξ_h‖² and β E[yᵀYy] when the relaxed problem is played optimally."""
        gains = solve(self._system, self._relaxed_cost(multipliers[None])).policy.gains[0]
        d, m, W = self._d, self._m, self._system.noise
        F = self._system.A + self._system.B @ gains
        X = np.empty((len(gains), d, d))  # E[x xᵀ] at each step
        X[0] = np.outer(self._start, self._start)
        for h in range(len(gains) - 1):
            X[h + 1] = F[h] @ X[h] @ F[h].T + W
        y = np.empty((len(gains), d + m, d))  # [x; u] = y x
        y[:, :d], y[:, d:] = np.eye(d), gains[:, :m]
        moved = ((gains[:, m:] @ X) * gains[:, m:]).sum((1, 2))
        allowed = ((y @ X @ y.swapaxes(1, 2)) * self._Y).sum((1, 2))
        return moved, allowed

    def _relaxed_cost(self, multipliers: Float[Array, "n steps"]) -> QuadraticCost:
        (n, steps), d, m, base = multipliers.shape, self._d, self._m, self._cost
        weighted = multipliers[..., None, None] * self._Y
        Q = np.empty((n, steps + 1, d, d))
        Q[:, :-1], Q[:, -1] = base.Q[:-1] - weighted[..., :d, :d], base.Q[-1]
        R, N = np.zeros((n, steps, m + d, m + d)), np.zeros((n, steps, d, m + d))
        R[..., :m, :m] = base.R - weighted[..., d:, d:]
        np.einsum("nhii->nhi", R)[..., m:] = multipliers[..., None]
        N[..., :m] = -weighted[..., :d, d:] + (0.0 if base.N is None else base.N)
        return record(object.__new__(QuadraticCost), Q=Q, R=R, N=N, indefinite=True)
