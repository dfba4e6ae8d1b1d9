"""How honest certificates are on fleets that break the model's assumptions.

`python benchmarks/broken_fleets.py` takes some ten minutes on one core, `--quick` half a minute.
Each fleet, in each of the ways below, is learnt from 40 machines of 3 episodes; 60 machines never
seen get their controller and certificate, which are compared with the truth. Even seeds have logs
that are rich (from anywhere, much dither), odd ones poor (the task itself, little dither). Seeds 0
to 9 are for development; those reported start at 3400.

`run` takes any `learn` and `certify` in place of today's: `learn(base, logs)` returns a decoder,
`certify(decoder, contexts, cost, start)` a list of claims (verdict, likely excess, gains and, where
there is one, the interval of the cost); with `own`, also for the logged machines, `machine=labels`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from broken_bases import Base, bases
from numpy import ndarray as Array
from pages import write_section
from support_broken import Machines

import contextual_lqr as clqr
from contextual_lqr import fleets

MACHINES, EPISODES, UNSEEN = 40, 3, 60
FIRST_SEED = 3400
BAD = 0.05  # above the optimum by more than this, a controller was wrongly trusted


class Claim(NamedTuple):
    """What a certificate says of one machine."""

    verdict: str
    likely_excess: float
    gains: Array
    interval: tuple[float, float] | None = None


class Logs(NamedTuple):
    """What there is to learn from: for each episode its machine, that machine's label, the run."""

    machines: list[str]
    contexts: list[Any]
    trajectories: list[clqr.Trajectory]


Break = Callable[[Base, Machines, Sequence[Any], np.random.Generator], Machines]
"""What a variant does to the machines that the law gives for these contexts."""


def parameters(part: float) -> Break:
    """Machines that are not what their labels say: each context and each actuator's strength.

    A true value is the label's times 1 + part · N(0, 1), or plus as much of half the range where
    that goes through zero; it stays within the bounds of the fleet. Kinematics are left alone.
    """

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        true = []
        for context in contexts:
            own = {}
            for name, value in context.items():
                low, high = base.fleet.context_map.bounds[name]
                size = value if low >= 0 else (high - low) / 2
                own[name] = float(np.clip(value + part * size * rng.standard_normal(), low, high))
            true.append(own)
        strength = 1 + part * rng.standard_normal(machines.B.shape[::2])
        machines = base.machines(true)
        return replace(machines, B=machines.B * strength[:, None])

    return broken


def entries(part: float) -> Break:
    """Each entry of [A - I, B] times 1 + part · N(0, 1), anew for each machine."""

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        A, B = machines.A, machines.B
        one = np.eye(A.shape[-1])
        return replace(
            machines,
            A=one + (A - one) * (1 + part * rng.standard_normal(A.shape)),
            B=B * (1 + part * rng.standard_normal(B.shape)),
        )

    return broken


