"""What regret remains when the law is wrong by ε: every machine's [A, B] is ΘG + e, ‖e‖ = ε.

Plays true optimism and certainty equivalence on the paper's fleets, each episode on another machine
with a deviation of its own, and fits the regret of an episode against ε. Draws
docs/figures/wrong-law.svg, and prints the table of docs/theory.md.

`python benchmarks/wrong_law.py` takes about two minutes and needs matplotlib. With `--quick` it is
a trial run: few episodes, a figure in a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy import ndarray as Array
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr import figures
from contextual_lqr.belief.machine import as_system
from contextual_lqr.fleets import path_following, true_decoder
from contextual_lqr.paper.verify.runs import SEARCH

DOCS = Path(__file__).parent.parent / "docs"
FLEETS = ("circle", "parabola", "lemniscate")
ERRORS = (0.0, 0.003, 0.01, 0.03, 0.1)
STRATEGIES: dict[str, clqr.Strategy] = {
    "optimism": SEARCH,
    "certainty equivalence": clqr.CertaintyEquivalence(dither=0.3),
}


EPISODES, SEEDS = 200, 4
LIMIT = 10.0  # of a state, where an episode ends


def regrets(name: str, strategy: clqr.Strategy, error: float, episodes: int, seed: int) -> Array:
    """The regret of every episode's policy, as a share of the optimum; both exact expectations."""
    fleet, rng = path_following(name), np.random.default_rng([15, FLEETS.index(name), seed])
    theta = true_decoder(fleet)
    # All rows count: what machines deviate by would be taken for machines that bend far out.
    given = {"regularisation": float(fleet.noise.max()), "region": np.inf}
    agent = fleet.agent(strategy, seed, **given)
    found = np.empty(episodes)
    for k in range(episodes):
        context = fleet.sample_context(rng)
        M = theta @ fleet.context_map.matrix(context)
        off = rng.standard_normal(M.shape)
        machine = as_system(M + error * off / np.linalg.norm(off, 2), fleet.noise)
        plan = agent.ask(context)
        paid = clqr.policy_cost(plan.policy, machine, fleet.cost, fleet.start)
        found[k] = paid / clqr.optimal_cost(machine, fleet.cost, fleet.start) - 1
        agent.tell(plan, played(plan, machine, fleet.start, rng))
    return found


def played(
    plan: clqr.Plan, machine: clqr.LinearSystem, start: Array, rng: np.random.Generator
) -> clqr.Trajectory:
    """One episode, dither included; beyond the limit it ends, so that nothing runs away."""
    states, inputs = [start], []
    for h in range(len(plan.policy.gains)):
        inputs.append(plan.input(h, states[-1]))
        shock = machine.noise_factor @ rng.standard_normal(len(start))
        states.append(machine.A @ states[-1] + machine.B @ inputs[-1] + shock)
        if np.abs(states[-1]).max() > LIMIT:
            break
    return clqr.Trajectory(np.array(states), np.array(inputs))


def main(quick: bool) -> None:
    """Play, print the table, draw the figure."""
    episodes, seeds = (20, 1) if quick else (EPISODES, SEEDS)
    cases = [(s, f, e) for s in STRATEGIES for f in FLEETS for e in ERRORS]
    means: dict[tuple[str, str, float], Array] = {}
    for s, f, e in track(cases, "playing"):
        runs = [regrets(f, STRATEGIES[s], e, episodes, seed) for seed in range(seeds)]
        means[s, f, e] = np.array([one[episodes // 2 :].mean() for one in runs])
    print("| strategy | fleet |", " | ".join(f"ε = {e:g}" for e in ERRORS), "| exponent |")
    print("|---|---|" + "---|" * (len(ERRORS) + 1))
    for s in STRATEGIES:
        for f in FLEETS:
            each = [means[s, f, e].mean() for e in ERRORS]
            shown = " | ".join(f"{100 * one:.2g} %" for one in each)
            print(f"| {s} | {f} | {shown} | {exponent(each):.2f} |")
    folder = Path(tempfile.mkdtemp()) if quick else DOCS / "figures"
    draw(means, folder / "wrong-law.svg")


def exponent(means: list[float]) -> float:
    """The slope of log(regret - regret at ε = 0) against log ε, over the two largest decades."""
    extra, errors = np.array(means[1:]) - means[0], np.array(ERRORS[1:])
    some = (errors >= 0.01) & (extra > 0)
    return float(np.polyfit(np.log(errors[some]), np.log(extra[some]), 1)[0])


def draw(means: dict[tuple[str, str, float], Array], path: Path) -> None:
    """Regret against ε, dotted what it is at ε = 0, and guides of slopes 1 and 2."""
    with figures.figure_style():
        figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.4), sharey=True, layout="constrained")
        for axis, s in zip(axes, STRATEGIES, strict=True):
            for colour, f in zip(figures.PALETTE, FLEETS, strict=False):
                each = np.array([means[s, f, e].mean() for e in ERRORS])
                axis.plot(ERRORS[1:], each[1:], "o-", color=colour, label=f)
                axis.axhline(each[0], color=colour, linestyle=":", linewidth=1)
            at = np.array(ERRORS[1:])
            last = max(means[s, f, ERRORS[-1]].mean() for f in FLEETS)
            for power, style, label in ((1, "--", "ε"), (2, "-.", "ε²")):
                guide = 2 * last * (at / at[-1]) ** power
                axis.plot(at, guide, style, color="#000000", linewidth=1, label=label)
            axis.set(xscale="log", yscale="log", title=s, xlabel="ε, error of the law")
        axes[0].set_ylabel("regret of an episode / optimum")
        axes[0].legend()
        figure.savefig(path)


if __name__ == "__main__":
    main("--quick" in sys.argv)
