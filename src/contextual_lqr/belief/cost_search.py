"""Many machines, and for each all the dynamics that are still plausible for it.

Each row of Θ lies in an ellipsoid around its estimate, ‖(Θ_i - Θ̂_i) Rᵀ‖ ≤ s_i with V = RᵀR. In the
coordinates Θ = Θ̂ + diag(s) X R⁻ᵀ the set is the product of the unit balls ‖X_i‖ ≤ 1 (`joint`: one
ball ‖X‖_F ≤ 1 for all rows), and the machine with the context matrix G has the dynamics

    [A, B] = M + diag(s) X S,    M = Θ̂ G (d, d+m),    S = R⁻ᵀ G (p, d+m).

Here are the extreme costs found in that set; what is certain about them is in `multipliers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost
from contextual_lqr.lqr.solve import cost_and_gradient, policy_cost_and_gradient

_WORTHWHILE = 1e-4  # a round that gains less, relative to the cost, is the last
_STEPS = (1.0, 0.5, 0.2, 0.05)  # towards the point where the linear part is extreme


@dataclass(frozen=True, eq=False)
class PlausibleMachines:
    """The machines of n contexts, the task, and how far each row of Θ may be off."""

    centre: Float[Array, "n d y"]
    change: Float[Array, "n p y"]
    reach: Float[Array, " d"]
    joint: bool
    cost: QuadraticCost
    start: Float[Array, " d"]

    @classmethod
    def of(
        cls,
        decoder: Decoder,
        matrices: Float[Array, "n p y"],
        reach: Float[Array, " d"],
        joint: bool,
        cost: QuadraticCost,
        start: Float[Array, " d"],
    ) -> PlausibleMachines:
        """The machines with these context matrices."""
        n, p, y = matrices.shape
        # Solved transposed, so that the slices of each machine are contiguous.
        flat = matrices.transpose(1, 0, 2).reshape(p, n * y)
        half = solve_triangle(decoder.factor, flat, transposed=True)
        change = np.ascontiguousarray(half.reshape(p, n, y).transpose(1, 0, 2))
        return cls(decoder.estimate @ matrices, change, reach, joint, cost, start)

    @property
    def ignorance(self) -> Float[Array, "n y y"]:
        """Y = GᵀV⁻¹G: ξ = (Θ - Θ̂) G y obeys ξ_i² ≤ s_i² yᵀ Y y."""
        return np.asarray(self.change.swapaxes(1, 2) @ self.change)

    def systems(self, noise: Float[Array, "d d"], X: Array | None = None) -> LinearSystem:
        """The machines at X; at the estimate if X is not given."""
        M, d = self.centre, len(self.start)
        if X is not None:
            M = M + self.reach[:, None] * (X @ self.change)
        A, B = np.ascontiguousarray(M[..., :d]), np.ascontiguousarray(M[..., d:])
        return LinearSystem.unchecked(A, B, noise)

    def highest(
        self, policy: LinearPolicy, noise: Float[Array, "d d"], rounds: int = 12
    ) -> Float[Array, " n"]:
        """The highest cost of each machine's policy that a local search finds in its set."""
        return -self._search(policy, noise, rounds)

    def lowest(self, noise: Float[Array, "d d"], rounds: int = 12) -> Float[Array, " n"]:
        """The lowest optimal cost of each machine that a local search finds in its set."""
        return self._search(None, noise, rounds)

    def _search(self, policy: LinearPolicy | None, noise: Array, rounds: int) -> Array:
        """Conditional gradients from the estimate and from the far side of the first step."""
        n, d, p = len(self.centre), len(self.start), self.change.shape[1]
        X = np.zeros((n, d, p))
        J, g = self._value(policy, noise, X)
        far = self._extreme(g)
        best = J
        for sign in (1.0, -1.0):
            here, own, active = self, policy, np.arange(n)  # machines that still move
            found, Y, towards = J.copy(), X, sign * far
            for step in range(rounds):
                tried = [Y + part * (towards - Y) for part in _STEPS]
                values, slopes = zip(*(here._value(own, noise, one) for one in tried), strict=True)
                costs = np.stack(values)
                least, rows = costs.argmin(0), np.arange(len(active))
                lowest, before = costs[least, rows], found[active]
                better = lowest < before - _WORTHWHILE * np.abs(before)
                if sign < 0 and not step:
                    better = np.isfinite(lowest)  # leave the first basin, even upwards
                    found[active[better]] = lowest[better]
                found[active] = np.fmin(found[active], lowest)
                if not better.any():
                    break
                least, rows, active = least[better], rows[better], active[better]
                here = here.at(better)
                own = None if own is None else LinearPolicy(own.gains[better])
                Y = np.stack(tried)[least, rows]
                towards = self._extreme(np.stack(slopes)[least, rows])
            best = np.fmin(best, found)
        return np.asarray(best)

    def _value(self, policy: LinearPolicy | None, noise: Array, X: Array) -> tuple[Array, Array]:
        """What is to be made small, and its slope along X: J*, or -J of the policy."""
        systems = self.systems(noise, X)
        if policy is None:
            J, (dA, dB) = cost_and_gradient(systems, self.cost, self.start)
            lost = (1 - 1e-9) * self.floor(noise) > J  # to rounding
            J = np.where(lost, np.inf, J)
        else:
            J, (dA, dB) = policy_cost_and_gradient(policy, systems, self.cost, self.start)
            J, dA, dB = -J, -dA, -dB
        with np.errstate(over="ignore", invalid="ignore"):
            dM = np.concatenate((dA, dB), -1)
            g = self.reach[:, None] * (dM @ self.change.swapaxes(1, 2))
        return np.asarray(J), np.where(np.isfinite(g), g, 0.0)

    def _extreme(self, g: Array) -> Array:
        """The point of the set where Σ g ∘ X is least."""
        largest = np.abs(g).max((1, 2), keepdims=True)
        g = g / np.where(largest > 0, largest, 1.0)
        axes = (1, 2) if self.joint else (2,)
        length = np.sqrt((g * g).sum(axes, keepdims=True))
        return np.asarray(-g / np.where(length > 0, length, 1.0))

    def floor(self, noise: Float[Array, "d d"]) -> float:
        """What every machine costs at least: the start, and the noise of each step once."""
        if self.cost.indefinite:
            return -np.inf
        if self.cost.N is not None:
            return 0.0
        at_start = self.start @ self.cost.Q[0] @ self.start
        return float(at_start + (self.cost.Q[1:] * noise).sum())

    def at(self, members: Array) -> PlausibleMachines:
        """Some of the machines: their numbers, or a mask."""
        return PlausibleMachines(
            self.centre[members],
            self.change[members],
            self.reach,
            self.joint,
            self.cost,
            self.start,
        )