def friction(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Coulomb's, of 10 to 30 % of the usual input."""
    n, m = len(machines.A), machines.B.shape[-1]
    return replace(machines, friction=0.2 * base.sizes()[1] * rng.uniform(0.5, 1.5, (n, m)))


def delay(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Every input acts one step late."""
    return replace(machines, delay=True)


def measurement(part: float) -> Break:
    """What is seen of each state is off by this part of its usual size."""

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        return replace(machines, error=part * base.sizes()[0] * base.moving)

    return broken


def correlated(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Process noise that remembers 0.9 of itself, of the same variance in the long run."""
    return replace(machines, correlation=0.9)


def hidden(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Actuators up to 30 % stronger or weaker, by a context that nobody has written down."""
    strength = 1 + 0.3 * rng.uniform(-1, 1, len(machines.B))
    return replace(machines, B=machines.B * strength[:, None, None])


def missing(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """The same, by a feature that the map lacks: the square of the first context."""
    name, (low, high) = next(iter(base.fleet.context_map.bounds.items()))
    place = np.array([2 * (c[name] - low) / (high - low) - 1 for c in contexts])
    return replace(machines, B=machines.B * (1 + 0.3 * (2 * place**2 - 1))[:, None, None])


def student(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Shocks from Student's t with three degrees of freedom, of the same covariance."""
    return replace(machines, degrees=3.0)


def quantised(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Sensors that show multiples of 2 % of each state's usual size."""
    return replace(machines, quantum=0.02 * base.sizes()[0] * base.moving)


def physics(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """The simulated fleets' own equations, to which their features come only near."""
    systems = [fleets.true_system(base.fleet, context) for context in contexts]
    return replace(machines, A=np.stack([s.A for s in systems]), B=np.stack([s.B for s in systems]))


def nothing(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """The law as it is."""
    return machines


VARIANTS: dict[str, Break] = {
    "exact": nothing,
    "features nearly right": physics,
    "5 % variation": parameters(0.05),
    "10 % variation": parameters(0.1),
    "20 % variation": parameters(0.2),
    "5 % in each entry": entries(0.05),
    "20 % in each entry": entries(0.2),
    "friction": friction,
    "delay": delay,
    "1 % measurement noise": measurement(0.01),
    "5 % measurement noise": measurement(0.05),
    "correlated noise": correlated,
    "hidden context": hidden,
    "missing feature": missing,
    "Student noise": student,
    "two mislabelled": nothing,  # in the logs only
    "quantised": quantised,
}


def breakable(base: Base, variant: str) -> bool:
    """Whether the variant means anything for this fleet."""
    if variant == "friction":
        return bool(base.drives)
    return variant != "features nearly right" or callable(base.fleet._truth)


# -- learning and scoring ------------------------------------------------------------------------


class Trial(NamedTuple):
    """One fleet, one way to break it, one seed: its logs, and the machines, seen and unseen."""

    base: Base
    variant: str
    logs: Logs
    contexts: list[Any]
    seen: Machines
    unseen: Machines


class Logging(NamedTuple):
    """How much the logs teach: the starts, and the controllers and dither in them."""

    anywhere: bool  # do episodes start about zero, or about the task's start?
    spread: float  # of the starts, as a part of the usual states
    gentleness: float  # how much more inputs cost the controllers of the logs
    dither: float  # as a part of the usual inputs


RICH, POOR = Logging(True, 1.0, 10.0, 0.5), Logging(False, 0.1, 3.0, 0.1)


def trial(base: Base, variant: str, seed: int, machines: int = MACHINES) -> Trial:
    """Logs of machines under controllers of their own, with dither: by turns rich and poor."""
    logging = POOR if seed % 2 else RICH
    rng = np.random.default_rng([15, seed, *map(ord, variant)])
    fleet, broken = base.fleet, VARIANTS[variant]
    contexts = [fleet.sample_context(rng) for _ in range(machines + UNSEEN)]
    truth = broken(base, base.machines(contexts), contexts, rng)
    seen, unseen = _some(truth, slice(machines)), _some(truth, slice(machines, None))
    state_size, input_size = base.sizes()
    gentle = clqr.QuadraticCost(fleet.cost.Q, logging.gentleness * fleet.cost.R)
    system = clqr.LinearSystem(seen.A, seen.B, seen.noise)
    gains = clqr.solve(system, gentle).policy.gains
    spread = logging.spread * base.moving * (np.abs(fleet.start) + 0.5 * state_size)
    middle = np.where(base.moving & logging.anywhere, 0.0, fleet.start)
    start = middle + spread * rng.standard_normal((machines, EPISODES, len(middle)))
    shocks = seen.shocks(EPISODES, gains.shape[1], rng)
    _, states, inputs = seen.run(gains, start, shocks, rng, dither=logging.dither * input_size)
    labels = list(contexts[:machines])
    if variant == "two mislabelled":
        labels[0], labels[1] = labels[1], labels[0]
    each = [(i, e) for i in range(machines) for e in range(EPISODES)]
    logs = Logs(
        [f"M-{i:03d}" for i, _ in each],
        [labels[i] for i, _ in each],
        [clqr.Trajectory(states[i, e], inputs[i, e]) for i, e in each],
    )
    return Trial(base, variant, logs, contexts[machines:], seen, unseen)


def _some(machines: Machines, members: slice) -> Machines:
    cut = None if machines.friction is None else machines.friction[members]
    return replace(machines, A=machines.A[members], B=machines.B[members], friction=cut)


def learn(base: Base, logs: Logs) -> clqr.Decoder:
    """The decoder of today, told the rough size of the noise."""
    level = float(np.sqrt(np.diagonal(base.fleet.noise).max()))
    decoder = clqr.Decoder(base.fleet.context_map, level**2, noise_level=level)
    decoder.update_many(logs.contexts, logs.trajectories, logs.machines)
    return decoder


def certify(
    decoder: clqr.Decoder,
    contexts: Sequence[Any],
    cost: clqr.QuadraticCost,
    start: Array,
    bounds: bool = True,
    machine: list[str] | None = None,
) -> list[Claim]:
    """The certificate of today, with or without an interval."""
    found = clqr.certify_many(decoder, contexts, cost, start, bounds=bounds, machine=machine)
    claims = [Claim(c.verdict, c.likely_excess, c.policy.gains, c.interval) for c in found]
    return claims if bounds else [one._replace(interval=None) for one in claims]


class Score(NamedTuple):
    """What certificates said and what was true, machine by machine."""

    trusted: Array
    excess: Array
    likely: Array
    missed: Array  # NaN where there is no interval

    @classmethod
    def joined(cls, scores: Iterable[Score]) -> Score:
        """Many as one."""
        return cls(*(np.concatenate(part) for part in zip(*scores, strict=True)))

    @property
    def bad(self) -> Array:
        """Whether a controller is too far above the optimum to be trusted."""
        return ~(self.excess <= BAD)

    def row(self) -> list[str]:
        """Machines; trusted; of these bad; above the likely excess; misses; the true excess."""
        t = self.trusted
        above = ~(self.excess <= self.likely * (1 + 1e-6) + 1e-9)
        middle, tail = np.quantile(self.excess, [0.5, 0.95], method="nearest")
        return [
            str(len(t)),
            _share(t),
            _share(self.bad[t]),
            _share(above[t]),
            _share(above),
            _share(self.missed[~np.isnan(self.missed)]),
            f"{middle:.2%}",
            f"{tail:.2%}" if tail < 10 else f"{tail:.1g} times",
            _share(self.excess > 0.02),
        ]


COLUMNS = (
    *("machines", "trusted", "of these bad", "of these above likely", "above likely"),
    *("interval missed", "excess: median", "95 %", "over 2 %"),
)


def _share(which: Array) -> str:
    return f"{np.mean(which):.1%}" if len(which) else "-"


def score(given: Trial, decoder: Any, certify: Callable = certify, own: bool = False) -> Score:
    """Certify the unseen machines, or those logged with data of their own; look up the truth."""
    fleet, logs = given.base.fleet, given.logs
    if own:
        labels = list(dict.fromkeys(logs.machines))
        contexts = [logs.contexts[logs.machines.index(label)] for label in labels]
        claims = certify(decoder, contexts, fleet.cost, fleet.start, machine=labels)
    else:
        claims = certify(decoder, given.contexts, fleet.cost, fleet.start)
    truth = given.seen if own else given.unseen
    gains = np.stack([one.gains for one in claims])
    paid = truth.paid(gains, fleet.cost, fleet.start)
    best = truth.best(gains, fleet.cost, fleet.start)
    excess = np.maximum(np.where(np.isfinite(paid), paid / best - 1, np.inf), 0.0)
    trusted = np.array([one.verdict == "trust" for one in claims])
    if truth.smooth:  # what is trusted and looks bad beside a bound is held against better inputs
        for i in np.flatnonzero(trusted & (excess > BAD)).tolist():
            excess[i] = max(paid[i] / truth.least(i, gains, fleet.cost, fleet.start) - 1, 0.0)
    ends = np.array([one.interval or (np.nan, np.nan) for one in claims])
    missed = np.where(np.isnan(ends[:, 0]), np.nan, (paid < ends[:, 0]) | (paid > ends[:, 1]))
    return Score(
        trusted,
        excess,
        np.array([one.likely_excess for one in claims]),
        missed,
    )


def run(
    seeds: Iterable[int],
    learn: Callable = learn,
    certify: Callable = certify,
    *,
    variants: Sequence[str] = tuple(VARIANTS),
    names: Sequence[str] | None = None,
    machines: int = MACHINES,
    own: bool = False,
) -> dict[tuple[str, str], Score]:
    """The scores by variant and fleet, over all seeds; also those of machines logged, if asked."""
    found: dict[tuple[str, str], list[Score]] = {}
    for seed in seeds:
        for name, base in bases(seed).items():
            for variant in variants:
                if (names is None or name in names) and breakable(base, variant):
                    given = trial(base, variant, seed, machines)
                    decoder = learn(base, given.logs)
                    one = score(given, decoder, certify)
                    found.setdefault((variant, name), []).append(one)
                    if own:
                        one = score(given, decoder, certify, own=True)
                        found.setdefault((f"{variant}{OWN}", name), []).append(one)
    return {key: Score.joined(parts) for key, parts in found.items()}


def both(scores: dict[tuple[str, str], Score], by_fleet: bool = False) -> str:
    """The tables of machines never seen, and of those that were logged."""
    unseen, own = {}, {}
    for (variant, name), one in scores.items():
        if variant.endswith(OWN):
            own[variant.removesuffix(OWN), name] = one
        else:
            unseen[variant, name] = one
    return f"{table(unseen, by_fleet)}\n\n{OF_OWN}\n\n{table(own, by_fleet)}"


OWN = ", own data"
OF_OWN = "The machines that were logged, each with its own data (`machine=`):"


def table(scores: dict[tuple[str, str], Score], by_fleet: bool = False) -> str:
    """Markdown: a row for each variant, and if asked for each fleet."""
    lines = ["| variant | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for variant in dict.fromkeys(v for v, _ in scores):
        some = {name: one for (v, name), one in scores.items() if v == variant}
        lines.append(f"| {variant} | " + " | ".join(Score.joined(some.values()).row()) + " |")
        if by_fleet:
            lines += [f"| · {name} | " + " | ".join(one.row()) + " |" for name, one in some.items()]
    return "\n".join(lines)


def main() -> None:
    """Measure today's certificate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three fleets, two seeds")
    parser.add_argument("--seeds", type=int, default=6, help="how many, from 3400 on")
    parser.add_argument("--no-bounds", action="store_true", help="no intervals, in half the time")
    parser.add_argument("--development", action="store_true", help="seeds from 0 on instead")
    parser.add_argument("--by-fleet", action="store_true", help="a row for each fleet too")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    clqr.set_threads(1)
    first = 0 if options.development else FIRST_SEED
    count = 2 if options.quick else options.seeds
    names = ("path-following", "spring", "random unstable") if options.quick else None
    began = time.perf_counter()
    claims = partial(certify, bounds=not options.no_bounds)
    seeds = range(first, first + count)
    scores = run(seeds, certify=claims, variants=options.variants, names=names, own=True)
    text = (NO_BOUNDS if options.no_bounds else "") + both(scores, options.by_fleet)
    print(text)
    if options.write:
        told = INTRODUCTION.format(seeds=count, first=first)
        write_section("real-fleets", "broken", told + text)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


NO_BOUNDS = "The ends of the interval were not computed for this table.\n\n"

INTRODUCTION = """
# Fleets that break the assumptions

Written by `benchmarks/broken_fleets.py`. Eleven simulated fleets, {seeds} seeds from {first} on,
with rich and with poor logs in turn: 40 machines with 3 episodes each teach, 60 never seen are
certified zero-shot and compared with the truth. *Bad* is more than 5 % above the optimum; *above
likely* is above the excess that, by the certificate, one machine in twenty exceeds.

"""


if __name__ == "__main__":
    main()
