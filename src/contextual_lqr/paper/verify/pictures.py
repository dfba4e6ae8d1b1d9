"""The five figures: each guarantee as measured, beside what is promised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from contextual_lqr.paper.style import PALETTE, figure_style, save_figure
from contextual_lqr.paper.verify.checks import RULES, binned, by_run
from contextual_lqr.theory import Regularity, regret_bound, suboptimality_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 3000  # of a scatter plot, drawn evenly from all

# Name -> what the figure shows.
CAPTIONS = {
    "coverage": "Coverage: squared distance of the true decoder from the estimate, as a share of "
    "β, before each episode of the short runs. Line: median; band: 5 % to 95 %; dots: largest of "
    "all runs. Above 1 the true decoder is outside.",
    "optimism": "Optimism: promised cost against optimal cost, one point an episode, short and "
    "long runs. No point may lie above the line.",
    "regret": "Regret of true optimism: thin lines are runs, the thick one their mean; green, the "
    "regret of single episodes. The Proposition's bound is at the top; dotted, what could be lost "
    "at most in any case.",
    "unseen": "Unseen contexts: what the output costs too much. Blue: drawn uniformly from the "
    "decoders played, as in the Theorem; orange: the decoder of that episode alone; green: regret "
    "per episode, the output with the proof repaired; pink: the ridge estimate.",
    "steps": "Per-step inequality: error of the prediction of one step against what the confidence "
    "set allows, short runs. No point may lie above the line.",
}


def draw(
    rows: pl.DataFrame, constants: Mapping[str, Regularity], delta: float, folder: Path
) -> list[Path]:
    """Write all figures as PNG and SVG; the PNG files, in order."""
    painters = {
        "coverage": _coverage,
        "optimism": _optimism,
        "regret": _regret,
        "unseen": _unseen,
        "steps": _steps,
    }
    with figure_style():
        import matplotlib.pyplot as plt

        for name, paint in painters.items():
            height = 3.4 if name in ("regret", "unseen") else 3.0
            figure, axes = plt.subplots(
                1,
                len(constants),
                figsize=(3.1 * len(constants) + 0.5, height),
                sharey=True,
                squeeze=False,
            )
            for axis, (fleet, one) in zip(axes[0], constants.items(), strict=True):
                paint(axis, rows.filter(fleet=fleet), one, delta)
                axis.set_title(fleet)
                axis.label_outer()
            _legend(figure, axes[0][0])
            save_figure(figure, folder, name)
            plt.close(figure)
    return [folder / f"{name}.png" for name in painters]


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    columns = 3 if len(labels) > 5 else len(labels)
    if len(figure.axes) == 1:  # too narrow for labels side by side
        columns = 1
        figure.set_figheight(figure.get_figheight() + 0.2 * len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, markerscale=4)


def _coverage(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    for colour, (rule, distance, beta) in zip(PALETTE, RULES, strict=False):
        ratios = by_run(
            rows.filter(long=False).with_columns(ratio=pl.col(distance) / pl.col(beta)), "ratio"
        )
        k = np.arange(1, ratios.shape[1] + 1)
        low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95], axis=0)
        axis.plot(k, middle, color=colour, label=rule)
        axis.fill_between(k, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(k, ratios.max(0), ".", color=colour, markersize=3)
    axis.axhline(1, color="black", linewidth=1)
    axis.set(yscale="log", xlabel="episode", ylabel="distance² / β")


def _optimism(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    for colour, (low, high, label) in zip(
        PALETTE[1::-1] + PALETTE[2:],
        ((1, 3, "episodes 1 to 3"), (4, 30, "4 to 30"), (31, 10**9, "31 and later")),
        strict=False,
    ):
        some = _thinned(rows.filter(pl.col("episode").is_between(low, high)))
        axis.plot(
            some["optimal"], some["promised"], ".", color=colour, markersize=2, alpha=0.5,
            label=label, rasterized=True,
        )  # fmt: skip
    optimal = rows["optimal"].to_numpy()
    ends = np.array([optimal.min(), optimal.max()])
    axis.plot(ends, ends, color="black", linewidth=1)
    axis.set(xscale="log", yscale="log", xlabel="optimal cost", ylabel="promised cost")


def _regret(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    each = by_run(rows.filter(long=True), "regret")
    total = each.cumsum(1)
    K = total.shape[1]
    marks = np.unique(np.geomspace(1, K, 200).astype(int))
    for one in total:
        axis.plot(marks, one[marks - 1], color=PALETTE[0], linewidth=0.6, alpha=0.6)
    mean = total.mean(0)
    axis.plot(marks, mean[marks - 1], color=PALETTE[0], linewidth=2, label="of K episodes")
    means, at = binned(each, 1)
    axis.plot(at, means.mean(0), color=PALETTE[2], label="of episode K alone")
    first = min(100, K // 10)
    late = marks[marks >= first]
    guide = mean[first - 1] * np.sqrt(late / first)
    axis.plot(late, guide, "--", color="black", linewidth=1, label="√K")
    bounds = [regret_bound(constants, float(k), delta) for k in marks]
    axis.plot(marks, [b.total for b in bounds], color=PALETTE[1], label="bound")
    axis.plot(marks, [b.trivial for b in bounds], ":", color=PALETTE[1], label="trivial bound")
    axis.set(xscale="log", yscale="log", xlabel="episodes K", ylabel="regret (cost)")


def _unseen(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    long = rows.filter(long=True)
    each, estimate, regret = (by_run(long, c) for c in ("unseen", "unseen_estimate", "regret"))
    K = each.shape[1]
    counts = np.arange(1, K + 1)
    marks = np.unique(np.geomspace(1, K, 200).astype(int))

    def mean_so_far(values: np.ndarray) -> np.ndarray:
        return np.asarray((values.cumsum(1) / counts).mean(0)[marks - 1])

    drawn = mean_so_far(each)
    axis.plot(marks, drawn, color=PALETTE[0], linewidth=2, label="drawn from all decoders")
    means, at = binned(each, 1)
    axis.plot(at, means.mean(0), color=PALETTE[1], label="decoder of episode k")
    axis.plot(marks, mean_so_far(regret), color=PALETTE[2], label="regret / K")
    means, at = binned(estimate, 1)
    axis.plot(at, means.mean(0), color=PALETTE[3], label="ridge estimate")
    first = min(100, K // 10)
    late = marks[marks >= first]
    guide = drawn[marks >= first][0] * np.sqrt(late[0] / late)
    axis.plot(late, guide, "--", color="black", linewidth=1, label="1/√K")
    bound = [suboptimality_bound(constants, float(k), delta) for k in marks]
    axis.plot(marks, bound, color=PALETTE[4], label="the Theorem's bound")
    axis.set(xscale="log", yscale="log", xlabel="episodes K", ylabel="cost above the optimum")


def _steps(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    some = rows.filter(long=False).select("step_error", "step_allowed").explode("*")
    some = _thinned(some.drop_nulls())
    allowed, error = some["step_allowed"].to_numpy(), some["step_error"].to_numpy()
    axis.plot(allowed, error, ".", markersize=2, alpha=0.5, label="one step", rasterized=True)
    ends = np.array([allowed.min(), allowed.max()])
    axis.plot(ends, ends, color="black", linewidth=1, label="equality")
    axis.set(
        xscale="log", yscale="log", xlabel="√β ‖z‖ in V⁻¹ (state)", ylabel="‖(Θ* - Θ̂) z‖ (state)"
    )


def _thinned(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.gather_every(max(1, len(rows) // _POINTS))
