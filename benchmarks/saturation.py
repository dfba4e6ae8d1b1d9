"""What clipped inputs cost: what certificates say beforehand, and what true cart-poles pay.

`python benchmarks/saturation.py` takes some minutes on one core; `--write` writes its section
of "Certificates". Each seed is a fleet that was logged under good controllers, 30 steps a machine,
and one machine never seen, the usual cart-pole or any other; its inputs are limited to a third of
what its gain would use. Clipped and free runs share their noise, so that what clipping adds is
known to 0.4 %. Differences of independent runs would not tell it from their noise.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from pages import write_section

import contextual_lqr as clqr
from contextual_lqr.fleets import cart_pole, true_system
from contextual_lqr.lqr.rollout import rollout

FLEET = cart_pole()
USUAL = {"cart_mass": 1.0, "pole_mass": 0.2, "length": 1.0}
FIRST_SEED, SEEDS, RUNS, WEAKER, DRAWS = 5000, 20, 5_000, 3.0, 4_000


class Row(NamedTuple):
    """What clipping adds as a part of the cost, predicted and true; and whole costs.

    Also how well it is known, as the certificate says, and what many more draws predict.
    """

    predicted: float
    true: float
    deviation: float
    by_more_draws: float
    predicted_cost: float
    true_cost: float


def logged(rng: np.random.Generator, machines: int) -> clqr.Decoder:
    """Cart-poles held by good controllers, with some dither."""
    decoder = clqr.Decoder(FLEET.context_map, noise_level=FLEET.noise_level, deviations=None)
    for _ in range(machines):
        context = FLEET.sample_context(rng)
        system = true_system(FLEET, context)
        gain = clqr.solve(system, FLEET.cost).policy.gains[0]
        states, inputs = [np.array(FLEET.start) * rng.normal(size=4)], []
        for _ in range(30):
            inputs.append(gain @ states[-1] + 0.3 * rng.normal(size=1))
            shock = system.noise_factor @ rng.normal(size=4)
            states.append(system.A @ states[-1] + system.B @ inputs[-1] + shock)
        decoder.update(context, clqr.Trajectory(states, inputs))
    return decoder


def run(seed: int, machines: int, usual: bool) -> Row:
    """One fleet and one machine."""
    rng = np.random.default_rng(seed)
    decoder = logged(rng, machines)
    context = USUAL if usual else FLEET.sample_context(rng)
    task = (FLEET.cost, FLEET.start)
    free = clqr.certify(decoder, context, *task, bounds=False)
    limit = float(np.abs(free.policy(0, FLEET.start)).max()) / WEAKER
    weak, more = (
        clqr.certify(
            decoder, context, *task, bounds=False, input_bounds=(-limit, limit), draws=draws
        )
        for draws in (200, DRAWS)
    )
    assert weak.saturation is not None
    assert more.saturation is not None
    system = true_system(FLEET, context)
    noise = np.random.default_rng(1_000_000 + seed)
    shocks = noise.standard_normal((RUNS, FLEET.cost.horizon - 1, 4)) @ system.noise_factor.T
    free_cost, clipped_cost = (
        float(
            np.mean(
                clqr.trajectory_cost(
                    rollout(weak.policy, system, FLEET.start, shocks, largest=1e50, **bounds),
                    FLEET.cost,
                )
            )
        )
        for bounds in ({}, {"input_bounds": (-limit, limit)})
    )
    met = weak.saturation
    true = clipped_cost / free_cost - 1
    known = (met.deviation, more.saturation.added_cost)
    return Row(met.added_cost, true, *known, weak.predicted_cost, clipped_cost)


def section(rows: dict[tuple[int, bool], list[Row]]) -> str:
    """What is measured, in words and a table."""
    lines = [
        "# What clipping costs",
        "",
        f"{SEEDS} fleets of cart-poles each, and a machine never seen whose input is limited to a "
        "third of what its gain would use. What clipping adds to the cost, as the certificate says "
        f"it beforehand, against {RUNS:,} runs of the true machine, clipped and free with the same "
        f"noise; `python benchmarks/saturation.py`, seeds {FIRST_SEED} to "
        f"{FIRST_SEED + SEEDS - 1}. What is missing is what so many machines have not shown, not "
        f"chance: {DRAWS:,} draws instead of 200 predict the same. *Give or take* was mended on "
        "seeds 3000 to 3019, where 74 of 80 were within twice of it, and 19 and 15 of 20 within "
        "10 % from 60 machines; on seeds that nobody had looked at it is still too narrow.",
        "",
        "| logged | machine | adds | off by, median | worst | within 10 % of it | within twice "
        "the *give or take* | with more draws, other by at most | whole cost off by, worst |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (machines, usual), some in rows.items():
        predicted, true, deviation, by_more, cost, paid = np.array(some).T
        off = np.abs(predicted / true - 1)
        cells = [
            f"{machines} machines",
            "the usual" if usual else "any",
            f"{100 * true.min():.0f} to {100 * true.max():.0f} %",
            f"{100 * np.median(off):.1f} %",
            f"{100 * off.max():.0f} %",
            f"{int((off <= 0.1).sum())} of {len(off)}",
            f"{int((np.abs(predicted - true) <= 2 * deviation).sum())} of {len(off)}",
            f"{100 * np.abs(by_more / predicted - 1).max():.1f} %",
            f"{100 * np.abs(cost / paid - 1).max():.1f} %",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, print and, if asked, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = {
        (machines, usual): [run(FIRST_SEED + i, machines, usual) for i in range(SEEDS)]
        for machines in (60, 240)
        for usual in (True, False)
    }
    print(section(rows))
    if arguments.write:
        write_section("certificates", "saturation", section(rows))


if __name__ == "__main__":
    main()
