"""Many machines, and for each all the dynamics that are still plausible for it.

Row i of a machine's [A, B] lies in an ellipsoid around its mean M_i, (d+m,): with ‖X_i‖ ≤ 1 it is

    M_i + s_i X_i T_i,    Y_i = T_iᵀT_i (d+m, d+m)

(`joint`: one ball ‖X‖_F ≤ 1 for all rows). Where only Θ is uncertain, ‖(Θ_i - Θ̂_i) Rᵀ‖ ≤ s_i with
V = RᵀR, the image of that ellipsoid for a machine with the context matrix G is this one with
M = Θ̂ G and, the same for all rows, Y = GᵀV⁻¹G: T is the triangle of a QR decomposition of R⁻ᵀG.

Here are the extreme costs found in that set; what is certain about them is in
`lagrangian_bounds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machine import as_system
from contextual_lqr.lqr.preview import Preview
from contextual_lqr.lqr.problem import LinearSystem, QuadraticCost
from contextual_lqr.lqr.solve import cost_and_gradient, policy_cost_and_gradient
from contextual_lqr.lqr.stationary import Cost, Policy, gains_of, policy_for
from contextual_lqr.lqr.time_varying import TimeVaryingSystem

_WORTHWHILE = 1e-4  # a round that gains less, relative to the cost, is the last
_STEPS = (1.0, 0.5, 0.2, 0.05)  # towards the point where the linear part is extreme


@dataclass(frozen=True, eq=False)
class PlausibleMachines:
    """n machines, the task, and how far each row of [A, B] may be off.

    `triangles` are the T_i, one for each row or, k = 1, one for all; `reach` the s_i. Along a
    schedule, centre and T_i differ from step to step, X_i does not, and the T_i are no triangles.
    With a forecast only the centre does: the axis of steps of the T_i is then 1.
    """

    centre: Float[Array, "n *steps d y"]
    triangles: Float[Array, "n *stages k q y"]
    reach: Float[Array, " d"]
    joint: bool
    cost: Cost
    start: Float[Array, " d"]

    @property
    def episode_cost(self) -> QuadraticCost:
        """The cost, which must be of an episode: nothing is proven of those that never end."""
        assert isinstance(self.cost, QuadraticCost)
        return self.cost

    def ahead(self, preview: Preview) -> PlausibleMachines:
        """The same machines with what is forecast for each step."""
        return replace(self, centre=preview.over(self.centre), triangles=self.triangles[:, None])

    @property
    def varying(self) -> bool:
        """Whether [A, B] differs from step to step."""
        return self.centre.ndim == 4

    def stages(self, array: Array) -> Array:
        """With an axis for the steps, which is 1 if all are alike."""
        return array if self.varying else array[:, None]

    @property
    def grams(self) -> Float[Array, "n *stages k y y"]:
        """Y_i: a step moves row i by ξ_i with ξ_i² ≤ s_i² yᵀ Y_i y."""
        return np.asarray(self.triangles.mT @ self.triangles)

    def systems(
        self, noise: Float[Array, "d d"], X: Array | None = None
    ) -> LinearSystem | TimeVaryingSystem:
        """The machines at X; at the estimate if X is not given."""
        M = self.centre
        if X is not None:
            M = M + self.reach[:, None] * _rows_times(
                X[:, None] if self.varying else X, self.triangles
            )
        return as_system(M, noise, self.varying)

    def highest(
        self, policy: Policy, noise: Float[Array, "d d"], rounds: int = 12
    ) -> Float[Array, " n"]:
        """The highest cost of each machine's policy that a local search finds in its set."""
        return -self._search(policy, noise, rounds)

    def lowest(self, noise: Float[Array, "d d"], rounds: int = 12) -> Float[Array, " n"]:
        """The lowest optimal cost of each machine that a local search finds in its set."""
        return self._search(None, noise, rounds)

    def _search(self, policy: Policy | None, noise: Array, rounds: int) -> Array:
        """Conditional gradients from the estimate and from the far side of the first step."""
        n = len(self.centre)
        X = np.zeros((n, len(self.reach), self.triangles.shape[-2]))
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
                own = None if own is None else policy_for(self.cost, gains_of(own)[better])
                Y = np.stack(tried)[least, rows]
                towards = self._extreme(np.stack(slopes)[least, rows])
            best = np.fmin(best, found)
        return np.asarray(best)

    def _value(self, policy: Policy | None, noise: Array, X: Array) -> tuple[Array, Array]:
        """What is to be made small, and its slope along X: J*, or -J of the policy."""
        systems = self.systems(noise, X)
        if policy is None:
            J, (dA, dB) = cost_and_gradient(systems, self.cost, self.start)
            lost = (1 - 1e-9) * self.cost.floor(self.start, noise) > J  # to rounding
            J = np.where(lost, np.inf, J)
        else:
            J, (dA, dB) = policy_cost_and_gradient(policy, systems, self.cost, self.start)
            J, dA, dB = -J, -dA, -dB
        with np.errstate(over="ignore", invalid="ignore"):
            dM = np.concatenate((dA, dB), -1)
            if self.varying and self.triangles.shape[1] == 1:  # the T_i of all steps
                dM = dM.sum(1, keepdims=True)
            g = self.reach[:, None] * _rows_times(dM, self.triangles.mT)
            g = g.sum(1) if self.varying else g
        return np.asarray(J), np.where(np.isfinite(g), g, 0.0)

    def _extreme(self, g: Array) -> Array:
        """The point of the set where Σ g ∘ X is least."""
        largest = np.abs(g).max((1, 2), keepdims=True)
        g = g / np.where(largest > 0, largest, 1.0)
        axes = (1, 2) if self.joint else (2,)
        length = np.sqrt((g * g).sum(axes, keepdims=True))
        return np.asarray(-g / np.where(length > 0, length, 1.0))

    def at(self, members: Array) -> PlausibleMachines:
        """Some of the machines: their numbers, or a mask."""
        return PlausibleMachines(
            self.centre[members],
            self.triangles[members],
            self.reach,
            self.joint,
            self.cost,
            self.start,
        )


def triangles_of(half: Float[Array, "*batch p y"]) -> Float[Array, "*batch y y"]:
    """T with TᵀT = halfᵀ half, by QR."""
    p, y = half.shape[-2:]
    if p < y:  # fewer unknowns than numbers in a row
        half = np.concatenate((half, np.zeros((*half.shape[:-2], y - p, y))), -2)
    return np.asarray(np.linalg.qr(half, mode="r"))


def _rows_times(
    X: Float[Array, "*#n d i"], T: Float[Array, "*#n k i j"]
) -> Float[Array, "*#n d j"]:
    """Row i of X times T_i."""
    if T.shape[-3] == 1:
        return np.asarray(X @ T[..., 0, :, :])
    return np.asarray(np.einsum("...ri,...rij->...rj", X, T))
