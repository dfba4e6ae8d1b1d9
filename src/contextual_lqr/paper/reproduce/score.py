"""What a learner's choices are worth: only here is the truth of a fleet asked for.

Everything is an exact expectation over the noise, and batched: many machines in one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr import kernels
from contextual_lqr.fleets import Fleet, true_decoder
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem
from contextual_lqr.lqr.solve import policy_cost, solve
from contextual_lqr.paper.play import Played


class Machines:
    """The machines with these contexts as they really are, and what each costs at best."""

    def __init__(self, fleet: Fleet, contexts: Sequence[Any] | Mapping[str, Any]) -> None:
        self.fleet = fleet
        self._G = fleet.context_map.matrices(contexts)
        d = len(fleet.start)
        self.dynamics: Float[Array, "n d y"] = true_decoder(fleet) @ self._G  # [A, B] of each
        M = self.dynamics
        self.systems = LinearSystem(M[..., :d], M[..., d:], fleet.noise)
        self._best = solve(self.systems, fleet.cost, check=True)
        self.optimal_costs: Float[Array, " n"] = np.asarray(self._best.cost(fleet.start))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._G)

    def confidence_distances(
        self, estimates: Float[Array, "k d p"], factors: Float[Array, "k p p"]
    ) -> Float[Array, " k"]:
        """`ConfidenceSet.distance` of Θ* from many sets, tr[(Θ* - Θ̂) V (Θ* - Θ̂)ᵀ] with V = RᵀR."""
        with np.errstate(over="ignore", invalid="ignore"):
            Y = (true_decoder(self.fleet) - estimates) @ factors.swapaxes(1, 2)
            squared = (Y * Y).sum((1, 2))
        return np.where(np.isnan(squared), np.inf, squared)

    @property
    def policies(self) -> Float[Array, "n steps m d"]:
        """The optimal gains of each."""
        return self._best.policy.gains

    def control_errors(self, estimates: Float[Array, "k d p"]) -> Float[Array, "k n"]:
        """The cost of each estimate's controller on each machine, above the optimum.

        Infinite where the estimate's own problem cannot be solved.
        """
        fleet, cost = self.fleet, self.fleet.cost
        machines, noise = (self._G, self.systems.A, self.systems.B), self.systems.noise
        stages, threads = (cost.Q, cost.R), kernels.threads()
        paid = kernels.transferred_costs(
            estimates, *machines, *stages, cost.N, noise, fleet.start, threads=threads
        )
        return np.asarray(np.where(np.isnan(paid), np.inf, paid) - self.optimal_costs)

    def policy_regrets(
        self, policies: Float[Array, "k steps m d"], dither: ArrayLike | None = None
    ) -> Float[Array, " k"]:
        """The expected cost of the i-th policy on the i-th machine above the optimum, dither in."""
        k = len(policies)
        systems = LinearSystem.unchecked(self.systems.A[:k], self.systems.B[:k], self.fleet.noise)
        policy, cost, start = LinearPolicy(policies), self.fleet.cost, self.fleet.start
        paid = policy_cost(policy, systems, cost, start, dither=dither)
        return np.asarray(paid - self.optimal_costs[:k])

    def regrets(self, played: Sequence[Played]) -> Float[Array, " k"]:
        """The expected regret of each episode, the i-th played on the i-th machine.

        Exact for plans, their dither included. Where every step was planned anew it is the sum of
        ‖u - K*x‖² in the metric R + BᵀP*B along what was played: whatever the policy, its mean is
        the expected regret (the performance-difference identity).
        """
        plans = [one.plan for one in played if one.plan is not None]
        if len(plans) < len(played):
            return np.array([self._regret_along(i, one) for i, one in enumerate(played)])
        gains = np.stack([plan.policy.gains for plan in plans])
        none = np.zeros_like(self.fleet.cost.R)
        dither = np.stack([none if plan.dither is None else plan.dither for plan in plans])
        return self.policy_regrets(gains, dither if dither.any() else None)

    def _regret_along(self, i: int, played: Played) -> float:
        states, inputs = played.states, played.inputs
        if len(inputs) < self.fleet.cost.horizon - 1:
            return np.inf  # it overflowed
        B, K = self.systems.B[i], self._best.policy.gains[i]
        P = self._best.value_matrices[i, 1:]
        off = inputs - np.einsum("hij,hj->hi", K, states[:-1])
        metric = self.fleet.cost.R + B.T @ P @ B
        with np.errstate(over="ignore"):
            return float(np.einsum("hi,hij,hj->", off, metric, off))
