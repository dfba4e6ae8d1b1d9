"""A study, measured: kills, many clients beside Optuna, growth, what playing at once costs.

    python benchmarks/study.py kills | clients | growth | regret | all  [--write]

With --write, the section of docs/measured/scale.md is written.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import study_clients
import study_growth
import study_kills
import study_regret
from pages import write_section

CLIENTS, EPISODES, KILLS = 100, 50, 200
SEEDS = range(7200, 7230)


def kills(count: int = KILLS) -> str:
    """The section on what survives."""
    rows = []
    for kind, seed in (("SQLite", 5), ("PostgreSQL", 6)):
        one = study_kills.run(kind, count, seed)
        rows.append(f"| {kind} | " + " | ".join(f"{value:,}" for value in one.values()) + " |")
        print(rows[-1], flush=True)
    return kills_section("\n".join(rows))


def kills_section(rows: str) -> str:
    """Its text."""
    return f"""## Kill -9

Written by `benchmarks/study.py kills` (seeds 5 and 6): three clients ask and tell without a pause,
and at random moments one of them is killed with -9 and another takes its place; every third time it
is all processes of PostgreSQL, which is then started again. A client whose store is gone tells
again, under the same key. `answered` is what clients were told is on the disk; `lost` is what the
log does not have of that, or has under another number; `doubled` counts episodes that it has twice;
`miscounted` is how far the counts of machines are off; `differs` whether the belief differs in any
bit from that of an agent that is told the log from the beginning. A log may have more episodes than
were answered: a client may die between the two.

| store | kills | answered | episodes | lost | doubled | gaps | miscounted | differs |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def clients(count: int = CLIENTS, episodes: int = EPISODES) -> str:
    """The section on many clients."""
    rows = []
    warnings.simplefilter("ignore")  # Optuna calls its proxy experimental, once a client
    for kind in ("SQLite", "PostgreSQL"):
        ours = 0.0
        for who, one in study_clients.compare(kind, count, episodes):
            ours = one["rate"] if who.startswith("ours") else ours
            times = [
                f"{np.quantile(one[what], level):.2f} s"
                for what in ("ask", "tell")
                for level in (0.5, 0.99)
            ]
            ratio = "" if who.startswith("ours") else f"{ours / one['rate']:.1f}"
            facts = (f"{one['episodes']:,}", f"{one['rate']:.1f}", ratio, *times)
            facts += (f"{len(one['errors'])}", f"{one['lost']}")
            rows.append(f"| {kind} | {who} | " + " | ".join(facts) + " |")
            print(rows[-1], flush=True)
    return clients_section("\n".join(rows), count, episodes)


def clients_section(rows: str, count: int, episodes: int) -> str:
    """Its text."""
    return f"""## Many clients at once

Written by `benchmarks/study.py clients`: {count} processes on two cores, each with a study of its
own on one store, or at one service of it, {episodes} episodes each (a chain of two carts: 4
states, 2 inputs, 29 steps): `ask`, which plans, then `tell` with an episode that was simulated
before. Optuna 5.0 does the same with trials of two numbers, `ask`, two suggestions, then `tell`,
by its RDB storage or its gRPC proxy. Its default sampler learns from what was told, as an ask of
ours does; the one that draws at random learns nothing. Optuna slows down with every trial, and
plays fewer for that reason, as the table says. All compute on the same two cores, which other
work shared, so waiting times are computing times; `ours` is how many times as many episodes a
second we had in our last run before it, in the same way.

| store | who | episodes | a second | ours | ask | 99 % | tell | 99 % | errors | lost or doubled |
|---|---|---|---|---|---|---|---|---|---|---|
{rows}
"""


def growth(counts: tuple[int, ...] = (1000, 30_000, 1_000_000)) -> str:
    """The section on growth."""
    return growth_section(study_growth.table(counts))


def growth_section(table: str) -> str:
    """Its text."""
    return f"""## A million episodes

Written by `benchmarks/study.py growth`: logs in SQLite written in bulk, with a snapshot that is
255 episodes behind, as far as one may be; then a new process opens the study, which folds these,
asks and tells. Carts of 2 states and 1 input, 20 steps. Machines of one law; a hundred machines
that are kept apart; or episodes without a label, each another machine, of which the first 256 are
kept apart. Times are processor times, because other work shared the computer; opening is also given
by the clock.

{table}
"""


def regret(seeds: range = SEEDS) -> str:
    """The section on regret."""
    return regret_section(study_regret.table(seeds), seeds)


def regret_section(table: str, seeds: range) -> str:
    """Its text."""
    return f"""## What playing at once costs

Written by `benchmarks/study.py regret`, seeds {seeds[0]} to {seeds[-1]}: fifty machines, an
episode each, the same masses in the same order. One after the other, each is told before the next
asks; an episode behind, each asks while the one before is still out; fifty at once, all ask
before any tells. Total regret is exact, in idle episodes (what doing nothing costs above the
optimum); medians over seeds. Then the regret of the second way over that of the first: of the
sums over all seeds and, seed by seed, the median, how many are above 1.5, and the largest.

{table}
"""


if __name__ == "__main__":
    chosen = next((one for one in sys.argv[1:] if not one.startswith("-")), "all")
    found = {
        name: measure()
        for name, measure in (
            ("kills", kills),
            ("clients", clients),
            ("growth", growth),
            ("regret", regret),
        )
        if chosen in (name, "all")
    }
    if "--write" in sys.argv:
        if "kills" in found:
            write_section("scale", "kills", found["kills"])
        if "clients" in found:
            write_section("scale", "clients", found["clients"])
        if "growth" in found:
            write_section("scale", "study-growth", found["growth"])
        if "regret" in found:
            write_section("scale", "regret", found["regret"])
