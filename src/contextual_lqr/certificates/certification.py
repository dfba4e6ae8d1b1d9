"""The certificates of a task: what all machines share is found once, then machines come in chunks.

The controller is the one that is optimal for the estimate, hedged and, for a machine never seen,
refined on those seen, where the backtest asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.bounds.lagrangian_bounds import lower_bounds, upper_bounds
from contextual_lqr.belief.bounds.row_radii import plausible_machines, row_radii
from contextual_lqr.belief.confidence import BetaRule
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.episodes import machine_labels
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.schedule import ScheduleBelief, plausible_schedules
from contextual_lqr.certificates.backtest_records import BAD
from contextual_lqr.certificates.beyond_logs import believed_limits, beyond_logs, weaker_costs
from contextual_lqr.certificates.certificate import (
    TRUSTED_EXCESS,
    Certificate,
    CostBound,
    counted,
    judge,
    lowered,
    percent,
    thin,
)
from contextual_lqr.certificates.doubts import reasons_to_doubt
from contextual_lqr.certificates.extrapolation import farthest
from contextual_lqr.certificates.fleet_check import fleet_check
from contextual_lqr.certificates.forecast import Forecast, by_place, previewed, require_staying
from contextual_lqr.certificates.hardly_moved import hardly_moved
from contextual_lqr.certificates.limits import InputBounds, InputLimits, run_range
from contextual_lqr.certificates.margins import over_steps
from contextual_lqr.certificates.model_tests.finding import numbered
from contextual_lqr.certificates.model_tests.unmodelled import unmodelled
from contextual_lqr.certificates.refinement import refinable, refined_gains, refined_on_draws
from contextual_lqr.certificates.saturation import Saturation, saturation
from contextual_lqr.certificates.stability import grows
from contextual_lqr.checks import (
    as_count,
    as_covariance,
    as_numbers,
    in_words,
    record,
    require,
    require_probability,
)
from contextual_lqr.context import Schedule
from contextual_lqr.context.dynamics import require_linear
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.moments import usual_moments
from contextual_lqr.lqr.preview import foreseen
from contextual_lqr.lqr.problem import LinearPolicy, ModelUncertainty, QuadraticCost
from contextual_lqr.lqr.solve import optimal_cost, policy_cost, solve
from contextual_lqr.lqr.stationary import (
    Cost,
    Policy,
    StationaryCost,
    episode_cost,
    gains_of,
    policy_for,
)
from contextual_lqr.lqr.status import REASONS, Status

QUANTILE = 0.95

_CHUNK = 256  # machines at a time: some hundred megabytes
_BEYOND = (
    32  # draws on which inputs beyond the logs are clipped: what that costs is compared with 5 %
)


@in_words  # options of others come here as they were given
class CertificationTask:
    """What is the same for all machines: the task, the noise, the plausible Θ and draws of it."""

    def __init__(
        self,
        decoder: Decoder,
        cost: Cost,
        start: ArrayLike,
        noise: ArrayLike | None,
        input_bounds: InputBounds | None,
        states: Sequence[str] | None,
        beta: str | float | BetaRule,
        delta: float,
        draws: int,
        bounds: bool,
        rng: np.random.Generator | None,
        forecast: Forecast | Mapping[str, ArrayLike] | None = None,
    ) -> None:
        require_linear(decoder.context_map, "a certificate")
        d = len(decoder.estimate)
        x = as_numbers("start", start, "(d,)", 1)
        require(x.shape == (d,), f"start must be {d} numbers, one for each state, not {x.shape}")
        require_probability("delta", delta)
        if isinstance(cost, StationaryCost):
            require(cost.discount == 1, "a certificate is for a StationaryCost without a discount")
            noisy = noise is None or bool(np.any(np.asarray(noise)))
            require(noisy, "without noise every loop that is stable costs 0 on average")
        else:
            require(cost.horizon >= 2, "an episode must have at least two states, and one input")
        require(cost.batch_shape == (), "one cost is for all machines: it must have no batch axes")
        m = cost.R.shape[-1]
        usual = numbered(d, m)
        names = usual[:d] if states is None else list(states)
        require(len(names) == d, f"there are {d} states, but {len(names)} names of states")
        ahead = by_place(forecast, names)
        x, self.preview = previewed(decoder, cost, x, ahead)
        self.decoder, self.cost, self.start, self.bounds = decoder, cost, x, bool(bounds)
        known = None if noise is None else as_covariance("noise", noise, d)
        self.reach = row_radii(decoder, beta, delta, known)
        if self.preview is not None:
            variances = np.diagonal(self.reach.noise).copy()
            variances[list(self.preview.states)] = 0.0
            self.reach = self.reach.with_variances(variances)
        self.known = known
        self.limits = None if input_bounds is None else InputLimits(input_bounds, m)
        self.delta, self.draws = delta, as_count("draws", draws)
        inputs = usual[d:] if self.limits is None else self.limits.names
        self.names = [str(name) for name in (*names, *inputs)]
        self.check = fleet_check(decoder, cost, x, ahead)
        # Where an actuator ends is known if that is declared.
        self.declared = np.zeros(m, bool) if self.limits is None else self.limits.finite
        self.findings = [
            one
            for one in self.check.findings
            if one.found or one.way != "fifths" or not self.declared[(one.regressor or d) - d]
        ]
        # Every machine is judged by the same numbers, whichever others are certified beside it.
        self.seed = 0 if rng is None else int(rng.integers(2**63))

    def all_of(
        self,
        contexts: Sequence[Any] | Mapping[str, Any],
        machine: str | Sequence[str | None] | None,
        progress: Callable[[int], object] | None = None,
        gains: Float[Array, "n *steps m d"] | None = None,
    ) -> list[Certificate]:
        """Those of machines with these contexts, and the best controllers or those given."""
        matrices = self.decoder.context_map.matrices(contexts)
        named, labels = one_by_one(contexts), machine_labels(machine, len(matrices), "contexts")
        if self.preview is not None:
            require_staying(self.decoder, matrices, self.preview)
        with np.errstate(over="ignore", invalid="ignore"):
            belief = self.decoder.machines(contexts, machine)
        certificates: list[Certificate] = []
        for first in range(0, len(matrices), _CHUNK):
            part = slice(first, first + _CHUNK)
            own = None if gains is None else gains[part]
            certificates += self.certificates(
                named[part], matrices[part], belief[part], own, labels[part]
            )
            if progress is not None:
                progress(len(named[part]))
        return certificates

    def along(self, schedule: Schedule, machine: str | None) -> Certificate:
        """That of a machine whose context changes."""
        require(machine is None, "a schedule is for a machine never seen: leave out its label")
        require(self.preview is None, "a schedule and a forecast cannot be had together yet")
        if not isinstance(self.cost, QuadraticCost):
            raise InputError("a schedule is of one episode, so its cost must be a QuadraticCost")
        steps = self.cost.horizon - 1
        require(
            len(schedule) == steps,
            f"the schedule has {len(schedule)} contexts, but the cost {steps} steps",
        )
        G = self.decoder.context_map.matrices(schedule.contexts)
        with np.errstate(over="ignore", invalid="ignore"):
            belief = self.decoder.schedule(schedule)
        return self.certificates([schedule], G[None], belief[None])[0]

    # What overflows is no error here: it ends as an infinite cost, and `do not use`.
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def certificates(
        self,
        contexts: list[Any],
        G: Float[Array, "n *steps p y"],
        belief: MachineBelief | ScheduleBelief,
        given: Float[Array, "n *played m d"] | None = None,
        labels: Sequence[str | None] = (),
    ) -> list[Certificate]:
        """Those of machines with these context matrices, and the controllers given, if any.

        Those with `labels` have data of their own.
        """
        decoder, cost, x, reach = self.decoder, self.cost, self.start, self.reach
        if self.known is not None:
            belief = belief.with_noise(self.known)
        if isinstance(cost, StationaryCost) and self.known is None:  # all of it is due to noise
            reach = reach.with_variances(np.diagonal(belief.noise))
        machines = (
            plausible_machines(decoder, G, belief, reach, self.delta, cost, x)
            if isinstance(belief, MachineBelief)
            else plausible_schedules(decoder, G, belief, reach, self.delta, cost, x)
        )
        hedge, doubt = self.check.hedge, belief.covariances
        if self.preview is not None:
            machines, doubt = machines.ahead(self.preview), doubt[:, None]
        uncertainty = None
        if hedge:
            uncertainty = record(object.__new__(ModelUncertainty), covariances=hedge * doubt)
        expected = machines.systems(reach.noise)
        planned = solve(expected, cost, uncertainty=uncertainty)
        good = np.asarray(planned.solved)
        n, seen = len(G), np.zeros(len(G), bool)
        seen[: len(labels)] = [label is not None for label in labels]
        gains = gains_of(planned.policy) if given is None else given
        gains = np.where(good.reshape(-1, *[1] * (gains.ndim - 1)), gains, 0.0)
        if given is None and isinstance(belief, MachineBelief):
            self._refine(belief, gains, ~seen)
        policy = policy_for(cost, gains)
        predicted = np.asarray(policy_cost(policy, expected, cost, x))

        highest = machines.highest(policy, reach.most_noise)
        lowest = machines.lowest(reach.least_noise)
        upper, lower = np.full(n, np.inf), np.full(n, cost.floor(x, reach.least_noise))
        if self.bounds and isinstance(policy, LinearPolicy):
            upper, multipliers = upper_bounds(machines, policy, reach.most_noise)
            lower = lower_bounds(machines, reach.least_noise, multipliers)
        # The bounds hold to rounding; an interval that excludes what was found would be puzzling.
        upper, lower = np.fmax(upper, highest), np.fmin(lower, lowest)
        upper[np.isnan(upper)] = np.inf
        below, above = self.check.widening
        missed, findings = unmodelled(
            self.findings, expected, gains, cost, x, predicted, self.names
        )
        lower = np.fmin(lower, predicted / np.exp(below)) / (1 + missed)
        upper = np.fmax(upper, predicted * np.exp(above)) * (1 + missed)
        excess, unstable = self._on_draws(belief, policy)
        excess = (excess + missed) * self.check.factor
        if isinstance(cost, StationaryCost):  # its ends are found by search
            lowest = np.fmin(lowest, predicted / np.exp(below)) / (1 + missed)
            highest = np.fmax(highest, predicted * np.exp(above)) * (1 + missed)
        margins, played = over_steps(machines.centre, gains, cost)
        moments = usual_moments(machines.centre, reach.noise, played, x)
        run = run_range(machines.centre, reach.noise, played, x)
        beyond = reasons_to_doubt(decoder, contexts, G, labels, self.check, cost, self.names)
        far, notes = self._beyond_logged(belief, machines.centre, expected, played, run, excess)
        beyond.append(far)
        columns = (
            contexts,
            gains,
            predicted.tolist(),
            good.tolist(),
            map(CostBound, lower.tolist(), lowest.tolist()),
            map(CostBound, upper.tolist(), highest.tolist()),
            excess.tolist(),
            missed.tolist(),
            findings,
            unstable.tolist(),
            farthest(decoder, G, moments),
            ["; ".join(filter(None, all_of)) for all_of in zip(*beyond, strict=True)],
            margins,
            notes,
        )
        certificates = [
            Certificate(
                c,
                policy_for(cost, K),
                J,
                low,
                high,
                over,
                loose,
                far,
                *lowered(thin(judge(ok, over, loose, far), room), miss, finding, out, note),
                room,
            )
            for c, K, J, ok, low, high, over, miss, finding, loose, far, out, room, note in zip(
                *columns, strict=True
            )
        ]
        certificates = self._limited(certificates, belief, played, run)
        whys = [REASONS.get(Status(int(one)), "") for one in np.asarray(planned.status)]
        certificates = [
            replace(one, reason=f"{why}; {one.reason}") if why else one
            for one, why in zip(certificates, whys, strict=True)
        ]
        for i, one in enumerate(certificates):  # what it leans on comes first
            if one.verdict != "trust" and (still := hardly_moved(decoder, G[i], self.names)):
                certificates[i] = replace(one, reason=f"{still}; {one.reason}")
        return certificates

    def _refine(
        self,
        belief: MachineBelief,
        gains: Float[Array, "n *steps m d"],
        unseen: Bool[Array, " n"],
    ) -> None:
        """Refine the gains of machines never seen if the backtest asks for it; of others by need.

        There is need where machines deviate from the law, and the claim would not be trusted.
        """
        cost, x, population, ahead = self.cost, self.start, self.decoder.population, self.preview
        if population is None or not refinable(cost):
            return
        if self.check.refined and unseen.any():
            hedged = gains[unseen]
            gains[unseen] = refined_gains(
                belief[unseen], hedged, cost, x, population, preview=ahead
            )
        own = np.flatnonzero(~unseen)
        if len(own) and population.deviating.any():
            excess, _ = self._on_draws(belief[own], policy_for(cost, gains[own]))
            far = own[excess * self.check.factor > TRUSTED_EXCESS]
            gains[far] = refined_on_draws(belief[far], gains[far], cost, x, ahead)

    def _limited(
        self,
        certificates: list[Certificate],
        belief: MachineBelief | ScheduleBelief,
        gains: Float[Array, "n steps m d"],
        run: tuple[Float[Array, "n y"], Float[Array, "n y"]],
    ) -> list[Certificate]:
        """Count what the limits of inputs cost, if there are any."""
        if self.limits is None or not self.limits.any:
            return certificates
        return [
            counted(
                certificates[i], self._clipped(belief[i], gains[i], self.limits, self.draws), beyond
            )
            for i, beyond in enumerate(self.limits.beyond(*run))
        ]

    def _clipped(
        self,
        belief: MachineBelief | ScheduleBelief,
        gains: Float[Array, "steps m d"],
        limits: InputLimits,
        draws: int,
    ) -> Saturation:
        """What such limits would cost one machine."""
        cost, rng = episode_cost(self.cost, len(gains)), np.random.default_rng(self.seed)
        drawn = foreseen(belief.draw(draws, rng), self.preview)
        return saturation(LinearPolicy(gains), drawn, cost, self.start, limits, QUANTILE, rng)

    def _beyond_logged(
        self,
        belief: MachineBelief | ScheduleBelief,
        M: Float[Array, "n *steps d y"],
        system: Dynamics,
        gains: Float[Array, "n steps m d"],
        run: tuple[Float[Array, "n y"], Float[Array, "n y"]],
        excess: Float[Array, " n"],
    ) -> tuple[list[str], list[str]]:
        """What in each run is too far beyond the logs; and what is far, but matters little."""
        n, m, logged = len(gains), gains.shape[2], self.decoder.logged
        notes = [""] * n
        if logged is None:
            return [""] * n, notes
        declared = self.declared
        far = beyond_logs(logged, M, run, self.names, declared)
        said, limits = list(far.said), believed_limits(logged, self.names[-m:], declared)
        able = far.far & far.by_inputs & (excess <= TRUSTED_EXCESS)
        if not able.any():
            return said, notes
        cost = episode_cost(self.cost, gains.shape[1])
        weaker = weaker_costs(self.findings, system, gains, cost, self.start, declared)
        for i in np.flatnonzero(able & (excess + weaker <= BAD)).tolist():
            met = self._clipped(belief[i], gains[i], limits, min(self.draws, _BEYOND))
            more = max(met.excess, float(weaker[i]))
            if excess[i] + more <= BAD:
                said[i] = ""
                notes[i] = (
                    f"{far.farthest[i]}, which may cost {percent(more)} more if it gives less"
                )
        return said, notes

    def _on_draws(
        self, belief: MachineBelief | ScheduleBelief, policy: Policy
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The excess over each draw's optimum at the quantile, and the share of growing draws."""
        n = len(belief.mean)
        (paid, best), unstable = np.empty((2, n, self.draws)), np.empty(n)
        for i in range(n):
            drawn = belief[i].draw(self.draws, np.random.default_rng(self.seed))
            own = policy_for(self.cost, gains_of(policy)[i])
            # Modes are of the loop without the forecast: it pushes, and nothing pushes it.
            seen = foreseen(drawn, self.preview)
            paid[i] = policy_cost(own, seen, self.cost, self.start)
            best[i] = optimal_cost(seen, self.cost, self.start)
            unstable[i] = grows(drawn, gains_of(own), self.cost).mean()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = (paid - best) / np.abs(best)
        ratio = np.where(np.isfinite(ratio), np.maximum(ratio, 0.0), np.inf)
        return np.quantile(ratio, QUANTILE, axis=1, method="higher"), unstable
