"""The safe default: the policy that is good on nearly all plausible machines, and careful probing.

Glossary. Y, the belief's `prediction_gram`, says how little is known of [A, B]: the unknown part of
the effect of (x, u) has the variance noise · (x, u)ᵀ Y (x, u). Y_uu is its block of the inputs; S
is the covariance of the dither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg import cho_factor, cho_solve

from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.checks import as_numbers, record, require, shown
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, ModelUncertainty
from contextual_lqr.lqr.solve import optimal_cost, policy_cost, solve
from contextual_lqr.planning.problem import Choice, PlanningProblem

_LARGEST = float(np.finfo(float).max)
_BOLDEST = 4.0  # the square of the most by which an input may outdo what is unknown anyway
_FARTHEST = 1e12  # squared noises: what is farther teaches nothing
_RUINOUS = 100.0  # times the best: what doing nothing may cost


@dataclass(frozen=True)
class Cautious:
    """Among policies that hedge more or less, and doing nothing, play what is safe and good.

    An episode's plan (`choose`):

    1. Candidates are the estimate's LQR policies hedged against `aversions` times the posterior's
       covariance, and doing nothing.
    2. `draws` of the posterior judge them, and `stress` more whose deviations are stretched by
       `stretch`. A candidate that costs more than `max_cost_ratio` times the median of doing
       nothing on any of them is refused. Of the rest, that of the lowest `level` quantile of cost
       is played.
    3. The dither has the covariance s² Y_uu⁻¹, isotropic in what is not known, rising towards the
       end of the episode, where it has less time to do harm. s is at most `probe`, and so small
       that the dither costs no more than `budget` of what not knowing costs.

    A `state_limit` (a number, or one for each coordinate) refuses candidates that break it with a
    probability above 1 - `confidence` over the draws; an episode that leaves it is stopped.

    When every step is planned anew (`next_input`): the estimate's LQR policy, hedged by
    `step_aversion`, its input shrunk so that the unknown part of its effect is at most `trust`
    noises (`early_trust` before there are as many rows as unknowns), and to what is best for the
    next state if [A, B] is off by a deviation. The dither is at most `step_probe` noises, within
    the same budget. Where doing nothing would be ruinous, a runaway is fought: inputs may then be
    as bold, and probes `probe_drift` times as bold, as what is unknown of where the machine goes by
    itself.

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
    step_aversion, trust, early_trust, step_probe, probe_drift : float
        The same for single steps.
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
    step_aversion: float = 0.3
    trust: float = 3.0
    early_trust: float = 1.0
    step_probe: float = 1.25
    probe_drift: float = 0.3

    def __post_init__(self) -> None:
        require(self.draws >= 1 and self.stress >= 0, "draws must be at least 1, stress at least 0")
        for name in ("level", "confidence"):
            value = getattr(self, name)
            require(0 < value < 1, f"{name} must be between 0 and 1, not {value!r}")
        sizes = ("stretch", "max_cost_ratio", "probe", "budget", "trust", "early_trust")
        for name in (*sizes, "step_aversion", "step_probe", "probe_drift"):
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
        cost, x, belief = problem.cost, problem.start, problem.machine
        self._require_limit(len(x))
        d, m, steps = cost.state_size, cost.input_size, cost.horizon - 1

        hedged = solve(belief.system, cost, uncertainty=_uncertainty(belief, self.aversions))
        candidates = [*hedged.policy.gains[hedged.solved], np.zeros((steps, m, d))]
        aversions = [*np.array(self.aversions)[hedged.solved], np.inf]

        stretch = np.repeat([1.0, self.stretch], [self.draws, self.stress])
        machines = belief.draw(self.draws + self.stress, rng, stretch=stretch)
        costs = np.stack([policy_cost(LinearPolicy(K), machines, cost, x) for K in candidates])
        plain = costs[:, : self.draws]
        score = _upper(plain, self.level)
        idle = float(np.median(plain[-1]))
        refused = ~(costs.max(1) <= self.max_cost_ratio * idle)
        if not np.isfinite(idle):  # the draws say nothing yet: all of them explode
            refused[:] = True
        if self.state_limit is not None:
            breaks = [self._breaks(K, machines, x) for K in candidates]
            refused |= np.array(breaks) > 1 - self.confidence
        refused[-1] = False  # doing nothing is what remains
        best = int(np.argmin(np.where(refused, np.inf, score)))
        policy = LinearPolicy(candidates[best])

        ramp = 1 / np.arange(steps, 0, -1.0)
        shape = (ramp / ramp.mean())[:, None, None] * _inverse(belief.prediction_gram[d:, d:])
        size = self.probe**2
        if belief.identified:
            dithered = np.asarray(policy_cost(policy, machines, cost, x, dither=shape))
            dithered = dithered[: self.draws]
            with np.errstate(invalid="ignore"):
                regret = plain[best] - np.asarray(optimal_cost(machines, cost, x))[: self.draws]
                extra = dithered - plain[best]
            price = float(np.median(np.where(np.isfinite(regret), regret, 0.0)))
            extra = np.where(np.isfinite(extra), extra, np.inf)
            dither_cost = float(_upper(extra, self.level))
            size = min(size, self.budget * max(price, 0.0) / max(dither_cost, 1e-300))
        if self.state_limit is not None:  # a dither that would break the limit is made smaller
            for part in (1.0, 0.25, 0.0625, 0.0):
                share = self._breaks(candidates[best], machines, x, part * size * shape)
                if share <= 1 - self.confidence:
                    break
            size *= part
        return Choice(
            policy,
            min(float(np.median(plain[best])), _LARGEST),
            dither=size * shape,
            diagnostics={
                "aversion": float(aversions[best]),
                "upper_cost": min(float(score[best]), _LARGEST),
                "refused": int(refused.sum()),
                "probe": float(np.sqrt(size)),
            },
        )

    def next_input(
        self, problem: PlanningProblem, rng: np.random.Generator
    ) -> tuple[Float[Array, " m"], Float[Array, "m m"] | None]:
        """The next input alone, and the covariance of its dither."""
        cost, x, belief = problem.cost, problem.start, problem.machine
        self._require_limit(len(x))
        d, steps = cost.state_size, cost.horizon - 1
        expected, Y = belief.system, belief.prediction_gram
        unknown, S = Y[d:, d:], _inverse(Y[d:, d:])
        both = solve(expected, cost, uncertainty=_uncertainty(belief, (self.step_aversion, 0.0)))
        u = np.zeros(cost.input_size)
        with np.errstate(over="ignore", invalid="ignore"):
            drift = float(x @ Y[:d, :d] @ x)  # of where it goes by itself, what is unknown
        drift = drift if drift <= _FARTHEST else _FARTHEST
        size = self.step_probe**2
        if both.solved.all():
            hedged, certain = np.asarray(both.cost(x))
            nothing = LinearPolicy(np.zeros_like(both.policy.gains[0]))
            idle = float(policy_cost(nothing, expected, cost, x))
            # Where doing nothing is ruinous, inputs may be as bold as what is unknown anyway.
            ruin = idle / certain / _RUINOUS if 0 < certain < np.inf and idle > certain else 0.0
            size *= 1 + self.probe_drift**2 * min(ruin, 1.0) * drift
            trust = self.trust if belief.identified else self.early_trust
            u = both.policy.gains[0, 0] @ x
            u = u * min(1.0, trust * np.sqrt(1 + min(ruin, _BOLDEST) * drift) / _length(u, unknown))
            # Of s u, what minimises E[x'ᵀPx'] + uᵀRu, [A, B] being as uncertain as it is.
            P = both.value_matrices[1, 1]
            doubt = np.einsum("rr,rij->ij", P, belief.covariances)
            steep = cost.R[0] + expected.B.T @ P @ expected.B + doubt[d:, d:]
            slope = (expected.B.T @ P @ expected.A + doubt[d:, :d]) @ x
            if cost.N is not None:
                slope = slope + cost.N[0].T @ x
            pays, costs = -float(u @ slope), float(u @ steep @ u)
            if np.isfinite(pays) and 0 < costs < np.inf:
                u = u * min(max(pays / costs, 0.0), 1.0)
            P = both.value_matrices[0, 1]
            doubt = np.einsum("rr,rij->ij", P, belief.covariances[:, d:, d:])
            curvature = cost.R[0] + expected.B.T @ P @ expected.B + self.step_aversion * doubt
            dither_cost = steps * float((curvature * S).sum())
            price = float(hedged - certain) if hedged < np.inf else np.inf  # of not knowing
            size = min(size, self.budget * max(price, 0.0) / dither_cost)
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

    def _breaks(
        self, K: Array, machines: LinearSystem, x: Array, dither: Array | None = None
    ) -> float:
        """The share of the draws on which a coordinate, give or take 3 deviations, passes it."""
        A, B, W = (each[: self.draws] for each in (machines.A, machines.B, machines.noise))
        mean, spread = np.broadcast_to(x, A.shape[:-1]), np.zeros_like(A)
        broken = np.zeros(len(A), bool)
        with np.errstate(over="ignore", invalid="ignore"):
            for h, gain in enumerate(K):
                F = A + B @ gain
                mean = (F @ mean[..., None])[..., 0]
                spread = F @ spread @ F.swapaxes(-1, -2) + W
                if dither is not None:
                    spread = spread + B @ dither[h] @ B.swapaxes(-1, -2)
                reach = np.abs(mean) + 3 * np.sqrt(np.einsum("nii->ni", spread))
                broken |= ~(reach <= np.asarray(self.state_limit)).all(-1)
        return float(broken.mean())


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
    """Y⁻¹ through its Cholesky factor; a direction that nothing depends on counts as known well."""
    tiny = 1e-12 * max(float(np.trace(Y)), 1e-300)
    return np.asarray(cho_solve(cho_factor(Y + tiny * np.eye(len(Y))), np.eye(len(Y))))


def _length(u: Array, metric: Array) -> float:
    return float(np.sqrt(max(u @ metric @ u, 1e-300)))
