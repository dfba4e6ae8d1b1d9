"""One vector of unknowns for all states: x'_r = φ_r·π + w_r, as masses and frictions move them all.

Row r of Θ has π in the places of its own features, and 0 elsewhere. In units of its noise σ_r each
row is one of the same regression, [φ_r, x'_r] / σ_r, of noise 1, so that d rows of p unknowns each
become one row of p, and what is believed of that is spread out over all rows again:

    rows     [D_r E_r] / σ_r, one below the other      D_r: the columns of φ_r in the factor
    Cov Θ_r  the covariance of π, for every r; draws have one π for all of them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machines.machine_factors import Pooled, triangles
from contextual_lqr.belief.machines.machine_rows import MachineFactors
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.belief.prior import Prior
from contextual_lqr.belief.regression import Regression
from contextual_lqr.belief.shrinkage import Shrunk, shrink
from contextual_lqr.checks import require


@dataclass(frozen=True, eq=False)
class SharedUnknowns:
    """How d rows of p features each become one: `levels` are the σ_r."""

    levels: Float[Array, " d"]
    p: int

    @classmethod
    def of(cls, regression: Regression, level: Float[Array, " d"]) -> SharedUnknowns:
        """With the noise that rows of unknowns of their own leave, `level` as one observation."""
        d, width = regression.d, regression.p
        p = width // d
        assumed = np.where(level > 0, level, level.max())
        each = cls(np.ones(d), p).gathered(regression.data[:, :width], regression.data[:, width:])
        left = np.square(triangles(each.reshape(d, -1, p + 1))[:, p:, p]).sum(1)
        return cls(np.sqrt((np.square(assumed) + left) / (1 + max(regression.rows - p, 0))), p)

    @property
    def d(self) -> int:
        """The number of states."""
        return len(self.levels)

    def gathered(self, rows: Float[Array, "*n k q"], after: Float[Array, "*n k d"]) -> Array:
        """The rows [φ_r, x'_r] / σ_r of all states, (..., d k, p+1)."""
        each = [
            np.concatenate([rows[..., self._own(r)], after[..., r, None]], -1) / self.levels[r]
            for r in range(self.d)
        ]
        return np.concatenate(each, -2)

    def shrunk(self, regression: Regression, rows: int, prior: Prior) -> Shrunk:
        """The regression of π about a prior, as one of Θ."""
        p, data = regression.p, regression.data
        factor = triangles(self.gathered(data[:, :p], data[:, p:]))
        one = shrink(factor[None], rows * self.d, self.prior(prior), np.ones(1))

        def of_each(values: Array) -> Array:
            return np.repeat(values, self.d, 0)

        spread = self._blocks(one.W[0]) / self.levels[:, None, None]
        return Shrunk(
            self._placed(one.theta[0]),
            spread,
            one.variances * np.square(self.levels),
            *(
                of_each(part)
                for part in (
                    one.degrees,
                    one.row_degrees,
                    one.log_dets,
                    one.ranks,
                    one.told,
                    one.stretch,
                )
            ),
        )

    def prior(self, prior: Prior) -> Prior:
        """That of π: what all rows say, each entry as exactly as any row does."""
        theta = np.stack([prior.theta[r, self._own(r)] for r in range(self.d)])
        C = np.stack([prior.covariances[r, self._own(r), self._own(r)] for r in range(self.d)])
        if (theta == theta[0]).all() and (C[0] == C).all():
            return Prior(theta[:1], C[:1])
        diagonals = np.diagonal(C, axis1=1, axis2=2)
        require(
            (theta == theta[0]).all() and (diagonals[..., None] * np.eye(self.p) == C).all(),
            "the unknowns are shared, so that all rows of the prior must say the same of them",
        )
        return Prior(theta[:1], np.diag(diagonals.min(0))[None])

    def population(
        self,
        factors: MachineFactors,
        given: Float[Array, "d y y"] | None,
        prior: Prior,
        stated: bool,
    ) -> SharedPopulation:
        """Machines that deviate from the law, each with one π for all states."""
        both = triangles(self.gathered(factors.R, factors.F))
        p, n = self.p, len(factors)
        missing = max(p + 1 - both.shape[1], 0)
        both = np.pad(both, ((0, 0), (0, missing), (0, 0)))
        left = np.square(both[:, p:, p:]).sum(1)
        left = left + (factors.rss / np.square(self.levels)).sum(1, keepdims=True)
        one = MachineFactors(
            np.broadcast_to(np.eye(p), (n, p, p)),
            both[:, :p, :p],
            both[:, :p, p:],
            left,
            factors.rows * self.d,
        )
        S = None if given is None else given[:1, self._own(0), self._own(0)]
        found = Population.of(one, {}, np.zeros(p), S, self.prior(prior), stated=stated)
        spread = self._blocks(found.pooled.U[0]) / self.levels[:, None, None]
        return SharedPopulation(
            factors,
            self._blocks(found.deviations[0]),
            found.variances * np.square(self.levels),
            np.repeat(found.weights, self.d, 1),
            Pooled(spread, self._placed(found.pooled.theta[0]), inverted=True),
            np.repeat(found.degrees, self.d),
            {},
            found.machines,
            found.given,
            unknowns=self,
            one=found,
        )

    def narrowed(self, law: MachineBelief) -> MachineBelief:
        """What is believed of π, in units of the noise."""
        own = self._own(0)
        return MachineBelief(
            law.mean[..., :1, own],
            law.covariances[..., :1, own, own],
            law.noise[:1, :1] / np.square(self.levels[0]),
            law.degrees[..., :1],
            law.identified,
        )

    def widened(self, one: MachineBelief) -> MachineBelief:
        """The same of Θ."""
        return MachineBelief(
            self._placed(one.mean[..., 0, :]),
            self._blocks(one.covariances[..., 0, :, :]),
            np.diag(one.noise[0, 0] * np.square(self.levels)),
            np.repeat(one.degrees, self.d, -1),
            one.identified,
        )

    def _own(self, r: int) -> slice:
        return slice(r * self.p, (r + 1) * self.p)

    def _placed(self, pi: Float[Array, "*n p"]) -> Float[Array, "*n d q"]:
        found = np.zeros((*pi.shape[:-1], self.d, self.d * self.p))
        for r in range(self.d):
            found[..., r, self._own(r)] = pi
        return found

    def _blocks(self, one: Float[Array, "*n p p"]) -> Float[Array, "*n d q q"]:
        width = self.d * self.p
        found = np.zeros((*one.shape[:-2], self.d, width, width))
        for r in range(self.d):
            found[..., r, self._own(r), self._own(r)] = one
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class SharedPopulation(Population):
    """A population of machines with one π for all states: `one`, of a single row."""

    unknowns: SharedUnknowns
    one: Population

    def machine(
        self, law: MachineBelief, G: Float[Array, "*batch q y"], own: Sequence[int | None] = ()
    ) -> MachineBelief:
        """As of `Population`; what a machine has shown of one state counts for all."""
        p = self.unknowns.p
        eye = np.broadcast_to(np.eye(p), (*G.shape[:-2], p, p))
        return self.unknowns.widened(self.one.machine(self.unknowns.narrowed(law), eye, own))
