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

from contextual_lqr.belief.machine import as_system
from contextual_lqr.fleets import Fleet, true_decoder
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, Trajectory
from contextual_lqr.lqr.solve import optimal_policy, policy_cost, solve
from contextual_lqr.paper.play import Played

_CHUNK = 1000  # controllers that are made at once: more do not fit into the cache


class TrueMachines:
    """The machines with these contexts as they really are, and what each costs at best."""

    def __init__(self, fleet: Fleet, contexts: Sequence[Any] | Mapping[str, Any]) -> None:
        self.fleet = fleet
        self.matrices: Float[Array, "n p y"] = fleet.context_map.matrices(contexts)
        self.dynamics: Float[Array, "n d y"] = true_decoder(fleet) @ self.matrices
        self.systems = as_system(self.dynamics, fleet.noise)
        self._best = solve(self.systems, fleet.cost, check=True)
        self.policies: Float[Array, "n steps m d"] = self._best.policy.gains
        self.optimal_costs: Float[Array, " n"] = np.asarray(self._best.cost(fleet.start))

    def system(self, i: int) -> LinearSystem:
        """The i-th machine."""
        return as_system(self.dynamics[i], self.fleet.noise)

    def confidence_distances(
        self, estimates: Float[Array, "k d p"], factors: Float[Array, "k p p"]
    ) -> Float[Array, " k"]:
        """`ConfidenceSet.distance` of Θ* from many sets, tr[(Θ* - Θ̂) V (Θ* - Θ̂)ᵀ] with V = RᵀR."""
        with np.errstate(over="ignore", invalid="ignore"):
            Y = (true_decoder(self.fleet) - estimates) @ factors.swapaxes(1, 2)
            squared = (Y * Y).sum((1, 2))
        return np.where(np.isnan(squared), np.inf, squared)

    def control_errors(self, estimates: Float[Array, "k d p"]) -> Float[Array, "k n"]:
        """The cost of each estimate's controller on each machine, above the optimum.

        Infinite where the estimate's own problem cannot be solved.
        """
        fleet, paid = self.fleet, []
        for some in np.array_split(estimates, -(-len(estimates) * len(self.matrices) // _CHUNK)):
            believed = as_system(some[:, None] @ self.matrices, fleet.noise)
            policies = optimal_policy(believed, fleet.cost)
            paid.append(policy_cost(policies, self.systems, fleet.cost, fleet.start))
        return np.asarray(np.concatenate(paid) - self.optimal_costs)

    def policy_regrets(
        self, policies: Float[Array, "k steps m d"], dither: ArrayLike | None = None
    ) -> Float[Array, " k"]:
        """The expected cost of the i-th policy on the i-th machine above the optimum, dither in."""
        fleet, k = self.fleet, len(policies)
        systems = as_system(self.dynamics[:k], fleet.noise)
        paid = policy_cost(LinearPolicy(policies), systems, fleet.cost, fleet.start, dither=dither)
        return np.asarray(paid - self.optimal_costs[:k])

    def regrets(self, played: Sequence[Played]) -> Float[Array, " k"]:
        """The expected regret of each episode, the i-th played on the i-th machine.

        Exact for plans, their dither included. Where every step was planned anew it is the sum of
        ‖u - K*x‖² in the metric R + BᵀP*B along what was played: whatever the policy, its mean is
        the expected regret (the performance-difference identity).
        """
        plans = [one.plan for one in played if one.plan is not None]
        if len(plans) < len(played):
            return np.array([self._regret_along(i, one.trajectory) for i, one in enumerate(played)])
        gains = np.stack([plan.policy.gains for plan in plans])
        none = np.zeros_like(self.fleet.cost.R)
        dither = np.stack([none if plan.dither is None else plan.dither for plan in plans])
        return self.policy_regrets(gains, dither if dither.any() else None)

    def _regret_along(self, i: int, played: Trajectory) -> float:
        cost, B, (x, u) = self.fleet.cost, self.systems.B[i], (played.states, played.inputs)
        if len(u) < cost.horizon - 1:
            return np.inf  # it overflowed
        off = u - np.einsum("hij,hj->hi", self.policies[i], x[:-1])
        metric = cost.R + B.T @ self._best.value_matrices[i, 1:] @ B
        with np.errstate(over="ignore"):
            return float(np.einsum("hi,hij,hj->", off, metric, off))
