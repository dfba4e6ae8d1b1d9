"""What clipped inputs cost: what certificates say beforehand, and what true cart-poles pay.

`python benchmarks/saturation.py` takes some minutes on one core; `--write` writes its section
of "Certificates". Each seed is a fleet that was logged under good controllers, 30 steps a machine,
and two machines never seen, the usual cart-pole and any other; their inputs are limited to a third
of what their gains would use, for trust to other parts too. Clipped and free runs share their
noise, so that what clipping adds is known to 0.4 %. Differences of independent runs would not tell
it from their noise.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
from pages import write_section

import contextual_lqr as clqr
from contextual_lqr.fleets import cart_pole, true_system
from contextual_lqr.lqr.rollout import rollout

FLEET = cart_pole()
USUAL = {"cart_mass": 1.0, "pole_mass": 0.2, "length": 1.0}
FIRST_SEED, SEEDS, MACHINES, RUNS = 6000, 40, (60, 240, 960), 5_000
WEAKER = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class Row(NamedTuple):
    """What clipping adds as a part of the cost, predicted, give or take, and true; whole costs.

    And whether it was trusted, and what the machine pays above its best without limits.
    """

    predicted: float
    deviation: float
    true: float
    predicted_cost: float
    true_cost: float
    trusted: bool
    above: float


def logged(rng: np.random.Generator, machines: int) -> clqr.Decoder:
    """Cart-poles held by good controllers, with some dither."""
    decoder = clqr.Decoder(FLEET.context_map, noise_level=FLEET.noise_level)
    for i in range(machines):
        context = FLEET.sample_context(rng)
        system = true_system(FLEET, context)
        gain = clqr.solve(system, FLEET.cost).policy.gains[0]
        states, inputs = [np.array(FLEET.start) * rng.normal(size=4)], []
        for _ in range(30):
            inputs.append(gain @ states[-1] + 0.3 * rng.normal(size=1))
            shock = system.noise_factor @ rng.normal(size=4)
            states.append(system.A @ states[-1] + system.B @ inputs[-1] + shock)
        decoder.update(context, clqr.Trajectory(states, inputs), machine=f"machine {i}")
    return decoder


def run(seed: int, machines: int) -> list[Row]:
    """One fleet, the usual cart-pole and any other with a third of its force; others with more."""
    rng = np.random.default_rng(seed)
    decoder = logged(rng, machines)
    usual, other = held(decoder, USUAL, seed, 3.0), FLEET.sample_context(rng)
    return [usual, *(held(decoder, other, seed, weaker) for weaker in WEAKER)]


def held(decoder: clqr.Decoder, context: dict[str, float], seed: int, weaker: float) -> Row:
    """One machine with a motor so much weaker than its gain would use."""
    task = (context, FLEET.cost, FLEET.start)
    free = clqr.certify(decoder, *task, bounds=False)
    limit = float(np.abs(free.policy(0, FLEET.start)).max()) / weaker
    weak = clqr.certify(decoder, *task, bounds=False, input_bounds=(-limit, limit))
    met = weak.saturation
    assert met is not None
    system = true_system(FLEET, context)
    noise = np.random.default_rng(1_000_000 + seed)
    shocks = noise.standard_normal((RUNS, FLEET.cost.horizon - 1, 4)) @ system.noise_factor.T

    def paid(policy: clqr.LinearPolicy, **bounds: Any) -> float:
        runs = rollout(policy, system, FLEET.start, shocks, largest=1e50, **bounds)
        return float(np.mean(clqr.trajectory_cost(runs, FLEET.cost)))

    clipped = paid(weak.policy, input_bounds=(-limit, limit))
    true, best = clipped / paid(weak.policy) - 1, paid(clqr.solve(system, FLEET.cost).policy)
    added = (met.added_cost, met.deviation, true)
    trusted = weak.verdict == "trust"
    return Row(*added, weak.predicted_cost, clipped, trusted, clipped / best - 1)


def section(found: dict[int, list[list[Row]]]) -> str:
    """What is measured, in words and a table."""
    lines = [
        "# What clipping costs",
        "",
        f"{SEEDS} fleets of cart-poles each, logged for 30 steps a machine, and machines never "
        "seen whose input is limited to a third of what their gain would use. What clipping adds "
        f"to the cost, as the certificate says beforehand, beside {RUNS:,} runs of the true "
        "machine, "
        "clipped and free with the same noise; `python benchmarks/saturation.py`, seeds "
        f"{FIRST_SEED} to {FIRST_SEED + SEEDS - 1}. *Give or take* is what the "
        "certificate says of its error, which comes from what that many machines have not shown.",
        "",
        "| logged | machine | adds | off by, median | worst | within 10 % of it | give or take, "
        "median | within twice of that | whole cost off by, worst |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    third = {"the usual": 0, "any": 1 + WEAKER.index(3.0)}
    for machines, rows in found.items():
        for name, column in third.items():
            predicted, deviation, true, cost, paid = np.array([row[column] for row in rows]).T[:5]
            off = np.abs(predicted / true - 1)
            cells = [
                f"{machines} machines",
                name,
                f"{100 * true.min():.0f} to {100 * true.max():.0f} %",
                f"{100 * np.median(off):.1f} %",
                f"{100 * off.max():.0f} %",
                f"{int((off <= 0.1).sum())} of {len(off)}",
                f"{100 * np.median(deviation / true):.1f} % of it",
                f"{int((np.abs(predicted - true) <= 2 * deviation).sum())} of {len(off)}",
                f"{100 * np.abs(cost / paid - 1).max():.1f} %",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    every = [one for rows in found.values() for row in rows for one in row[1:]]
    above = [one.above for one in every if one.trusted]
    lines += [
        "",
        f"With limits from all to a tenth of what the gain would use, {len(above)} of {len(every)} "
        "certificates were *trust*. The worst of these machines cost "
        f"{100 * max(above):.1f} % more than the best without limits.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run, print and, if asked, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
    text = section({n: [run(seed, n) for seed in seeds] for n in MACHINES})
    print(text)
    if arguments.write:
        write_section("certificates", "saturation", text)


if __name__ == "__main__":
    main()
