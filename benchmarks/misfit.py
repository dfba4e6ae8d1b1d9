"""How well mislabelled machines are found; writes its section of docs/measured/certificates.md.

`python benchmarks/misfit.py` takes some minutes; `--quick` is a trial run that writes nothing.
Two of forty machines have a wrong label or a weak actuator, in several fleets; how often exactly
these two are named, over seeds, and how small a fault is still found.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from pages import write_section
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.context import ContextMap
from contextual_lqr.data import FleetDescription, Quantity, fit
from contextual_lqr.figures import figure_style
from contextual_lqr.paper.style import save_figure

Array = np.ndarray
DOCS = Path(__file__).parent.parent / "docs"
MACHINES, EPISODES, STEPS, NOISE, SEEDS = 40, 3, 20, 0.01, 20


class Kind:
    """A fleet: its map, its truth Θ, its contexts, and which of them may be on a wrong label."""

    def __init__(
        self,
        context_map: ContextMap,
        theta: Array,
        draw: Callable[[np.random.Generator], dict[str, float]],
    ) -> None:
        self.map, self.theta, self.draw = context_map, theta, draw
        self.p, self.d, self.m = context_map.shape or (0, 0, 0)
        self.description = FleetDescription(
            text="",
            states=tuple(Quantity(f"x{i}") for i in range(self.d)),
            inputs=tuple(Quantity(f"u{i}") for i in range(self.m)),
            contexts=tuple(Quantity(name) for name in context_map.names or ()),
            context_map=context_map,
            horizon=STEPS,
            start=np.zeros(self.d),
            Q=np.eye(self.d),
            final_Q=np.eye(self.d),
            R=np.eye(self.m),
            targets=None,
            noise_level=NOISE,
            regularisation=NOISE**2,
            known={},
        )


def path_following() -> Kind:
    """The paper's: a push over the mass."""
    C, D = np.eye(5), [["1/mass", 0], [0, "1/mass"]]
    theta = np.eye(5, 7)
    theta[1, 3] = theta[2, 4] = 1
    theta[3, 3] = theta[4, 4] = 0.7
    theta[3, 5] = theta[4, 6] = 1
    block = clqr.BlockContext(C, D, bounds={"mass": (0.1, 10)}, allow_outside=True)
    return Kind(block, theta, lambda rng: {"mass": float(rng.uniform(0.5, 5))})


def spring(masses: int, dt: float = 0.1) -> Kind:
    """A chain of masses, springs and dampers, of which one mass and the stiffness differ.

    The features are 1, 1/mass and stiffness/mass; the context is that of all masses.
    """
    n = masses
    L = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    d, m = 2 * n, n
    one, over, stiff = (np.zeros((d, d + m)) for _ in range(3))
    one[:, :d] = np.eye(d)
    one[:n, n:d] = dt * np.eye(n)
    over[n:, n:d] = -0.5 * dt * L  # damping
    over[n:, d:] = dt * np.eye(n)
    stiff[n:, :n] = -dt * L
    bounds = {"mass": (0.1, 10), "stiffness": (0.1, 10)}
    features = clqr.FeatureContext(
        ["1", "1/mass", "stiffness/mass"], states=d, inputs=m, bounds=bounds, allow_outside=True
    )
    theta = np.hstack((one, over, stiff))
    return Kind(
        features,
        theta,
        lambda rng: {
            "mass": float(rng.uniform(0.5, 5)),
            "stiffness": float(rng.uniform(0.5, 3)),
        },
    )


FLEETS = {
    "path following": path_following,
    "one mass on a spring": lambda: spring(1),
    "chain of 3 masses": lambda: spring(3),
}
FAULTS = ("mass", "actuator")


def logs(
    kind: Kind, fault: str, factor: float, rng: np.random.Generator, tails: bool
) -> tuple[pl.DataFrame, set[str]]:
    """Logs of forty machines under a dither, machines 7 and 23 of which are not what they say."""
    contexts = [kind.draw(rng) for _ in range(MACHINES)]
    bad, quiet, rows = {7, 23}, path_constant(kind), []
    for i, context in enumerate(contexts):
        true = dict(context)
        if i in bad and fault == "mass":
            true["mass"] = context["mass"] * factor  # what it weighs, not what the label says
        M = kind.theta @ kind.map.matrix(true)
        if i in bad and fault == "actuator":
            M = M.copy()
            M[:, kind.d] *= factor  # the first input
        for k in range(EPISODES):
            x = rng.normal(size=kind.d)
            x[quiet] = 1
            for h in range(STEPS):
                last = h == STEPS - 1
                u = [None] * kind.m if last else rng.normal(size=kind.m).tolist()
                rows.append(
                    (f"machine {i}", EPISODES * i + k, h, *x.tolist(), *u, *context.values())
                )
                if last:
                    break
                w = NOISE * rng.normal(size=kind.d)
                if tails:
                    w = NOISE * rng.standard_t(4, size=kind.d) / np.sqrt(2)
                w[quiet] = 0
                x = M @ np.concatenate((x, u)) + w
    names = ["machine", "episode", "step", *(one.name for one in kind.description.quantities)]
    return pl.DataFrame(rows, names, orient="row"), {f"machine {i}" for i in bad}


