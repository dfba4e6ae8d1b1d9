"""A car that accelerates from 10 to 30 m/s: planned along its speeds, or as if these stayed.

Writes a section of docs/measured/accuracy.md and docs/figures/schedules.svg.

`python benchmarks/schedules.py [seeds]`: 8 seeds unless told otherwise, from 130000; the task was
laid out on seeds 0 to 5.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array
from pages import write_section
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.figures import GREY, PALETTE, panels, rendered
from contextual_lqr.files import atomic_write
from contextual_lqr.fleets import Fleet, true_schedule, true_system, vehicle
from contextual_lqr.lqr.rollout import rollout

FIRST_SEED, LOGS, UNSEEN, BAD = 130_000, 40, 20, 0.05
HORIZON, DT = 334, 0.03  # ten seconds
SPEEDS = np.linspace(10.0, 30.0, HORIZON - 1)
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "schedules.svg"

TEXT = f"""# A context that changes during the episode

Written by `benchmarks/schedules.py`. A car goes from 10 to 30 m/s in ten seconds, {HORIZON - 1}
steps, and keeps its lane. {LOGS} other cars were logged for ten seconds each, their drivers
steering at random about a mild controller: at speeds that *stay*, or that *change* from one of 8 to
32 m/s to another. {UNSEEN} cars of masses never tried, in each of SEEDS seeds from {FIRST_SEED}.
Cost above that of the controller that knows the true car and its speeds, median and worst:

| controller | logs: speeds stay | logs: speeds change |
|---|---|---|
"""


def fleet_of_cars() -> Fleet:
    """Cars from 8 to 32 m/s."""
    return vehicle(speed=(8.0, 32.0), horizon=HORIZON, dt=DT)


def accelerating(mass: float) -> clqr.Schedule:
    """The ten seconds of a car of this mass."""
    return clqr.Schedule({"mass": mass, "speed": SPEEDS})


def learnt(fleet: Fleet, rng: np.random.Generator, change: bool) -> clqr.Decoder:
    """What the logs of some cars teach."""
    decoder = clqr.Decoder(fleet.context_map, noise_level=fleet.noise_level)
    usual = true_system(fleet, {"mass": 1750.0, "speed": 20.0})
    mild = clqr.solve(usual, fleet.cost).policy.gains[0]
    for _ in range(LOGS):
        car = fleet.sample_context(rng)
        last = rng.uniform(8.0, 32.0) if change else car["speed"]
        speeds = np.linspace(car["speed"], last, HORIZON - 1)
        plan = clqr.Schedule({"mass": car["mass"], "speed": speeds})
        policy = clqr.LinearPolicy(np.tile(rng.uniform(0.3, 1.0) * mild, (HORIZON - 1, 1, 1)))
        shocks = rng.standard_normal((HORIZON - 1, 4)) * fleet.noise_level
        steering = 0.3 * rng.standard_normal((HORIZON - 1, 1))
        played = rollout(policy, true_schedule(fleet, plan), fleet.start, shocks, offsets=steering)
        decoder.update(plan if change else car, played)
    return decoder


def excesses(fleet: Fleet, seed: int) -> tuple[dict[str, list[Array]], list[Any]]:
    """For each controller its excess on every car, by kind of logs; and the certificates."""
    rng = np.random.default_rng(seed)
    decoders = [learnt(fleet, rng, change) for change in (False, True)]
    found: dict[str, list[Array]] = {}
    said = []
    for mass in rng.uniform(1000.0, 2500.0, UNSEEN):
        plan, middle = accelerating(mass), float(SPEEDS.mean())
        truth = true_schedule(fleet, plan)
        best = float(clqr.optimal_cost(truth, fleet.cost, fleet.start))

        def above(policy: clqr.LinearPolicy, truth: Any = truth, best: float = best) -> float:
            return float(clqr.policy_cost(policy, truth, fleet.cost, fleet.start)) / best - 1

        for name, one in (
            ("learnt, along the speeds", plan),
            ("learnt, speed as at the start", {"mass": mass, "speed": 10.0}),
            ("learnt, speed as in the middle", {"mass": mass, "speed": middle}),
        ):
            each = []
            for decoder in decoders:
                certificate = clqr.certify(decoder, one, fleet.cost, fleet.start, bounds=False)
                each.append(above(certificate.policy))
                if one is plan:
                    change, likely = decoder is decoders[1], certificate.likely_excess
                    said.append((change, certificate.verdict, each[-1], likely))
            found.setdefault(name, []).append(np.array(each))
        for name, speed in (("at the start", 10.0), ("in the middle", middle)):
            frozen = clqr.solve(true_system(fleet, {"mass": mass, "speed": speed}), fleet.cost)
            each = [above(frozen.policy)] * 2
            found.setdefault(f"true car, speed as {name}", []).append(np.array(each))
    return found, said


def page(found: dict[str, Array], said: list[Any], seeds: int) -> str:
    """The section."""
    rows = []
    for name, values in found.items():
        cells = [f"{np.median(v):.2%}, {v.max():.2%}" for v in values.T]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    verdicts = []
    for change in (False, True):
        own = [one for one in said if one[0] == change]
        trusted = [one[2] for one in own if one[1] == "trust"]
        worst = f", the worst of them {max(trusted):.2%} above" if trusted else ""
        over = np.mean([one[2] > one[3] for one in own])
        verdicts.append(
            f"- Logs whose speeds {'change' if change else 'stay'}: {len(trusted)} of {len(own)} "
            f"controllers along the speeds are trusted, {sum(e > BAD for e in trusted)} of them "
            f"over {BAD:.0%}{worst}. {over:.1%} of all are above their likely excess; 5 % may be."
        )
    notes = """
