"""The figures of a run: the paper's two, and what they do not show.

Lines are medians over seeds, bands the middle half of them; a line ends where the median does (a
failed or overflowing run counts as infinite).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machine import as_system
from contextual_lqr.figures import GREY, PALETTE, figure_style, new_figure
from contextual_lqr.fleets import Fleet, true_decoder, true_system
from contextual_lqr.lqr.rollout import simulate
from contextual_lqr.lqr.solve import solve
from contextual_lqr.paper.reproduce.claims import idle_regret
from contextual_lqr.paper.reproduce.config import Setting, Trial
from contextual_lqr.paper.reproduce.summary import Measurements, median
from contextual_lqr.paper.reproduce.trial import bench, learn
from contextual_lqr.paper.style import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The paper's rule in black and thick, its letter in grey: they are what the others stand beside.
_COLOURS = {
    "paper": "#000000",
    "cautious": PALETTE[0],
    "cautious-step": PALETTE[5],
    "optimism": PALETTE[2],
    "thompson": PALETTE[1],
    "certainty": PALETTE[3],
    "paper-literal": GREY,
}
# Figure 2 has the paper's masses, numbers of environments and decay.
MASSES, ENVIRONMENTS, DECAY = (0.1, 1.0), (1, 3, 10), 0.7
_SPLIT = 1e5  # where the axis of regret is broken
# The paper's markers, circle, triangle and cross (the optimum is a star), and our colours.
_SHOWN = {1: ("o", PALETTE[3]), 3: ("^", PALETTE[1]), 10: ("x", PALETTE[0])}


def draw_figures(measured: Measurements, folder: Path) -> dict[str, str]:
    """Draw all of them as PNG and SVG; their names, with what each shows."""
    config = measured.config
    over = f"lines are medians over {config.seeds} seeds, bands the middle half."
    lines = f"Strategy “{config.lead}”; {over}"
    with figure_style():
        drawn = {
            "figure-1a": (
                _errors(measured, "decoder_error", "‖Θₖ - Θ*‖, Frobenius norm"),
                f"Error of the decoder after each training episode. {lines}",
            ),
            "figure-1b": (
                _errors(measured, "control_error", "mean control error [cost]"),
                f"Mean control error over {config.test_masses} masses never seen: exact expected "
                f"cost above the optimum. {lines}",
            ),
            "figure-2": _trajectories(measured),
            "figure-3": _regret(measured),
            "figure-4": _largest(measured),
        }
        for name, (figure, _) in drawn.items():
            save_figure(figure, folder, name)
    return {
        name: f"{name.replace('-', ' ').capitalize()}. {caption}"
        for name, (_, caption) in drawn.items()
    }


def _errors(measured: Measurements, column: str, label: str) -> Figure:
    config, figure = measured.config, new_figure(6.4, 4.2)
    axes = figure.add_subplot()
    for setting, values in zip(config.settings, measured.of(column), strict=True):
        colour = PALETTE[config.paths.index(setting.path)]
        style = ("-", "--", ":", "-.")[config.decays.index(setting.decay) % 4]
        _band(axes, values, colour, setting.name, linestyle=style)
    axes.set(xlabel="training episodes", ylabel=label, xscale="log", yscale="log")
    _plain_episodes(axes, config.episodes)
    axes.legend(ncols=len(config.paths) if len(config.decays) > 1 else 1, fontsize="small")
    return figure


class Example(NamedTuple):
    """Positions (H, 2) on one path with one mass; `learnt` maps environments trained on to them."""

    path: str
    decay: float
    mass: float
    targets: Float[Array, "H 2"]
    optimal: Float[Array, "H 2"]
    learnt: dict[int, Float[Array, "H 2"]]

    def distance(self, environments: int) -> float:
        """How far the learnt trajectory is from the optimal one, at the worst point."""
        return float(np.linalg.norm(self.learnt[environments] - self.optimal, axis=1).max())


def examples(measured: Measurements) -> list[Example]:
    """Every path with the paper's masses and decay, learnt by a typical run.

    Typical is the run whose control error is the (lower) median after the last number of
    environments shown. Where there is no decay of 0.7 the first is taken; masses outside the range
    are left out. All trajectories of a panel have the same noise.
    """
    config, found = measured.config, []
    decay = DECAY if DECAY in config.decays else config.decays[0]
    low, high = config.masses
    counts = [k for k in ENVIRONMENTS if k <= config.episodes]
    for path in config.paths:
        setting = Setting(path, decay)
        fleet = bench(config, setting).fleet
        errors = measured.of("control_error")[config.settings.index(setting), :, counts[-1] - 1]
        typical = int(np.argsort(errors, kind="stable")[(config.seeds - 1) // 2])
        left, _ = learn(
            config, Trial(setting, config.lead, config.first_seed + typical), counts[-1]
        )
        targets = -fleet.cost.Q[:, 0, 1:3]
        for mass in [mass for mass in MASSES if low <= mass <= high] or [low]:
            thetas = {k: left[k - 1].estimate for k in counts if k <= len(left)}
            optimal, *learnt = (
                _positions(fleet, theta, {"mass": mass}, config.first_seed)
                for theta in (true_decoder(fleet), *thetas.values())
            )
            shown = dict(zip(thetas, learnt, strict=True))
            found.append(Example(path, decay, mass, targets, optimal, shown))
    return found


def _positions(fleet: Fleet, theta: Array, context: dict[str, float], seed: int) -> Array:
    """Play the controller of a decoder on the true machine."""
    believed = as_system(theta @ fleet.context_map.matrix(context), fleet.noise)
    policy = solve(believed, fleet.cost, check=True).policy
    rng = np.random.default_rng([seed, 4])
    return simulate(policy, true_system(fleet, context), fleet.start, rng).states[:, 1:3]


def _trajectories(measured: Measurements) -> tuple[Figure, str]:
    shown = examples(measured)
    paths = list(dict.fromkeys(one.path for one in shown))
    masses = list(dict.fromkeys(one.mass for one in shown))
    figure = new_figure(3.4 * len(paths), 3.2 * len(masses) + 0.3)
    layout: Any = figure.get_layout_engine()
    layout.set(h_pad=0.12)  # a title must not touch the axis above
    grid: Any = figure.subplots(len(masses), len(paths), squeeze=False)
    for one in shown:
        _trajectory(grid[masses.index(one.mass), paths.index(one.path)], one)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small")
    after = max(shown[0].learnt)
    off = max(one.distance(after) for one in shown)
    return figure, (
        f"Example trajectories of the learnt controllers, k = {shown[0].decay:g}, the same noise "
        "for all; of each path, the seed of median control error. Dashed line with dots: targets; "
        f"★ optimal policy; ○, △, ×: after 1, 3, 10 environments. After {after}, every point is "
        f"within {off:.2g} of the optimal trajectory's. Lines that leave a panel are cut off; its "
        "corner says how far they go."
    )


def _trajectory(axes: Axes, one: Example) -> None:
    everything = np.concatenate((one.targets, one.optimal))
    low, high = everything.min(0), everything.max(0)
    room = 0.25 * (high - low).max()
    marks: dict[str, Any] = {"linewidth": 1.0, "markersize": 6.0, "fillstyle": "none"}
    axes.plot(*one.targets.T, "--o", color=GREY, linewidth=1.2, markersize=3, label="target")
    far = []
    for count, path in one.learnt.items():
        (marker, colour), label = _SHOWN[count], f"{count} environment{'s' if count > 1 else ''}"
        axes.plot(*path.T, color=colour, marker=marker, label=label, **marks)
        if (path < low - room).any() or (path > high + room).any():
            far.append(f"{count}: {np.abs(path).max():.2g}")
    marks |= {"markersize": 8.0, "markeredgewidth": 0.8}
    axes.plot(*one.optimal.T, color="#000000", marker="*", label="optimal", **marks)
    axes.set(
        title=f"{one.path}, m = {one.mass:g}, k = {one.decay:g}",
        xlim=(low[0] - room, high[0] + room),
        ylim=(low[1] - room, high[1] + room),
        xlabel="position x",
        ylabel="position y",
        aspect="equal",
    )
    if far:
        reach = "reach " + ", ".join(far)
        axes.text(0.02, 0.98, reach, transform=axes.transAxes, va="top", fontsize=7)


def _regret(measured: Measurements) -> tuple[Figure, str]:
    config = measured.config
    rows, columns = len(config.paths), len(config.decays)
    # Some strategies explode and some do not: an axis for both would show neither.
    ends = [median(measured.of("cumulative_regret", name)[..., -1]) for name in config.strategies]
    broken = any(_SPLIT < end < np.inf for end in np.ravel(ends))
    figure = new_figure(4.4 * columns, 3.4 * rows + 0.7)
    outer = figure.add_gridspec(rows, columns)
    for i, setting in enumerate(config.settings):
        row, column = divmod(i, columns)
        inner = outer[row, column].subgridspec(1 + broken, 1, height_ratios=(1, 2)[-1 - broken :])
        panels = [figure.add_subplot(inner[j]) for j in range(1 + broken)]
        for axes in panels:
            _all_regrets(axes, measured, i)
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
    cut = " The axis is broken: above, what explodes." if broken else ""
    return figure, (
        "Cumulative expected regret of all strategies: median over seeds and middle half."
        f"{cut} The guide has the slope of √K and begins at the regret of doing nothing once."
    )


def _all_regrets(axes: Axes, measured: Measurements, i: int) -> None:
    config = measured.config
    for strategy in config.strategies:
        thick, values = (
            2.0 if strategy == config.lead else 1.2,
            measured.of("cumulative_regret", strategy),
        )
        _band(axes, values[i], _COLOURS[strategy], strategy, linewidth=thick)
    k, idle = np.arange(1, config.episodes + 1), idle_regret(measured, i)
    axes.plot(k, idle, ":", color="#000000", linewidth=1.0, label="doing nothing")
    axes.plot(k, idle[0] * np.sqrt(k), "-.", color="#000000", linewidth=0.8, label="√K (guide)")
    axes.set(xscale="log", yscale="log")
    _plain_episodes(axes, config.episodes)


def _largest(measured: Measurements) -> tuple[Figure, str]:
    config, beyond = measured.config, 0
    figure = new_figure(7.0, 0.55 * len(config.strategies) + 1.5)
    axes = figure.add_subplot()
    offsets = np.linspace(-0.28, 0.28, len(config.settings)) if len(config.settings) > 1 else [0.0]
    for row, strategy in enumerate(config.strategies):
        largest = measured.of("largest_state", strategy)[:, :, -1]
        for setting, offset, values in zip(config.settings, offsets, largest, strict=True):
            finite = values[np.isfinite(values)]
            beyond += len(values) - len(finite)
            axes.plot(
                finite,
                np.full(len(finite), row + offset),
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
    missing = f" {beyond} runs failed and are not drawn." if beyond else ""
    return figure, (
        "The largest state reached: every dot is one run, the bar the median of all. The targets "
        f"are of size 1.{missing}"
    )


def _band(axes: Axes, values: Array, colour: str, label: str, **line: Any) -> None:
    """Median and middle half of (seeds, episodes), where finite."""
    k = np.arange(1, values.shape[1] + 1)
    low, high = np.quantile(values, [0.25, 0.75], axis=0, method="nearest")
    middle = median(values.T)
    seen = np.isfinite(high)
    with np.errstate(invalid="ignore"):
        axes.fill_between(k, low, high, where=seen, color=colour, alpha=0.15, linewidth=0)
    drawn = np.where(np.isfinite(middle), middle, np.nan)
    axes.plot(k, drawn, color=colour, label=label, **{"linewidth": 1.4} | line)


def _plain_episodes(axes: Axes, episodes: int) -> None:
    """1, 2, 5, 10 ... on the axis, not powers of ten."""
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if t <= episodes]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.xaxis.minorticks_off()
