"""Machines that are extreme among machines that differ anyway: the test of the misfit alarm.

What a machine has shown, R_i and F_i (`belief/machines/machine_factors.py`), is held against what
the others say of it: row r of its [A, B] has the mean m and the covariance C, their deviations S_r
from the law included. So

    δ = ‖L⁻¹ (F_i[:, r] - R_i m) / σ‖²,   L Lᵀ = I + R_i C R_iᵀ / σ²,   δ / q ~ F(q, ν)

with q numbers of its own and ν degrees of freedom: those of the noise where one law will do for all
machines, those of the Student distribution of deviations where it will not. σ² is the fleet's noise
or, if that is larger, the machine's own, so that a few large shocks name nobody. The p-values of
its states are combined as Liu and Xie (2020) do, whatever their dependence; over machines Holm's
rule keeps the chance of naming any good machine below the level.

A part that is off by 5 % is off by more where it is large, as the push on a light machine is. So
S_r may also be that of deviations in proportion to what the context contributes to an entry, if
that is clearly likelier (`Units`).

Bad machines would widen S, and hide each other. So the reference is at first the three quarters of
the machines that agree best. It grows: by those whose p-value, by itself, is above 1 %, and by the
few that agree best of all others, as long as these are not named. Of many machines, a thousand
of these, evenly chosen, are the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from scipy.special import fdtrc

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machines.machine_factors import (
    Belief,
    data_factor,
    fleet_belief,
    solve_lower,
)
from contextual_lqr.belief.machines.machine_rows import MachineFactors
from contextual_lqr.belief.machines.population import Population

_CORE = 0.75  # of the machines, that agree best
_USUAL = 0.01  # a machine whose own p-value is above is let in
_MORE = 0.02  # of the machines: so many others may be let in at a time
_ROUNDS = 20
_ENOUGH = 1000  # machines of a reference: more would hardly change the law and the deviations
_NOISE_TAILS = 10.0  # degrees of freedom at most: noise is not quite Gaussian
_DEVIATION_TAILS = 20.0  # nor are deviations
_SMALLEST = 0.25  # of the usual deviations: none are smaller where an entry is
_TAILS = 4.0  # degrees of freedom by which it is judged how machines deviate, bad ones among them
_LIKELIER = 6.0  # by how much of 2 log L deviations in proportion must do better
_TOGETHER = 512  # machines whose matrices stay in the cache
_TINY = 1e-290  # p-values are no smaller: their reciprocals are numbers
_FLOOR = 0.1  # of the noise level, and
_ROUNDING = 1e-6  # of the states: a coordinate with less noise is exact, but for rounding and λ


@dataclass(frozen=True)
class Units:
    """What the deviations of one row of [A, B] are measured in, for any context matrix.

    Entry j of the row is Σ_p G_pj θ_p. Its terms that are not the same for all machines, by their
    root sum of squares, over that of the usual machine; or 1 for all machines alike, θ being 0.
    """

    varying: Bool[Array, "p y"]
    theta: Float[Array, " p"]
    usual: Float[Array, " y"]

    @classmethod
    def of(cls, maps: Float[Array, "n p y"], theta: Float[Array, " p"]) -> Units:
        """The units in which these machines deviate in proportion."""
        varying = maps.min(0) < maps.max(0)
        whole = cls(varying, theta, np.ones(maps.shape[2]))
        return cls(varying, theta, np.sqrt(whole._squares(maps).mean(0)))

    def _squares(self, maps: Float[Array, "k p y"]) -> Float[Array, "k y"]:
        terms = np.where(self.varying, maps, 0.0) * self.theta[:, None]
        return np.asarray(np.square(terms).sum(1))

    def __call__(self, maps: Float[Array, "k p y"]) -> Float[Array, "k y"]:
        """One for each machine and entry."""
        if not self.usual.any():
            return np.ones((len(maps), maps.shape[2]))
        sizes = np.sqrt(self._squares(maps))
        there = self.usual > 0
        return np.where(there, np.maximum(sizes / np.where(there, self.usual, 1), _SMALLEST), 1.0)


@dataclass(frozen=True)
class RowTest:
    """One row of [A, B]: every machine against the reference but itself."""

    population: Population  # of the reference, of this row alone, in units of the deviations
    units: Units
    others: Belief  # what the reference says about each machine
    delta: Float[Array, " n"]
    unlikely: float  # -2 log L of the reference, each machine given the others

    def belief(self, maps: Float[Array, "k p y"]) -> Belief:
        """What the reference says about machines with these context matrices, zero-shot."""
        return _zero_shot(self.population, self.units(maps), maps)


@dataclass(frozen=True)
class OutlierTest:
    """Every machine against a reference: the machines accepted, but itself."""

    rows: tuple[RowTest, ...]
    F: Float[Array, "n d"]  # δ / q
    p: Float[Array, "n d"]

    @property
    def variances(self) -> Float[Array, " d"]:
        """σ²: those of the reference's noise."""
        return np.concatenate([one.population.variances for one in self.rows])

    @property
    def degrees(self) -> Float[Array, " d"]:
        """Those of the deviations."""
        return np.concatenate([one.population.degrees for one in self.rows])

    @cached_property
    def others(self) -> Belief:
        """What the reference says about each machine."""
        parts = zip(*(one.others for one in self.rows), strict=True)
        return Belief(*(np.concatenate(part, 1) for part in parts))

    @property
    def each(self) -> Float[Array, " n"]:
        """The p-value of each machine by itself: those of its states by Cauchy's combination."""
        t = 1 / np.tan(np.pi * np.clip(self.p, _TINY, 0.5))
        return np.asarray(np.arctan2(1.0, t.mean(1)) / np.pi)

    @cached_property
    def corrected(self) -> Float[Array, " n"]:
        """The same as one of so many machines, by Holm."""
        p = self.each
        order = np.argsort(p, kind="stable")
        stepped = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
        corrected = np.empty(len(p))
        corrected[order] = np.minimum(stepped, 1.0)
        return corrected


