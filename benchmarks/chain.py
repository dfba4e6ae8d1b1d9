"""How the time of ask and tell grows on the chain, to 100 states.

Writes a section of docs/measured/scale.md.

`python benchmarks/chain.py` takes some minutes. One thread; every call is timed three times or
more, and medians of processor time are shown.
"""

import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
from pages import write_section
from peers import ONE_THREAD
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr import kernels
from contextual_lqr.figures import PALETTE, figure_style
from contextual_lqr.fleets import chain
from contextual_lqr.paper.style import save_figure

DOCS = Path(__file__).parent.parent / "docs"
MASSES = (2, 3, 5, 8, 12, 20, 30, 40, 50)
CALLS = ("ask", "re-planned step", "tell")
TEXT = """# The chain, to 100 states

Written by `benchmarks/chain.py`: the spring-mass-damper chain of n masses, d = 2 n states, 2
inputs, p = 5 n + 4 columns of Θ, 30 states an episode. `ask` is `Cautious` planning an episode,
after three episodes played; the re-planned step is `observe` and `act` of `adapt="step"`; `tell`
learns the 29 steps of an episode. Medians of processor time, one thread.

![Time per call against the number of states](../figures/chain.svg)

| n | d | p | ask (ms) | re-planned step (ms) | tell (ms) |
|---|---|---|---|---|---|
"""


def timed(call: object) -> float:
    """Processor time of a call, in ms."""
    begin = time.process_time()
    call()
    return 1e3 * (time.process_time() - begin)


def measure(n: int) -> tuple[list[float], int]:
    """Medians of ask, step and tell for n masses, and p."""
    fleet, rng = chain(n), np.random.default_rng(n)
    agent = fleet.agent(clqr.Cautious())
    for _ in range(3):
        fleet.teach(agent, fleet.sample_context(rng), rng)
    context = fleet.sample_context(rng)
    found: dict[str, list[float]] = {name: [] for name in CALLS}
    begin = time.perf_counter()
    while len(found["ask"]) < 3 or (time.perf_counter() - begin < 1.5 and len(found["ask"]) < 50):
        found["ask"].append(timed(lambda: agent.ask(context)))
        played = fleet.play(agent.controller(context), context, rng)
        copy = fleet.agent(clqr.Cautious())
        copy.decoder = agent.decoder.copy()
        found["tell"].append(timed(lambda copy=copy, played=played: copy.tell(context, played)))
        with copy.episode(context, adapt="step") as episode:
            episode.act(played.states[0])
            episode.observe(played.states[1])
            for h in (1, 2):

                def step(
                    h: int = h, episode: clqr.Episode = episode, x: object = played.states
                ) -> None:
                    episode.act(x[h])
                    episode.observe(x[h + 1])

                found["re-planned step"].append(timed(step))
    return [float(np.median(found[name])) for name in CALLS], agent.decoder.estimate.shape[1]


def growth(d: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope and intercept from 40 states on, log-log, by least squares."""
    large = d >= 40
    slope, intercept = np.polyfit(np.log(d[large]), np.log(y[large]), 1)
    return float(slope), float(intercept)


def main() -> None:
    """Measure, draw, write."""
    kernels.set_threads(1)
    rows = [(n, *measure(n)) for n in track(MASSES, "timing")]
    d = np.array([2.0 * n for n, *_ in rows])
    times = np.array([medians for _, medians, _ in rows])
    lines = [growth(d, y) for y in times.T]
    fits = [slope for slope, _ in lines]
    page = TEXT.splitlines()
    for n, medians, p in rows:
        page.append(f"| {n} | {2 * n} | {p} | {' | '.join(f'{y:.3g}' for y in medians)} |")
    page.append(f"| | **exponent** | | {' | '.join(f'**{fit:.2f}**' for fit in fits)} |")
    page += [
        "",
        "Exponents are fitted log-log from 40 states on (dashed). Time grows about as d to the "
        "power of "
        f"{fits[0]:.1f} for ask, {fits[1]:.1f} for a re-planned step and {fits[2]:.1f} for tell.",
        "",
        f"{platform.machine()}, kernels for {kernels.compiled}.",
    ]
    import matplotlib.pyplot as plt

    with figure_style():
        figure, axes = plt.subplots(figsize=(5.6, 3.8))
        for name, y, line, colour, mark in zip(CALLS, times.T, lines, PALETTE, "os^", strict=False):
            slope, intercept = line
            axes.loglog(d, y, marker=mark, color=colour, ms=4, label=f"{name}: d$^{{{slope:.1f}}}$")
            far = np.array([30.0, 110.0])
            fitted = np.exp(intercept) * far**slope
            axes.loglog(far, fitted, ls="--", lw=1, color="black", zorder=3)
        axes.set_xticks([4, 10, 20, 40, 100], ["4", "10", "20", "40", "100"])
        axes.minorticks_off()
        axes.set_xlabel("states d (two for each mass)")
        axes.set_ylabel("processor time of one call (ms)")
        axes.legend()
        save_figure(figure, DOCS / "figures", "chain")
    write_section("scale", "chain", "\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
