"""One page about one verification: the verdicts, how the bound on the state acted, the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from contextual_lqr.paper.page import Page
from contextual_lqr.paper.verify.checks import Check
from contextual_lqr.paper.verify.pictures import CAPTIONS
from contextual_lqr.paper.verify.runs import VerifySettings
from contextual_lqr.theory import Regularity, beta, episodes_needed, regret_bound


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


def write_page(
    path: Path,
    settings: VerifySettings,
    constants: Mapping[str, Regularity],
    found: Sequence[Check],
    acted: Sequence[Mapping[str, Any]],
    figures: Sequence[Path],
) -> None:
    """Write the report."""
    page = Page("The guarantees, measured")
    failed = [check for check in found if not check.holds]
    page.text(
        f"{len(found) - len(failed)} of {len(found)} checks hold at δ = {settings.delta:g}, on "
        f"{len(constants)} path-following fleets. Coverage: {settings.seeds} runs of "
        f"{settings.short_episodes} episodes a fleet. Rates: {settings.long_runs} runs of "
        f"{settings.long_episodes} episodes a fleet. Costs are exact expectations."
    )
    if settings.beta_factor != 1:
        page.text(f"β was multiplied by {settings.beta_factor:g}, so checks are meant to fail.")
    for fleet in constants:
        page.heading(f"Fleet {fleet}")
        page.table(
            ("check", "verdict", "found"),
            [(c.name, c.holds, c.finding) for c in found if c.fleet == fleet],
        )
    for figure in figures:
        page.heading(CAPTIONS[figure.stem].split(":")[0])
        page.figure(figure, CAPTIONS[figure.stem])
    page.heading("Constants and bounds")
    page.text(
        "Of Assumption regularity, computed from the true fleets, with a margin of "
        f"{settings.margin:g} on c_q and c_x. The K of the Theorem is for ε = 1."
    )
    K, delta = settings.long_episodes, settings.delta
    page.table(
        ("fleet", "c_q", "c_Θ", "c_w", "c_x", "λ", f"β after {K}", f"regret of {K}", "trivial",
         "K for ε = 1"),
        [
            (name, f"{r.c_q:.3g}", f"{r.c_theta:.3g}", f"{r.c_w:.3g}", f"{r.c_x:.3g}",
             f"{r.regularisation:.3g}", f"{beta(r, K, delta):.3g}",
             f"{regret_bound(r, K, delta).total:.3g}", f"{regret_bound(r, K, delta).trivial:.3g}",
             f"{episodes_needed(r, 1.0, delta):.2g}")
            for name, r in constants.items()
        ],
    )  # fmt: skip
    page.heading("How the state is kept bounded")
    page.text(
        "Inputs that would take ‖[x; u]‖ or ‖z‖ beyond c_x are scaled back; an episode whose state "
        "leaves c_x by itself ends there. Regret is that of the policy as planned, not scaled and "
        "not stopped. The last columns count decoders played with ‖P_h‖ above c_q, which the "
        "paper's set leaves out: of these episodes the Proposition says nothing."
    )
    page.table(
        ("fleet", "runs", "episodes", "acted in", "steps scaled", "stopped", "last acted",
         "beyond c_q", "last beyond", "largest ‖z‖"),
        [
            (one["fleet"], "long" if one["long"] else "short",
             *(str(one[n]) for n in ("episodes", "episodes_acted", "steps_scaled",
               "episodes_stopped", "last_acted", "episodes_beyond_c_q", "last_beyond_c_q")),
             f"{one['largest_z']:.3f}")
            for one in acted
        ],
    )  # fmt: skip
    page.write(path)
