"""The safe default: the policy that is good on nearly all plausible machines, and careful probing.

Glossary. Y, the belief's `prediction_gram`, says how little is known of [A, B]: the unknown part of
the effect of (x, u) has the variance noise · (x, u)ᵀ Y (x, u). Y_uu is its block of the inputs; S
is the covariance of the dither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array
from scipy.linalg.lapack import dposv

from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.checks import as_numbers, record, require, shown
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, ModelUncertainty
from contextual_lqr.lqr.solve import solve
from contextual_lqr.planning.drawn_machines import drawn_costs
from contextual_lqr.planning.incumbent import gentle_dither
from contextual_lqr.planning.least_regret import least_regret
from contextual_lqr.planning.paths.path_strategies import cautious_path, next_input
from contextual_lqr.planning.problem import Choice, PlanningProblem

_LARGEST = float(np.finfo(float).max)
_SPARE = 0.04  # of what the incumbent costs: what a dither may


@dataclass(frozen=True)
class Cautious:
    """Among policies that hedge more or less, and doing nothing, play what is safe and good.

    An episode's plan (`choose`):

    1. Candidates are the estimate's LQR policies hedged against `aversions` times the posterior's
       covariance, doing nothing, and the incumbent, if there is one.
    2. `draws` of the posterior judge them, and `stress` more whose deviations are stretched by
       `stretch`. A candidate that costs more than `max_cost_ratio` times the median of doing
       nothing on any of them is refused. So is, where there is an incumbent, one that is not
       cheaper than it on `level` of them, or that many times as expensive on any; and every one
       while the draws disagree, by that ratio, on what the incumbent costs. Of the rest, that of
       the lowest `level` quantile of cost is played.
    3. The dither has the covariance s² Y_uu⁻¹, isotropic in what is not known, rising towards the
       end of the episode, where it has less time to do harm. s is at most `probe`, and so small
       that the dither costs no more than `budget` of what not knowing costs, and 4 % of what the
       incumbent does. An incumbent that is played gets a small share of its own inputs besides.
       Where others play at the same time, it probes what they will leave unknown, and costs no
       more than that is worth.

    A `state_limit` (a number, or one for each coordinate) refuses candidates that break it with a
    probability above 1 - `confidence` over the draws; an episode that leaves it is stopped. Where
    none keeps it, the dither comes before the end.

    When every step is planned anew (`next_input`), the input of least expected regret over the
    `draws`, shrunk by their `doubt` about it; see `least_regret.py`. With an incumbent, the first
    input of a plan for the rest of the episode.

    Parameters
    ----------
    draws, stress : int
        How many plausible machines judge a candidate, and how many more that are stretched.
    stretch : float
        By how much.
    aversions : tuple of float
        How much the candidates hedge, in posterior covariances.
    level : float
        The quantile of cost that is compared.
    max_cost_ratio : float
        A candidate is refused if it costs more than this many times the median of doing nothing, on
        any of them.
    probe, budget : float
        The largest dither, in noises; and its cost as a share of what not knowing costs.
    state_limit : float or tuple of float, optional
        What no state may exceed: a number, or one for each coordinate.
    confidence : float
        The share of the plausible machines that must keep the limit.
    doubt, step_budget, step_probe : float
        When every step is planned anew: how much an input is shrunk for the regret that it leaves;
        what the dither may cost, as a share of that regret; and the largest dither before there are
        data, or where an episode is too short to learn the machine, in noises.
    """

    draws: int = 128
    stress: int = 64
    stretch: float = 1.5
    aversions: tuple[float, ...] = (1.0, 10.0, 30.0, 100.0)
    level: float = 0.95
    max_cost_ratio: float = 20.0
    probe: float = 2.0
    budget: float = 0.3
    state_limit: float | tuple[float, ...] | None = None
    confidence: float = 0.95
    doubt: float = 0.3
    step_budget: float = 0.03
    step_probe: float = 1.25

    def __post_init__(self) -> None:
        require(self.draws >= 1 and self.stress >= 0, "draws must be at least 1, stress at least 0")
        for name in ("level", "confidence"):
            value = getattr(self, name)
            require(0 < value < 1, f"{name} must be between 0 and 1, not {value!r}")
        sizes = ("stretch", "max_cost_ratio", "probe", "budget", "doubt")
        for name in (*sizes, "step_budget", "step_probe"):
            value = getattr(self, name)
            require(0 <= value < np.inf, f"{name} must be a number of at least 0, not {value!r}")
        aversions = as_numbers("aversions", self.aversions, "(n,)", 1)
        require(
            aversions.ndim == 1 and len(aversions) and (aversions >= 0).all(),
            f"aversions must be numbers of at least 0, at least one, not {shown(self.aversions)}",
        )
        record(self, aversions=tuple(aversions.tolist()))  # plain numbers, however they were given
        if self.state_limit is not None:
            limit = as_numbers("state_limit", self.state_limit, "() or (d,)", 0, finite=False)
            require(
                limit.ndim < 2 and limit.size and (limit > 0).all(),
                f"state_limit must be positive, not {shown(self.state_limit)}",
            )
            record(self, state_limit=_plain(limit))  # infinite where there is none

    def choose(self, problem: PlanningProblem, rng: np.random.Generator) -> Choice:
        """A plan for a whole episode."""
        if isinstance(problem.machine, DynamicsBelief):
            return cautious_path(self, problem, rng)
        cost, x, belief = problem.cost, problem.start, problem.machine
        self._require_limit(len(x))
        d, m, steps = cost.state_size, cost.input_size, cost.horizon - 1

        hedged = solve(belief.system, cost, uncertainty=_uncertainty(belief, self.aversions))
        candidates = [*hedged.policy.gains[hedged.solved], np.zeros((steps, m, d))]
        aversions = [*np.array(self.aversions)[hedged.solved], np.inf]
        if problem.incumbent is not None:
            candidates.append(problem.incumbent.gains)
            aversions.append(np.nan)

        stretch = np.repeat([1.0, self.stretch], [self.draws, self.stress])
        machines = belief.draw(self.draws + self.stress, rng, stretch=stretch)
        costs = np.stack([drawn_costs(machines, cost, x, LinearPolicy(K)) for K in candidates])
        plain = costs[:, : self.draws]
        score = _upper(plain, self.level)
        if problem.incumbent is not None:
            # It runs the machine. Draws that disagree on what it costs know too little to judge it.
            usual, upper = np.median(costs[-1]), _upper(costs[-1], self.level)
            judged = belief.identified and upper < np.inf and upper / self.max_cost_ratio <= usual
            better = (costs < costs[-1]).mean(1) >= self.level
            refused = ~better | (costs / self.max_cost_ratio > costs[-1]).any(1) | (not judged)
        else:  # if all draws explode, they say nothing yet, and nothing is good enough
            idle = float(np.median(plain[-1]))
            refused = ~(costs.max(1) <= self.max_cost_ratio * idle) | (not np.isfinite(idle))
        if self.state_limit is not None:
            kept = np.array([self._kept(K, machines, x) for K in candidates])
            refused |= (kept < steps).mean(1) > 1 - self.confidence
        refused[-1] = False  # the incumbent, or doing nothing, is what remains
        best = int(np.argmin(np.where(refused, np.inf, score)))
        incumbent = problem.incumbent is not None and best == len(candidates) - 1

        policy = LinearPolicy(candidates[best])
        probe, dither = self._dither(problem, machines, policy, plain[best], plain[-1], incumbent)
        if self.state_limit is not None:
            dither = self._dither_within(candidates[best], machines, x, dither, kept[best])
        return Choice(
            policy,
            min(float(np.median(plain[best])), _LARGEST),
            dither=dither,
            diagnostics={
                "incumbent": incumbent,
                "aversion": float(aversions[best]),
                "upper_cost": min(float(score[best]), _LARGEST),
                "refused": int(refused.sum()),
                "probe": float(probe),
            },
        )

    def _dither(
        self,
        problem: PlanningProblem,
        machines: LinearSystem,
        policy: LinearPolicy,
        costs: Float[Array, " draws"],
        remaining: Float[Array, " draws"],
        incumbent: bool,
    ) -> tuple[float, Float[Array, "steps m m"]]:
        """The size of the dither, in noises, and its covariance at every step.

        `costs` are those of the policy on the draws, and `remaining` the incumbent's, if any.
        """
        belief, cost, x = problem.machine, problem.cost, problem.start
        d, steps = cost.state_size, cost.horizon - 1
        S, left = _inverse(belief.prediction_gram[d:, d:]), 1.0
        if problem.later is not None:  # what is worth knowing shrinks as what is unknown does
            Y = problem.later.prediction_gram[d:, d:]
            S, left = _inverse(Y), min(float(np.trace(Y @ S)) / len(Y), 1.0)
        ramp = 1 / np.arange(steps, 0, -1.0)
        shape = (ramp / ramp.mean())[:, None, None] * S
        gentle = np.zeros_like(shape)
        if incumbent:
            gentle = gentle_dither(policy, x, problem.noise)
        if not belief.identified:
            return (self.probe, self.probe**2 * shape) if not incumbent else (0.0, gentle)

        def extra(dither: Array) -> Array:
            with np.errstate(invalid="ignore"):
                paid = drawn_costs(machines, cost, x, policy, dither)[: self.draws] - costs
            return np.where(np.isfinite(paid), paid, np.inf)

        with np.errstate(invalid="ignore", over="ignore"):
            regret = costs - drawn_costs(machines, cost, x)[: self.draws]
            price = left * float(np.median(np.where(np.isfinite(regret), regret, 0.0)))
            added = extra(shape)
            size = self.budget * max(price, 0.0) / max(float(_upper(added, self.level)), 1e-300)
            if problem.incumbent is not None:  # that is to be outdone by this much at most
                spare = _SPARE * np.where(np.isfinite(remaining), remaining, 0.0)
                share = added / np.maximum(spare, 1e-300)
                size = min(size, 1 / max(float(_upper(share, self.level)), 1e-300))
                share = extra(gentle) / np.maximum(spare, 1e-300)
                gentle /= max(float(np.median(share)), 1.0)
        size = min(size, self.probe**2)
        return np.sqrt(size), size * shape + gentle

    def next_input(
        self, problem: PlanningProblem, rng: np.random.Generator
    ) -> tuple[Float[Array, " m"], Float[Array, "m m"] | None]:
        """The next input alone, and the covariance of its dither."""
        if isinstance(problem.machine, DynamicsBelief):
            return next_input(self, problem, rng), None
        if problem.incumbent is not None:
            choice = self.choose(problem, rng)
            assert choice.dither is not None
            return choice.policy.gains[0] @ problem.start, choice.dither[0]
        cost, x, belief = problem.cost, problem.start, problem.machine
        d, expected = cost.state_size, belief.system
        self._require_limit(d)
        S = _inverse(belief.prediction_gram[d:, d:])
        draws, shares = belief.draw(self.draws, rng), (self.doubt, self.step_budget)
        u, size = least_regret(cost, x, draws, S, *shares)
        told, unknown = problem.decoder.rows, len(problem.decoder.estimate[0])
        # The draws say nothing of this machine, or will not before the episode ends: a dither in
        # proportion to the regret would grow with the states it causes, to no avail.
        if not told or size == np.inf or told + cost.horizon - 1 < unknown:
            size = min(size, self.step_probe**2)
        if self.state_limit is None:
            return u, size * S
        # The boldest of a few whose next state keeps the limit, as far as is known; else nothing.
        for scale, dither in ((1.0, size), (0.5, size), (0.25, size / 4), (0.0, size / 16)):
            y = np.concatenate((x, scale * u))
            unsure = np.einsum("i,rij,j->r", y, belief.covariances, y)
            unsure += dither * np.einsum("rij,ij->r", belief.covariances[:, d:, d:], S)
            variance = np.diagonal(belief.noise) + unsure
            variance = variance + dither * np.diagonal(expected.B @ S @ expected.B.T)
            mean = expected.A @ x + expected.B @ (scale * u)
            if (np.abs(mean) + 3 * np.sqrt(variance) <= self.state_limit).all():
                return scale * u, dither * S
        return 0.0 * u, None

    def _require_limit(self, d: int) -> None:
        shape = np.shape(1.0 if self.state_limit is None else self.state_limit)
        require(shape in ((), (d,)), f"state_limit must be a number or {d} of them, not {shape}")

    def _dither_within(
        self, K: Array, machines: LinearSystem, x: Array, dither: Array, kept: Array
    ) -> Array:
        """A dither that would break the limit is made smaller; what is broken anyway is used."""
        allowed = 1 - self.confidence
        if (kept < len(K)).mean() > allowed:  # the episode ends early: probe before it does
            last = max(int(np.median(kept)), 1)
            return np.concatenate((dither[-last:], np.repeat(dither[-1:], len(K) - last, 0)))
        for part in (1.0, 0.25, 0.0625):
            if (self._kept(K, machines, x, part * dither) < len(K)).mean() <= allowed:
                return part * dither
        return 0 * dither

    def _kept(
        self, K: Array, machines: LinearSystem, x: Array, dither: Array | None = None
    ) -> Int[Array, " draws"]:
        """For how many steps all coordinates, give or take 3 deviations, keep the limit."""
        A, B, W = (each[: self.draws] for each in (machines.A, machines.B, machines.noise))
        mean, spread = np.broadcast_to(x, A.shape[:-1]), np.zeros_like(A)
        keeps, kept = np.ones(len(A), bool), np.zeros(len(A), int)
        with np.errstate(over="ignore", invalid="ignore"):
            for h, gain in enumerate(K):
                F = A + B @ gain
                mean = (F @ mean[..., None])[..., 0]
                spread = F @ spread @ F.swapaxes(-1, -2) + W
                if dither is not None:
                    spread = spread + B @ dither[h] @ B.swapaxes(-1, -2)
                reach = np.abs(mean) + 3 * np.sqrt(np.einsum("nii->ni", spread))
                keeps &= (reach <= np.asarray(self.state_limit)).all(-1)
                kept += keeps
        return kept


def _plain(limit: Array) -> float | tuple[float, ...]:
    return float(limit) if limit.ndim == 0 else tuple(float(one) for one in limit)


def _upper(costs: Float[Array, "*plans draws"], level: float) -> Array:
    """The quantile, or the next higher cost: `np.quantile(..., method="higher")` in less time."""
    place = math.ceil(level * (costs.shape[-1] - 1))
    return np.asarray(np.partition(costs, place)[..., place])


def _uncertainty(belief: MachineBelief, aversions: tuple[float, ...]) -> ModelUncertainty:
    """What is unknown of the machine, more and less of it."""
    covariances = np.reshape(aversions, (-1, 1, 1, 1)) * belief.covariances
    return record(object.__new__(ModelUncertainty), covariances=covariances)


def _inverse(Y: Array) -> Array:
    """Y⁻¹ through its Cholesky factor; zero for inputs whose effect is known, or all if none is."""
    unknown = np.diagonal(Y) > 0
    sizes = np.sqrt(np.where(unknown, np.diagonal(Y), 1.0))
    unitless = Y / np.outer(sizes, sizes) + np.diag(np.where(unknown, 1e-12, 1.0))
    _, inverse, singular = dposv(unitless, np.diag(unknown / sizes))
    return np.zeros_like(Y) if singular else np.asarray(inverse / sizes[:, None])
