"""Houses as their owners have them: a table of thermometer, heat and weather, and a forecast.

`python benchmarks/house_logs.py` measures what is not in results/house_logs.jsonl yet; `--seeds 1`
one seed, `--write` the section of the page "Real fleets". The same houses, logs and task
as `real_fleets.py`, but the weather changes during the 12 hours, by a forecast. What is given is a
table and a description: `[outputs]`, `[measured]` and nothing else, and `design` with a forecast.
Beside it the state that was made by hand, given the same forecast, and what comes of expecting that
the weather stays.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

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

LEARNT, FIRST_SEED = 150, 820
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


Row = dict[str, Any]
"""One seed, route and amount: the certificates of the houses left out, and the truth."""


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


def score(houses: Houses, seed: int, amount: str) -> list[Row]:
    """A row for each route."""
    rng, steps = np.random.default_rng(seed), AMOUNTS[amount]
    order = rng.permutation(len(houses.A))
    old, new = houses.some(order[:LEARNT]), houses.some(order[LEARNT:])
    names = [f"house {i}" for i in order]
    taught, own = thermostats(old, WEEK, rng), thermostats(new, WEEK, rng)
    ahead = weather(rng)
    best, contexts = best_costs(new, ahead), contexts_of(new)
    labels = names[LEARNT:] if steps else [None] * len(best)
    both: Any = {"contexts": contexts, "machine": labels, "bounds": False}
    rows = []

    def add(
        route: str, claims: list[clqr.Certificate], seconds: float, kept: clqr.OutputHistory
    ) -> None:
        gains, q, r = np.stack([one.policy.gains for one in claims]), kept.n, kept.past_inputs
        assert kept.delay == 0 or kept.spacing == 1
        seen = None if route.startswith("by hand") else _seen(q, r, ahead)
        paid = exact_costs(new, gains, ahead, (q, r), seen, 1 - 1 / kept.spacing)
        ends = np.array([one.interval for one in claims])
        row = {"seed": seed, "amount": amount, "route": route, "outputs": q, "inputs": r + 1}
        row["spacing"] = kept.spacing
        row |= {"excess": (paid / best - 1).tolist(), "seconds": seconds}
        row["trusted"] = [one.verdict == "trust" for one in claims]
        row["missed"] = ((paid < ends[:, 0]) | (paid > ends[:, 1])).tolist()
        rows.append(row)

    began = time.process_time()
    decoder = new_decoder()
    decoder.update_many(contexts_of(old), trajectory(taught), names[:LEARNT])
    if steps:
        part = Logs(*(one[: steps + 1] for one in own))
        decoder.update_many(contexts, trajectory(part), names[LEARNT:])
    claims = clqr.certify_many(decoder, cost=COST, start=BEGIN, forecast={1: ahead / 10}, **both)
    by_hand = clqr.OutputHistory(1, 1, 3, measured=1, constant=True)
    add("by hand, forecast", claims, time.process_time() - began, by_hand)

    began = time.process_time()
    tables = [table(taught, old, names[:LEARNT], WEEK)]
    if steps:
        tables.append(table(own, new, names[LEARNT:], steps))
    fitted = fit(tables)
    kept = fitted.description.output_history
    assert kept is not None
    claims = design_many(fitted, forecast={"outdoor": ahead}, **both)
    add("described, forecast", claims, time.process_time() - began, kept)
    if amount == BOTH:
        claims = design_many(fitted, measured={"outdoor": ahead[0]}, **both)
        add("described, stays", claims, time.process_time() - began, kept)
    return rows


def fit(tables: list[pl.DataFrame]) -> clqr.FittedFleet:
    """What `contextual-lqr fit` does with a description and tables."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.parquet" for i in range(len(tables))]
        for file, one in zip(files, tables, strict=True):
            one.write_parquet(file)
        described = clqr.FleetDescription.parse(DESCRIPTION)
        return clqr.fit(described, [str(file) for file in files], alarm=False, workers=1)


def _seen(q: int, r: int, ahead: Array) -> Array:
    """The state of the description, °C, from that of the truth, which is less 20 °C."""
    seen = np.zeros((HORIZON - 1, 2 + q + r, 6 + q + r))
    seen[:, 0, -1], seen[:, 1, -1], seen[:, 2 : 2 + q, -1] = 1, ahead, TARGET
    seen[:, range(2, 2 + q + r), range(5, 5 + q + r)] = 1
    return seen


def shown(rows: list[Row]) -> str:
    """A line for each amount of own data and route, over all seeds."""
    lines = [
        "| own data | state, weather | excess: median / 90 % / worst | trusted | of these bad | "
        "bad, all | interval missed | s of processor | history: outputs, inputs, samples apart |",
        "|---" * 9 + "|",
    ]
    for amount in AMOUNTS:
        for route in dict.fromkeys(row["route"] for row in rows):
            some = [row for row in rows if (row["route"], row["amount"]) == (route, amount)]
            if not some:
                continue
            excess, trusted, missed = (
                np.concatenate([row[name] for row in some])
                for name in ("excess", "trusted", "missed")
            )
            bad = excess > BAD
            spread = " / ".join(f"{q:.2g}" for q in np.quantile(excess, [0.5, 0.9, 1.0]))
            seconds = np.median([row["seconds"] for row in some])
            told = "; ".join(
                sorted({f"{row['outputs']}, {row['inputs']}, {row['spacing']:g}" for row in some})
            )
            lines.append(
                f"| {amount} | {route} | {spread} | {trusted.sum()} of {len(trusted)} | "
                f"{bad[trusted].sum()} | {bad.mean():.0%} | {missed.mean():.0%} | {seconds:.0f} | "
                f"{told} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure what is not in the rows yet, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4, help="how many, from 820 on")
    parser.add_argument("--development", action="store_true", help="seeds from 0 on instead")
    parser.add_argument("--amounts", help="some amounts of own data, with commas")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    clqr.set_threads(1)
    chosen = options.amounts.split(",") if options.amounts else list(AMOUNTS)
    first, houses = 0 if options.development else FIRST_SEED, load()
    file = Path("results") / "house_logs.jsonl"
    file.parent.mkdir(exist_ok=True)
    rows: list[Row] = []
    if file.exists():
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    for seed in range(first, first + options.seeds):
        for amount in chosen:
            if any((row["seed"], row["amount"]) == (seed, amount) for row in rows):
                continue
            found = score(houses, seed, amount)
            with file.open("a") as whole:
                whole.writelines(json.dumps(row) + "\n" for row in found)
            rows += found
    rows = [row for row in rows if (row["seed"] < FIRST_SEED) == options.development]
    text = shown(rows)
    print(text)
    if options.write:
        many = len({row["seed"] for row in rows})
        seeds = f"{many} seed{'s' * (many > 1)}"
        write_section("real-fleets", "thermometers", INTRODUCTION.format(seeds=seeds) + text)


INTRODUCTION = """
# Houses from the thermometer alone

Written by `benchmarks/house_logs.py`: the houses above, 150 of which teach and 75 are left out,
from tables of thermometer, heat and outdoor temperature. The description declares `[outputs]` and
`[measured]`; how long the history must be, and the delay, are found in the logs (the alarm is off).
The task is the same, from 17 to 20 °C in 12 h, but the weather changes meanwhile: *forecast* knows
how, *stays* expects it to stay as it is at the start. *By hand* is the state of the section above.
*Excess* is over the best controller that sees all masses and knows the weather; {seeds}, from
820 on.

"""


if __name__ == "__main__":
    main()
