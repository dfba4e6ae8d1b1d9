"""Houses that obey no law: what certificates say of them, and what is true.

`python benchmarks/real_fleets.py` takes some minutes; `--quick` one seed, `--development` those on
which choices were made, `--write` the section of the page "Real fleets". 150 of 225 houses, drawn
at random, have a week of logs; the other 75 get a controller and a certificate zero-shot, and again
after hours of their own (`houses.py` has their truth). All of it goes through the public API.
"""

import argparse
import sys
import time
from typing import NamedTuple

import numpy as np
from houses import (
    BEGIN,
    COST,
    WEEK,
    Houses,
    best_costs,
    contexts_of,
    exact_costs,
    load,
    log,
    new_decoder,
)
from numpy import ndarray as Array
from pages import write_section
from scipy.stats import binomtest

import contextual_lqr as clqr
from contextual_lqr.certificates.backtest import backtest
from contextual_lqr.certificates.backtest_records import Backtest

LEARNT = 150
AMOUNTS = {"zero-shot": 0, "12 h": 24, "24 h": 48, "48 h": 96, "a week": WEEK}
OWN = tuple(steps - 2 for steps in AMOUNTS.values() if steps)  # transitions
BAD = 0.05


class Score(NamedTuple):
    """The certificates of the houses left out, and the truth."""

    excess: Array
    likely: Array
    trusted: Array
    missed: Array
    own_fit: Array  # the excess of least squares on the house's own rows; NaN zero-shot
    backtest: Backtest | None  # of the fleet alone


def score(houses: Houses, seed: int) -> dict[str, Score]:
    """Learn from 150 houses; certify the 75 others, with more and more of their own data."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(houses.A))
    old, new = houses.some(order[:LEARNT]), houses.some(order[LEARNT:])
    fleet = new_decoder()
    fleet.update_many(contexts_of(old), log(old, WEEK, rng), [f"house {i}" for i in order[:LEARNT]])
    own, contexts, best = log(new, WEEK, rng), contexts_of(new), best_costs(new)
    labels = [f"house {i}" for i in order[LEARNT:]]
    found = {}
    for name, steps in AMOUNTS.items():
        decoder, fitted = fleet.copy(), np.full(len(best), np.nan)
        if steps:
            part = clqr.Trajectory(own.states[:, : steps - 1], own.inputs[:, : steps - 2])
            decoder.update_many(contexts, part, labels)
            fitted = exact_costs(new, own_gains(part)) / best - 1
        claims = clqr.certify_many(
            decoder, contexts, COST, BEGIN, machine=labels if steps else None, bounds=False
        )
        paid = exact_costs(new, np.stack([one.policy.gains for one in claims]))
        ends = np.array([one.interval for one in claims])
        found[name] = Score(
            paid / best - 1,
            np.array([one.likely_excess for one in claims]),
            np.array([one.verdict == "trust" for one in claims]),
            (paid < ends[:, 0]) | (paid > ends[:, 1]),
            fitted,
            None if steps else backtest(decoder, COST, BEGIN, own_steps=OWN),
        )
    return found


def own_gains(part: clqr.Trajectory) -> Array:
    """The gains that are best for least squares on each house's own rows alone."""
    given, d = new_decoder().known, part.states.shape[2]
    M = np.zeros((len(part.states), d, d + 1))
    for state, row in given.items():
        M[:, state] = row[: d + 1]
    rows = np.concatenate((part.states[:, :-1], part.inputs), 2)
    for one, y, after in zip(M, rows, part.states[:, 1:], strict=True):
        unknown = [i for i in range(d) if i not in given]
        one[unknown] = np.linalg.lstsq(y, after[:, unknown], rcond=None)[0].T
    return clqr.solve(clqr.LinearSystem(M[..., :d], M[..., d:]), COST).policy.gains


