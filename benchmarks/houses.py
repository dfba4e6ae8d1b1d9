"""225 real houses: what a fleet that obeys no law teaches about a house never seen.

`python benchmarks/houses.py` takes some minutes and prints a table; `--dev` uses the seeds on which
choices were made, `--quick` only one. 150 houses, drawn at random, have a week of logs; the other
75 get a controller zero-shot, and again with some hours of their own. Only the thermometer is seen:
the state is 1, the outdoor temperature, the last three readings and the last two heat inputs, so
the row of the next reading is all there is to learn. The excess of a controller is its exact
expected cost on the true house over that of the best controller that sees all masses.

Logs begin at midnight, all masses of a house at one temperature between 15 and 20 °C. The cooler,
the more its first hours tell about heating from 17 °C: 12 h from 20 °C teach far less.
"""

import csv
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.linalg import expm

from contextual_lqr.belief.deviations import Deviations, estimate_deviations, machine_weights
from contextual_lqr.belief.machine_factors import (
    Belief,
    MachineFactors,
    Pooled,
    fleet_belief,
    leave_one_out,
    machine_posterior,
    pool,
    reduce_rows,
    whitened_rows,
)

Array = np.ndarray
HOUSES = Path(__file__).parent / "data" / "houses.csv"
DEV, REPORTED = range(5), range(100, 108)
LEARNT = 150
STEP, WEEK, HORIZON = 0.5, 336, 24  # h, steps, states
MASSES = ("Ti", "Tm", "Te", "Th", "Ts")
NOISE, THERMOMETER = 0.03, 0.02  # K
OUTDOORS, START, TARGET = 5.0, 17.0, 20.0  # °C
# The state: 1, outdoors / 10, reading - 20 (now, one and two steps ago), the last two inputs.
d, READING = 7, 2
Q = np.zeros((d, d))
Q[READING, READING] = 1.0
R = np.array([[0.02]])
SWEEPS = 30
LEVELS = np.exp2(np.arange(-1, 3.1, 0.25))  # of hedging


class Houses(NamedTuple):
    """True houses in discrete time, of up to five masses: x' = A x + B heat + E outdoors."""

    A: Array  # (n, 5, 5)
    B: Array  # (n, 5)
    E: Array  # (n, 5)
    shown: Array  # (n, 5): what the thermometer shows
    present: Array  # (n, 5): which masses there are
    features: Array  # (n, k): what the owner said

    def some(self, chosen: Array) -> "Houses":
        """Some of the houses."""
        return Houses(*(part[chosen] for part in self))


def load() -> Houses:
    """All houses, discretised exactly."""
    with HOUSES.open() as file:
        rows = list(csv.DictReader(file))
    n = len(rows)
    A, B, E = np.zeros((n, 5, 5)), np.zeros((n, 5)), np.zeros((n, 5))
    shown, present = np.zeros((n, 5)), np.zeros((n, 5))
    for k, row in enumerate(rows):
        has = [mass in row["structure"] for mass in MASSES]
        flow = np.zeros((7, 7))  # d/dt of masses, heat, outdoors
        capacity = [float(row[f"C{mass[1]}"] or 1) for mass in MASSES]

        def link(one: int, other: int, resistance: str, row=row, flow=flow, C=capacity) -> None:
            rate = 1 / float(row[resistance])
            for a, b in ((one, other), (other, one)):
                if a < 5:
                    flow[a, a] -= rate / C[a]
                    flow[a, b] += rate / C[a]

        for mass, resistance in ((1, "Rim"), (2, "Rie"), (3, "Rih"), (4, "Ris")):
            if has[mass]:
                link(0, mass, resistance)
        if has[2]:
            link(2, 6, "Rea")
        if not has[2] or "Ria" in row["structure"]:
            link(0, 6, "Ria")
        heated = 3 if has[3] else 0
        flow[heated, 5] = 1 / capacity[heated]
        discrete = expm(STEP * flow)
        A[k], B[k], E[k] = discrete[:5, :5], discrete[:5, 5], discrete[:5, 6]
        shown[k, 4 if has[4] else 0] = 1
        present[k] = has
    return Houses(A, B, E, shown, present, np.array([_features(row) for row in rows]))


