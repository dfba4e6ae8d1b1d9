"""A fleet whose machines deviate from its law: row r of machine i's [A, B] is G_iᵀθ_r + e_ir.

The deviations e_ir have the covariance S_r (`deviations.py`). What is believed about a machine is

    never seen      mean G_iᵀθ_r, covariance σ_r² G_iᵀV_r⁻¹G_i + S_r
    with own data   the posterior given these, the others' law as its prior

so that zero-shot, few-shot and a machine's own fit are one thing. A row with S_r = 0 is the plain
regression of `posterior.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machines.deviations import estimate_deviations, machine_weights
from contextual_lqr.belief.machines.machine_factors import (
    Belief,
    Pooled,
    fleet_belief,
    leave_one_out,
    machine_posterior,
    pool,
    whitened_rows,
)
from contextual_lqr.belief.machines.machine_rows import MachineFactors, MachineRows
from contextual_lqr.belief.prior import Prior
from contextual_lqr.belief.shrinkage import shrink

_SEEN = 200  # machines at most that stand for all


@dataclass(frozen=True, eq=False)
class Population:
    """The law, the covariances S_r of the deviations from it, and the machines they came from.

    `degrees` are those of a Student distribution of the deviations: few if the machines were few,
    or some of them far from the others.
    """

    factors: MachineFactors
    deviations: Float[Array, "d y y"]
    variances: Float[Array, " d"]
    weights: Float[Array, "n d"]
    pooled: Pooled
    degrees: Float[Array, " d"]
    known: Mapping[int, Array]
    machines: int  # that the law came from, those of changing contexts included
    given: bool  # whether the deviations are, in place of being estimated

    @classmethod
    def of(
        cls,
        factors: MachineFactors,
        known: Mapping[int, Array],
        ridge: Float[Array, " p"],
        given: Float[Array, "d y y"] | None = None,
        informed: Prior | None = None,
        changing: MachineRows | None = None,
        *,
        used: Bool[Array, "d p"] | None = None,
        stated: bool = False,
        robust: bool = True,
    ) -> Population:
        """Estimate the deviations, unless they are given, and the law that they leave.

        The law has a ridge, or a prior if that is `informed`. `changing` are machines whose context
        changes: they are part of the law, not of what is said of single machines. `robust` sets
        aside machines far beyond the others. `used`: entries of Θ that are not known to be 0. What
        is `informed` may be `stated`, by somebody who knows machines, and not follow from scales.
        """
        p, y, d = *factors.maps.shape[1:], factors.F.shape[2]
        N = len(factors) + (0 if changing is None else len(changing))
        rows = np.full((d, p), np.nan)
        for r, row in known.items():
            rows[r] = row
        # The prior of S_r is worth less than the machines: if as much, S_r would grow for ever.
        prior = min(1.0, max((N - p / y) / 2, 0.1))
        # A row that is given is the same for all machines. Whether data contradict it is tested in
        # certificates/model_tests/; estimating how would be learning it.
        skip = np.isin(np.arange(d), list(known))
        found = estimate_deviations(
            factors,
            changing,
            known=rows,
            skip=skip,
            used=used,
            stated=informed if stated and len(factors) else None,
            robust=robust,
            shrinkage=prior,
        )
        S = found.covariances if given is None else given
        found = replace(found, covariances=S)
        weights = np.ones((len(factors), d))
        whitened, told = np.zeros((d, 0, p + 1)), 0.0
        for machines in (factors, changing):
            if machines is None or not len(machines):
                continue
            reduced = machines.reduced if isinstance(machines, MachineFactors) else machines
            w = machine_weights(reduced, found) if robust else np.ones((len(machines), d))
            weights = w if machines is factors else weights
            more = whitened_rows(machines, S, found.variances, w)
            whitened, told = np.concatenate([whitened, more], 1), told + reduced.R[..., 0].size
        if informed is None:
            pooled = pool(whitened, prior=np.sqrt(ridge))
        else:
            own = shrink(whitened, told, informed, np.sqrt(found.variances), found.variances)
            pooled = Pooled(own.W, own.theta, inverted=True)
        for r, row in known.items():
            pooled.theta[r] = row
        # A covariance of y numbers from N machines, as of a Wishart distribution.
        degrees = np.minimum(found.degrees, max(N - y, 3))
        fit = (factors, S, found.variances, weights, pooled, degrees, known)
        return cls(*fit, N, given is not None)

    @property
    def deviating(self) -> Bool[Array, " d"]:
        """The rows of [A, B] in which machines deviate from the law."""
        return np.asarray(self.deviations.any((1, 2)))

    def machine(
        self,
        law: MachineBelief,
        G: Float[Array, "*batch p y"],
        own: Sequence[int | None] = (),
    ) -> MachineBelief:
        """The belief about machines with these context matrices.

        `law` is what the plain regression says, and remains for rows without deviations. `own` has
        for each machine its place in the population, if it has data of its own there.
        """
        rows = self.deviating
        if not rows.any():
            return law
        found = fleet_belief(G, self.pooled, self.deviations, self.variances)
        if seen := [k for k, place in enumerate(own) if place is not None]:
            means, covariances = self.own(np.array([own[k] for k in seen], int))
            found.means.reshape(-1, *means.shape[1:])[seen] = means
            found.covariances.reshape(-1, *covariances.shape[1:])[seen] = covariances
        mean, covariances = law.mean.copy(), law.covariances.copy()
        mean[..., rows, :] = found.means[..., rows, :]
        covariances[..., rows, :, :] = found.covariances[..., rows, :, :]
        noise, degrees = law.noise.copy(), np.broadcast_to(law.degrees, mean.shape[:-1]).copy()
        at = np.flatnonzero(rows)
        noise[at, at] = np.where(noise[at, at] > 0, self.variances[rows], 0.0)
        told = np.broadcast_to(self.degrees, degrees.shape).copy()
        if seen:
            told.reshape(-1, told.shape[-1])[seen] = self.own_degrees(
                np.array([own[k] for k in seen])
            )
        degrees[..., rows] = np.minimum(degrees[..., rows], told[..., rows])
        return MachineBelief(mean, covariances, noise, degrees, law.identified)

    def others(self, chosen: Array | slice = slice(None)) -> Belief:
        """What the other machines say about each of these: it is left out of the law."""
        some = self.factors[chosen]
        found = leave_one_out(
            some,
            self.pooled,
            self.deviations,
            self.variances,
            self.weights[chosen],
            self.machines,
        )
        for r, row in self.known.items():  # the others teach nothing about it
            found.means[:, r] = row @ some.maps
            found.covariances[:, r] = self.deviations[r]
        return found

    @cached_property
    def seen(self) -> tuple[Int[Array, " k"], Float[Array, "k d y"]]:
        """Places of machines that stand for all, and how they deviate from their law."""
        places = np.unique(np.linspace(0, len(self.factors) - 1, _SEEN).astype(int))
        law = np.einsum("npy,rp->nry", self.factors.maps[places], self.pooled.theta)
        return places, np.where(self.deviating[:, None], self.own(places).means - law, 0.0)

    def own_degrees(self, chosen: Array | slice = slice(None)) -> Float[Array, "n d"]:
        """The degrees once each has shown its own rows: more by as many numbers as these fix."""
        told = np.minimum(self.factors.rows[chosen], self.factors.R.shape[1])
        return np.asarray(self.degrees + told[:, None])

    def own(
        self,
        chosen: Array | slice = slice(None),
        *,
        steps: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Belief:
        """The same, once each has also shown its own rows, or so many steps of them.

        A share f of the rows is thinned out: √f R and √f F + √(1 - f) noise, as if no others had
        been logged.
        """
        some, prior = self.factors[chosen], self.others(chosen)
        R, F = some.R, some.F
        if steps is not None and rng is not None:
            share = np.minimum(steps / np.maximum(some.rows, 1), 1.0)[:, None, None]
            noise = rng.standard_normal(F.shape) * np.sqrt(self.variances)
            R, F = np.sqrt(share) * R, np.sqrt(share) * F + np.sqrt(1 - share) * noise
        return machine_posterior(R, F, *prior, self.variances, self.degrees)