def table(runs: list[dict[str, Score]]) -> str:
    """A row for each amount of own data, over all seeds."""
    lines = [
        "| own data | excess: median / 90 % / worst | own fit alone | trusted | of these bad | "
        "bad, all | above likely | interval missed |",
        "|---" * 8 + "|",
    ]
    for name in runs[0]:
        some = [run[name] for run in runs]
        excess, likely, trusted, missed, fitted = (
            np.concatenate([one[k] for one in some]) for k in range(5)
        )
        bad = excess > BAD
        lines.append(
            f"| {name} | {_spread(excess)} | {_spread(fitted) if name != 'zero-shot' else ''} | "
            f"{trusted.sum()} of {len(trusted)} | {bad[trusted].sum()} | {bad.mean():.0%} | "
            f"{(excess > likely).mean():.0%} | {missed.mean():.0%} |"
        )
    return "\n".join(lines)


def estimates(runs: list[dict[str, Score]]) -> str:
    """What the backtests say of trust and how often it is wrong, beside what came of it."""
    said = [one for run in runs if (one := run["zero-shot"].backtest) is not None]
    trusted, total = sum(one.trusted for one in said), sum(len(one.machines) for one in said)
    lines = [f"The backtests would have trusted {trusted} of {total} houses zero-shot.", ""]
    lines += ["| own data | backtests: trusted | of these bad, 95 % | houses left out: bad |"]
    lines += ["|---" * 4 + "|"]
    for name, steps in AMOUNTS.items():
        tests = [few for one in said for few in one.few_shot if few.steps == steps - 2]
        trusted, wrongly = sum(one.trusted for one in tests), sum(one.wrongly for one in tests)
        if not trusted:
            continue
        low, high = binomtest(wrongly, trusted).proportion_ci()
        chosen = np.concatenate([run[name].trusted for run in runs])
        bad = np.concatenate([run[name].excess for run in runs])[chosen] > BAD
        lines.append(
            f"| {name} | {trusted} of {total} | {wrongly}: {low:.1%} to {high:.1%} | "
            f"{bad.sum()} of {len(bad)}: {bad.mean():.1%} |"
        )
    levels = ", ".join(f"{one.hedge:g}{'' if one.refined else ' (hedged only)'}" for one in said)
    lines += ["", f"They multiply the covariances that a policy hedges against by {levels}."]
    return "\n".join(lines)


def worst(runs: list[dict[str, Score]]) -> str:
    """The worst of 75 in each seed."""
    said = {
        name: ", ".join(f"{run[name].excess.max():.2g}" for run in runs)
        for name in ("zero-shot", "12 h")
    }
    return f"The worst of 75, by seed: zero-shot {said['zero-shot']}; with 12 h {said['12 h']}."


def _spread(excess: Array) -> str:
    return " / ".join(f"{q:.2g}" for q in np.quantile(excess, [0.5, 0.9, 1.0]))


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--development", action="store_true", help="seeds 0 to 3 instead")
    parser.add_argument("--write", action="store_true", help="write the section of the page")
    options = parser.parse_args()
    clqr.set_threads(1)
    seeds = range(4) if options.development else range(2800, 2808)
    houses, began, runs = load(), time.perf_counter(), []
    for seed in seeds[: 1 if options.quick else None]:
        runs.append(score(houses, seed))
        print(f"seed {seed}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    text = f"{table(runs)}\n\n{estimates(runs)}\n\n{worst(runs)}"
    print(text)
    if options.write:
        write_section("real-fleets", "houses", INTRODUCTION.format(seeds=len(runs)) + text)


INTRODUCTION = """
# 225 houses

Written by `benchmarks/real_fleets.py`. Real houses, each simulated by the heat model that was
identified from its own logs; a thermometer is all that is seen. 150 houses with a week of logs each
teach, 75 are left out; {seeds} seeds from 2800 on. *Excess* is the exact cost of a controller on
the true house over that of the best controller that sees all masses, less 1; *bad* is over 5 %;
*own fit alone* is least squares on the house's own rows. *Above likely* should be at most 5 %. Ends
of the interval are those that were searched for, not those that are proved.

"""


if __name__ == "__main__":
    main()
