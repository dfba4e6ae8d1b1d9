"""Houses as their owners have them: a table of thermometer, heat and weather, and a forecast.

`python benchmarks/house_logs.py` takes a while; `--quick` one seed, `--development` those on which
choices were made, `--write` the section of the page "Real fleets". The same houses, logs and task
as `real_fleets.py`, but the weather changes during the 12 hours, by a forecast. What is given is a
table and a description: `[outputs]`, `[measured]` and nothing else, and `design` with a forecast.
Beside it the state that was made by hand, given the same forecast, and what comes of expecting that
the weather stays.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from houses import (
    BEGIN,
    COST,
    HORIZON,
    OUTDOORS,
    STEP,
    TARGET,
    WEEK,
    Houses,
    Logs,
    best_costs,
    contexts_of,
    exact_costs,
    load,
    new_decoder,
    thermostats,
    trajectory,
)
from numpy import ndarray as Array
from pages import write_section

import contextual_lqr as clqr
from contextual_lqr.data.designing import design_many

LEARNT = 150
AMOUNTS = {"zero-shot": 0, "12 h": 24, "24 h": 48, "48 h": 96, "a week": WEEK}
BAD = 0.05
BOTH = "48 h"  # where the weather is also expected to stay
DESCRIPTION = f"""
[outputs]
one = {{ constant = true }}
temperature = "°C"
[measured]
outdoor = "°C"
[inputs]
heat = "kW"
[contexts]
built = {{ low = -5.0, high = 5.0 }}
size = {{ low = -5.0, high = 5.0 }}
[context_map]
kind = "features"
features = ["1", "built", "size"]
[task]
horizon = {HORIZON}
start = {{ temperature = 17.0, outdoor = {OUTDOORS} }}
[cost]
Q = {{ temperature = 1.0 }}
R = [0.02]
target = {{ temperature = {TARGET} }}
[learning]
noise_level = 0.05
"""


class Score(NamedTuple):
    """The certificates of the houses left out, and the truth."""

    excess: Array
    trusted: Array
    missed: Array
    seconds: float
    history: tuple[int, int]  # outputs and inputs in the state


def table(logs: Logs, houses: Houses, labels: list[str], steps: int) -> pl.DataFrame:
    """A log as its owner has it: a row for each half hour of a house."""
    house, step = np.indices((len(labels), steps + 1)).reshape(2, -1)
    when, size = houses.features[house, 1], houses.features[house, 2]
    return pl.DataFrame(
        {
            "machine": np.array(labels)[house],
            "episode": np.array(labels)[house],
            "step": step,
            "temperature": logs.readings[step, house],
            "outdoor": logs.outside[step, house],
            "heat": logs.heats[step, house],
            "built": when,
            "size": size,
        }
    )


def weather(rng: np.random.Generator) -> Array:
    """The forecast, °C: a day's course, as in the logs."""
    hours = STEP * np.arange(HORIZON - 1)
    drift = rng.normal() + np.cumsum(0.2 * rng.normal(size=HORIZON - 1))
    return OUTDOORS + 4 * np.sin(2 * np.pi * (hours + rng.uniform(0, 24)) / 24) + drift


def score(houses: Houses, seed: int, amounts: dict[str, int]) -> dict[tuple[str, str], Score]:
    """By route and amount of own data."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(houses.A))
    old, new = houses.some(order[:LEARNT]), houses.some(order[LEARNT:])
    names = [f"house {i}" for i in order]
    taught, own = thermostats(old, WEEK, rng), thermostats(new, WEEK, rng)
    ahead = weather(rng)
    best, contexts = best_costs(new, ahead), contexts_of(new)
    found = {}
    for amount, steps in amounts.items():
        labels = names[LEARNT:] if steps else [None] * len(best)
        for route in ("by hand", "described"):
            began = time.process_time()
            if route == "by hand":
                decoder = new_decoder()
                decoder.update_many(contexts_of(old), trajectory(taught), names[:LEARNT])
                if steps:
                    part = Logs(*(one[: steps + 1] for one in own))
                    decoder.update_many(contexts, trajectory(part), names[LEARNT:])
                fitted, history, seen = None, (3, 2), None
            else:
                tables = [table(taught, old, names[:LEARNT], WEEK)]
                if steps:
                    tables.append(table(own, new, names[LEARNT:], steps))
                fitted = fit(tables)
                kept = fitted.description.output_history
                history = (kept.n, kept.past_inputs)
            fitting = time.process_time() - began
            for told in ("forecast", "stays") if amount == BOTH else ("forecast",):
                began = time.process_time()
                if fitted is None:
                    profile = {1: ahead / 10} if told == "forecast" else None
                    start = BEGIN.copy()
                    start[1] = ahead[0] / 10
                    claims = clqr.certify_many(
                        decoder,
                        contexts,
                        COST,
                        start,
                        machine=labels,
                        bounds=False,
                        forecast=profile,
                    )
                else:
                    seen = _seen(fitted, history, ahead)
                    known = {"forecast": {"outdoor": ahead}, "stays": {"outdoor": ahead[0]}}
                    option = {"forecast": "forecast", "stays": "measured"}[told]
                    claims = design_many(
                        fitted,
                        contexts,
                        machine=labels,
                        bounds=False,
                        **{option: known[told]},
                    )
                spent = fitting + time.process_time() - began
                gains = np.stack([one.policy.gains for one in claims])
                paid = exact_costs(new, gains, ahead, history, seen)
                ends = np.array([one.interval for one in claims])
                found[f"{route}, {told}", amount] = Score(
                    paid / best - 1,
                    np.array([one.verdict == "trust" for one in claims]),
                    (paid < ends[:, 0]) | (paid > ends[:, 1]),
                    spent,
                    history,
                )
    return found


def fit(tables: list[pl.DataFrame]) -> clqr.FittedFleet:
    """What `contextual-lqr fit` does with a description and tables."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.parquet" for i in range(len(tables))]
        for file, one in zip(files, tables, strict=True):
            one.write_parquet(file)
        described = clqr.FleetDescription.parse(DESCRIPTION)
        return clqr.fit(described, [str(file) for file in files], alarm=False, workers=1)


