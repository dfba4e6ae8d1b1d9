"""The certificate held against the fleet's own machines: each is left out, and judged by its data.

For machine i the others give a belief, a policy π_i and a claimed excess, as they would for a
machine never seen. Its own rows then say what it really is: draws M of its posterior, on each of
which π_i costs J(π_i, M) where J*(M) is the best possible.

    realised excess   r_i = mean over M of J(π_i, M) / J*(M) - 1
    score             s_i = r_i / claimed excess,      t_i = log of realised over predicted cost

Machines are exchangeable, so a new one has a score above the k-th smallest of n with a probability
of at most 1 - k / (n + 1): the claims are multiplied by the score with k = ⌈0.95 (n + 1)⌉, if that
is more than 1. With fewer than 19 machines no score is large enough to show 95 %; claims then rest
on the belief, whose Student distribution has the fewer degrees of freedom the fewer the machines.

The same with some steps of its own, as if only so many had been logged. They are thinned out of its
factor: of F = R β + noise, a share f leaves √f R and √f F + √(1 - f) noise, new and as large, which
is distributed as if the share had been logged alone (Neufeld et al., "Data thinning", 2024).

To hedge against deviations that are drawn anew at each step may be too much or too little for those
that stay: the `hedge`, by which covariances are multiplied, is the one that makes r_i least on
average. Where even that leaves machines half as costly again as they could be, the gains of an
episode are refined on the other machines (`refinement.py`), if r_i is less then. With data of their
own they are refined on draws wherever the claim would not be trusted, as `certify` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machines.machine_factors import Belief
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.certificates.backtest_records import (
    BAD,
    FEWEST,
    Backtest,
    FewShot,
    MachineBacktest,
)
from contextual_lqr.certificates.beyond_logs import (
    BeyondLogs,
    believed_limits,
    beyond_logs,
    weaker_costs,
)
from contextual_lqr.certificates.forecast import Forecast, previewed
from contextual_lqr.certificates.limits import InputBounds, run_range
from contextual_lqr.certificates.margins import over_steps
from contextual_lqr.certificates.model_tests.free_inputs import deceived
from contextual_lqr.certificates.model_tests.own_logs import spoilt_logs
from contextual_lqr.certificates.model_tests.unmodelled import (
    doubts_of,
    in_the_long_run,
    unmodelled,
)
from contextual_lqr.certificates.paths.path_backtest import backtest_paths
from contextual_lqr.certificates.refinement import (
    refinable,
    refined_gains,
    refined_on_draws,
)
from contextual_lqr.certificates.saturation import saturation
from contextual_lqr.certificates.stability import grows
from contextual_lqr.checks import as_count, as_numbers, record, require
from contextual_lqr.context import Dynamics
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.dynamics import Dynamics as Systems
from contextual_lqr.lqr.preview import Preview, best_costs, costs_of, foreseen
from contextual_lqr.lqr.problem import (
    LinearPolicy,
    LinearSystem,
    ModelUncertainty,
    QuadraticCost,
)
from contextual_lqr.lqr.solve import policy_cost, solve
from contextual_lqr.lqr.stationary import Cost, Policy, episode_cost, gains_of, policy_for

HEDGES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
EXPLODED = 100.0  # the excess at which a machine on which a policy explodes counts
QUANTILE = 0.95
_MACHINES = 300  # at most, of which the backtest is made
_DRAWS = 48
_HOPELESS = 0.5  # the mean excess above which hedged gains are refined
_REFINED = 40  # machines at most on which refined gains are tried


def backtest(
    decoder: Decoder,
    cost: Cost,
    start: ArrayLike,
    *,
    trusted_excess: float = 0.02,
    own_steps: Sequence[int] = (),
    forecast: Forecast | None = None,
    input_bounds: InputBounds | None = None,
) -> Backtest:
    """Leave each machine out in turn, and hold its certificate against its own data.

    Parameters
    ----------
    decoder
        With machines that are kept apart, `Decoder(..., deviations="estimated")`.
    cost, start
        The task that the controllers are for.
    trusted_excess
        The claimed excess up to which a controller is trusted.
    own_steps
        Numbers of steps of its own that each machine is given, besides none.
    forecast
        Of disturbances, by the places of their states, as for `certify_many`.
    input_bounds
        What inputs may be, of machines that are not linear: their paths keep to it.

    Returns
    -------
    Backtest
        What was claimed and what came of it, a machine each. Of `Dynamics`, a `PathBacktest`.

    Raises
    ------
    InputError
        If the decoder keeps no machines apart, or has seen fewer than two.
    """
    population, store = decoder.population, decoder.store
    d = len(decoder.estimate)
    x = as_numbers("start", start, "(d,)", 1)
    require(x.shape == (d,), f"start must be {d} numbers, one for each state, not {x.shape}")
    if isinstance(decoder.context_map, Dynamics):
        require(
            not own_steps and forecast is None,
            "own_steps and forecast are for linear machines; these have dynamics",
        )
        return backtest_paths(decoder, cost, x, trusted_excess, input_bounds)
    require(input_bounds is None, "input_bounds are of paths, for machines that are not linear")
    x, preview = previewed(decoder, cost, x, forecast)
    if population is None or store is None or len(store) < 2:
        raise InputError("a backtest leaves machines out: it needs two at least, kept apart")
    steps = [as_count("own_steps", one) for one in own_steps]
    chosen = np.arange(len(store))
    if len(chosen) > _MACHINES:  # a sample of them shows as much
        chosen = np.sort(np.random.default_rng(0).choice(len(store), _MACHINES, replace=False))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        task = _Backtest(decoder, population, cost, x, chosen, preview)
        found = task.tried(task.others, task.policy)
        counted = len(chosen) >= FEWEST
        score = np.where(found.excess <= found.claimed, 1.0, found.excess / found.claimed)
        factor = max(_conformal(score), 1.0) if counted else 1.0
        widening = (
            _conformal(np.log(found.predicted / task.best.mean(0))) if counted else 0.0,
            _conformal(np.log(found.paid / found.predicted)) if counted else 0.0,
        )
        few_shot = []
        for few in steps:
            belief = task.with_own(few)
            own = task.tried(belief, task.own_policy(belief, trusted_excess / factor))
            trusted, bad = task.trusted(own, factor, trusted_excess), own.excess > BAD
            middle, most = np.quantile(own.excess, [0.5, 0.9], method="higher").tolist()
            few_shot.append(FewShot(few, middle, most, int(trusted.sum()), int(bad[trusted].sum())))
        trusted = task.trusted(found, factor, trusted_excess)
    labels, counts = store.labels, store.counts
    machines = tuple(
        MachineBacktest(
            labels[i] or f"#{i + 1}",
            int(counts[i]),
            float(factor * found.claimed[k]),
            float(found.excess[k]),
            float(found.predicted[k]),
            float(found.paid[k]),
            bool(trusted[k]),
        )
        for k, i in enumerate(task.chosen.tolist())
    )
    return Backtest(
        machines, task.hedge, float(factor), widening, counted, tuple(few_shot), task.refined
    )


class _Tried(NamedTuple):
    """Policies, a machine each: what was claimed of them, and what they cost on its own draws."""

    policy: Policy
    claimed: Float[Array, " n"]
    predicted: Float[Array, " n"]
    excess: Float[Array, " n"]
    paid: Float[Array, " n"]
    drawn: LinearSystem
    beyond: BeyondLogs | None  # where the expected run is beyond what was logged


class _Backtest:
    """The machines left out, what each is by its own data, and the hedge that is best for them."""

    def __init__(
        self,
        decoder: Decoder,
        population: Population,
        cost: Cost,
        start: Float[Array, " d"],
        chosen: Array,
        preview: Preview | None,
    ) -> None:
        self.population, self.cost, self.start, self.chosen = population, cost, start, chosen
        self.preview, self.logged = preview, decoder.logged
        self.findings = doubts_of(decoder, cost, preview.states if preview else ())
        self.doubted = any((deceived(population), *spoilt_logs(decoder)))
        self.law = decoder.law(population.factors.maps[chosen])
        self.others = self._believed(population.others(chosen))
        self.truths = self._believed(population.own(chosen), own=True).draw(
            _DRAWS, np.random.default_rng(1)
        )
        self.best = np.asarray(best_costs(self.truths, cost, start, preview))
        deviating = bool(population.deviating.any())
        levels = HEDGES if deviating else (0.0,)
        tried = [hedged_policy(self.others, cost, level, preview) for level in levels]
        losses = [self._loss(policy) for policy in tried]
        best = int(np.argmin(losses))
        self.hedge, self.policy = levels[best], tried[best]
        self.refined = False
        if deviating and losses[best] > _HOPELESS and refinable(cost):
            self._refine(cost)

    def _refine(self, cost: QuadraticCost) -> None:
        """Refine the gains, if that is better: for a sample of machines, since it takes time."""
        some = np.unique(np.linspace(0, len(self.chosen) - 1, _REFINED).astype(int))
        others, chosen = self.others[some], self.chosen[some]
        gains = gains_of(self.policy)[some]
        fleet, ahead = self.population, self.preview
        better = refined_gains(others, gains, cost, self.start, fleet, chosen, ahead)
        before = self._excess(policy_for(cost, gains), some)
        policy = policy_for(cost, better)
        if self._excess(policy, some).mean() < before.mean():
            self.policy, self.others, self.chosen = policy, others, chosen
            self.law, self.truths = self.law[some], self._some_truths(some)
            self.best, self.refined = self.best[:, some], True

    def with_own(self, steps: int) -> MachineBelief:
        """What is believed about each once it has shown so many steps of its own."""
        return self._believed(
            self.population.own(self.chosen, steps=steps, rng=np.random.default_rng(3)), own=True
        )

    def own_policy(self, belief: MachineBelief, most: float) -> Policy:
        """That of each with steps of its own: hedged, and refined if it claims more than that."""
        cost, x, ahead = self.cost, self.start, self.preview
        policy = hedged_policy(belief, cost, self.hedge, ahead)
        if not self.population.deviating.any() or not refinable(cost):
            return policy
        claims = self._claims(belief.draw(_DRAWS, np.random.default_rng(2)), policy)
        far = np.quantile(claims, QUANTILE, axis=0, method="higher") > most
        gains = gains_of(policy).copy()
        gains[far] = refined_on_draws(belief[far], gains[far], cost, x, ahead)
        return policy_for(cost, gains)

    def _claims(self, drawn: LinearSystem, policy: Policy) -> Float[Array, "draws n"]:
        """The excess on draws of what is believed."""
        cost, x, ahead = self.cost, self.start, self.preview
        paid = np.asarray(costs_of(policy, drawn, cost, x, ahead))
        return relative_excess(paid, np.asarray(best_costs(drawn, cost, x, ahead)))

    def tried(self, belief: MachineBelief, policy: Policy) -> _Tried:
        """The policy for each machine by such a belief, on draws of it and of the truth."""
        cost, x, ahead = self.cost, self.start, self.preview
        drawn = belief.draw(_DRAWS, np.random.default_rng(2))
        claims = self._claims(drawn, policy)
        expected = foreseen(belief.system, ahead)
        predicted = np.asarray(policy_cost(policy, expected, cost, x))
        missed, _ = unmodelled(self.findings, expected, gains_of(policy), cost, x, predicted)
        claimed = np.quantile(claims, QUANTILE, axis=0, method="higher") + missed
        paid = np.asarray(costs_of(policy, self.truths, cost, x, ahead))
        excess = relative_excess(paid, self.best).mean(0)
        beyond = self._beyond(expected, gains_of(policy))
        claimed = np.maximum(claimed, 1e-300)
        return _Tried(policy, claimed, predicted, excess, paid.mean(0), drawn, beyond)

    def _beyond(self, system: Systems, gains: Array) -> BeyondLogs | None:
        """Where runs are far beyond what was logged."""
        if self.logged is None:
            return None
        d, m = system.B.shape[-2:]
        M = np.concatenate((system.A, system.B), -1)
        noise = np.diag(np.diagonal(system.noise, axis1=-2, axis2=-1).reshape(-1, d)[0])
        run = run_range(M, noise, over_steps(M, gains, self.cost)[1], self.start)
        return beyond_logs(self.logged, M, run, [""] * (d + m), np.zeros(m, bool))

    def trusted(self, one: _Tried, factor: float, most: float) -> Bool[Array, " n"]:
        """Which would have been trusted: small claims, near what was logged, loops that decay."""
        claims = factor * one.claimed
        found = np.asarray(claims <= most)
        if self.doubted or in_the_long_run(self.findings, self.cost):
            return np.zeros_like(found)
        if one.beyond is not None:
            far = one.beyond.far
            found &= ~far | one.beyond.by_inputs
            if (found & far).any():
                found &= ~far | (claims + self._weaker(one) <= BAD)
        for i in np.flatnonzero(found).tolist():
            system = LinearSystem.unchecked(
                one.drawn.A[:, i], one.drawn.B[:, i], one.drawn.noise[:, i]
            )
            found[i] = not grows(system, gains_of(one.policy)[i], self.cost).any()
            if found[i] and one.beyond is not None and one.beyond.said[i]:
                found[i] = claims[i] + self._clipped(one, i, system) <= BAD
        return found

    def _weaker(self, one: _Tried) -> Float[Array, " n"]:
        """What it may cost that inputs beyond the logs give less, as in `certify`."""
        A, B = (np.asarray(part.mean(0)) for part in (one.drawn.A, one.drawn.B))
        gains = over_steps(np.concatenate((A, B), -1), gains_of(one.policy), self.cost)[1]
        system = foreseen(LinearSystem.unchecked(A, B, one.drawn.noise[0]), self.preview)
        cost, none = episode_cost(self.cost, gains.shape[1]), np.zeros(B.shape[-1], bool)
        return weaker_costs(self.findings, system, gains, cost, self.start, none)

    def _clipped(self, one: _Tried, i: int, drawn: LinearSystem) -> float:
        """The same if they give no more than is believed."""
        assert self.logged is not None  # else nothing is beyond it
        M, m = np.concatenate((drawn.A, drawn.B), -1).mean(0), drawn.B.shape[-1]
        gains = over_steps(M[None], gains_of(one.policy)[i : i + 1], self.cost)[1][0]
        cost = episode_cost(self.cost, len(gains))
        limits = believed_limits(self.logged, [str(k) for k in range(m)], np.zeros(m, bool))
        seen, rng = foreseen(drawn, self.preview), np.random.default_rng(4)
        policy = LinearPolicy(gains)
        return saturation(policy, seen, cost, self.start, limits, QUANTILE, rng).excess

    def _loss(self, policy: Policy) -> float:
        return float(self._excess(policy, np.arange(len(self.chosen))).mean())

    def _excess(self, policy: Policy, some: Int[Array, " k"]) -> Float[Array, " k"]:
        """That of policies for some of the machines, explosions cut short."""
        truths = self._some_truths(some)
        paid = np.asarray(costs_of(policy, truths, self.cost, self.start, self.preview))
        return np.asarray(np.minimum(relative_excess(paid, self.best[:, some]).mean(0), EXPLODED))

    def _some_truths(self, some: Int[Array, " k"]) -> LinearSystem:
        truths = self.truths
        return LinearSystem.unchecked(truths.A[:, some], truths.B[:, some], truths.noise[:, some])

    def _believed(self, found: Belief, own: bool = False) -> MachineBelief:
        """The belief about each machine from the population, for all rows of [A, B]."""
        law, population = self.law, self.population
        noise = np.diag(np.where(np.diagonal(law.noise) > 0, population.variances, 0.0))
        told = population.own_degrees(self.chosen) if own else population.degrees
        degrees = np.minimum(law.degrees, told)
        return MachineBelief(found.means, found.covariances, noise, degrees, law.identified)


def hedged_policy(
    belief: MachineBelief, cost: Cost, hedge: float, preview: Preview | None = None
) -> Policy:
    """The policy that is best against machines which vary, by so much of the belief's doubt."""
    uncertainty = None
    if hedge:
        doubt = belief.covariances if preview is None else belief.covariances[..., None, :, :, :]
        uncertainty = record(object.__new__(ModelUncertainty), covariances=hedge * doubt)
    expected = foreseen(belief.system, preview)
    gains = gains_of(solve(expected, cost, uncertainty=uncertainty).policy)
    return policy_for(cost, np.where(np.isfinite(gains), gains, 0.0))


def relative_excess(paid: Float[Array, "*n"], best: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The excess over the best possible, infinite where it is no number."""
    ratio = (paid - best) / np.abs(best)
    return np.where(np.isfinite(ratio), np.maximum(ratio, 0.0), np.inf)


def _conformal(scores: Float[Array, " n"]) -> float:
    """What the score of a new machine exceeds with a probability of at most 5 %."""
    k = math.ceil(QUANTILE * (len(scores) + 1))
    ranked = np.sort(np.where(np.isnan(scores), np.inf, scores))
    return float(ranked[k - 1]) if k <= len(scores) else np.inf
