"""How the time of a learning step grows with the size of the problem.

Writes a section of docs/measured/scale.md.

`python benchmarks/growth.py` takes about a minute and a half and needs matplotlib. With `--quick`
it is a trial run: few points and repeats, a figure in a temporary folder and no page.
"""

import os
import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker
from pages import write_section
from peers import ONE_THREAD, Array
from rich.console import Console
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr import kernels

DOCS = Path(__file__).parent.parent / "docs"
INPUTS, NOISE, MACHINES = 2, 0.01, 100  # m, standard deviation of a step's noise, contexts
STEP, TELL = "re-planned step, Cautious", "tell"
STRATEGIES: dict[str, clqr.Strategy] = {  # of what is timed
    "ask, SampledOptimism": clqr.SampledOptimism(),
    "ask, Optimism": clqr.Optimism(),
    "ask, Cautious": clqr.Cautious(),
    STEP: clqr.Cautious(),
    TELL: clqr.CertaintyEquivalence(dither=1.0),  # plays what is then told
}
TARGETS = dict(zip(STRATEGIES, [0.5, 5.0, 3.0, 1.0, 0.2], strict=True))  # ms, at the paper's size
COLOURS, MARKERS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"], "osD^v"
Curve = tuple[str, str, Array, Array]  # title, axis, its values, medians (what, value)

TEXT = """# How it grows

Written by `benchmarks/growth.py`: random stable fleets, seeded, one thread. `ask` is that of each
strategy's defaults (Optimism with its certificate); the re-planned step is the second of a live
`agent.episode(context, adapt="step")`, `observe` and `act` together; `tell` is of a plan played.

One size is varied at a time; the others stay at the paper's (d = 5 states, m = 2 inputs, p = 7
columns of Θ, H = 20 states), after K = 25 episodes. p grows by the features of a `FeatureContext`;
d grows alone with a `BlockContext` of constants, and in the last table together with p = d + 2.
Curves are medians of processor time, which other work on the machine disturbs less than the clock.
Exponents are least squares on the last three points, log-log: local slopes, not limits.

![Medians against d, p, H and K](../figures/growth.svg)

No time depends on K. With H, up to 80, times grow less than in proportion, and that of the
re-planned step hardly at all; with p, up to 112, mildly, with exponents of about one at most. What
costs is d: beyond eight states the time to plan an episode grows between d² and d³, and at 32
states Optimism and Cautious take about a tenth of a second and more, while the re-planned step
stays near 1 ms and `tell` well below. In the last table, from 16 states on, SampledOptimism
(beta 1e4) rejects all its samples and plays the estimate, so its times there are those of failing.
Missed targets are marked below; times by the clock, 95 % quantiles above all, include what other
processes took.

## At the paper's size

Milliseconds, by the clock and of processor time. The target is for the clock.

| what | clock: median | 95 % | processor: median | 95 % | target | median within | calls |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Size:
    """The paper's size but for one field; without features, constant C and D keep p = 7."""

    d: int = 5
    features: int | None = 1
    H: int = 20
    K: int = 25

    @property
    def p(self) -> int:
        """The number of columns of Θ."""
        return 7 if self.features is None else self.features * (self.d + INPUTS)


PAPER = Size()
# What is varied: the field, or property, of Size, and the points.
SWEEPS = {
    "States d, with p = 7": ("d", [Size(d, None) for d in (2, 3, 4, 6, 8, 12, 16, 24, 32)]),
    "Columns p of Θ": ("p", [Size(features=k) for k in (1, 2, 3, 4, 6, 8, 12, 16)]),
    "States in an episode, H": ("H", [Size(H=H) for H in (5, 7, 10, 14, 20, 28, 40, 57, 80)]),
    "Episodes told, K": ("K", [Size(K=K) for K in (1, 3, 10, 30, 100, 300, 1000, 3000)]),
    "States d, with p = d + 2": ("d", [Size(d) for d in (2, 4, 8, 16, 32)]),
}


def bounded(rng: np.random.Generator, rows: int, columns: int, norm: float) -> Array:
    """A random matrix of this spectral norm."""
    M = rng.standard_normal((rows, columns))
    return M * norm / np.linalg.norm(M, 2)


