"""The five figures: each guarantee as measured, beside what is promised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.figures import PALETTE, figure_style, new_figure
from contextual_lqr.paper.style import save_figure
from contextual_lqr.paper.verify.checks import RULES, binned, by_run
from contextual_lqr.theory import Regularity, regret_bound, suboptimality_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 3000  # of a scatter plot

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


def draw_figures(
    rows: pl.DataFrame, constants: Mapping[str, Regularity], delta: float, folder: Path
) -> dict[str, str]:
    """Draw all of them, a panel for each fleet; their names, with what each shows."""
    painters = (_coverage, _optimism, _regret, _unseen, _steps)
    with figure_style():
        for name, paint in zip(CAPTIONS, painters, strict=True):
            height = 3.4 if name in ("regret", "unseen") else 3.0
            figure = new_figure(3.1 * len(constants) + 0.5, height)
            axes: Any = figure.subplots(1, len(constants), sharey=True, squeeze=False)
            for axis, (fleet, one) in zip(axes[0], constants.items(), strict=True):
                paint(axis, rows.filter(fleet=fleet), one, delta)
                axis.set_title(fleet)
                axis.label_outer()
            _legend(figure, axes[0][0])
            save_figure(figure, folder, name)
    return CAPTIONS


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    columns = 3 if len(labels) > 5 else len(labels)
    if len(figure.axes) == 1:  # too narrow for labels side by side
        columns = 1
        figure.set_figheight(figure.get_figheight() + 0.2 * len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, markerscale=4)


def _coverage(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    for colour, (rule, distance, beta) in zip(PALETTE, RULES, strict=False):
        short = rows.filter(long=False)
        ratios = by_run(short.with_columns(ratio=pl.col(distance) / pl.col(beta)), "ratio")
        k = np.arange(1, ratios.shape[1] + 1)
        low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95], axis=0)
        axis.plot(k, middle, color=colour, label=rule)
        axis.fill_between(k, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(k, ratios.max(0), ".", color=colour, markersize=3)
    axis.axhline(1, color="#000000", linewidth=1)
    axis.set(yscale="log", xlabel="episode", ylabel="distance² / β")


def _optimism(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    for colour, low, high, label in (
        (PALETTE[1], 1, 3, "episodes 1 to 3"),
        (PALETTE[0], 4, 30, "4 to 30"),
        (PALETTE[2], 31, 10**9, "31 and later"),
    ):
        some = rows.filter(pl.col("episode").is_between(low, high))
        _scatter(axis, some["optimal"], some["promised"], colour, label)
    _diagonal(axis, rows["optimal"])
    axis.set(xscale="log", yscale="log", xlabel="optimal cost", ylabel="promised cost")


def _regret(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    each = by_run(rows.filter(long=True), "regret")
    total, marks = each.cumsum(1), _marks(each)
    for one in total:
        axis.plot(marks, one[marks - 1], color=PALETTE[0], linewidth=0.6, alpha=0.6)
    mean = total.mean(0)[marks - 1]
    axis.plot(marks, mean, color=PALETTE[0], linewidth=2, label="of K episodes")
    _binned(axis, each, PALETTE[2], "of episode K alone")
    _guide(axis, marks, mean, 0.5, "√K")
    bounds = [regret_bound(constants, float(k), delta) for k in marks]
    axis.plot(marks, [b.total for b in bounds], color=PALETTE[1], label="bound")
    axis.plot(marks, [b.trivial for b in bounds], ":", color=PALETTE[1], label="trivial bound")
    axis.set(xscale="log", yscale="log", xlabel="episodes K", ylabel="regret (cost)")


def _unseen(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    long = rows.filter(long=True)
    each, estimate, regret = (by_run(long, c) for c in ("unseen", "unseen_estimate", "regret"))
    counts, marks = np.arange(1, each.shape[1] + 1), _marks(each)
    drawn, paid = ((v.cumsum(1) / counts).mean(0)[marks - 1] for v in (each, regret))
    axis.plot(marks, drawn, color=PALETTE[0], linewidth=2, label="drawn from all decoders")
    _binned(axis, each, PALETTE[1], "decoder of episode k")
    axis.plot(marks, paid, color=PALETTE[2], label="regret / K")
    _binned(axis, estimate, PALETTE[3], "ridge estimate")
    _guide(axis, marks, drawn, -0.5, "1/√K")
    bound = [suboptimality_bound(constants, float(k), delta) for k in marks]
    axis.plot(marks, bound, color=PALETTE[4], label="the Theorem's bound")
    axis.set(xscale="log", yscale="log", xlabel="episodes K", ylabel="cost above the optimum")


def _steps(axis: Axes, rows: pl.DataFrame, constants: Regularity, delta: float) -> None:
    some = rows.filter(long=False).select("step_error", "step_allowed").explode("*").drop_nulls()
    _scatter(axis, some["step_allowed"], some["step_error"], PALETTE[0], "one step")
    _diagonal(axis, some["step_allowed"], label="equality")
    labels = {"xlabel": "√β ‖z‖ in V⁻¹ (state)", "ylabel": "‖(Θ* - Θ̂) z‖ (state)"}
    axis.set(xscale="log", yscale="log", **labels)


def _scatter(axis: Axes, x: pl.Series, y: pl.Series, colour: str, label: str) -> None:
    """At most some thousand points, taken evenly from all."""
    every = max(1, len(x) // _POINTS)
    x, y = x.gather_every(every), y.gather_every(every)
    axis.plot(x, y, ".", color=colour, markersize=2, alpha=0.5, label=label, rasterized=True)


def _diagonal(axis: Axes, x: pl.Series, **options: Any) -> None:
    ends = np.quantile(x, [0, 1])
    axis.plot(ends, ends, color="#000000", linewidth=1, **options)


def _binned(axis: Axes, each: Float[Array, "runs K"], colour: str, label: str) -> None:
    means, at = binned(each, 1)
    axis.plot(at, means.mean(0), color=colour, label=label)


def _guide(axis: Axes, marks: Array, values: Array, power: float, label: str) -> None:
    """The power of k that was promised, from the later episodes on."""
    late = marks >= min(100, marks[-1] // 10)
    k, begin = marks[late], values[late][0]
    axis.plot(k, begin * (k / k[0]) ** power, "--", color="#000000", linewidth=1, label=label)


def _marks(each: Float[Array, "runs K"]) -> Array:
    return np.unique(np.geomspace(1, each.shape[1], 200).astype(int))
