"""The misfit alarm: machines that stand out among machines that differ anyway.

A wrong mass on a label, or a broken actuator, makes a machine behave unlike all others. What it has
shown, R_i and F_i (`belief/machine_factors.py`), is held against what the others say of it: row r
of its [A, B] has the mean m and the covariance C, their deviations S_r from the law included. So

    δ = ‖L⁻¹ (F_i[:, r] - R_i m) / σ‖²,   L Lᵀ = I + R_i C R_iᵀ / σ²,   δ / q ~ F(q, ν)

with q numbers of its own and ν degrees of freedom: those of the noise where one law will do for all
machines, those of the Student distribution of deviations where it will not. σ² is the fleet's noise
or, if that is larger, the machine's own, so that a few large shocks name nobody. The smallest
p-value of a machine, times the number of states, is its p-value; over machines Holm's rule keeps
the chance of naming any good machine below `level`.

Bad machines would widen S, and hide each other. So the reference is at first the three quarters of
the machines that agree best. It then takes in every machine whose p-value, by itself, is above 1 %,
until that changes nothing; it never shrinks below the three quarters.

Beside the p-value stand two effects: how far the others' controller is above the best possible on
the machine as its own data show it, and the context that explains these data best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from scipy.stats import f as f_distribution

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machine_factors import (
    Belief,
    MachineFactors,
    fleet_belief,
    machine_posterior,
    noise_factor,
    solve_lower,
    square_root,
)
from contextual_lqr.belief.population import Population
from contextual_lqr.certificates.backtest import hedged_policy, relative_excess
from contextual_lqr.data.context_search import least_context
from contextual_lqr.lqr.problem import QuadraticCost
from contextual_lqr.lqr.solve import optimal_cost, policy_cost

LEAST_MACHINES = 4
MOST_MACHINES = 20_000
LEVEL = 0.01
_CORE = 0.75  # of the machines, that agree best
_USUAL = 0.01  # a machine whose own p-value is above is let in
_ROUNDS = 20
_NOISE_TAILS = 10.0  # degrees of freedom at most: noise is not quite Gaussian
_DEVIATION_TAILS = 20.0  # nor are deviations
_SMALLEST, _LIKELIER = 0.25, 6.0  # deviations in proportion; by how much of 2 log L
_FLOOR = 0.1  # of the noise level, and
_ROUNDING = 1e-6  # of the states: a coordinate with less noise is exact, but for rounding and λ
_EXPLAINED = 20  # machines whose best context is searched for, those that stand out most


@dataclass(frozen=True)
class MachineReport:
    """One machine: its p-value, corrected for the number of machines, and what stands out.

    `excess` is how far the controller that the others suggest is above the best possible on the
    machine as its own data show it. `context` is what its label says, `behaves_like` the context
    that explains its data best; both are there if the machine is named, the latter if any
    context within bounds explains them. The errors are those of a step, in standard deviations of
    the noise, of the machine's own fit and of the others' law on steps that neither has seen.
    """

    label: str
    rows: int
    p_value: float
    named: bool
    reason: str
    excess: float
    local_error: float
    fleet_error: float
    context: Mapping[str, float] = field(default_factory=dict)
    behaves_like: Mapping[str, float] = field(default_factory=dict)

    @property
    def local_is_better(self) -> bool:
        """Whether a fit of this machine alone predicts its steps better."""
        return self.local_error < self.fleet_error


@dataclass(frozen=True, repr=False)
class MisfitReport:
    """All machines, the worst first; if the alarm did not run, none, and `not_run` says why."""

    machines: tuple[MachineReport, ...] = ()
    not_run: str = ""
    set_aside: tuple[str, ...] = ()  # the machines that were left out of the fit

    @property
    def named(self) -> tuple[MachineReport, ...]:
        """Those that stand out."""
        return tuple(one for one in self.machines if one.named)

    def __str__(self) -> str:
        labels = "".join(f", {one.label!r}" for one in self.named[:5])
        said = f"{len(self.named)} of {len(self.machines)} machines stand out{labels}"
        return self.not_run or said

    def __repr__(self) -> str:
        return f"<MisfitReport: {self}>"


def find_misfits(
    decoder: Decoder,
    cost: QuadraticCost,
    start: Float[Array, " d"],
    *,
    states: Sequence[str],
    bounds: Mapping[str, tuple[float, float]],
    level: float = LEVEL,
) -> MisfitReport:
    """Test every machine that the decoder keeps apart, for a task, within bounds of contexts."""
    store, everyone = decoder.store, decoder.population
    if store is None or everyone is None or len(store) < LEAST_MACHINES:
        return MisfitReport(not_run=f"the misfit alarm needs at least {LEAST_MACHINES} machines")
    if len(store) > MOST_MACHINES:
        return MisfitReport(
            not_run="there are too many machines for the misfit alarm; a column `machine` says "
            "which episodes are of one"
        )
    fleet = _Fleet(decoder, everyone.factors)
    test = fleet.settled()
    named = test.corrected <= level
    gone = fleet.excess(test, cost, start)
    local, shared = fleet.errors(test)
    labels = decoder.machine_labels
    reports = []
    for rank, i in enumerate(np.lexsort((-test.F.max(1), test.corrected)).tolist()):
        what = f"'{states[int(test.p[i].argmin())]}' does not behave as the fleet predicts"
        says: dict[str, float] = {}
        like: dict[str, float] = {}
        if named[i] and bounds and rank < _EXPLAINED:
            says, like = fleet.labelled(i, bounds), fleet.explained(i, test, bounds, level)
        if like:
            what = f"behaves like {_shown(like)}, label says {_shown(says)}"
        reports.append(
            MachineReport(
                labels[i],
                int(fleet.factors.rows[i]),
                float(test.corrected[i]),
                bool(named[i]),
                what,
                float(gone[i]),
                float(local[i]),
                float(shared[i]),
                says,
                like,
            )
        )
    return MisfitReport(tuple(reports))


@dataclass(frozen=True)
class _Test:
    """Every machine against a reference: the machines accepted, but itself."""

    population: Population  # of the reference
    others: Belief  # what it says about each machine
    least: Float[Array, " d"]  # of the usual deviations, see `_Fleet.stretched`
    F: Float[Array, "n d"]  # δ / q
    p: Float[Array, "n d"]

    @property
    def each(self) -> Float[Array, " n"]:
        """The p-value of each machine by itself, by Bonferroni over states."""
        return np.asarray(np.minimum(self.p.min(1) * self.p.shape[1], 1.0))

    @property
    def corrected(self) -> Float[Array, " n"]:
        """The same as one of so many machines, by Holm."""
        p = self.each
        order = np.argsort(p, kind="stable")
        stepped = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
        corrected = np.empty(len(p))
        corrected[order] = np.minimum(stepped, 1.0)
        return corrected


class _Fleet:
    """The machines, and what some of them say about each."""

    def __init__(self, decoder: Decoder, factors: MachineFactors) -> None:
        self.decoder, self.factors = decoder, factors
        sizes = (np.square(factors.F).sum((0, 1)) + factors.rss.sum(0)) / max(factors.rows.sum(), 1)
        level = _FLOOR * np.asarray(decoder.noise_level)
        self.floor = np.maximum(np.square(level), _ROUNDING**2 * sizes)

    def settled(self) -> _Test:
        """The test against all machines that are usual by it."""
        everyone = np.ones(len(self.factors), bool)
        test = self.tested(everyone)
        best = np.lexsort((test.F.max(1), -test.each))
        core = np.zeros(len(best), bool)
        core[best[: int(np.ceil(_CORE * len(best)))]] = True
        accepted = core
        for _ in range(_ROUNDS):
            test = self.tested(accepted)
            before, accepted = accepted, core | (test.each > _USUAL)
            if (accepted == before).all():
                break
        return test

    def tested(self, accepted: Bool[Array, " n"]) -> _Test:
        """Every machine against the accepted ones but itself."""
        decoder, factors = self.decoder, self.factors
        population = decoder.population
        if population is None or not accepted.all():
            population = Population.of(
                factors[accepted],
                decoder.known,
                decoder.regression.prior,
                informed=decoder.prior,
            )
        means, covariances = fleet_belief(
            factors.maps, population.pooled, population.deviations, population.variances
        )
        means[accepted], covariances[accepted] = population.others()
        noise = self.noise(population)
        # Smaller where an entry is small, too, only if that is clearly likelier.
        least = np.ones(factors.F.shape[2])
        unlikely = []
        for smallest in (least, _SMALLEST * least):
            others = self.stretched(Belief(means, covariances), population, smallest)
            delta, size = self.distances(factors, others, noise)
            unlikely.append((delta + size)[accepted].sum(0))
        least = np.where(unlikely[1] + _LIKELIER < unlikely[0], _SMALLEST, 1.0)
        others = self.stretched(Belief(means, covariances), population, least)
        delta, _ = self.distances(factors, others, noise)
        return _Test(population, others, least, *self.tails(delta, factors.rows, population))

    def stretched(
        self, belief: Belief, population: Population, least: Float[Array, " d"]
    ) -> Belief:
        """The belief with deviations in proportion to what deviates, `least` of the usual or more.

        A part that is off by 5 % is off by more where it is large, as the push on a light machine
        is. S is a mean over machines; the size of each entry of [A, B] is taken over that of the
        others, as root mean square.
        """
        means, covariances = belief
        for r in self.decoder.known:  # the law of which is certain
            covariances[:, r] = population.deviations[r]
        law = np.einsum("npy,rp->nry", population.factors.maps, population.pooled.theta)
        usual = np.sqrt(np.square(law).mean(0))
        size = np.where(usual > 0, np.abs(means) / np.where(usual > 0, usual, 1.0), 1.0)
        size = np.maximum(size, least[:, None])
        return Belief(means, size[..., None] * covariances * size[..., None, :])

    def tails(
        self, delta: Float[Array, "n d"], rows: Float[Array, " n"], population: Population
    ) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """F = δ / q, and the p-values of it."""
        y = self.factors.R.shape[1]
        q = np.clip(rows, 1, y)[:, None]
        degrees = np.where(
            population.deviating,
            np.clip(len(population.factors) - y, 1.0, _DEVIATION_TAILS),
            np.clip(population.factors.spare.sum(), 1.0, _NOISE_TAILS),
        )
        F = delta / q
        return F, np.asarray(f_distribution.sf(F, q, degrees))

    def noise(self, population: Population) -> Float[Array, "n d"]:
        """The variance of each machine's noise: the fleet's or, if that is larger, its own."""
        own = self.factors.rss / np.maximum(self.factors.spare, 1)[:, None]
        return np.asarray(np.maximum(own, np.maximum(population.variances, self.floor)))

    @staticmethod
    def distances(
        factors: MachineFactors, belief: Belief, noise: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """δ of each row of [A, B], and log|L Lᵀ|."""
        n, y, d = factors.F.shape
        sigma = np.sqrt(noise)[..., None, None]
        R = factors.R[:, None]
        root = (R @ square_root(belief.covariances) / sigma).reshape(n * d, y, y)
        off = factors.F.swapaxes(1, 2)[..., None] - R @ belief.means[..., None]
        L = noise_factor(root)
        white = solve_lower(L, (off / sigma).reshape(n * d, y, 1))
        size = 2 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(1)
        return np.square(white).sum((1, 2)).reshape(n, d), size.reshape(n, d)

    def excess(
        self, test: _Test, cost: QuadraticCost, start: Float[Array, " d"]
    ) -> Float[Array, " n"]:
        """How far the others' controllers are above the best possible, by each one's own data.

        A machine that stands out by F is taken to come from deviations F times as large.
        """
        variances, covariances = test.population.variances, test.others.covariances
        wide = np.maximum(test.F, 1.0)[..., None, None] * covariances
        own = machine_posterior(self.factors.R, self.factors.F, test.others.means, wide, variances)
        noise, degrees = np.diag(variances), test.population.degrees
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            policy = hedged_policy(
                MachineBelief(test.others.means, covariances, noise, degrees), cost, 1.0
            )
            truth = MachineBelief(own.means, own.covariances, noise, degrees).system
            found = relative_excess(
                np.asarray(policy_cost(policy, truth, cost, start)),
                np.asarray(optimal_cost(truth, cost, start)),
            )
        return np.asarray(found)

    def errors(self, test: _Test) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Root mean squares of a step that was not seen, by own least squares and by the others.

        Of n rows, q numbers: rss / (n - q) · (1 + q / n), and (rss + ‖F - R m‖²) / n.
        """
        factors = self.factors
        q, rows = factors.R.shape[1], np.maximum(factors.rows, 1)
        free = [r for r in range(factors.F.shape[2]) if r not in self.decoder.known]
        variance = np.maximum(test.population.variances, self.floor)
        left = (factors.rss / variance)[:, free].mean(1)
        off = factors.F - factors.R @ test.others.means.swapaxes(1, 2)
        more = (np.square(off).sum(1) / variance)[:, free].mean(1)
        spare = factors.spare
        own = np.where(spare > 0, left / np.maximum(spare, 1) * (1 + q / rows), np.inf)
        return np.sqrt(own), np.sqrt((left + more) / rows)

    def labelled(self, i: int, bounds: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        """The context of a machine's label, found by its matrix."""
        G = self.factors.maps[i]
        scale = np.maximum(np.abs(G), np.abs(self.factors.maps).max(0))
        scale = np.where(scale > 0, scale, 1.0)

        def off(maps: Float[Array, "k p y"]) -> Float[Array, " k"]:
            return np.asarray(np.log(np.square((maps - G) / scale).sum((1, 2)) + 1e-30))

        return least_context(self.decoder.context_map, off, bounds)

    def explained(
        self, i: int, test: _Test, bounds: Mapping[str, tuple[float, float]], level: float
    ) -> dict[str, float]:
        """The context of which a machine's data are most likely, if they are likely then."""
        population = test.population
        noise = self.noise(population)[i]

        def distance(maps: Float[Array, "k p y"]) -> tuple[Array, Array]:
            k = len(maps)
            own = self.factors[np.full(k, i)]
            belief = fleet_belief(
                maps, population.pooled, population.deviations, population.variances
            )
            belief = self.stretched(belief, population, test.least)
            return self.distances(own, belief, np.broadcast_to(noise, (k, len(noise))))

        def unlikely(maps: Float[Array, "k p y"]) -> Float[Array, " k"]:
            delta, size = distance(maps)
            return np.asarray((delta + size).sum(1))

        found = least_context(self.decoder.context_map, unlikely, bounds)
        delta, _ = distance(self.decoder.context_map.matrices([found]))
        _, p = self.tails(delta, self.factors.rows[i : i + 1], population)
        return found if p.min() * p.size > level / len(self.factors) else {}


def _shown(context: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in context.items())
