"""The figures of a run: the paper's two, and what they do not show.

Lines are medians over seeds, bands the middle half of them; a line ends where the median does (a
failed or overflowing run counts as infinite).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.paper.reproduce.claims import idle_regret
from contextual_lqr.paper.reproduce.examples import Example, examples
from contextual_lqr.paper.reproduce.summary import Measurements, median
from contextual_lqr.paper.style import PALETTE, figure_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = ("figure-1a", "figure-1b", "figure-2", "figure-3", "figure-4")
# The paper's rule in black and thick, its letter in grey: they are what the others stand beside.
_COLOURS = {
    "paper": "#000000",
    "cautious": PALETTE[0],
    "cautious-step": PALETTE[5],
    "optimism": PALETTE[2],
    "thompson": PALETTE[1],
    "certainty": PALETTE[3],
    "paper-literal": "#8a8f99",
}
_SPLIT = 1e5  # where the axis of regret is broken
_MARKERS = {1: "o", 3: "^", 10: "x"}  # the paper's: circle, triangle, cross; the optimum a star


def draw_figures(measured: Measurements, folder: Path) -> dict[str, str]:
    """Draw all of them; their names, with what each shows."""
    captions: dict[str, str] = {}
    lead, seeds = measured.config.lead, measured.config.seeds
    with figure_style():
        of = f"Strategy “{lead}”; lines are medians over {seeds} seeds, bands the middle half."
        captions["figure-1a"] = f"Figure 1a. Error of the decoder after each training episode. {of}"
        _errors(measured, folder, "figure-1a", "decoder_error", "‖Θₖ - Θ*‖, Frobenius norm")
        captions["figure-1b"] = (
            f"Figure 1b. Mean control error over {measured.config.test_masses} masses never seen: "
            f"exact expected cost above the optimum. {of}"
        )
        _errors(measured, folder, "figure-1b", "control_error", "mean control error [cost]")
        captions["figure-2"] = _trajectories(measured, folder)
        captions["figure-3"] = _regret(measured, folder)
        captions["figure-4"] = _largest(measured, folder)
    return captions


def _errors(measured: Measurements, folder: Path, name: str, column: str, label: str) -> None:
    from matplotlib.figure import Figure

    config = measured.config
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.add_subplot()
    values = measured.of(column, config.lead)
    for i, setting in enumerate(config.settings):
        colour = PALETTE[config.paths.index(setting.path)]
        style = ("-", "--", ":", "-.")[config.decays.index(setting.decay) % 4]
        _band(axes, values[i], colour, setting.name, linestyle=style)
    axes.set(xlabel="training episodes", ylabel=label, xscale="log", yscale="log")
    _plain_episodes(axes, config.episodes)
    axes.legend(ncols=len(config.paths) if len(config.decays) > 1 else 1, fontsize="small")
    save_figure(figure, folder, name)


def _trajectories(measured: Measurements, folder: Path) -> str:
    from matplotlib.figure import Figure

    shown = examples(measured)
    paths = list(dict.fromkeys(one.path for one in shown))
    masses = list(dict.fromkeys(one.mass for one in shown))
    figure = Figure(figsize=(3.4 * len(paths), 3.2 * len(masses) + 0.3))
    layout: Any = figure.get_layout_engine()
    layout.set(h_pad=0.12)  # a title must not touch the axis above
    grid: Any = figure.subplots(len(masses), len(paths), squeeze=False)
    for one in shown:
        _trajectory(grid[masses.index(one.mass), paths.index(one.path)], one)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small")
    save_figure(figure, folder, "figure-2")
    after = max(shown[0].learnt)
    off = max(one.distance(after) for one in shown)
    return (
        f"Figure 2. Example trajectories of the learnt controllers, k = {shown[0].decay:g}, the "
        "same noise for all; of each path, the seed of median control error. Dashed line with "
        "dots: targets; ★ optimal policy; ○, △, ×: after 1, 3, 10 environments. After "
        f"{after}, no point is further than {off:.2g} from the optimal trajectory's. Lines that "
        "leave a panel are cut off; its corner says how far they go."
    )


def _trajectory(axes: Axes, one: Example) -> None:
    everything = np.concatenate((one.targets, one.optimal))
    low, high = everything.min(0), everything.max(0)
    room = 0.25 * (high - low).max()
    kwargs: dict[str, Any] = {"linewidth": 1.0, "markersize": 6.0, "fillstyle": "none"}
    axes.plot(*one.targets.T, "--o", color="#9aa1ad", linewidth=1.2, markersize=3, label="target")
    far = []
    for colour, (count, path) in zip(
        (PALETTE[3], PALETTE[1], PALETTE[0]), one.learnt.items(), strict=False
    ):
        label = f"{count} environment{'s' if count > 1 else ''}"
        axes.plot(*path.T, color=colour, marker=_MARKERS[count], label=label, **kwargs)
        if (path < low - room).any() or (path > high + room).any():
            far.append(f"{count}: {np.abs(path).max():.2g}")
    star: dict[str, Any] = kwargs | {"markersize": 8.0, "markeredgewidth": 0.8}
    axes.plot(*one.optimal.T, color="#000000", marker="*", label="optimal", **star)
    axes.set(
        title=f"{one.path}, m = {one.mass:g}, k = {one.decay:g}",
        xlim=(low[0] - room, high[0] + room),
        ylim=(low[1] - room, high[1] + room),
        xlabel="position x",
        ylabel="position y",
    )
    axes.set_aspect("equal", adjustable="box")
    if far:
        axes.text(
            0.02, 0.98, "reach " + ", ".join(far), transform=axes.transAxes, va="top", fontsize=7
        )


def _regret(measured: Measurements, folder: Path) -> str:
    from matplotlib.figure import Figure

    config = measured.config
    rows, columns = len(config.paths), len(config.decays)
    totals = {name: measured.of("cumulative_regret", name) for name in config.strategies}
    # Some strategies explode and some do not: an axis for both would show neither.
    ends = [float(median(one[i, :, -1])) for one in totals.values() for i in range(len(one))]
    broken = any(_SPLIT < end < np.inf for end in ends)
    figure = Figure(figsize=(4.4 * columns, 3.4 * rows + 0.7))
    outer = figure.add_gridspec(rows, columns)
    for i, setting in enumerate(config.settings):
        row, column = config.paths.index(setting.path), config.decays.index(setting.decay)
        inner = outer[row, column].subgridspec(1 + broken, 1, height_ratios=(1, 2)[-1 - broken :])
        panels = [figure.add_subplot(inner[j]) for j in range(1 + broken)]
        for axes in panels:
            _all_regrets(axes, measured, {name: one[i] for name, one in totals.items()}, i)
        panels[0].set_title(setting.name)
        panels[-1].set_xlabel("episodes K" if row == rows - 1 else "")
        panels[-1].set_ylabel("cumulative regret [cost]" if column == 0 else "")
        if broken:
            panels[0].set_ylim(_SPLIT, None)
            panels[1].set_ylim(None, _SPLIT)
            panels[0].tick_params(labelbottom=False, bottom=False)
            panels[0].spines["bottom"].set_linestyle((0, (2, 3)))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)))
    save_figure(figure, folder, "figure-3")
    cut = " The axis is broken: above, what explodes." if broken else ""
    return (
        "Figure 3. Cumulative expected regret of all strategies: median over seeds and middle "
        f"half.{cut} The guide has the slope of √K and begins at the regret of doing nothing once."
    )


def _all_regrets(axes: Axes, measured: Measurements, totals: dict[str, Array], i: int) -> None:
    config = measured.config
    for strategy, values in totals.items():
        thick = 2.0 if strategy == config.lead else 1.2
        _band(axes, values, _COLOURS[strategy], strategy, linewidth=thick)
    k, idle = np.arange(1, config.episodes + 1), idle_regret(measured, i)
    axes.plot(k, idle, ":", color="#000000", linewidth=1.0, label="doing nothing")
    axes.plot(k, idle[0] * np.sqrt(k), "-.", color="#000000", linewidth=0.8, label="√K (guide)")
    axes.set(xscale="log", yscale="log")
    _plain_episodes(axes, config.episodes)


def _largest(measured: Measurements, folder: Path) -> str:
    from matplotlib.figure import Figure

    config = measured.config
    figure = Figure(figsize=(7.0, 0.55 * len(config.strategies) + 1.5))
    axes = figure.add_subplot()
    offsets = np.linspace(-0.28, 0.28, len(config.settings)) if len(config.settings) > 1 else [0.0]
    beyond = 0
    for row, strategy in enumerate(config.strategies):
        largest = measured.of("largest_state", strategy)[:, :, -1]
        for i, setting in enumerate(config.settings):
            finite = largest[i][np.isfinite(largest[i])]
            beyond += largest[i].size - finite.size
            axes.plot(
                finite,
                np.full(len(finite), row + offsets[i]),
                linestyle="",
                marker=("o", "D", "s", "v")[config.decays.index(setting.decay) % 4],
                markersize=3,
                markeredgewidth=0,
                alpha=0.7,
                color=PALETTE[config.paths.index(setting.path)],
                label=setting.name if row == 0 else None,
            )
        middle = float(median(largest.ravel()))
        if np.isfinite(middle):
            axes.plot([middle, middle], [row - 0.38, row + 0.38], color="#000000", linewidth=1.5)
    axes.set(
        xscale="log",
        xlabel="largest coordinate of a state in the whole run",
        ylim=(len(config.strategies) - 0.5, -0.5),
    )
    axes.set_yticks(range(len(config.strategies)), config.strategies)
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    save_figure(figure, folder, "figure-4")
    missing = f" {beyond} runs failed and are not drawn." if beyond else ""
    return (
        "Figure 4. The largest state reached: every dot is one run, the bar the median of all. The "
        f"targets are of size 1.{missing}"
    )


def _band(axes: Axes, values: Array, colour: str, label: str, **line: Any) -> None:
    """Median and middle half of (seeds, episodes), where finite."""
    k = np.arange(1, values.shape[1] + 1)
    low, high = np.quantile(values, [0.25, 0.75], axis=0, method="nearest")
    middle = median(values.T)
    with np.errstate(invalid="ignore"):
        axes.fill_between(
            k, low, high, where=np.isfinite(high), color=colour, alpha=0.15, linewidth=0
        )
    line = {"linewidth": 1.4} | line
    axes.plot(k, np.where(np.isfinite(middle), middle, np.nan), color=colour, label=label, **line)


def _plain_episodes(axes: Axes, episodes: int) -> None:
    """1, 2, 5, 10 ... on the axis, not powers of ten."""
    from matplotlib.ticker import NullFormatter, NullLocator

    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if t <= episodes]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
