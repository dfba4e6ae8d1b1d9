"""The whole verification: runs side by side, then checks, figures and the report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from contextual_lqr.checks import require
from contextual_lqr.files import atomic_write, finite
from contextual_lqr.paper.reproduce.store import make_folder, write_rows
from contextual_lqr.paper.style import write_report
from contextual_lqr.paper.verify.checks import Check, all_checks
from contextual_lqr.paper.verify.figures import draw_figures
from contextual_lqr.paper.verify.machine_beliefs import FLEET, PLAYED, belief_coverage, run_machines
from contextual_lqr.paper.verify.runs import VerifySettings, constants_of, jobs, joined, run
from contextual_lqr.parallel import Workers, in_parallel
from contextual_lqr.theory import Regularity, beta, episodes_needed, regret_bound


@dataclass(frozen=True)
class Verification:
    """What was set, what was found, and how long it took."""

    settings: VerifySettings
    constants: dict[str, Regularity]
    checks: list[Check]
    supervision: list[dict[str, Any]]
    seconds: float

    def plain(self) -> dict[str, Any]:
        """All of it as JSON can hold it; a number that is not finite is null."""
        holds = all(check.holds for check in self.checks)
        found = {"holds": holds, **asdict(self), "seconds": round(self.seconds, 1)}
        plain: dict[str, Any] = finite(found)
        return plain


def verification(
    settings: VerifySettings,
    folder: Path,
    workers: Workers,
    progress: Callable[[int], object] = lambda _: None,
) -> Verification:
    """Run everything, and write rows, checks, figures and the report into the folder.

    `progress` is called with the number of episodes played since, of `settings.total_episodes`.
    """
    good = isinstance(workers, str) or workers >= 1
    require(good, f"workers must be at least 1, not {workers!r}")
    began = time.perf_counter()
    make_folder(folder)
    constants = {name: constants_of(name, settings.margin) for name in settings.fleets}
    frames = []
    with closing(in_parallel(run, jobs(settings), workers)) as results:
        for _, frame in results:
            frames.append(frame)
            progress(len(frame))
    rows = joined(frames)
    write_rows(folder / "rows.parquet", rows)
    machines = []
    with closing(in_parallel(run_machines, list(range(settings.seeds)), workers)) as results:
        for _, frame in results:
            machines.append(frame)
            progress(PLAYED)
    beliefs = pl.concat(machines).sort("own_episodes", "seed")
    write_rows(folder / "machines.parquet", beliefs)
    checks = all_checks(rows, constants, settings.delta, settings.fit_from)
    checks += belief_coverage(beliefs)
    acted = supervision(rows, constants)
    write_report(
        folder,
        "verify.html",
        settings=settings,
        checks=checks,
        verdicts={
            fleet: [(one.name, one.holds, one.finding) for one in checks if one.fleet == fleet]
            for fleet in (*constants, FLEET)
        },
        captions=draw_figures(rows, constants, settings.delta, folder),
        bounds=[
            (name, *bounds(one, settings.long_episodes, settings.delta))
            for name, one in constants.items()
        ],
        supervision=[
            (
                one["fleet"],
                "long" if one["long"] else "short",
                *list(one.values())[2:-1],
                f"{one['largest_z']:.3f}",
            )
            for one in acted
        ],
    )
    found = Verification(settings, constants, checks, acted, time.perf_counter() - began)
    atomic_write(folder / "checks.json", (json.dumps(found.plain(), indent=2) + "\n").encode())
    return found


def bounds(r: Regularity, K: int, delta: float) -> list[str]:
    """The constants of a fleet, and the theory's bounds for K episodes."""
    regret = regret_bound(r, K, delta)
    shown = [r.c_q, r.c_theta, r.c_w, r.c_x, r.regularisation, beta(r, K, delta)]
    shown += [regret.total, regret.trivial, episodes_needed(r, 1.0, delta)]
    return [f"{value:.3g}" for value in shown]


def supervision(rows: pl.DataFrame, constants: Mapping[str, Regularity]) -> list[dict[str, Any]]:
    """How often the bound on the state acted, and the bound on ‖P_h‖ would have, by fleet."""
    acted = (pl.col("scaled") > 0) | pl.col("stopped")
    c_q = pl.col("fleet").replace_strict({name: r.c_q for name, r in constants.items()})
    beyond = pl.col("value_norm") > c_q
    table = rows.group_by("fleet", "long", maintain_order=True).agg(
        pl.len().alias("episodes"),
        acted.sum().alias("episodes_acted"),
        pl.col("scaled").sum().alias("steps_scaled"),
        pl.col("stopped").sum().alias("episodes_stopped"),
        pl.col("episode").filter(acted).max().fill_null(0).alias("last_acted"),
        beyond.sum().alias("episodes_beyond_c_q"),
        pl.col("episode").filter(beyond).max().fill_null(0).alias("last_beyond_c_q"),
        pl.col("largest").max().alias("largest_z"),
    )
    return table.to_dicts()