def path_constant(kind: Kind) -> list[int]:
    """The coordinate that is always 1, if there is one."""
    return [0] if isinstance(kind.map, clqr.BlockContext) else []


def outcome(
    kind: Kind, fault: str, factor: float, seed: int, tails: bool = False
) -> tuple[int, int]:
    """How many of the two are named, and how many others."""
    frame, bad = logs(kind, fault, factor, np.random.default_rng(seed), tails)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.parquet"
        frame.write_parquet(log)
        fleet = fit(kind.description, log, workers=1)
    named = {one.label for one in fleet.alarm.named}
    return len(named & bad), len(named - bad)


SWEEP = (1.01, 1.02, 1.05, 1.1, 1.2)
TEXT = """# The misfit alarm

Written by `benchmarks/misfit.py`. Forty machines with masses (and stiffnesses) drawn afresh for
every seed, three episodes of 20 states each, started at random under random inputs of size 1, noise
0.01. Two of the machines are not what their label says. The level is 1 %: the alarm may name a good
machine in one fleet of a hundred. The alarm was built on other seeds than these.

## Two of forty

In how many seeds exactly these two are named, and how many good machines were named in all of them.

| fleet | fault | exactly both named | good machines named |
|---|---|---|---|
"""
NOTES = """
Heavy tails are those of Student's t with 4 degrees of freedom, scaled to the same variance. The
tests assume Gaussian noise, and the table shows what it costs when that is wrong.

## How small a fault is found

![Share of seeds in which exactly the two are named](../figures/misfit.svg)

The true mass is the label's times the factor; the first actuator's gain is divided by it. Share of
{seeds} seeds in which exactly the two machines are named.

"""


def clean(kind: Kind, seeds: range, tails: bool) -> int:
    """How many machines are named in fleets without a fault."""
    return sum(sum(outcome(kind, "mass", 1.0, 1000 + seed, tails)) for seed in seeds)


def write(quick: bool) -> None:
    """Run everything; write the page and its figure."""
    seeds = range(2 if quick else SEEDS)
    fewer = seeds[: max(2, len(seeds) // 2)]
    text, kinds = TEXT, {name: make() for name, make in FLEETS.items()}
    faults = [("mass", 2.0), ("mass", 0.5), ("actuator", 0.5)]
    for name, kind in track(kinds.items(), "two of forty"):
        for fault, factor in faults:
            found = [outcome(kind, fault, factor, 100 + seed) for seed in seeds]
            exact = sum(hit == 2 and not wrong for hit, wrong in found)
            wrong = sum(wrong for _, wrong in found)
            what = f"{fault} × {factor:g}"
            text += f"| {name} | {what} | {exact} of {len(seeds)} | {wrong} |\n"
        for what, tails in (("none", False), ("none, heavy tails", True)):
            text += f"| {name} | {what} | | {clean(kind, seeds, tails)} |\n"
    text += NOTES.format(seeds=len(fewer))
    text += "| fleet, fault | " + " | ".join(f"{f:g}" for f in SWEEP) + " |\n"
    text += "|---" * (len(SWEEP) + 1) + "|\n"
    curves = {}
    for name, kind in track(kinds.items(), "how small"):
        for fault in FAULTS:
            shares = []
            for factor in SWEEP:
                size = factor if fault == "mass" else 1 / factor
                found = [outcome(kind, fault, size, 2000 + seed) for seed in fewer]
                shares.append(sum(f == (2, 0) for f in found) / len(fewer))
            curves[name, fault] = shares
            text += f"| {name}, {fault} | " + " | ".join(f"{s:.2f}" for s in shares) + " |\n"
    if quick:
        print(text)
        return
    draw(curves)
    write_section("certificates", "misfit", text)


def draw(curves: dict[tuple[str, str], list[float]]) -> None:
    """The share of seeds against the size of the fault."""
    with figure_style():
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), sharey=True)
        for axis, fault in zip(axes, FAULTS, strict=True):
            for (name, which), shares in curves.items():
                if which == fault:
                    axis.plot([100 * (f - 1) for f in SWEEP], shares, "o-", label=name, ms=4)
            axis.set_xscale("log")
            axis.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
            axis.minorticks_off()
            axis.set_title("wrong mass on the label" if fault == "mass" else "weak actuator")
            axis.set_xlabel("size of the fault [%]")
        axes[0].set_ylabel("exactly both named, share of seeds")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        save_figure(figure, DOCS / "figures", "misfit")


if __name__ == "__main__":
    write("--quick" in sys.argv)
