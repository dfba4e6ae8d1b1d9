"""The plan of one episode: what the agent answers when it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.display import Displayed, context_fact
from contextual_lqr.lqr.problem import LinearPolicy
from contextual_lqr.lqr.trajectory_policy import TrajectoryPolicy
from contextual_lqr.lqr.triangular_root import triangular_root
from contextual_lqr.planning.problem import Choice


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Displayed):
    """What to play: `input(step, state)`, the policy's input, dithered and within the bounds.

    Attributes
    ----------
    context
        The machine's context.
    policy : LinearPolicy or TrajectoryPolicy
        The gains, about 0 or about a planned path.
    theta : array, (d, p)
        The decoder that the policy comes from; the estimate if the strategy chose none.
    promised_cost : float
        What the episode is expected to cost, as far as the strategy knows.
    dither : array, (H-1, m, m), or None
        The covariance of what is added to the inputs; None for nothing.
    diagnostics : dict
        What the strategy says about its choice.
    estimate : array, (d, p)
        The ridge estimate at the time.
    offsets : array, (H-1, m)
        The dither that was drawn.
    input_bounds : pair of arrays, or None
        The lowest and the highest inputs.
    machine : str or None
        The label of the machine, if it has one.
    """

    context: Any
    policy: LinearPolicy | TrajectoryPolicy
    theta: Float[Array, "d p"]
    promised_cost: float
    dither: Float[Array, "steps m m"] | None
    diagnostics: dict[str, Any]
    estimate: Float[Array, "d p"]
    offsets: Float[Array, "steps m"]
    input_bounds: tuple[Array, Array] | None
    machine: str | None = None

    def input(self, step: int, state: ArrayLike) -> Float[Array, " m"]:
        """The input to play.

        Parameters
        ----------
        step : int
            Counted from 0.
        state : array_like, (d,)
            Where the machine is.

        Returns
        -------
        array, (m,)
            The policy's input and its dither, within the bounds.
        """
        u = self.policy(step, state) + self.offsets[step]
        return np.asarray(u if self.input_bounds is None else np.clip(u, *self.input_bounds))

    def _facts(self) -> dict[str, object]:
        steps, m, d = self.policy.gains.shape
        return {
            **context_fact(self.context),
            "states": d,
            "inputs": m,
            "steps": steps,
            "promised cost": f"{self.promised_cost:.4g}",
            "dither": "none" if self.dither is None else "yes",
            "input bounds": "none" if self.input_bounds is None else "yes",
        }


def planned(
    context: Any,
    choice: Choice,
    estimate: Float[Array, "d p"],
    input_bounds: tuple[Array, Array] | None,
    rng: np.random.Generator,
    machine: str | None = None,
) -> Plan:
    """The plan of a strategy's choice, its dither drawn."""
    steps, m, _ = choice.policy.gains.shape
    offsets = np.zeros((steps, m)) if choice.dither is None else drawn(choice.dither, rng)
    return Plan(
        context,
        choice.policy,
        estimate if choice.theta is None else choice.theta,
        choice.promised_cost,
        choice.dither,
        choice.diagnostics,
        estimate,
        offsets,
        input_bounds,
        machine,
    )


def drawn(dither: Float[Array, "*steps m m"], rng: np.random.Generator) -> Float[Array, "*steps m"]:
    """Inputs to add, of these covariances."""
    shocks = rng.standard_normal(dither.shape[:-1])
    return np.asarray((triangular_root(dither) @ shocks[..., None])[..., 0])
