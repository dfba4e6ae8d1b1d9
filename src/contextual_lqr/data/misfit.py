"""The misfit alarm: machines that stand out, although all machines differ.

A wrong mass on a label, or a broken actuator, makes a machine behave unlike all others. Whether it
does is tested in `outliers.py`. Beside the p-value stand two effects: how far the others'
controller is above the best possible on the machine as its own data show it, and the context that
explains these data best.

That is searched for within bounds: of many points that fill them evenly, the best three are refined
by Nelder and Mead's simplex. A value whose bounds are positive, such as a mass, is searched by its
logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.machine import MachineBelief
from contextual_lqr.belief.machines.machine_factors import machine_posterior
from contextual_lqr.certificates.backtest import hedged_policy, relative_excess
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.data.outliers import Outliers, OutlierTest
from contextual_lqr.errors import ContextError
from contextual_lqr.lqr.solve import optimal_cost, policy_cost
from contextual_lqr.lqr.stationary import Cost

LEAST_MACHINES = 4
MOST_MACHINES = 20_000
LEVEL = 0.01
_EXPLAINED = 20  # machines whose best context is searched for, those that stand out most
_COSTED = 1000  # machines of which it is known how much costlier they are, the same
_POINTS = 256  # contexts that are tried, a power of two, as Sobol's sequence wants it
_REFINED = 3
_STEPS = 300  # of the simplex, for each value


@dataclass(frozen=True)
class MachineReport:
    """One machine: its p-value, corrected for the number of machines, and what stands out.

    `excess` is how far the controller that the others suggest is above the best possible on the
    machine as its own data show it; with many machines it is computed for the thousand that stand
    out most, and is NaN for the others. `context` is what its label says, `behaves_like` the
    context that explains its data best; both are set if the machine is named, the latter if any
    context within bounds explains them. The errors are those of a step, in standard deviations of
    the noise, for the machine's own fit and for the others' law on steps that neither has seen.
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
    cost: Cost,
    start: Float[Array, " d"],
    *,
    states: Sequence[str],
    bounds: Mapping[str, tuple[float, float]],
    level: float = LEVEL,
) -> MisfitReport:
    """Test every machine that the decoder keeps apart, for a task, within bounds of contexts."""
    store = decoder.store
    if store is not None and len(store) > MOST_MACHINES:
        return MisfitReport(
            not_run="there are too many machines for the misfit alarm; a column `machine` says "
            "which episodes belong together"
        )
    everyone = decoder.population
    if store is None or everyone is None or len(store) < LEAST_MACHINES:
        return MisfitReport(not_run=f"the misfit alarm needs at least {LEAST_MACHINES} machines")
    fleet = Outliers(decoder, everyone.factors)
    test = fleet.settled(level)
    effects = _Effects(fleet, test)
    named = test.corrected <= level
    linear = not isinstance(decoder.context_map, Dynamics)
    worst = np.lexsort((-test.F.max(1), test.corrected))
    gone = np.full(len(named), np.nan)
    if linear:
        gone[worst[:_COSTED]] = effects.excess(worst[:_COSTED], cost, start)
    local, shared = effects.errors()
    labels, rows, corrected = decoder.machine_labels, fleet.factors.rows, test.corrected
    columns = (one.tolist() for one in (rows, corrected, named, gone, local, shared))
    told = list(zip(*columns, test.p.argmin(1).tolist(), strict=True))
    reasons = [f"'{state}' does not behave as the fleet predicts" for state in states]
    reports = []
    for rank, i in enumerate(worst.tolist()):
        count, p_value, stands_out, excess, own_error, fleet_error, oddest = told[i]
        what = reasons[oddest]
        says: dict[str, float] = {}
        like: dict[str, float] = {}
        if stands_out and bounds and linear and rank < _EXPLAINED:
            says, like = effects.labelled(i, bounds), effects.explained(i, bounds, level)
        if like:
            what = f"behaves like {_shown(like)}, label says {_shown(says)}"
        reports.append(
            MachineReport(
                labels[i],
                int(count),
                p_value,
                stands_out,
                what,
                excess,
                own_error,
                fleet_error,
                says,
                like,
            )
        )
    return MisfitReport(tuple(reports))


