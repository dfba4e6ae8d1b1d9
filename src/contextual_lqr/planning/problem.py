"""What a strategy is given before an episode, and what it answers.

A strategy is a rule for choosing what to play on a machine. It sees a `PlanningProblem` and returns
a `Choice`; it keeps no state, and all its randomness is the generator it is handed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.confidence import BetaRule, ConfidenceSet
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.context import Dynamics
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy


def apply_to_each(
    left: Float[Array, "*batch rows inner"], right: Float[Array, "inner columns"]
) -> Float[Array, "*batch rows columns"]:
    """left @ right as one product of tall matrices, many times quicker than one for each member."""
    product = left.reshape(-1, left.shape[-1]) @ right
    return np.asarray(product.reshape(*left.shape[:-1], right.shape[-1]))


@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """All that may be known when an episode, or the rest of one, is planned.

    `machine` is what is believed about the machine. The paper's strategies choose a Θ, and take
    the decoder, the context matrix and the confidence set as well. `incumbent` is the policy that
    runs this machine today, if there is one; `label` what the machine is called, if it is kept
    apart from others; `own` what is believed about it by now, in the middle of an episode. Machines
    that are not linear are planned for by their `context`, within the `input_bounds`; the `memory`
    of an episode holds what was planned last. Where others play at the same time, `later` is what
    will be known of this machine once they are back: what is worth probing is what is unknown then.
    """

    decoder: Decoder
    context_matrix: Float[Array, "p y"]
    cost: QuadraticCost
    start: Float[Array, " d"]
    beta: float | BetaRule
    incumbent: LinearPolicy | None = None
    label: str | None = None
    own: MachineBelief | None = None
    context: Any = None
    input_bounds: tuple[Array, Array] | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    later: MachineBelief | None = None

    @cached_property
    def machine(self) -> MachineBelief:
        """What is believed about this machine."""
        if self.own is not None:
            return self.own
        G, dynamics = self.context_matrix, self.decoder.context_map
        (key,) = dynamics.keys([self.context], G[None])
        found = self.decoder.machine_at(G, key, self.label)
        if isinstance(dynamics, Dynamics):
            return DynamicsBelief.of(found, dynamics, self.context)
        return found

    @cached_property
    def noise(self) -> Float[Array, "d d"]:
        """The covariance of a step's noise, as roughly as the level is known."""
        d = len(self.start)
        W = np.zeros((d, d))
        W.flat[:: d + 1] = np.square(self.decoder.noise_level)
        return W

    @cached_property
    def floor(self) -> float:
        """What every machine costs at least, at the declared noise level."""
        return self.cost.floor(self.start, self.noise)

    def confidence_set(self, beta: float | BetaRule | None = None) -> ConfidenceSet:
        """The plausible decoders, of the agent's β unless another is given."""
        return ConfidenceSet(self.decoder, self.beta if beta is None else beta)

    def systems(self, thetas: Float[Array, "*batch d p"]) -> LinearSystem:
        """This machine, if the decoder were Θ."""
        d, G = len(self.start), self.context_matrix
        A, B = apply_to_each(thetas, G[:, :d]), apply_to_each(thetas, G[:, d:])
        return LinearSystem.unchecked(A, B, self.noise)


@dataclass(frozen=True, eq=False)
class Choice:
    """The policy to play, the cost that it promises, and the Θ it comes from, if one was chosen.

    `dither` is the covariance, (H-1, m, m), of what is added to the inputs; None: nothing.
    """

    policy: LinearPolicy | TrajectoryPolicy
    promised_cost: float
    theta: Float[Array, "d p"] | None = None
    dither: Float[Array, "steps m m"] | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Strategy(Protocol):
    """A rule for what to play."""

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        """A plan for the episode."""
        ...

    def next_input(
        self, problem: PlanningProblem, rng: np.random.Generator
    ) -> tuple[Float[Array, " m"], Float[Array, "m m"] | None]:
        """The next input and the covariance of its dither, when every step is planned anew."""
        ...


class PlansEpisodes:
    """A strategy whose next input is simply the first of a plan for the rest of the episode."""

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        """A plan for the episode."""
        raise TypeError(f"{type(self).__name__} must say what it chooses")

    def next_input(
        self, problem: PlanningProblem, rng: np.random.Generator
    ) -> tuple[Float[Array, " m"], Float[Array, "m m"] | None]:
        """The first input of the plan, and the covariance of its dither."""
        choice = self.choose(problem, rng)
        u = choice.policy(0, problem.start)
        return u, None if choice.dither is None else choice.dither[0]
