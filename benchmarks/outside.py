"""Certificates on fleets that nobody has looked at, as a tester from outside would draw them.

`python benchmarks/outside.py --write` takes some minutes. Fleets are drawn at random: 2 to 6
states, 1 to 3 inputs, one or two contexts, stable or mildly unstable, whatever noise, horizon and
weights. Each is then logged and broken in ways in which engineers' fleets are, and 40 machines of
it are certified and compared with the exact cost under the true system. Seeds from 0 on are for
development (1300 and 1301 taught that one odd machine in the logs is not to be forgiven, 1400 and
1401 that controllers tuned to each machine deceive the law, 3101 that a late input may be found
and yet look harmless); those reported start at 3300.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from broken_bases import Base
from broken_fleets import Score, correlated, delay, entries, parameters, table
from numpy import ndarray as Array
from pages import write_section
from support_broken import Machines
from unforeseen import fault

import contextual_lqr as clqr
from contextual_lqr import fleets

FIRST_SEED, UNSEEN = 3300, 40

Break = Callable[..., Machines]


def drawn_fleet(rng: np.random.Generator) -> Base:
    """Any fleet: [A, B] = M₀ + Σ φᵢ Mᵢ, with a task."""
    d = int(rng.integers(2, 7))
    m = int(rng.integers(1, min(d, 3) + 1))
    horizon = int(rng.integers(12, 41))
    A = rng.standard_normal((d, d))
    A *= rng.uniform(0.6, 1.06) / np.abs(np.linalg.eigvals(A)).max()
    features = {"1": np.hstack((A, rng.standard_normal((d, m)) / 2))}
    bounds = {}
    for name in ("a", "b")[: rng.integers(1, 3)]:
        inverse = rng.uniform() < 0.5
        bounds[name] = (0.5, 2.0) if inverse else (-1.0, 1.0)
        size = rng.uniform(0.05, 0.2) / np.sqrt(d)
        features[f"1/{name}" if inverse else name] = size * rng.standard_normal((d, d + m))
    drives = tuple((j, int(np.abs(features["1"][:, d + j]).argmax())) for j in range(m))
    Q = np.diag(10 ** rng.uniform(-1, 1, d))
    cost = clqr.QuadraticCost(
        [Q] * horizon, [10 ** rng.uniform(-2, 0.5) * np.eye(m)] * (horizon - 1)
    )
    fleet = fleets.Fleet(
        clqr.FeatureContext(list(features), states=d, inputs=m, bounds=bounds),
        cost,
        rng.standard_normal(d),
        10 ** rng.uniform(-5, -2.5) * np.eye(d),
        lambda rng: {name: float(rng.uniform(*pair)) for name, pair in bounds.items()},
        np.concatenate(list(features.values()), 1),
    )
    return Base(fleet, drives)


def same(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """As the law has it."""
    return machines


def labels(part: float) -> Break:
    """True contexts are the labels', give or take this part of half their range."""

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        true = []
        for context in contexts:
            own = {}
            for name, value in context.items():
                low, high = base.fleet.context_map.bounds[name]
                off = part * (high - low) / 2 * rng.standard_normal()
                own[name] = float(np.clip(value + off, low, high))
            true.append(own)
        return base.machines(true)

    return broken


def some(share: float, times: float) -> Break:
    """This share of the machines, on no label, has inputs so many times as strong."""

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        strength = np.where(rng.uniform(size=len(machines.B)) < share, times, 1.0)
        return replace(machines, B=machines.B * strength[:, None, None])

    return broken


def second(part: float) -> Break:
    """A second context that nobody has written down changes all of [A, B]."""

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        A, B = machines.A, machines.B
        h = rng.uniform(-1, 1, len(A))[:, None, None]
        way = rng.standard_normal((A.shape[-1], A.shape[-1] + B.shape[-1]))
        M = np.concatenate((A, B), -1)
        M = M + part * h * way * np.sqrt(np.square(M).mean())
        return replace(machines, A=M[..., : A.shape[-1]], B=M[..., A.shape[-1] :])

    return broken


