"""True optimism: the decoder of the confidence set that promises the lowest cost (eq. solve-fou).

For one machine only M = Θ G counts, and the image of the confidence ellipsoid is one again: with
the QR decomposition R⁻ᵀG = Q T it holds [A, B] = Θ̂ G + √β X T for all ‖X‖_F ≤ 1, X (d, d+m), and
the Θ of the set that gives it is Θ̂ + √β X Qᵀ R⁻ᵀ. The cost is not convex in X: several starts
descend together, by conditional-gradient and projected steps, then the best by BFGS on the sphere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.bounds.cost_search import PlausibleMachines, triangles_of
from contextual_lqr.belief.bounds.lagrangian_bounds import lower_bounds
from contextual_lqr.belief.confidence import BetaRule, ConfidenceSet
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.checks import require
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.solve import cost_and_gradient, optimal_cost, solve
from contextual_lqr.planning.problem import Choice, PlanningProblem, PlansEpisodes, apply_to_each
from contextual_lqr.planning.sampled_optimism import accepted, require_bounds

_JUMPS = np.array([1.0, 0.5, 0.2, 0.05])[:, None, None]  # towards the minimiser of the linear part
_SLIDES = np.array([0.5, 0.2, 0.05, 0.02, 0.005])[:, None, None]  # along the gradient
_LINE = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.01])[:, None]


@dataclass(frozen=True)
class Optimism(PlansEpisodes):
    """Play the most optimistic decoder of the confidence set.

    Parameters
    ----------
    beta : float or rule, optional
        β of that set; the agent's unless given.
    draws, starts, rounds, kept : int
        This many points of the boundary are tried, and the best `starts` of them descended from for
        `rounds` rounds, only the best `kept` in the later half.
    polish, tolerance : int, float
        The best is polished for this many rounds, or until one gains less than this, relatively.
    value_bound : float, optional
        The paper's c_q on ‖P_h‖.
    certify : bool
        Report a lower bound on the true minimum too, and the gap between the two.
    """

    beta: float | BetaRule | None = None
    draws: int = 128
    starts: int = 12
    rounds: int = 4
    kept: int = 4
    polish: int = 8
    tolerance: float = 1e-5
    value_bound: float | None = None
    certify: bool = True

    def __post_init__(self) -> None:
        require_bounds(self.beta, self.value_bound)
        for name in ("draws", "starts", "rounds", "kept"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, not {value!r}")

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        """The lowest cost found in the confidence set."""
        plausible = problem.confidence_set(self.beta)
        ball = _Ball(problem, plausible, self.value_bound)
        X, promised = self._descend(ball, rng)
        if not np.isfinite(promised) and self.value_bound is not None:
            # No start keeps the bound on ‖P_h‖; the free minimum may.
            X, _ = self._descend(_Ball(problem, plausible, None), rng)
            promised = float(ball.cost(X[None])[0])
        # Where the bound leaves nothing, the estimate is played.
        theta = ball.theta(X) if np.isfinite(promised) else plausible.estimate
        solution = solve(problem.systems(theta), problem.cost, check=True)
        promised = float(solution.cost(problem.start))
        diagnostics = {"beta": plausible.beta, "distance": float(plausible.distance(theta))}
        if self.certify:
            bound = min(ball.lower_bound(), promised)
            diagnostics |= {"lower_bound": bound, "gap": (promised - bound) / max(promised, 1e-300)}
        return Choice(solution.policy, promised, theta, diagnostics=diagnostics)

    def _descend(self, ball: _Ball, rng: np.random.Generator) -> tuple[Array, float]:
        """Coordinates and cost of the best point found."""
        sphere = rng.standard_normal((self.draws, *ball.shape)) * ball.free
        X = np.concatenate([ball.centre[None], ball.zero[None], sphere / _norm(sphere)])
        J = ball.cost(X)
        first = np.concatenate([[0, 1], 2 + np.argsort(J[2:])[: max(self.starts - 2, 0)]])
        X, J = X[first], J[first]
        for i in range(self.rounds):
            if 2 * i >= self.rounds and len(X) > self.kept:
                best = np.argsort(J)[: self.kept]
                X, J = X[best], J[best]
            g = ball.cost_and_gradient(X)[1]
            V = -g / np.maximum(_norm(g), 1e-300)  # where the linear part is lowest
            jumps = X[:, None] + _JUMPS * (V - X)[:, None]
            slides = X[:, None] + _SLIDES * (_norm(V - X) * V)[:, None]
            tried = np.concatenate([jumps, slides / np.maximum(1.0, _norm(slides))], 1)
            costs = ball.cost(tried.reshape(-1, *ball.shape)).reshape(tried.shape[:2])
            rows, best = np.arange(len(X)), costs.argmin(1)
            better = costs[rows, best] < J
            X = np.where(better[:, None, None], tried[rows, best], X)
            J = np.where(better, costs[rows, best], J)
        least = int(J.argmin())
        if not np.isfinite(J[least]) or _norm(X[least]).item() < 1 - 1e-6:
            return X[least], float(J[least])  # inside: nothing to slide along
        return _on_the_sphere(ball, X[least], float(J[least]), self.polish, self.tolerance)


class _Ball:
    """The confidence set in coordinates X, ‖X‖_F ≤ 1, and the cost over it."""

    def __init__(
        self, problem: PlanningProblem, plausible: ConfidenceSet, value_bound: float | None
    ) -> None:
        self._problem, self._plausible, self._value_bound = problem, plausible, value_bound
        self._scale = float(np.sqrt(plausible.beta))
        G, R, centre = problem.context_matrix, plausible.factor, plausible.estimate
        self._Q, T = np.linalg.qr(solve_triangle(R, G, transposed=True))
        d, self._M, S = len(centre), centre @ G, self._scale * T
        self._centre = (
            self._M[:, :d],
            self._M[:, d:],
        )  # [A, B] of the estimate, and its change with X
        self._change = np.ascontiguousarray(S[:, :d]), np.ascontiguousarray(S[:, d:])
        self._T, self.shape = T, (d, len(T))
        self.centre, self.free = np.zeros(self.shape), plausible.free
        # Θ = 0, or the nearest the ball has.
        zero = self.free * -centre @ R.T @ self._Q / max(self._scale, 1e-300)
        self.zero = zero / max(1.0, _norm(zero).item())

    def theta(self, X: Float[Array, "d y"]) -> Float[Array, "d p"]:
        """The decoder of the set that has these coordinates."""
        change = solve_triangle(self._plausible.factor, self._scale * self._Q @ X.T)
        return np.asarray(self._plausible.estimate + change.T)

    def lower_bound(self) -> float:
        """What every machine of the set costs at least."""
        problem, reach = self._problem, self._scale * self.free[:, 0]
        T = triangles_of(self._T)[None, None]
        task = problem.cost, problem.start
        machines = PlausibleMachines(self._M[None], T, reach, True, *task)
        return float(lower_bounds(machines, problem.noise)[0])

    def cost(self, X: Float[Array, "n d y"]) -> Float[Array, " n"]:
        systems, problem = self._systems(X), self._problem
        J = optimal_cost(systems, problem.cost, problem.start)
        return accepted(problem, systems, np.asarray(J), self._value_bound)

    def cost_and_gradient(
        self, X: Float[Array, "n d y"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n d y"]]:
        """The cost and its gradient, zero where it overflows."""
        systems, problem = self._systems(X), self._problem
        J, (dA, dB) = cost_and_gradient(systems, problem.cost, problem.start)
        with np.errstate(over="ignore", invalid="ignore"):
            S_A, S_B = self._change
            g = (apply_to_each(dA, S_A.T) + apply_to_each(dB, S_B.T)) * self.free
        return accepted(problem, systems, np.asarray(J), self._value_bound), np.where(
            np.isfinite(g), g, 0.0
        )

    def _systems(self, X: Array) -> LinearSystem:
        A, B = (M + apply_to_each(X, S) for M, S in zip(self._centre, self._change, strict=True))
        return LinearSystem.unchecked(A, B, self._problem.noise)


def _norm(X: Array) -> Array:
    return np.asarray(np.sqrt((X * X).sum((-2, -1), keepdims=True)))


def _on_the_sphere(
    ball: _Ball, X: Array, J: float, rounds: int, tolerance: float
) -> tuple[Array, float]:
    """BFGS in the tangent space, several step lengths tried at once."""
    y = X.ravel() / _norm(X).item()

    def tangent(v: Array) -> Array:
        return np.asarray(v - (v @ y) * y)

    _, slope = ball.cost_and_gradient(y.reshape(1, *ball.shape))
    g, scale = tangent(slope.ravel()), np.eye(len(y))
    inverse = 0.1 / max(float(np.linalg.norm(g)), 1e-300) * scale
    for _ in range(rounds):
        if g @ inverse @ g <= 0:
            inverse = 0.1 / max(float(np.linalg.norm(g)), 1e-300) * scale
        step = tangent(-inverse @ g)
        step *= min(1.0, 0.5 / max(float(np.linalg.norm(step)), 1e-300))
        tried = y + _LINE * step
        tried /= np.linalg.norm(tried, axis=1, keepdims=True)
        costs, slopes = ball.cost_and_gradient(tried.reshape(-1, *ball.shape))
        best = int(costs.argmin())
        gain = J - float(costs[best])
        if not gain > 0:
            break
        J, moved, old = float(costs[best]), tried[best] - y, g
        y = tried[best]
        g = tangent(slopes[best].ravel())
        if gain < tolerance * J:
            break
        inverse = _bfgs(inverse, tangent(moved), g - tangent(old))
    return y.reshape(ball.shape), J


def _bfgs(inverse: Array, s: Array, r: Array) -> Array:
    """The inverse Hessian after the step s changed the gradient by r."""
    product = float(s @ r)
    if product <= 1e-12 * float(np.linalg.norm(s) * np.linalg.norm(r)):
        return inverse
    q = inverse @ r
    outer = np.outer(q, s)
    return np.asarray(
        inverse + (product + r @ q) / product**2 * np.outer(s, s) - (outer + outer.T) / product
    )
