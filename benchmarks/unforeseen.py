"""Certificates on fleets broken in ways for which nothing was built; a section of "Real fleets".

`python benchmarks/unforeseen.py --write` takes some minutes. As `broken_fleets.py`, with other ways
to break a fleet, those of `support_worn.py`. `best` is the optimum of the machine without its
fault (or with its limits), which no controller reaches: so more are counted as bad than are.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import broken_fleets
import numpy as np
from broken_bases import Base
from broken_fleets import EPISODES, NO_BOUNDS, Break, both
from pages import write_section
from support_broken import Machines
from support_worn import worn

import contextual_lqr as clqr

FIRST_SEED = 3400


def fault(**sizes: Any) -> Break:
    """Machines with a fault; what is no share is a part of the usual inputs, or states."""

    def broken(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
        states, inputs = base.sizes()
        unit = {"end": states, "drift": states * base.moving, "growing": base.moving}
        shares = ("one_way", "fading", "speed", "ageing")
        own = {
            name: size if name in shares else size * unit.get(name, inputs)
            for name, size in sizes.items()
        }
        place = int(np.argmax(np.abs(base.fleet.start) * base.moving))
        return worn(machines, usual=states, place=place, episodes=EPISODES, **own)

    return broken


def mixed(base: Base, machines: Machines, contexts: Any, rng: np.random.Generator) -> Machines:
    """Two makes under one label: of every four machines, one has inputs of half the strength."""
    strength = np.where(rng.uniform(size=len(machines.B)) < 0.25, 0.5, 1.0)
    return replace(machines, B=machines.B * strength[:, None, None])


WAYS: dict[str, Break] = {
    "backlash": fault(play=0.1),
    "saturation, not logged": fault(most=1.0),
    "sensors that drift": fault(drift=0.005),
    "machines that age": fault(ageing=0.1),
    "two makes": mixed,
    "dead zone": fault(dead=0.2),
    "rate limit": fault(rate=0.5),
    "quadratic drag": fault(drag=0.2),
    "inputs fade": fault(fading=0.02),
}
HELD_OUT: dict[str, Break] = {
    "weaker when large": fault(weaker=3.0),
    "one way weaker": fault(one_way=0.3),
    "hardening spring": fault(hardening=0.2),
    "friction that lags": fault(lag=0.2),
    "weaker at speed": fault(speed=0.2),
    "an offset": fault(offset=0.2),
    "noise that grows": fault(growing=0.1),
    "sensors that end": fault(end=1.5),
    "wide backlash": fault(play=0.5),
    "saturation at twice": fault(most=2.0),
}
DRIVEN = ("quadratic drag", "hardening spring", "friction that lags", "weaker at speed")


def breakable(base: Base, variant: str) -> bool:
    """Whether the variant means anything for this fleet.

    Where a state is always 1, an offset is part of the law, and so is a dead zone where inputs go
    one way only, as heat does.
    """
    if variant in ("an offset", "dead zone"):
        return bool(base.moving.all())
    return bool(base.drives) or variant not in DRIVEN


INTRODUCTION = """
# Broken in ways nobody had thought of

Written by `benchmarks/unforeseen.py`: as above, {seeds} seeds from {first} on, {fleets} fleets.
`support_worn.py` defines these ways. The first nine were looked at while the tests of linearity
were made, on other seeds; the others once, on seed 8, which led to one coefficient for all
machines. Backlash, inputs that fade and saturation at twice then led to tests of actuators and to a
tighter bound on what was not logged, on seeds 0 to 7. All sizes are parts of what is usual along
the task. An offset or a dead zone is part of the law where a state is always 1: these fleets are
left out there.

- Actuators: a play of a tenth, or half, of the usual input; a dead zone of a fifth; at most the
  usual input, or twice that, while the logs say what was asked for; changes of at most half of it
  from one step to the next; a quarter less at the usual input, and more so beyond; 30 % less one
  way than the other; an offset of a fifth; 2 % less with every step; a tenth less with every logged
  episode, while new machines are as new; 20 % less at the usual speed.
- Machines: drag, a spring that hardens, and friction that builds up over a distance, of a fifth of
  the usual input at the usual states; noise that grows with the state by a tenth of it; one machine
  in four with inputs of half the strength, which no label tells.
- Sensors: a zero that drifts by half a per cent of the usual state at each step; nothing shown
  beyond 1.5 times the usual state.

The excess is over the optimum of the machine without its fault, which no machine with it reaches:
the share of bad ones is an upper bound. Only where faults are smooth, and a machine that is trusted
looks bad beside that bound, is it held against the best inputs found for the machine with its
fault: drag alone can double what a run costs. Where inputs have limits, the mean of the run keeps
to them in that optimum. Where noise grows, it is that of the best hedged linear controller.

"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="how many, from 3400 on")
    parser.add_argument("--bounds", action="store_true", help="intervals too, in twice the time")
    parser.add_argument("--fleets", nargs="*", help="some of the fleets of broken_bases.py")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    clqr.set_threads(1)
    ways = WAYS | HELD_OUT
    broken_fleets.VARIANTS.update(ways)
    usual = broken_fleets.breakable
    broken_fleets.breakable = lambda base, way: usual(base, way) and breakable(base, way)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    claims = partial(broken_fleets.certify, bounds=options.bounds)
    scores = broken_fleets.run(
        seeds, certify=claims, variants=list(ways), names=options.fleets, own=True
    )
    text = ("" if options.bounds else NO_BOUNDS) + both(scores)
    print(text)
    if options.write:
        count = len({name for _, name in scores})
        told = INTRODUCTION.format(seeds=options.seeds, first=FIRST_SEED, fleets=count)
        write_section("real-fleets", "unforeseen", told + text)


if __name__ == "__main__":
    main()