def dead(share: float) -> Break:
    """The first input of this share of the machines does nothing."""

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        B = machines.B.copy()
        B[rng.uniform(size=len(B)) < share, :, 0] = 0.0
        return replace(machines, B=B)

    return broken


def curved(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Halfway between the ends of a context [A, B] is a tenth off what is linear in features."""
    name, (low, high) = next(iter(base.fleet.context_map.bounds.items()))
    at = np.array([(c[name] - low) / (high - low) for c in contexts])
    M = np.concatenate((machines.A, machines.B), -1)
    way = rng.standard_normal(M.shape[1:]) * np.sqrt(np.square(M).mean())
    M = M + 0.1 * (4 * at * (1 - at))[:, None, None] * way
    d = machines.A.shape[-1]
    return replace(machines, A=M[..., :d], B=M[..., d:])


def softer(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Student noise of three degrees, and each entry 5 % off."""
    return replace(entries(0.05)(base, machines, contexts, rng), degrees=3.0)


@dataclass(frozen=True)
class Way:
    """How a fleet is broken, logged and asked."""

    broken: Break = same
    machines: int = 40
    episodes: int = 3
    dither: float | None = None  # in place of rich and poor logs
    one_gain: bool = False  # all logs under one and the same feedback
    steps: float = 1.0  # of an episode of the logs, as a share of the task's
    inputs: float = 1.0  # what the task's R is times that of the logs
    gain_error: float = 0.0  # of each sensor of each machine
    bias: float = 0.0  # the same, as a part of the usual states
    own: int = 0  # episodes of the machines that are certified
    scales: float = 0.0  # states are in units of 10 to the ± this
    spoilt: float = 0.0  # this share of the logged states is anything
    kinds: bool = False  # the first context of those logged is near one end or the other


@dataclass(frozen=True, eq=False)
class Sensors:
    """What is seen of n machines: gains * x + biases."""

    gains: Array
    biases: Array

    def shown(self, x: Array) -> Array:
        """For states (n, ..., d)."""
        shape = (len(x), *[1] * (x.ndim - 2), x.shape[-1])
        return x * self.gains.reshape(shape) + self.biases.reshape(shape)


WAYS: dict[str, Way] = {
    "exact": Way(),
    "5 machines, 5 % in each entry": Way(entries(0.05), machines=5),
    "8 machines, 10 % in each entry": Way(entries(0.1), machines=8),
    "12 machines, 20 % in each entry": Way(entries(0.2), machines=12),
    "5 machines, 10 % variation": Way(parameters(0.1), machines=5),
    "12 machines, 20 % variation": Way(parameters(0.2), machines=12),
    "8 exact machines": Way(machines=8),
    "labels off by 5 %": Way(labels(0.05)),
    "labels off by 10 %": Way(labels(0.1)),
    "one feedback, little dither": Way(dither=0.01, one_gain=True),
    "the same, 10 % in each entry": Way(entries(0.1), dither=0.01, one_gain=True),
    "sensors' gains off by 5 %": Way(gain_error=0.05),
    "sensors' zeros off by 5 %": Way(bias=0.05),
    "one in ten reversed": Way(some(0.1, -1.0)),
    "one in ten doubled": Way(some(0.1, 2.0)),
    "an unlogged second context": Way(second(0.1)),
    "units of 1e-6 to 1e6, 10 % in each entry": Way(entries(0.1), scales=6.0),
    "units of 1e-6 to 1e6, late inputs": Way(delay, scales=6.0),
    "units of 1e-6 to 1e6, fading inputs": Way(fault(fading=0.02), scales=6.0),
    "logs of a quarter of the horizon": Way(steps=0.25),
    "the same, 5 % in each entry": Way(entries(0.05), steps=0.25),
    "the same, inputs fade": Way(fault(fading=0.02), steps=0.25),
    "R a hundredth of the logs'": Way(inputs=0.01),
    "the same, 5 % in each entry and more": Way(entries(0.05), inputs=0.01),
    "an episode of their own, 20 % in each entry": Way(entries(0.2), own=1),
    "three of their own, 20 % in each entry": Way(entries(0.2), own=3),
    "three of their own, saturation at twice": Way(fault(most=2.0), own=3),
    "three of their own, inputs fade": Way(fault(fading=0.02), own=3),
    "Student noise, 5 % in each entry": Way(softer),
    "correlated noise": Way(correlated),
    "backlash": Way(fault(play=0.2)),
    "two kinds of machines, a curved law": Way(curved, kinds=True),
    "one in ten with a dead input": Way(dead(0.1)),
    "three of their own, one in ten with a dead input": Way(dead(0.1), own=3),
    "1 % of rows spoilt": Way(spoilt=0.01),
    "three of their own, 1 % of rows spoilt": Way(spoilt=0.01, own=3),
}


def score(base: Base, way: Way, seed: int, rng: np.random.Generator) -> Score:
    """Log, learn, certify, and look up the truth."""
    fleet, count = base.fleet, way.machines
    contexts = [fleet.sample_context(rng) for _ in range(count + UNSEEN)]
    if way.kinds:
        name, (low, high) = next(iter(fleet.context_map.bounds.items()))
        for i, context in enumerate(contexts[:count]):
            context[name] = low + (high - low) * (i % 2 + (0.04 - 0.08 * (i % 2)) * rng.uniform())
    truth = way.broken(base, base.machines(contexts), contexts, rng)
    d = len(fleet.start)
    unit = 10 ** rng.uniform(-way.scales, way.scales, d) if way.scales else np.ones(d)
    sizes = base.sizes()
    sensors = Sensors(
        1 + way.gain_error * rng.standard_normal((len(contexts), d)),
        way.bias * sizes[0] * rng.standard_normal((len(contexts), d)),
    )
    logs = _logged(base, truth, sensors, way, seed, sizes, rng)
    level = float(np.sqrt(fleet.noise[0, 0]))
    decoder = clqr.Decoder(fleet.context_map) if way.scales else None
    if decoder is None:
        decoder = clqr.Decoder(fleet.context_map, level**2, noise_level=level)
    names = [f"M-{i:03d}" for i in range(len(contexts))]
    for i, runs in enumerate(logs):
        for x, u in runs:
            decoder.update(contexts[i], clqr.Trajectory(x * unit, u), names[i])
    cost = clqr.QuadraticCost(fleet.cost.Q / np.outer(unit, unit), way.inputs * fleet.cost.R)
    asked = contexts[count:]
    own = names[count:] if way.own else None
    begin = fleet.start * unit
    found = clqr.certify_many(decoder, asked, cost, begin, machine=own, bounds=False)
    K = np.stack([one.policy.gains for one in found]) * unit
    new = _part(truth, slice(count, None))
    task = clqr.QuadraticCost(fleet.cost.Q, way.inputs * fleet.cost.R)
    eyes = Sensors(sensors.gains[count:], sensors.biases[count:])
    paid, best = _paid(new, eyes, K, task, fleet.start), new.best(K, task, fleet.start)
    excess = np.maximum(np.where(np.isfinite(paid), paid / best - 1, np.inf), 0.0)
    return Score(
        np.array([one.verdict == "trust" for one in found]),
        excess,
        np.array([one.likely_excess for one in found]),
        np.full(len(found), np.nan),
    )


def _logged(
    base: Base,
    truth: Machines,
    sensors: Sensors,
    way: Way,
    seed: int,
    sizes: tuple[Array, Array],
    rng: np.random.Generator,
) -> list[list[tuple[Array, Array]]]:
    """The episodes of all machines: by turns rich and poor, or as the way has it."""
    fleet, (n, d, _) = base.fleet, truth.sizes
    rich = seed % 2 == 0
    dither = (0.5 if rich else 0.1) if way.dither is None else way.dither
    steps = max(round(way.steps * (fleet.cost.horizon - 1)), 4)
    gentle = clqr.QuadraticCost(fleet.cost.Q, (10.0 if rich else 3.0) * fleet.cost.R)
    gains = clqr.solve(clqr.LinearSystem(truth.A, truth.B, truth.noise), gentle).policy.gains
    if way.one_gain:
        gains = np.broadcast_to(gains[:1, :1], gains.shape)
    episodes = max(way.episodes, way.own)
    spread = (1.0 if rich else 0.1) * (np.abs(fleet.start) + 0.5 * sizes[0])
    start = (0.0 if rich else fleet.start) + spread * rng.standard_normal((n, episodes, d))
    shocks = truth.shocks(episodes, steps, rng)
    with np.errstate(over="ignore", invalid="ignore"):
        _, seen, inputs = truth.run(gains, start, shocks, rng, dither=dither * sizes[1])
    seen = sensors.shown(seen)
    spoilt = rng.uniform(size=seen.shape[:-1]) < way.spoilt
    seen = np.where(spoilt[..., None], 3 * sizes[0] * rng.standard_normal(seen.shape), seen)
    kept = [way.episodes] * way.machines + [way.own] * UNSEEN
    return [[(seen[i, e], inputs[i, e]) for e in range(k)] for i, k in enumerate(kept)]


def _paid(
    new: Machines, sensors: Sensors, gains: Array, cost: clqr.QuadraticCost, start: Array
) -> Array:
    """What gains on what is seen cost, exactly: a bias is a state that is always 1."""
    if not sensors.biases.any():
        return new.paid(gains * sensors.gains[:, None, None], cost, start)
    (n, d, m), steps = new.sizes, gains.shape[1]
    A, B, W = np.zeros((n, d + 1, d + 1)), np.zeros((n, d + 1, m)), np.zeros((d + 1, d + 1))
    A[:, :d, :d], A[:, d, d], B[:, :d], W[:d, :d] = new.A, 1.0, new.B, new.noise
    Q = np.zeros((steps + 1, d + 1, d + 1))
    Q[:, :d, :d] = cost.Q
    off = gains @ sensors.biases[:, None, :, None]
    K = np.concatenate((gains * sensors.gains[:, None, None], off), -1)
    task = clqr.QuadraticCost(Q, cost.R)
    system = clqr.LinearSystem(A, B, W)
    return np.asarray(clqr.policy_cost(clqr.LinearPolicy(K), system, task, np.append(start, 1.0)))


def _part(machines: Machines, members: slice) -> Machines:
    return replace(machines, A=machines.A[members], B=machines.B[members])


def run(seeds: range, fleets_each: int, ways: list[str]) -> dict[tuple[str, str], Score]:
    """The scores by way and fleet."""
    found = {}
    for seed in seeds:
        for k in range(fleets_each):
            base = drawn_fleet(np.random.default_rng([1500, seed, k]))
            for name in ways:
                rng = np.random.default_rng([15, seed, k, *map(ord, name)])
                found[name, f"{seed}.{k}"] = score(base, WAYS[name], seed, rng)
    return found


INTRODUCTION = """
# As a tester from outside would

Written by `benchmarks/outside.py`: {fleets} fleets drawn at random (2 to 6 states, 1 to 3 inputs,
one or two contexts, stable or mildly unstable; noise, horizon and weights as they come),
{seeds} seeds from {first} on, with rich and with poor logs in turn. 40 machines with 3
episodes each teach, unless the way says otherwise; 40 others are certified, and compared with the
exact cost under the true system or, where inputs fade, saturate or have play, with the optimum of
the machine without its fault.

"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6, help="how many, from 3300 on")
    parser.add_argument("--fleets", type=int, default=5, help="how many of each seed")
    parser.add_argument("--development", action="store_true", help="seeds from 0 on instead")
    parser.add_argument("--by-fleet", action="store_true", help="a row for each fleet too")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    clqr.set_threads(1)
    first = 0 if options.development else FIRST_SEED
    scores = run(range(first, first + options.seeds), options.fleets, options.ways)
    text = table(scores, options.by_fleet)
    print(text)
    if options.write:
        count = options.seeds * options.fleets
        told = INTRODUCTION.format(fleets=count, seeds=options.seeds, first=first)
        write_section("real-fleets", "outside", told + text)


if __name__ == "__main__":
    main()