class Outliers:
    """The machines of a decoder, and how far each of them is from some of the others."""

    def __init__(self, decoder: Decoder, factors: MachineFactors) -> None:
        self.decoder, self.factors = decoder, factors
        sizes = (np.square(factors.F).sum((0, 1)) + factors.rss.sum(0)) / max(factors.rows.sum(), 1)
        level = _FLOOR * np.asarray(decoder.noise_level)
        self.floor = np.maximum(np.square(level), _ROUNDING**2 * sizes)

    def settled(self, level: float) -> OutlierTest:
        """The test against all machines that it does not name."""
        n = len(self.factors)
        test = self.tested(np.ones(n, bool))
        accepted = np.zeros(n, bool)
        accepted[_best_first(test)[: int(np.ceil(_CORE * n))]] = True
        for _ in range(_ROUNDS):
            test = self.tested(accepted)
            best = _best_first(test)
            others = best[~accepted[best] & (test.corrected[best] > level)]
            if not len(others):
                break
            accepted = accepted | (test.each > _USUAL)
            accepted[others[: max(1, int(_MORE * n))]] = True
        return test

    def tested(self, accepted: Bool[Array, " n"]) -> OutlierTest:
        """Every machine against the accepted ones but itself, of many against some of them."""
        robust, places = bool(accepted.all()), np.flatnonzero(accepted)
        reference = np.zeros(len(accepted), bool)
        reference[places[:: -(-len(places) // _ENOUGH)]] = True
        d = self.factors.F.shape[2]
        rows = tuple(self._likelier(r, reference, robust=robust) for r in range(d))
        F, p = self.tails(rows, np.stack([one.delta for one in rows], 1), self.factors.rows)
        return OutlierTest(rows, F, p)

    def _likelier(self, r: int, accepted: Bool[Array, " n"], *, robust: bool) -> RowTest:
        """One row of [A, B], its deviations alike, or in proportion if that is likelier."""
        maps = self.factors.maps
        p, y = maps.shape[1:]
        same = Units(np.zeros((p, y), bool), np.zeros(p), np.zeros(y))
        alike = self._row(r, accepted, same, robust=robust)
        if alike.population.deviating.any():
            units = Units.of(maps[accepted], alike.population.pooled.theta[0])
            proportional = self._row(r, accepted, units, robust=robust)
            if proportional.unlikely + _LIKELIER < alike.unlikely:
                return proportional
        return alike

    def _row(
        self, r: int, accepted: Bool[Array, " n"], units: Units, *, robust: bool = True
    ) -> RowTest:
        """With e = D ẽ, the row is D times (D⁻¹Gᵀθ + ẽ), and R e is (R D) ẽ."""
        decoder, whole, y = self.decoder, self.factors, self.factors.R.shape[1]
        D, few = units(whole.maps)[:, None], whole[accepted]
        own = D[accepted]
        factors = MachineFactors(
            few.maps / own, few.R * own, few.F[..., [r]], few.rss[:, [r]], few.rows
        )
        known = {0: decoder.known[r]} if r in decoder.known else {}
        # Of machines that were chosen, none is to be set aside once more.
        population = Population.of(factors, known, decoder.regression.prior, robust=robust)
        belief = Belief(np.empty((len(whole), 1, y)), np.empty((len(whole), 1, y, y)))
        others = _in_plain_units(population.others(), own[:, 0])
        belief.means[accepted], belief.covariances[accepted] = others
        unseen = np.flatnonzero(~accepted)
        for i in range(0, len(unseen), _TOGETHER):
            some = unseen[i : i + _TOGETHER]
            found = _zero_shot(population, D[some, 0], whole.maps[some])
            belief.means[some], belief.covariances[some] = found
        noise = self.noise(r, population.variances[0])
        delta, size = np.empty(len(whole)), np.empty(len(whole))
        for i in range(0, len(whole), _TOGETHER):
            of = slice(i, i + _TOGETHER)
            said = Belief(belief.means[of], belief.covariances[of])
            delta[of], size[of] = distances(whole.R[of], whole.F[of, :, r], said, noise[of])
        # Student's, so that bad machines do not decide; of all, as the accepted ones are a choice.
        tails = (y + _TAILS) * np.log1p(delta / _TAILS)
        unlikely = float((tails + size).sum())
        return RowTest(population, units, belief, delta, unlikely)

    def noise(self, r: int, variance: float) -> Float[Array, " n"]:
        """The variance of each machine's noise: the fleet's or, if that is larger, its own."""
        own = self.factors.rss[:, r] / np.maximum(self.factors.spare, 1)
        return np.asarray(np.maximum(own, max(variance, self.floor[r])))

    @staticmethod
    def tails(
        tests: tuple[RowTest, ...], delta: Float[Array, "k d"], rows: Float[Array, " k"]
    ) -> tuple[Float[Array, "k d"], Float[Array, "k d"]]:
        """F = δ / q of machines of so many rows, and the p-values of it."""
        y = tests[0].others.means.shape[-1]
        q = np.clip(rows, 1, y)[:, None]
        degrees = [
            np.clip(len(one.population.factors) - y, 1.0, _DEVIATION_TAILS)
            if one.population.deviating.any()
            else np.clip(one.population.factors.spare.sum(), 1.0, _NOISE_TAILS)
            for one in tests
        ]
        return delta / q, np.asarray(fdtrc(q, degrees, delta / q))

    @cached_property
    def telling(self) -> list[int]:
        """The rows of [A, B] that tell contexts apart: not those known to be the same for all."""
        known, maps = self.decoder.known, self.factors.maps
        same = {r for r, row in known.items() if not np.ptp(row @ maps, axis=0).any()}
        return [r for r in range(self.factors.F.shape[2]) if r not in same]

    def against(
        self,
        i: int,
        test: OutlierTest,
        maps: Float[Array, "k p y"],
        rows: Sequence[int] | None = None,
    ) -> tuple[Float[Array, "k rows"], Float[Array, "k rows"]]:
        """δ and log|L Lᵀ| of machine i, if its context were one of these, in all rows or some."""
        R, F = self.factors.R[i], self.factors.F[i]
        found = [
            distances(R, F[:, r], one.belief(maps), self.noise(r, one.population.variances[0])[i])
            for r, one in enumerate(test.rows)
            if rows is None or r in rows
        ]
        delta, size = (np.stack(part, 1) for part in zip(*found, strict=True))
        return delta, size


def distances(
    R: Float[Array, "*n y y"], F: Float[Array, "*n y"], belief: Belief, noise: Array | float
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """δ of one row of [A, B] of each machine, and log|L Lᵀ|."""
    L = data_factor(R, belief.covariances[:, 0], noise)
    off = F[..., None] - R @ belief.means[:, 0, :, None]
    white = solve_lower(L, off / np.sqrt(noise)[..., None, None])
    size = 2 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(1)
    return np.square(white).sum((1, 2)), size


def _zero_shot(
    population: Population, units: Float[Array, "k y"], maps: Float[Array, "k p y"]
) -> Belief:
    """What a population in such units says about machines with these context matrices."""
    means, covariances = fleet_belief(
        maps / units[:, None], population.pooled, population.deviations, population.variances
    )
    if population.known:  # the law of which is certain
        covariances[:] = population.deviations
    return _in_plain_units(Belief(means, covariances), units)


def _in_plain_units(belief: Belief, units: Float[Array, "n y"]) -> Belief:
    D = units[:, None]
    return Belief(D * belief.means, D[..., None] * belief.covariances * D[..., None, :])


def _best_first(test: OutlierTest) -> Array:
    return np.lexsort((test.F.max(1), -test.each))