def _features(row: dict[str, str]) -> list[float]:
    """1, when built and how large, both about 0 and of size 1; 0 if the owner did not say."""
    years = [int(year) for year in row["build_period"].split("-") if year]
    when = (np.mean(years) - 1980) / 25 if years else 0.0
    low, _, high = row["home_size"].partition("-")
    size = np.log((float(low) + float(high)) / 2 / 125) if high else 0.0
    return [1.0, float(when), float(size)]


def log(houses: Houses, steps: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows [y, next reading] of each house under its thermostat: (n, rows, 8) and (n, rows, 1)."""
    n = len(houses.A)
    x = houses.present * rng.uniform(15, 20, (n, 1))
    phase, drift = rng.uniform(0, 24, n), rng.normal(0, 1, n)
    readings, heats, outside = (np.zeros((steps + 1, n)) for _ in range(3))
    for t in range(steps + 1):
        hour = (STEP * t) % 24
        readings[t] = (houses.shown * x).sum(1) + THERMOMETER * rng.normal(size=n)
        wanted = 20.0 if 7 <= hour < 22 else 17.0
        heats[t] = np.clip(2 * (wanted - readings[t]) + 1.5 * rng.normal(size=n), 0, 8)
        drift = 0.99 * drift + 0.2 * rng.normal(size=n)
        outside[t] = OUTDOORS + 4 * np.sin(2 * np.pi * (hour + phase) / 24) + drift
        x = np.einsum("nij,nj->ni", houses.A, x)
        x += houses.B * heats[t, :, None] + houses.E * outside[t, :, None]
        x += NOISE * houses.present * rng.normal(size=(n, 5))
    now = slice(2, steps)
    columns = [np.ones((steps - 2, n)), outside[now] / 10]
    columns += [readings[2 - lag : steps - lag] - TARGET for lag in range(3)]
    columns += [heats[2 - lag : steps - lag] for lag in (1, 2, 0)]
    y, after = np.stack(columns, axis=-1), readings[3 : steps + 1, :, None] - TARGET
    return y.transpose(1, 0, 2), after.transpose(1, 0, 2)


def factors_of(houses: Houses, y: Array, after: Array) -> MachineFactors:
    """The factors of the row of the reading."""
    maps = np.einsum("nk,ij->nkij", houses.features, np.eye(d + 1)).reshape(len(y), -1, d + 1)
    own, F, rss = reduce_rows(y, after)
    return MachineFactors(maps, own, F, rss, np.full(len(y), float(y.shape[1])))


def systems(rows: Array) -> Array:
    """[A, B] (n, 7, 8) with these rows of the reading, (n, 8); the others are known."""
    full = np.zeros((len(rows), d, d + 1))
    full[:, 0, 0] = full[:, 1, 1] = 1  # 1, outdoors: as they are
    full[:, 3, 2] = full[:, 4, 3] = 1  # older readings
    full[:, 5, 7] = full[:, 6, 5] = 1  # older inputs
    full[:, READING] = rows
    return full


def hedged_gains(means: Array, covariances: Array) -> Array:
    """Gains (n, 23, 1, 7) against rows of the reading with these means and covariances.

    Riccati with E[Dᵀ P D] = Σ_r P_rr Cov_r, D being what [A, B] differs from its mean; covariances
    of 0 give certainty equivalence.
    """
    AB = systems(means)
    n = len(AB)
    stage = np.zeros((d + 1, d + 1))
    stage[:d, :d], stage[d:, d:] = Q, R
    P = np.broadcast_to(Q, (n, d, d))
    gains = np.empty((n, HORIZON - 1, 1, d))
    for t in reversed(range(HORIZON - 1)):
        M = stage + AB.transpose(0, 2, 1) @ P @ AB
        M = M + P[:, READING, READING, None, None] * covariances
        gains[:, t] = K = -M[:, d:, :d] / M[:, d:, d:]
        P = M[:, :d, :d] + M[:, :d, d:] @ K
        P = (P + P.transpose(0, 2, 1)) / 2
    return gains


def exact_costs(houses: Houses, gains: Array) -> Array:
    """The expected cost of each controller on its true house, by second moments.

    ζ: five masses, three readings, two inputs, 1; temperatures less 20 °C.
    """
    n = len(houses.A)
    step, noise = _open_loop(houses)
    seen = np.zeros((d, 11))  # the controller's state, of ζ
    seen[0, 10], seen[1, 10] = 1, OUTDOORS / 10
    seen[range(2, 7), range(5, 10)] = 1
    zeta = np.zeros((n, 11))
    zeta[:, :5] = houses.present * (START - TARGET)
    zeta[:, 5:8], zeta[:, 10] = START - TARGET, 1
    moment = zeta[:, :, None] * zeta[:, None]
    moment[:, 5, 5] += THERMOMETER**2
    weight = np.zeros((n, 11, 11))
    weight[:, :5, :5] = houses.shown[:, :, None] * houses.shown[:, None]
    total = np.zeros(n)
    for t in range(HORIZON):
        total += np.einsum("nij,nij->n", weight, moment)
        if t == HORIZON - 1:
            break
        K = gains[:, t] @ seen  # (n, 1, 11)
        total += R[0, 0] * (K @ moment @ K.transpose(0, 2, 1))[:, 0, 0]
        closed = step[:, :, :11] + step[:, :, 11:] @ K
        moment = closed @ moment @ closed.transpose(0, 2, 1) + noise
    return total


def best_costs(houses: Houses) -> Array:
    """The least expected cost of controllers that see all masses."""
    n = len(houses.A)
    step, noise = _open_loop(houses)
    keep = [*range(5), 10]  # masses and 1
    AB = step[:, keep][:, :, [*keep, 11]]
    W = noise[:, keep][:, :, keep]
    x = np.concatenate([houses.present * (START - TARGET), np.ones((n, 1))], axis=1)
    stage = np.zeros((n, 7, 7))
    stage[:, :5, :5] = houses.shown[:, :, None] * houses.shown[:, None]
    P, spent = stage[:, :6, :6], np.zeros(n)
    stage[:, 6:, 6:] = R
    for _ in range(HORIZON - 1):
        spent += np.einsum("nij,nij->n", P, W)
        M = stage + AB.transpose(0, 2, 1) @ P @ AB
        P = M[:, :6, :6] - M[:, :6, 6:] @ M[:, 6:, :6] / M[:, 6:, 6:]
    return np.einsum("ni,nij,nj->n", x, P, x) + spent


def _open_loop(houses: Houses) -> tuple[Array, Array]:
    """ζ' = step [ζ; u] + noise, and the covariance of that."""
    n = len(houses.A)
    step, enter = np.zeros((n, 11, 12)), np.zeros((n, 11, 6))
    step[:, :5, :5], step[:, :5, 11] = houses.A, houses.B
    # 20 °C everywhere is left for outdoors: A 20 + E outdoors - 20
    level = TARGET * houses.present
    rest = np.einsum("nij,nj->ni", houses.A, level) + houses.E * OUTDOORS - level
    step[:, :5, 10] = houses.present * rest
    enter[:, :5, :5] = NOISE * np.eye(5) * houses.present[:, None]
    step[:, 5] = np.einsum("ni,nij->nj", houses.shown, step[:, :5])
    enter[:, 5] = np.einsum("ni,nij->nj", houses.shown, enter[:, :5])
    enter[:, 5, 5] = THERMOMETER
    step[:, 6, 5] = step[:, 7, 6] = 1
    step[:, 8, 11] = step[:, 9, 8] = 1
    step[:, 10, 10] = 1
    return step, enter @ enter.transpose(0, 2, 1)


class Learnt(NamedTuple):
    """What 150 houses have taught; `level` is how much to hedge a house never seen."""

    found: Deviations
    pooled: Pooled
    level: float
    own: Array  # (150, 8): how each deviates


def learn(factors: MachineFactors) -> Learnt:
    """Deviations, Θ with them, and the level of hedging that is best on the houses themselves."""
    found = estimate_deviations(factors)
    weights = machine_weights(factors, found)
    rows = whitened_rows(factors, found.covariances, found.variances, weights)
    learnt = Learnt(found, pool(rows, prior=1e-6), 1.0, np.zeros((0, d + 1)))
    law = np.einsum("npy,p->ny", factors.maps, learnt.pooled.theta[0])
    own = belief_of(learnt, factors).means[:, 0] - law
    return learnt._replace(level=hedging_level(learnt, factors, weights), own=own)


def hedging_level(learnt: Learnt, factors: MachineFactors, weights: Array) -> float:
    """What to multiply covariances by, so that houses left out cost least relative to their best.

    Riccati hedges against deviations drawn anew at each step; those of a house stay. So the level
    is found by leaving each house out, and playing its gains on what its own logs say it is.
    """
    found = learnt.found
    left = leave_one_out(factors, learnt.pooled, found.covariances, found.variances, weights)
    own = belief_of(learnt, factors).means[:, 0]
    best = modelled_costs(own, hedged_gains(own, np.zeros((d + 1, d + 1))))

    def loss(level: float) -> float:
        gains = hedged_gains(left.means[:, 0], level * left.covariances[:, 0])
        return float((modelled_costs(own, gains) / best).mean())

    return min((float(level) for level in LEVELS), key=loss)


def gains_on_the_fleet(learnt: Learnt, belief: Belief, gains: Array) -> Array:
    """Gains of least expected relative cost if a house deviates as one of the 150 does, nearly.

    The deviations of the 150, each with a Gaussian about it (a density estimate, its width by
    Silverman's rule), stand for what is not known; those of a house stay from step to step. Each
    sweep finds the best gain of every step given the others, from the last to the first, and so
    never costs more than the gains it began with.
    """
    e, found = learnt.own, learnt.found
    n, q = e.shape
    width = (4 / ((q + 2) * n)) ** (2 / (q + 4))
    blur = width * found.covariances[0]
    noise = np.zeros((d, d))
    noise[READING, READING] = found.variances[0]
    stage = np.zeros((d + 1, d + 1))
    stage[:d, :d], stage[d:, d:] = Q, R
    start = np.array([1, OUTDOORS / 10, *[START - TARGET] * 3, 0, 0])
    first = np.outer(start, start) + np.diag([0, 0, *[THERMOMETER**2] * 3, 0, 0])
    refined = gains.copy()
    for K, mean in zip(refined, belief.means[:, 0], strict=True):
        AB = systems(mean + e)
        relative = 1 / modelled_costs(mean + e, hedged_gains(mean + e, 0 * blur))
        for _ in range(SWEEPS):
            moments = [np.broadcast_to(first, (n, d, d))]
            for t in range(HORIZON - 2):
                act = np.concatenate([np.eye(d), K[t]])
                closed = AB @ act
                after = closed @ moments[-1] @ closed.transpose(0, 2, 1) + noise
                after[:, READING, READING] += np.einsum(
                    "ij,nij->n", act.T @ blur @ act, moments[-1]
                )
                moments.append(after)
            P = np.broadcast_to(Q, (n, d, d))
            for t in reversed(range(HORIZON - 1)):
                M = stage + AB.transpose(0, 2, 1) @ P @ AB
                M = M + P[:, READING, READING, None, None] * blur
                # 0 = Σ over houses of (M_uu K + M_ux) moment
                left = np.einsum("n,nij->ij", relative * M[:, d, d], moments[t])
                right = np.einsum("n,ni,nij->j", relative, M[:, d, :d], moments[t])
                sizes = np.sqrt(np.diagonal(left)) + 1e-300
                scaled = left / sizes[:, None] / sizes + 1e-9 * np.eye(d)
                K[t, 0] -= np.linalg.solve(scaled, (right + left @ K[t, 0]) / sizes) / sizes
                act = np.concatenate([np.eye(d), K[t]])
                P = act.T @ M @ act
    return refined


def modelled_costs(rows: Array, gains: Array) -> Array:
    """The cost of gains on houses whose readings follow these rows, without noise."""
    AB = systems(rows)
    x = np.broadcast_to([1, OUTDOORS / 10, *[START - TARGET] * 3, 0, 0], (len(AB), d))
    total = np.zeros(len(AB))
    for t in range(HORIZON):
        total += x[:, READING] ** 2
        if t < HORIZON - 1:
            u = np.einsum("nmi,ni->nm", gains[:, t], x)
            total += R[0, 0] * u[:, 0] ** 2
            x = np.einsum("nij,nj->ni", AB, np.concatenate([x, u], axis=1))
    return total


def belief_of(learnt: Learnt, own: MachineFactors) -> Belief:
    """What the fleet and their own rows say about houses."""
    found = learnt.found
    weights = machine_weights(own, found)[:, :, None, None]
    prior = fleet_belief(own.maps, learnt.pooled, np.zeros_like(found.covariances), found.variances)
    spread = prior.covariances + found.covariances / weights
    return machine_posterior(own.R, own.F, prior.means, spread, found.variances)


def excesses(seed: int, houses: Houses) -> dict[str, Array]:
    """The excess of every kind of controller on the 75 houses left out."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(houses.A))
    old, new = houses.some(order[:LEARNT]), houses.some(order[LEARNT:])
    learnt = learn(factors_of(old, *log(old, WEEK, rng)))
    y, after = log(new, WEEK, rng)
    best = best_costs(new)

    def excess(means: Array, covariances: Array) -> Array:
        return exact_costs(new, hedged_gains(means, covariances)) / best - 1

    nothing = np.zeros((len(y), d + 1, d + 1))
    maps = factors_of(new, y, after).maps
    zero = fleet_belief(maps, learnt.pooled, learnt.found.covariances, learnt.found.variances)
    level = hedged_gains(zero.means[:, 0], learnt.level * zero.covariances[:, 0])
    on_the_fleet = gains_on_the_fleet(learnt, zero, level)
    results = {
        "zero-shot, mean": excess(zero.means[:, 0], nothing),
        "zero-shot, hedged": excess(zero.means[:, 0], zero.covariances[:, 0]),
        "zero-shot, level": exact_costs(new, level) / best - 1,
        "zero-shot, fleet": exact_costs(new, on_the_fleet) / best - 1,
    }
    for name, steps in (("12 h", 24), ("24 h", 48), ("48 h", 96), ("a week", WEEK)):
        rows = slice(0, steps - 2)
        own = factors_of(new, y[:, rows], after[:, rows])
        belief = belief_of(learnt, own)
        results[f"{name}, mean"] = excess(belief.means[:, 0], nothing)
        results[f"{name}, hedged"] = excess(belief.means[:, 0], belief.covariances[:, 0])
        pairs = zip(own.R, own.F[..., 0], strict=True)
        alone = np.stack([np.linalg.lstsq(*pair, rcond=None)[0] for pair in pairs])
        results[f"{name}, own fit"] = excess(alone, nothing)
    return results


def main() -> None:
    """Play all seeds and print the table."""
    seeds = DEV if "--dev" in sys.argv else REPORTED
    seeds = seeds[:1] if "--quick" in sys.argv else seeds
    houses = load()
    runs = [excesses(seed, houses) for seed in seeds]
    print(
        f"{len(runs)} seeds; excess over the optimum of 75 houses, median over seeds (worst seed)"
    )
    for name in runs[0]:
        cells = []
        for of in (np.median, lambda a: np.quantile(a, 0.9), np.max):
            values = [float(of(run[name])) for run in runs]
            cells.append(f"{np.median(values):9.3g} ({np.max(values):9.3g})")
        print(f"{name:20s}", *cells, sep="  ")


if __name__ == "__main__":
    main()
