"""What is believed about one machine along a schedule of contexts: G_h at step h.

Row r of its [A_h, B_h] is G_hᵀθ_r + e_r. Neither the law θ_r nor the deviation e_r changes
during an episode, so that steps are wrong together. With V_r⁻¹ = W_rᵀW_r and S_r = K_rK_rᵀ,

    row r at step h  =  its mean + zᵀ [ σ_r W_r G_h ]      z ~ (0, I), the same at all steps
                                      [    K_rᵀ     ]

and the matrix on the right, a `half` of the row's covariance, is all there is to keep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import fdtri

from contextual_lqr.belief.bounds.cost_search import PlausibleMachines
from contextual_lqr.belief.machine import as_system, certainty_facts, drawn_rows
from contextual_lqr.belief.machines.machine_factors import square_root
from contextual_lqr.display import Displayed
from contextual_lqr.lqr.stationary import Cost
from contextual_lqr.lqr.time_varying import TimeVaryingSystem

if TYPE_CHECKING:
    from contextual_lqr.belief.bounds.row_radii import RowRadii
    from contextual_lqr.belief.decoder import Decoder


@dataclass(frozen=True, eq=False, repr=False)
class ScheduleBelief(Displayed):
    """What is believed about one machine whose context changes, or about a batch of them.

    Attributes
    ----------
    mean
        The expected [A, B] of each step, (..., H-1, d, d+m).
    halves
        For each step and row of [A, B], what unknowns that all steps share do to it,
        (..., H-1, d, q, d+m).
    noise, degrees, identified
        As of `MachineBelief`.
    """

    mean: Float[Array, "*batch steps d y"]
    halves: Float[Array, "*batch steps d q y"]
    noise: Float[Array, "d d"]
    degrees: Float[Array, " d"]
    identified: bool = True

    def __getitem__(self, member: int | slice | None) -> ScheduleBelief:
        """One machine of the batch, or some of them; None makes a batch of one."""
        return replace(self, mean=self.mean[member], halves=self.halves[member])

    def with_noise(self, noise: Float[Array, "d d"]) -> ScheduleBelief:
        """The same machine, with known noise."""
        return replace(self, noise=np.diag(np.diagonal(noise)))

    @cached_property
    def system(self) -> TimeVaryingSystem:
        """The expected machine."""
        return as_system(self.mean, self.noise, varying=True)

    @cached_property
    def covariances(self) -> Float[Array, "*batch steps d y y"]:
        """The covariance of each row of [A, B], at each step."""
        return np.asarray(self.halves.mT @ self.halves)

    def draw(
        self, n: int, rng: np.random.Generator, *, stretch: float | Float[Array, " n"] = 1.0
    ) -> TimeVaryingSystem:
        """`n` plausible machines for each of the batch, (n, ...), each with a noise of its own.

        What is unknown is drawn once for all steps of a machine. `stretch` multiplies its
        deviations from the mean.
        """
        *batch, _, d, q, _ = self.halves.shape
        scale, z, factors = drawn_rows(self.degrees, (*batch, d), q, n, rng, stretch)
        z *= scale[..., None]
        z *= factors.reshape((-1,) + (1,) * (len(batch) + 2))
        noise = scale[..., :, None] * self.noise * scale[..., None, :]
        deviations = (z[..., None, :, None, :] @ self.halves)[..., 0, :]
        return as_system(self.mean + deviations, noise[..., None, :, :], varying=True)

    def _facts(self) -> dict[str, object]:
        *batch, steps, d, y = self.mean.shape
        facts = {"states": d, "inputs": y - d, "steps": steps}
        return {**facts, **certainty_facts(self, np.square(self.halves).sum(-2), batch)}


def schedule_belief(decoder: Decoder, G: Float[Array, "steps p y"]) -> ScheduleBelief:
    """The belief about a machine never seen whose contexts have these matrices, one for a step."""
    posterior, population = decoder.posterior_at(G[0]), decoder.population
    law = posterior.machine(G)
    steps, (d, y), p = len(G), law.mean.shape[1:], G.shape[1]
    deviating = np.zeros(d, bool) if population is None else population.deviating
    halves = np.zeros((steps, d, p + y if deviating.any() else p, y))
    halves[:, :, :p] = np.sqrt(posterior.row_variance)[:, None, None] * posterior.halves(G)
    if population is not None and deviating.any():
        law = population.machine(law, G, [None] * steps)
        for r in np.flatnonzero(deviating):
            sigma = np.sqrt(population.variances[r])
            halves[:, r, :p] = sigma * population.pooled.half(int(r), G)
            halves[:, r, p:] = square_root(population.deviations[r]).T
    degrees = law.degrees if law.degrees.ndim == 1 else law.degrees[0]
    return ScheduleBelief(law.mean, halves, law.noise, degrees, law.identified)


def plausible_schedules(
    decoder: Decoder,
    G: Float[Array, "n steps p y"],
    belief: ScheduleBelief,
    radii: RowRadii,
    delta: float,
    cost: Cost,
    start: Float[Array, " d"],
) -> PlausibleMachines:
    """As `plausible_machines`: all the dynamics that are plausible along each schedule.

    A row in which machines deviate from the law has k unknowns, which are in an ellipsoid with
    probability 1 - δ/d: zᵀz ≤ k F, F the quantile of Fisher's F(k, degrees).
    """
    halves, population = belief.halves, decoder.population
    *_, steps, d, q, y = halves.shape
    p = G.shape[2]
    deviating = np.zeros(d, bool) if population is None else population.deviating
    if not deviating.any():
        shared = decoder.posterior_at(G[0, 0]).halves(G)
        return PlausibleMachines(belief.mean, shared, radii.rows, radii.joint, cost, start)
    law = np.zeros_like(halves)
    law[..., :p, :] = decoder.posterior_at(G[0, 0]).halves(G)
    reach, k = radii.rows.copy(), min(q, steps * y)
    law[..., deviating, :, :] = halves[..., deviating, :, :]
    reach[deviating] = np.sqrt(k * fdtri(k, belief.degrees[deviating], 1 - delta / d))
    return PlausibleMachines(belief.mean, law, reach, False, cost, start)
