"""Certificates on fleets broken in ways for which nothing was built; a section of "Real fleets".

`python benchmarks/unforeseen.py --write` takes some minutes. As `broken_fleets.py`, with five other
ways to break a fleet. `best` is the optimum of the machine without its fault, which no controller
reaches with it: so more are counted as bad than are.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import broken_fleets
import numpy as np
from broken_bases import Base
from broken_fleets import EPISODES, table
from numpy import ndarray as Array
from pages import write_section
from support_broken import RUNS, Machines, _costs

import contextual_lqr as clqr

FIRST_SEED = 600


@dataclass(frozen=True, eq=False)
class Worn(Machines):
    """Machines with faults that are in no log; all sizes are in units of inputs or states.

    play     backlash: an input moves the actuator only once it has crossed this width
    most     the actuator gives no more than this, whatever was asked of it and logged
    drift    the zero of every sensor walks by this from step to step
    ageing   actuators lose this share from one logged episode to the next; new ones are as new
    """

    play: Array | None = None
    most: Array | None = None
    drift: Array | None = None
    ageing: float = 0.0

    def run(
        self, gains: Array, start: Array, shocks: Array, rng: np.random.Generator, dither: float = 0
    ) -> tuple[Array, Array, Array]:
        """As of `Machines`."""
        n, runs, steps, d = shocks.shape
        m = self.B.shape[-1]
        x, zero = np.broadcast_to(start, (n, runs, d)), np.zeros((n, runs, d))
        at = np.zeros((n, runs, m))  # where the actuator is
        strength = np.ones(runs)
        if runs == EPISODES:
            strength = 1 - self.ageing * np.arange(runs)
        states, shown, inputs = [x], [x], []
        for t in range(steps):
            u = shown[-1] @ gains[:, t].swapaxes(1, 2)
            u = u + dither * rng.standard_normal(u.shape)
            at = u if self.play is None else np.clip(at, u - self.play / 2, u + self.play / 2)
            acting = at if self.most is None else np.clip(at, -self.most, self.most)
            acting = acting * strength[:, None]
            x = x @ self.A.swapaxes(1, 2) + acting @ self.B.swapaxes(1, 2) + shocks[:, :, t]
            if self.drift is not None:
                zero = zero + self.drift * rng.standard_normal(x.shape)
            states.append(x)
            shown.append(x + zero)
            inputs.append(u)
        return np.stack(states, 2), np.stack(shown, 2), np.stack(inputs, 2)

    def paid(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        """The formula of the plain machine, and what is simulated beyond that."""
        plain = Machines(self.A, self.B, self.noise)
        shocks = self.shocks(RUNS, gains.shape[1], np.random.default_rng(0))
        with np.errstate(over="ignore", invalid="ignore"):
            broken, usual = (
                _costs(one.run(gains, start, shocks, np.random.default_rng(1)), cost).mean(1)
                for one in (self, plain)
            )
            found = plain.paid(gains, cost, start) + broken - usual
        return np.where(np.isfinite(found), found, np.inf)

    def best(self, gains: Array, cost: clqr.QuadraticCost, start: Array) -> Array:
        """That of the plain machine: a bound."""
        return Machines(self.A, self.B, self.noise).best(gains, cost, start)


def worn(machines: Machines, **fault: Any) -> Worn:
    """The same machines with a fault."""
    return Worn(machines.A, machines.B, machines.noise, **fault)


def backlash(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """A play of a tenth of the usual input."""
    return worn(machines, play=0.1 * base.sizes()[1])


def saturation(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Actuators that give no more than the usual input, while logs say what was asked for."""
    return worn(machines, most=base.sizes()[1])


def drift(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Sensors whose zero walks by half a per cent of the usual states a step."""
    return worn(machines, drift=0.005 * base.sizes()[0] * base.moving)


def ageing(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Actuators that lose a tenth from one logged episode to the next; a new machine is as new."""
    return worn(machines, ageing=0.1)


def mixed(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Two makes under one label: of every four machines, one has inputs of half the strength."""
    strength = np.where(rng.uniform(size=len(machines.B)) < 0.25, 0.5, 1.0)
    return replace(machines, B=machines.B * strength[:, None, None])


WAYS = {
    "backlash": backlash,
    "saturation, not logged": saturation,
    "sensors that drift": drift,
    "machines that age": ageing,
    "two makes": mixed,
}

INTRODUCTION = """
# Broken in ways nobody had thought of

Written by `benchmarks/unforeseen.py`: as above, {seeds} seeds from {first} on, {fleets} fleets,
broken in ways that were not looked at when the tests and certificates were built. The actuators
have a play of a tenth of the usual input, or give no more than the usual input while the logs say
what was asked for; the zero of every sensor walks by half a per cent of the usual state at each
step; actuators lose a tenth of their strength from one logged episode to the next, and a machine
never seen is as new; or one machine of four, on no label, has half the strength. The excess is over
the optimum of the machine without its fault, which none with it reaches: the share of bad ones is
an upper bound.

"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="how many, from 600 on")
    parser.add_argument("--fleets", nargs="*", help="some of the fleets of broken_bases.py")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    clqr.set_threads(1)
    broken_fleets.VARIANTS.update(WAYS)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    scores = broken_fleets.run(seeds, variants=list(WAYS), names=options.fleets)
    text = table(scores)
    print(text)
    if options.write:
        count = len({name for _, name in scores})
        told = INTRODUCTION.format(seeds=options.seeds, first=FIRST_SEED, fleets=count)
        write_section("real-fleets", "unforeseen", told + text)


if __name__ == "__main__":
    main()