def now() -> Array:
    """Wall clock and processor time of this process, in ms."""
    return 1e3 * np.array([time.perf_counter(), time.process_time()])


class Bench:
    """A random stable fleet of one size, and an agent that was told K episodes of it."""

    def __init__(self, size: Size) -> None:
        self.rng = rng = np.random.default_rng([size.d, size.p, size.H])
        d, m, bounds = size.d, INPUTS, {"s": (0.0, 1.0)}
        if size.features is None:
            blocks = bounded(rng, 5, d, 1.0), bounded(rng, 2, m, 1.0)
            context_map: clqr.ContextMap = clqr.BlockContext(*blocks, bounds=bounds)
            theta = np.hstack([bounded(rng, d, 5, 0.9), bounded(rng, d, 2, 0.5)])
        else:  # |φ| ≤ 1 and ‖A‖ ≤ Σ‖A_i‖ = 0.9, so that every machine is stable
            k = size.features
            phi = ["1", *(f"cos({i} * s)" for i in range(1, k))]
            context_map = clqr.FeatureContext(phi, states=d, inputs=m, bounds=bounds)
            parts = [(bounded(rng, d, d, 0.9 / k), bounded(rng, d, m, 0.5 / k)) for _ in phi]
            theta = np.hstack([part for pair in parts for part in pair])
        self.start = np.ones(d) / np.sqrt(d)
        contexts = [{"s": float(s)} for s in rng.uniform(size=MACHINES)]
        self.machines = [(one, theta @ context_map.matrix(one)) for one in contexts]
        cost = clqr.QuadraticCost([np.eye(d)] * size.H, [np.eye(m)] * (size.H - 1))
        # With the paper's ridge, for the confidence set of some of the strategies needs one V.
        self.agent = clqr.Agent(
            context_map, cost, self.start, STRATEGIES[TELL], NOISE, regularisation=1.0
        )
        for i in range(size.K):
            self.agent.tell(*self._played(i))
        self._learnt = self.agent.decoder
        assert (self._learnt.estimate.shape, self._learnt.episodes) == ((d, size.p), size.K)

    def _next(self, M: Array, x: Array, u: Array) -> Array:
        return M @ np.concatenate([x, u]) + NOISE * self.rng.standard_normal(len(x))

    def _played(self, i: int) -> tuple[dict[str, float], clqr.Trajectory]:
        """A context, and the agent's plan for it as it was played."""
        context, M = self.machines[i % MACHINES]
        plan, states, inputs = self.agent.ask(context), [self.start], []
        for h in range(len(plan.policy.gains)):
            inputs.append(plan.input(h, states[-1]))
            states.append(self._next(M, states[-1], inputs[-1]))
        return context, clqr.Trajectory(states, inputs)

    def once(self, name: str, i: int) -> Array:
        """Both times of one call, on what K episodes taught."""
        agent, (context, M) = self.agent, self.machines[i % MACHINES]
        agent.decoder, agent.strategy = self._learnt.copy(), STRATEGIES[name]
        if name == TELL:
            told = self._played(i)
            begin = now()
            agent.tell(*told)
        elif name == STEP:
            with agent.episode(context, adapt="step") as episode:
                x = self._next(M, self.start, episode.act(self.start))
                begin = now()  # from the new state to the new input
                episode.observe(x)
                episode.act(x)
                return now() - begin
        else:
            begin = now()
            agent.ask(context)
        return now() - begin

    def times(self, repeats: int, budget: float) -> dict[str, list[Array]]:
        """Each call in turn: so many times, or as often as `budget` ms of processor allow."""
        found: dict[str, list[Array]] = {name: [] for name in TARGETS}
        for name in found:
            self.once(name, 0)  # touch the memory
        for i in range(repeats):
            for name, times in found.items():
                if not times or sum(cpu for _, cpu in times) < budget:
                    times.append(self.once(name, i))
        return found


def exponent(x: Array, y: Array) -> float:
    """The slope of the last three points, log-log, by least squares."""
    return float(np.polyfit(np.log(x[-3:]), np.log(y[-3:]), 1)[0])