def _seen(fitted: clqr.FittedFleet, history: tuple[int, int], ahead: Array) -> Array:
    """The state of the description, °C, from that of the truth, which is less 20 °C."""
    q, r = history
    assert fitted.description.state_names[:3] == ("one", "outdoor", "temperature")
    seen = np.zeros((HORIZON - 1, 2 + q + r, 6 + q + r))
    seen[:, 0, -1], seen[:, 1, -1], seen[:, 2 : 2 + q, -1] = 1, ahead, TARGET
    seen[:, range(2, 2 + q + r), range(5, 5 + q + r)] = 1
    return seen


def shown(runs: list[dict[tuple[str, str], Score]]) -> str:
    """A row for each amount of own data and route, over all seeds."""
    lines = [
        "| own data | state, weather | excess: median / 90 % / worst | trusted | of these bad | "
        "bad, all | interval missed | s of processor | history: outputs, inputs |",
        "|---" * 9 + "|",
    ]
    for route, amount in sorted(runs[0], key=lambda one: [*AMOUNTS].index(one[1])):
        some = [run[route, amount] for run in runs]
        excess, trusted, missed = (np.concatenate([one[k] for one in some]) for k in range(3))
        bad = excess > BAD
        spread = " / ".join(f"{q:.2g}" for q in np.quantile(excess, [0.5, 0.9, 1.0]))
        seconds = np.median([one.seconds for one in some])
        lengths = sorted({one.history for one in some})
        told = "; ".join(f"{a}, {b + 1}" for a, b in lengths)
        lines.append(
            f"| {amount} | {route} | {spread} | {trusted.sum()} of {len(trusted)} | "
            f"{bad[trusted].sum()} | {bad.mean():.0%} | {missed.mean():.0%} | {seconds:.0f} | "
            f"{told} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--development", action="store_true", help="seeds 0 to 3 instead")
    parser.add_argument("--amounts", help="some amounts of own data, with commas")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    clqr.set_threads(1)
    amounts = AMOUNTS
    if options.amounts:
        amounts = {name: AMOUNTS[name] for name in options.amounts.split(",")}
    seeds = range(4) if options.development else range(400, 404)
    houses, began, runs = load(), time.perf_counter(), []
    for seed in seeds[: 1 if options.quick else None]:
        runs.append(score(houses, seed, amounts))
        print(f"seed {seed}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    text = shown(runs)
    print(text)
    if options.write:
        write_section("real-fleets", "house logs", INTRODUCTION.format(seeds=len(runs)) + text)


INTRODUCTION = """
# Houses from the thermometer alone

Written by `benchmarks/house_logs.py`: the houses above, 150 of which teach and 75 are left out,
from tables of thermometer, heat and outdoor temperature. The description declares `[outputs]` and
`[measured]`; how long the history must be, and the delay, are found in the logs (the alarm is off).
The task is the same, from 17 to 20 °C in 12 h, but the weather changes meanwhile: *forecast* knows
how, *stays* expects it to stay as it is at the start. *By hand* is the state of the section above.
*Excess* is over the best controller that sees all masses and knows the weather; {seeds} seeds, from
400 on.

"""


if __name__ == "__main__":
    main()
