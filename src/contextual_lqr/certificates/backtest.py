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

To hedge against deviations that are drawn anew at each step may be too much or too little for those
that stay: the `hedge`, by which covariances are multiplied, is the one that makes r_i least on
average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machine_factors import Belief
from contextual_lqr.certificates.unmodelled import findings_of, unmodelled
from contextual_lqr.checks import as_numbers, record, require
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearPolicy, ModelUncertainty, QuadraticCost
from contextual_lqr.lqr.solve import optimal_cost, policy_cost, solve

HEDGES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
EXPLODED = 100.0  # the excess at which a machine on which a policy explodes counts
QUANTILE = 0.95
FEWEST = 19  # machines that can show 95 % by counting
_MACHINES = 300  # at most, of which the backtest is made
_DRAWS = 48


@dataclass(frozen=True, eq=False)
class MachineBacktest:
    """One machine, left out: what was claimed of its controller, and what its own data say."""

    machine: str
    rows: int
    claimed_excess: float
    realised_excess: float
    predicted_cost: float
    realised_cost: float
    trusted: bool

    @property
    def rightly(self) -> bool:
        """Whether trust was, or would have been, deserved: within 5 % of the best possible."""
        return self.realised_excess <= 0.05


@dataclass(frozen=True, eq=False)
class Backtest:
    """All machines, each left out in turn, and what follows for claims about a new one.

    `hedge` is what the covariances of the deviations are multiplied by. `factor` multiplies a
    claimed excess; `widening` are the logarithms by which an interval of costs must at least reach
    below and above the predicted cost. `counted` says whether there were enough machines to show
    95 % by counting.
    """

    machines: tuple[MachineBacktest, ...]
    hedge: float
    factor: float
    widening: tuple[float, float]
    counted: bool

    @property
    def trusted(self) -> int:
        """How many machines would have been trusted."""
        return sum(one.trusted for one in self.machines)

    @property
    def wrongly(self) -> int:
        """How many of these would have been more than 5 % above the best possible."""
        return sum(one.trusted and not one.rightly for one in self.machines)

    def __str__(self) -> str:
        n = len(self.machines)
        said = f"{self.trusted} of {n} machines would have been trusted before their first run"
        if self.trusted:
            said += f", {self.wrongly} of them wrongly"
        return said if self.counted else f"{said}; fewer than {FEWEST} machines cannot show 95 %"

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {
            "machines": [vars(one) | {"rightly": one.rightly} for one in self.machines],
            "trusted": self.trusted,
            "wrongly": self.wrongly,
            "hedge": self.hedge,
            "factor": self.factor,
            "counted": self.counted,
        }


def backtest(
    decoder: Decoder, cost: QuadraticCost, start: ArrayLike, *, trusted_excess: float = 0.02
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

    Returns
    -------
    Backtest
        What was claimed and what came of it, a machine each.

    Raises
    ------
    InputError
        If the decoder keeps no machines apart, or has seen fewer than two.
    """
    population, store = decoder.population, decoder.store
    d = len(decoder.estimate)
    x = as_numbers("start", start, "(d,)", 1)
    require(x.shape == (d,), f"start must be {d} numbers, one for each state, not {x.shape}")
    if population is None or store is None or len(store) < 2:
        raise InputError("a backtest leaves machines out: it needs two at least, kept apart")
    n = len(store)
    chosen = np.arange(n)
    if n > _MACHINES:  # a sample of them shows as much
        chosen = np.sort(np.random.default_rng(0).choice(n, _MACHINES, replace=False))
    law = decoder.posterior.machine(population.factors.maps[chosen])
    others = _believed(decoder, law, population.others(chosen))
    own = _believed(decoder, law, population.own(chosen))
    truths = own.draw(_DRAWS, np.random.default_rng(1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        best = np.asarray(optimal_cost(truths, cost, x))
        hedge, policy, realised = 0.0, None, None
        least = np.inf
        for level in HEDGES if population.deviating.any() else (0.0,):
            tried = hedged_policy(others, cost, level)
            paid = np.asarray(policy_cost(tried, truths, cost, x))
            excess = _excess(paid, best).mean(0)
            loss = float(np.minimum(excess, EXPLODED).mean())
            if loss < least:
                least, hedge, policy, realised = loss, level, tried, (excess, paid.mean(0))
        assert policy is not None
        assert realised is not None
        drawn = others.draw(_DRAWS, np.random.default_rng(2))
        on_draws, optimum = policy_cost(policy, drawn, cost, x), optimal_cost(drawn, cost, x)
        claims = _excess(np.asarray(on_draws), np.asarray(optimum))
        claimed = np.quantile(claims, QUANTILE, axis=0, method="higher")
        predicted = np.asarray(policy_cost(policy, others.system, cost, x))
        findings = findings_of(decoder)
        missed, _ = unmodelled(findings, others.system, policy.gains, cost, x, predicted)
        claimed = claimed + missed
        excess, paid = realised
        score = np.where(excess <= claimed, 1.0, excess / np.maximum(claimed, 1e-300))
        counted = len(chosen) >= FEWEST
        factor = max(_conformal(score), 1.0) if counted else 1.0
        widening = (
            _conformal(np.log(predicted / best.mean(0))) if counted else 0.0,
            _conformal(np.log(paid / predicted)) if counted else 0.0,
        )
    labels, counts = store.labels, store.counts
    machines = tuple(
        MachineBacktest(
            labels[i] or f"#{i + 1}",
            int(counts[i]),
            float(factor * claimed[k]),
            float(excess[k]),
            float(predicted[k]),
            float(paid[k]),
            bool(factor * claimed[k] <= trusted_excess),
        )
        for k, i in enumerate(chosen.tolist())
    )
    return Backtest(machines, hedge, float(factor), widening, counted)


def hedged_policy(belief: MachineBelief, cost: QuadraticCost, hedge: float) -> LinearPolicy:
    """The policy that is best against machines which vary, by so much of the belief's doubt."""
    uncertainty = None
    if hedge:
        uncertainty = record(
            object.__new__(ModelUncertainty), covariances=hedge * belief.covariances
        )
    gains = solve(belief.system, cost, uncertainty=uncertainty).policy.gains
    return LinearPolicy(np.where(np.isfinite(gains), gains, 0.0))


def _believed(decoder: Decoder, law: MachineBelief, found: Belief) -> MachineBelief:
    """The belief about each machine from the population, for all rows of [A, B]."""
    population = decoder.population
    assert population is not None
    noise = np.diag(np.where(np.diagonal(law.noise) > 0, population.variances, 0.0))
    degrees = np.minimum(law.degrees, population.degrees)
    return MachineBelief(found.means, found.covariances, noise, degrees, law.identified)


def _excess(paid: Float[Array, "*n"], best: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The excess over the best possible, infinite where it is no number."""
    ratio = (paid - best) / np.abs(best)
    return np.where(np.isfinite(ratio), np.maximum(ratio, 0.0), np.inf)


def _conformal(scores: Float[Array, " n"]) -> float:
    """What the score of a new machine exceeds with a probability of at most 5 %."""
    k = math.ceil(QUANTILE * (len(scores) + 1))
    ranked = np.sort(np.where(np.isnan(scores), np.inf, scores))
    return float(ranked[k - 1]) if k <= len(scores) else np.inf