def figure(curves: list[Curve], folder: Path) -> None:
    """One panel for each size varied alone."""
    plt.rcParams.update({"font.size": 11, "svg.hashsalt": "growth"})
    fig, axes = plt.subplots(2, 2, figsize=(10, 8), sharey=True, facecolor="white")
    for ax, (title, _, x, medians) in zip(axes.flat, curves, strict=False):
        for name, y, colour, marker in zip(TARGETS, medians, COLOURS, MARKERS, strict=True):
            ax.loglog(x, y, color=colour, marker=marker, markersize=5, lw=1.6, label=name)
        ax.set_xlabel(title)
        ax.set_xticks(x[:: 2 if len(x) > 8 else 1])
        ax.xaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
        ax.xaxis.set_minor_locator(ticker.NullLocator())
        ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        ax.grid(True, which="major", color="#dddddd", lw=0.8)
        ax.spines[["top", "right"]].set_visible(False)
    fig.supylabel("median processor time (ms)", fontsize=11)
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper center", ncol=3, frameon=False)
    fig.tight_layout(rect=(0, 0, 1, 0.925), h_pad=2, w_pad=2)
    folder.mkdir(parents=True, exist_ok=True)
    fig.savefig(folder / "growth.svg", metadata={"Date": None})
    fig.savefig(folder / "growth.png", dpi=100)


def sweep_table(title: str, axis: str, x: Array, medians: Array) -> list[str]:
    """Medians, one row a point, and the fitted exponents below."""
    lines = [f"| {axis} | {' | '.join(TARGETS)} |", "|---" * (1 + len(TARGETS)) + "|"]
    for i, value in enumerate(x):
        lines.append(f"| {value:g} | {' | '.join(f'{y:.3g}' for y in medians[:, i])} |")
    fits = " | ".join(f"**{exponent(x, y):.2f}**" for y in medians)
    return [f"### {title}", "", *lines, f"| **exponent** | {fits} |", ""]


def main() -> None:
    """Measure, print, draw, write."""
    quick = "--quick" in sys.argv
    folder = Path(tempfile.gettempdir()) / "growth" if quick else DOCS
    sweeps = [(t, axis, sizes[:: 4 if quick else 1]) for t, (axis, sizes) in SWEEPS.items()]
    begin = time.perf_counter()
    every = dict.fromkeys([PAPER, *(size for *_, sizes in sweeps for size in sizes)])
    benches = {size: Bench(size) for size in track(every, "learning")}
    found: dict[Size, dict[str, list[Array]]] = {}
    for _ in track(range(2 if quick else 6), "timing"):  # a busy moment hits all sizes alike
        for size, bench in benches.items():
            repeats, budget = (60, 400) if size == PAPER else (8, 45)
            for name, times in bench.times(repeats, budget).items():
                found.setdefault(size, {}).setdefault(name, []).extend(times)
    curves: list[Curve] = []
    for title, axis, sizes in sweeps:
        medians = [[np.median(found[z][name], axis=0)[1] for z in sizes] for name in TARGETS]
        x = np.array([getattr(size, axis) for size in sizes], float)
        curves.append((title, axis, x, np.array(medians)))
    seconds = time.perf_counter() - begin
    page = TEXT.splitlines()
    for name, pairs in found[PAPER].items():
        cells = np.quantile(pairs, [0.5, 0.95], axis=0).T.ravel()
        verdict = f"{TARGETS[name]} | {'yes' if cells[0] <= TARGETS[name] else 'no'}"
        numbers = " | ".join(f"{cell:.3g}" for cell in cells)
        page.append(f"| {name} | {numbers} | {verdict} | {len(pairs)} |")
    page += ["", "## Median processor times (ms) and exponents", ""]
    page += [line for curve in curves for line in sweep_table(*curve)]
    page += [f"{platform.machine()}, kernels for {kernels.compiled}; measured in {seconds:.0f} s."]
    figure(curves, folder / "figures")
    if not quick:
        write_section("scale", "growth", "\n".join(page))
    Console().print("\n".join(page), highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