Where all logs are of changing contexts, no backtest can check the certificates, and none is trusted
for that reason alone. The figure has one car of 1500 kg: its gains, and what each step of the
episode is expected to cost with them.

![Gains along the speeds, and costs](../figures/schedules.svg)
"""
    return TEXT.replace("SEEDS", str(seeds)) + "\n".join([*rows, "", *verdicts]) + "\n" + notes


def draw(fleet: Fleet, figure: Any) -> None:
    """One car: gains on the heading over time, and the expected cost of each step."""
    decoder, plan = learnt(fleet, np.random.default_rng(FIRST_SEED), False), accelerating(1500.0)
    truth, start = true_schedule(fleet, plan), {"mass": 1500.0, "speed": 10.0}
    policies = {
        "best, knows the car": (clqr.solve(truth, fleet.cost).policy, GREY, 3.0),
        "learnt, along the speeds": (
            clqr.certify(decoder, plan, fleet.cost, fleet.start, bounds=False).policy,
            PALETTE[0],
            1.2,
        ),
        "learnt, speed as at the start": (
            clqr.certify(decoder, start, fleet.cost, fleet.start, bounds=False).policy,
            PALETTE[1],
            1.2,
        ),
    }
    gains, costs = panels(figure, 2, 2, 3.6, 2.6)
    time = DT * np.arange(HORIZON - 1)
    shown = time < time[-1] - 0.9  # gains of the last steps fall to nothing
    for name, (policy, colour, width) in policies.items():
        gains.plot(time[shown], policy.gains[shown, 0, 2], color=colour, lw=width, label=name)
        X, paid = np.zeros((4, 4)), []
        for h in range(HORIZON - 1):
            K, (A, B) = policy.gains[h], truth.at(h)
            paid.append(np.trace(X @ (fleet.cost.Q[h] + K.T @ fleet.cost.R[h] @ K)))
            F = A + B @ K
            X = F @ X @ F.T + fleet.noise
        costs.plot(time[shown], np.array(paid)[shown], color=colour, lw=width)
    gains.set(xlabel="time (s), speed 10 to 30 m/s", ylabel="gain on the heading error")
    costs.set(xlabel="time (s)", ylabel="expected cost of a step, noise alone")
    gains.legend(loc="best", fontsize=7)
    costs.set_ylim(bottom=0)


def main() -> None:
    """Measure, and write."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    fleet, said = fleet_of_cars(), []
    found: dict[str, list[Array]] = {}
    for seed in track(range(seeds), "cars"):
        own, verdicts = excesses(fleet, FIRST_SEED + seed)
        said += verdicts
        for name, values in own.items():
            found.setdefault(name, []).extend(values)
    text = page({name: np.array(values) for name, values in found.items()}, said, seeds)
    print(text)
    atomic_write(FIGURE, rendered(lambda figure: draw(fleet, figure), "svg"))
    if seeds >= 8:
        write_section("accuracy", "schedules", text)


if __name__ == "__main__":
    main()
