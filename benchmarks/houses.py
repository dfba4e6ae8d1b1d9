"""225 real houses, simulated: their truth, their logs, and what a controller costs on them.

`benchmarks/real_fleets.py` measures with them. Only the thermometer is seen: the state is 1, the
outdoor temperature, the last three readings and the last two heat inputs. Only the row of the next
reading is unknown; the outdoor temperature is taken to stay as it is. The excess of a controller is
its exact expected cost on the true house over that of the best controller that sees all masses.

Logs begin at midnight, all masses of a house at the 17 °C of its thermostat by night. That is where
the task starts, too: from 20 °C, 12 h of logs teach far less about heating from 17.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.linalg import expm

import contextual_lqr as clqr

Array = np.ndarray
HOUSES = Path(__file__).parent / "data" / "houses.csv"
STEP, WEEK, HORIZON = 0.5, 336, 24  # h, steps, states
MASSES = ("Ti", "Tm", "Te", "Th", "Ts")
NOISE, THERMOMETER = 0.03, 0.02  # K
OUTDOORS, START, TARGET = 5.0, 17.0, 20.0  # °C
# The state: 1, outdoors / 10, reading - 20 (now, one and two steps ago), the last two inputs.
d, READING = 7, 2
BEGIN = np.array([1, OUTDOORS / 10, *[START - TARGET] * 3, 0, 0])
R = np.array([[0.02]])
COST = clqr.QuadraticCost(
    np.broadcast_to(np.diag(np.eye(d)[READING]), (HORIZON, d, d)),
    np.broadcast_to(R, (HORIZON - 1, 1, 1)),
)


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


class Logs(NamedTuple):
    """What thermostats, thermometers and weather stations wrote, (steps + 1, n) each."""

    readings: Array  # °C
    heats: Array  # kW
    outside: Array  # °C


def thermostats(houses: Houses, steps: int, rng: np.random.Generator) -> Logs:
    """All houses under their thermostats, from midnight on."""
    n = len(houses.A)
    x = houses.present * START
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
    return Logs(readings, heats, outside)


def trajectory(logs: Logs) -> clqr.Trajectory:
    """The same as episodes of our own state, made by hand: states (n, steps - 1, 7), heat."""
    readings, heats, outside = logs
    end, n = readings.shape
    columns = [np.ones((end - 2, n)), outside[2:] / 10]
    columns += [readings[2 - lag : end - lag] - TARGET for lag in range(3)]
    columns += [heats[2 - lag : end - lag] for lag in (1, 2)]
    states = np.stack(columns, axis=-1).transpose(1, 0, 2)
    return clqr.Trajectory(states, heats[2 : end - 1].T[..., None])


def log(houses: Houses, steps: int, rng: np.random.Generator) -> clqr.Trajectory:
    """The episodes of all houses under their thermostats."""
    return trajectory(thermostats(houses, steps, rng))


def new_decoder() -> clqr.Decoder:
    """Nothing learnt yet: the context is when a house was built and how large it is."""
    context_map = clqr.FeatureContext(["1", "built", "size"], states=d, inputs=1)
    given = {0: 0, 1: 1, 3: 2, 4: 3, 5: 7, 6: 5}  # a state will be what that of [x; u] is
    p = 3 * (d + 1)
    level = np.array([0, 0.1, 0.05, 0, 0, 0, 0])
    return clqr.Decoder(
        context_map,
        1e-6,
        noise_level=level,
        known={state: np.eye(p)[place] for state, place in given.items()},
        deviations="estimated",
    )


def contexts_of(houses: Houses) -> list[dict[str, float]]:
    """What the owners said."""
    return [{"built": float(row[1]), "size": float(row[2])} for row in houses.features]


def exact_costs(
    houses: Houses,
    gains: Array,
    weather: Array | None = None,
    history: tuple[int, int] = (3, 2),
    seen: Array | None = None,
    keep: float = 0.0,
) -> Array:
    """The expected cost of each controller on its true house, by second moments.

    ζ: five masses, the last readings, the last inputs, 1; temperatures less 20 °C. `history` has
    how many readings and inputs the controller remembers, `seen` its state at each step from ζ,
    (H-1, d, ζ), if it is not our own state; `keep` is how much of what is past stays in a step.
    `weather` is °C at each step, constant unless given.
    """
    n, (q, r) = len(houses.A), history
    size = 6 + q + r
    outdoors = np.full(HORIZON - 1, OUTDOORS) if weather is None else weather
    if seen is None:
        seen = np.zeros((HORIZON - 1, 2 + q + r, size))
        seen[:, 0, -1], seen[:, 1, -1] = 1, outdoors / 10
        seen[:, range(2, 2 + q + r), range(5, 5 + q + r)] = 1
    zeta = np.zeros((n, size))
    zeta[:, :5] = houses.present * (START - TARGET)
    zeta[:, 5 : 5 + q], zeta[:, -1] = START - TARGET, 1
    moment = zeta[:, :, None] * zeta[:, None]
    moment[:, 5, 5] += THERMOMETER**2
    weight = np.zeros((n, size, size))
    weight[:, :5, :5] = houses.shown[:, :, None] * houses.shown[:, None]
    total = np.zeros(n)
    for t in range(HORIZON):
        total += np.einsum("nij,nij->n", weight, moment)
        if t == HORIZON - 1:
            break
        step, noise = _open_loop(houses, outdoors[t], q, r, keep)
        K = gains[:, t] @ seen[t]  # (n, 1, ζ)
        total += R[0, 0] * (K @ moment @ K.transpose(0, 2, 1))[:, 0, 0]
        closed = step[:, :, :size] + step[:, :, size:] @ K
        moment = closed @ moment @ closed.transpose(0, 2, 1) + noise
    return total


def best_costs(houses: Houses, weather: Array | None = None) -> Array:
    """The least expected cost of controllers that see all masses, and know the weather."""
    n = len(houses.A)
    outdoors = np.full(HORIZON - 1, OUTDOORS) if weather is None else weather
    keep = [*range(5), 10]  # masses and 1
    x = np.concatenate([houses.present * (START - TARGET), np.ones((n, 1))], axis=1)
    stage = np.zeros((n, 7, 7))
    stage[:, :5, :5] = houses.shown[:, :, None] * houses.shown[:, None]
    P, spent = stage[:, :6, :6], np.zeros(n)
    stage[:, 6:, 6:] = R
    for now in outdoors[::-1]:
        step, noise = _open_loop(houses, now, 3, 2)
        AB, W = step[:, keep][:, :, [*keep, 11]], noise[:, keep][:, :, keep]
        spent += np.einsum("nij,nij->n", P, W)
        M = stage + AB.transpose(0, 2, 1) @ P @ AB
        P = M[:, :6, :6] - M[:, :6, 6:] @ M[:, 6:, :6] / M[:, 6:, 6:]
    return np.einsum("ni,nij,nj->n", x, P, x) + spent


def _open_loop(
    houses: Houses, outdoors: float, q: int, r: int, keep: float = 0.0
) -> tuple[Array, Array]:
    """ζ' = step [ζ; u] + noise, and the covariance of that; q readings, r inputs."""
    n, size = len(houses.A), 6 + q + r
    step, enter = np.zeros((n, size, size + 1)), np.zeros((n, size, 6))
    step[:, :5, :5], step[:, :5, -1] = houses.A, houses.B
    # 20 °C everywhere is left for outdoors: A 20 + E outdoors - 20
    level = TARGET * houses.present
    rest = np.einsum("nij,nj->ni", houses.A, level) + houses.E * outdoors - level
    step[:, :5, -2] = houses.present * rest
    enter[:, :5, :5] = NOISE * np.eye(5) * houses.present[:, None]
    step[:, 5] = np.einsum("ni,nij->nj", houses.shown, step[:, :5])
    enter[:, 5] = np.einsum("ni,nij->nj", houses.shown, enter[:, :5])
    enter[:, 5, 5] = THERMOMETER
    step[:, range(6, 5 + q), range(5, 4 + q)] = 1 - keep
    if r:
        step[:, 5 + q, -1] = 1 - keep
        step[:, range(6 + q, 5 + q + r), range(5 + q, 4 + q + r)] = 1 - keep
    past = range(6, 5 + q + r)
    step[:, past, past] = keep
    step[:, -1, -2] = 1
    return step, enter @ enter.transpose(0, 2, 1)