class _Effects:
    """What a machine that stands out comes to: beside its p-value, how large and how."""

    def __init__(self, fleet: Outliers, test: OutlierTest) -> None:
        self.fleet, self.test, self.factors = fleet, test, fleet.factors

    def excess(
        self, some: Int64[Array, " k"], cost: Cost, start: Float[Array, " d"]
    ) -> Float[Array, " k"]:
        """How far the others' controllers are above the best possible, by their own data.

        A machine that stands out by F is taken to come from deviations F times as large.
        """
        test, factors = self.test, self.factors[some]
        means, covariances = (part[some] for part in test.others)
        wide = np.maximum(test.F[some], 1.0)[..., None, None] * covariances
        own = machine_posterior(factors.R, factors.F, means, wide, test.variances)
        noise, degrees = np.diag(test.variances), test.degrees
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            policy = hedged_policy(MachineBelief(means, covariances, noise, degrees), cost, 1.0)
            truth = MachineBelief(own.means, own.covariances, noise, degrees).system
            found = relative_excess(
                np.asarray(policy_cost(policy, truth, cost, start)),
                np.asarray(optimal_cost(truth, cost, start)),
            )
        return np.asarray(found)

    def errors(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Root mean squares of a step that was not seen, by own least squares and by the others.

        Of n rows, q numbers: rss / (n - q) · (1 + q / n), and (rss + ‖F - R m‖²) / n.
        """
        factors, decoder = self.factors, self.fleet.decoder
        q, rows = factors.R.shape[1], np.maximum(factors.rows, 1)
        free = [r for r in range(factors.F.shape[2]) if r not in decoder.known]
        variance = np.maximum(self.test.variances, self.fleet.floor)
        left = (factors.rss / variance)[:, free].mean(1)
        off = factors.F - factors.R @ self.test.others.means.swapaxes(1, 2)
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

        return least_context(self.fleet.decoder.context_map, off, bounds)

    def explained(
        self, i: int, bounds: Mapping[str, tuple[float, float]], level: float
    ) -> dict[str, float]:
        """The context of which a machine's data are most likely, if they are likely then."""
        context_map, count = self.fleet.decoder.context_map, len(self.factors)

        def unlikely(maps: Float[Array, "k p y"]) -> Float[Array, " k"]:
            delta, size = self.fleet.against(i, self.test, maps, self.fleet.telling)
            return np.asarray((delta + size).sum(1))

        found = least_context(context_map, unlikely, bounds)
        delta, _ = self.fleet.against(i, self.test, context_map.matrices([found]))
        _, p = self.fleet.tails(self.test.rows, delta, self.factors.rows[[i]])
        return found if p.min() * p.size > level / count else {}


def _shown(context: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in context.items())


def least_context(
    context_map: ContextMap,
    objective: Callable[[Float[Array, "k p y"]], Float[Array, " k"]],
    bounds: Mapping[str, tuple[float, float]],
) -> dict[str, float]:
    """The context within finite bounds; where the map has no value, nor has the objective."""
    from scipy.optimize import minimize
    from scipy.stats import qmc  # takes a second to import

    names, size = list(bounds), len(bounds)
    low, high = np.array([bounds[name] for name in names], float).T
    by_ratio = low > 0
    base = np.where(by_ratio, low, 1.0)

    def contexts(points: Float[Array, "k n"]) -> dict[str, Array]:
        along = base * np.where(by_ratio, high / base, 1.0) ** points
        x = np.where(by_ratio, along, low + points * (high - low))
        return dict(zip(names, np.clip(x, low, high).T, strict=True))

    def values(points: Float[Array, "k n"]) -> Float[Array, " k"]:
        try:
            found = objective(context_map.matrices(contexts(points)))
        except ContextError:
            if len(points) == 1:
                return np.array([np.inf])
            return np.concatenate([values(point[None]) for point in points])
        return np.where(np.isfinite(found), found, np.inf)

    points = qmc.Sobol(size, scramble=False).random(_POINTS)
    tried = values(points)
    options = {"xatol": 1e-9, "fatol": 1e-9, "maxiter": _STEPS * size}
    refined = [
        minimize(
            lambda point: float(values(np.asarray(point)[None])[0]),
            points[k],
            method="Nelder-Mead",
            bounds=[(0, 1)] * size,
            options=options,
        )
        for k in np.argsort(tried, kind="stable")[:_REFINED]
    ]
    best = min(refined, key=lambda one: float(one.fun))
    return {name: float(x[0]) for name, x in contexts(best.x[None]).items()}
