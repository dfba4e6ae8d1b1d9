"""Draws the pictures of README and of the guides into docs/figures/.

`python benchmarks/pictures.py`, about half a minute. Every number in them is computed here.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import contextual_lqr as clqr
from contextual_lqr.figures import PALETTE, figure_style
from contextual_lqr.fleets import Fleet, path_following, true_decoder, true_system
from contextual_lqr.paper.style import save_figure

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
BLUE, RED, GREEN, PINK, GREY = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[3], "#8a8f99"


@contextmanager
def picture(name: str, **labels: Any) -> Iterator[Any]:
    """One panel, small enough for a telephone, saved under its name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4))
    axes = figure.add_subplot()
    axes.set(**labels)
    yield axes
    save_figure(figure, FIGURES, name)
    (FIGURES / f"{name}.png").unlink()  # the site shows the SVG


def push_at_random(fleet: Fleet, context: Any, rng: np.random.Generator) -> clqr.Trajectory:
    """An episode as in a log: inputs that follow a random plan."""
    horizon, size = fleet.cost.horizon, (fleet.cost.input_size, fleet.cost.state_size)
    gains = rng.normal(scale=0.3, size=(horizon - 1, *size))
    return fleet.play(clqr.LinearPolicy(gains), context, rng, state_bound=20.0)


def above(fleet: Fleet, policy: clqr.LinearPolicy, context: Any) -> float:
    """What a policy costs above the optimum, exactly, over the optimum."""
    truth = true_system(fleet, context)
    best = clqr.optimal_cost(truth, fleet.cost, fleet.start)
    return float(clqr.policy_cost(policy, truth, fleet.cost, fleet.start) / best - 1)


def hero() -> None:
    """An object never tried, pushed round a circle by what 1, 3 and 10 others have taught.

    Of 21 seeds, the one whose cost after the first object is the median.
    """
    from matplotlib.figure import Figure

    fleet, new, counts = path_following("circle", decay=0.7), {"mass": 1.0}, (1, 3, 10)
    runs = []
    for seed in range(21):
        rng, policies = np.random.default_rng(60_000 + seed), []
        decoder = clqr.Decoder(fleet.context_map, 1e-4)
        for k in range(1, counts[-1] + 1):
            context = fleet.sample_context(rng)
            decoder.update(context, push_at_random(fleet, context, rng))
            if k in counts:
                policies.append(clqr.solve(decoder.system(new), fleet.cost).policy)
        runs.append((above(fleet, policies[0], new), policies))
    _, policies = sorted(runs, key=lambda run: run[0])[10]
    targets = -fleet.cost.Q[:, 0, 1:3]
    figure = Figure(figsize=(5.6, 2.7))
    for axes, k, policy in zip(figure.subplots(1, 3), counts, policies, strict=True):
        states = fleet.play(policy, new, np.random.default_rng(1)).states
        axes.plot(*targets.T, "o", color=GREY, markersize=4.5)
        axes.plot(*states[:, 1:3].T, color=BLUE, linewidth=2.5)
        axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", xticks=[], yticks=[])
        axes.set_title(f"{k} tried", fontsize=15)
        cost = above(fleet, policy, new)
        axes.set_xlabel(f"{cost:+.0%}" if cost > 0.05 else f"{cost:+.1%}", fontsize=15, labelpad=6)
        axes.spines[:].set_visible(False)
    figure.supxlabel("cost, compared with the best possible", fontsize=13)
    save_figure(figure, FIGURES, "hero")
    (FIGURES / "hero.png").unlink()


def one_law() -> None:
    """Each machine's own estimate, and the one law through all of them."""
    fleet, rng = path_following("circle"), np.random.default_rng(3)
    masses = 1 / np.linspace(0.1, 2, 16)
    decoder = clqr.Decoder(fleet.context_map, 1e-4)
    alone = []
    for mass in masses:
        gains = clqr.LinearPolicy(rng.normal(scale=0.02, size=(19, 2, 5)))
        episode = fleet.play(gains, {"mass": mass}, rng)
        decoder.update({"mass": mass}, episode)
        own = clqr.Decoder(clqr.BlockContext(np.eye(5), np.eye(2)), 1e-4)
        own.update({}, episode)
        alone.append(own.estimate[3, 5])  # what the force x does to the velocity x
    grid = np.array([0.0, 2.1])
    truth, learnt = true_decoder(fleet)[3, 5] * grid, decoder.estimate[3, 5] * grid
    labels = {"xlabel": "1 / mass [1/kg]", "ylabel": "velocity gained per force"}
    with picture("idea-law", **labels) as axes:
        axes.plot(grid, truth, color=GREY, linewidth=6, alpha=0.5, label="truth")
        axes.plot(grid, learnt, color=BLUE, label="one decoder, from all 16 episodes")
        axes.plot(1 / masses, alone, "o", color=RED, label="each object from its own episode alone")
        axes.legend(loc="upper left")


def machines_tried() -> None:
    """The cost on machines never tried, by the number of those that were."""
    fleet, seeds = path_following("circle"), 20
    unseen = [{"mass": float(mass)} for mass in np.geomspace(0.12, 9.5, 25)]
    counts = np.array([1, 2, 3, 4, 5, 7, 10, 15, 20])
    with_context, without = np.empty((seeds, len(counts))), np.empty((seeds, len(counts)))
    for seed in range(seeds):
        rng = np.random.default_rng(50_000 + seed)
        decoder = clqr.Decoder(fleet.context_map, 1e-4)
        same = clqr.Decoder(clqr.BlockContext(np.eye(5), np.eye(2)), 1e-4)
        for k in range(1, counts[-1] + 1):
            context = fleet.sample_context(rng)
            episode = push_at_random(fleet, context, rng)
            decoder.update(context, episode)
            same.update({}, episode)
            if k not in counts:
                continue
            place, one = list(counts).index(k), clqr.solve(same.system({}), fleet.cost).policy
            without[seed, place] = np.median([above(fleet, one, c) for c in unseen])
            with_context[seed, place] = np.median(
                [above(fleet, clqr.solve(decoder.system(c), fleet.cost).policy, c) for c in unseen]
            )
    labels = {
        "xlabel": "objects tried, one episode each",
        "ylabel": "cost above the optimum,\nmedian over 25 objects never tried",
    }
    with picture("idea-tried", **labels, yscale="log") as axes:
        for values, colour, label in (
            (without, RED, "one controller for all, without contexts"),
            (with_context, BLUE, "a controller for each, from the decoder"),
        ):
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
            axes.plot(counts, middle, "o-", color=colour, markersize=4, label=label)
            axes.fill_between(counts, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_yticks([1e-3, 1e-2, 1e-1, 1, 10], ["0.1 %", "1 %", "10 %", "100 %", "1000 %"])
        axes.set_xticks([1, 5, 10, 15, 20])
        axes.legend(loc="upper right")


def square_roots() -> None:
    """The error of Θ as one state in twenty grows: triangular factor against normal equations."""
    sizes, seeds = np.logspace(0, 13, 27), 30
    errors = np.empty((2, len(sizes), seeds))
    for i, size in enumerate(sizes):
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            Z, theta = rng.normal(size=(20, 2)), np.array([[0.5, 2.0]])
            Z[0] *= size
            X = Z @ theta.T
            decoder = clqr.Decoder(clqr.BlockContext(np.eye(1), np.eye(1)), 1e-8, noise_level=1.0)
            decoder.update_rows([{}] * 20, Z[:, :1], Z[:, 1:], X)
            try:
                normal = np.linalg.solve(1e-8 * np.eye(2) + Z.T @ Z, Z.T @ X).T
            except np.linalg.LinAlgError:  # rounding has left nothing
                normal = np.full((1, 2), np.inf)
            errors[:, i, seed] = (
                np.abs(decoder.estimate - theta).max(),
                np.abs(normal - theta).max(),
            )
    labels = {"xlabel": "size of one state in twenty; the others are of size 1", "yscale": "log"}
    with picture("idea-roots", **labels, ylabel="error of Θ", xscale="log") as axes:
        for values, colour, label in (
            (errors[1], RED, "V formed: Θ = (Σ x'zᵀ) V⁻¹"),
            (errors[0], BLUE, "V kept as its triangular factor"),
        ):
            axes.plot(sizes, np.median(values, axis=1), color=colour, label=label)
        axes.legend(loc="upper left")


def after_one_episode(fleet: Fleet, seed: int) -> clqr.Agent:
    """An agent that has seen one object, playing a small dither only, as it knew nothing."""
    agent = fleet.agent(clqr.CertaintyEquivalence(), seed=seed)
    fleet.teach(agent, {"mass": 3.0}, np.random.default_rng(seed))
    return agent


def caution() -> None:
    """After one episode: what each candidate would cost on machines that are still plausible."""
    fleet, context = path_following("circle", decay=1.0), {"mass": 1.0}
    agents = [after_one_episode(fleet, seed) for seed in range(21)]
    agents.sort(key=lambda one: above(fleet, one.controller(context), context))
    agent = agents[10]  # the seed for which believing the estimate costs the median
    belief, truth = agent.decoder.machine(context), true_system(fleet, context)
    machines = belief.draw(400, np.random.default_rng(5))
    names, costs, true_costs = [], [], []
    for aversion in (0, 0.1, 1, 10, 100, None):
        if aversion is None:
            policy, name = clqr.LinearPolicy(np.zeros((19, 2, 5))), "do\nnothing"
        else:
            uncertain = clqr.ModelUncertainty(aversion * belief.covariances) if aversion else None
            policy = clqr.solve(belief.system, fleet.cost, uncertainty=uncertain).policy
            name = "believe it" if aversion == 0 else f"{aversion:g}"
        names.append(name)
        costs.append(clqr.policy_cost(policy, machines, fleet.cost, fleet.start))
        true_costs.append(float(clqr.policy_cost(policy, truth, fleet.cost, fleet.start)))
    best = float(clqr.optimal_cost(truth, fleet.cost, fleet.start))
    labels = {"ylabel": "cost of the second episode", "yscale": "log"}
    with picture("idea-caution", **labels, xlabel="how much the plan hedges") as axes:
        places = np.arange(len(names))
        low, quarter, middle, three, high = np.quantile(costs, (0.05, 0.25, 0.5, 0.75, 0.95), 1)
        axes.vlines(places, low, high, color=BLUE, linewidth=1.5, label="90 % of plausible objects")
        axes.vlines(places, quarter, three, color=BLUE, linewidth=7, label="middle half")
        axes.plot(places, middle, "_", color="white", markersize=9)
        axes.plot(places, true_costs, "D", color=RED, markersize=5, label="this object, in truth")
        axes.axhline(best, color=GREY, linestyle="--", label="its optimum")
        axes.set_xticks(places, names)
        axes.grid(axis="x", visible=False)
        axes.legend()


def optimism() -> None:
    """One unknown number: the cost it promises, and the set that shrinks."""
    cost = clqr.QuadraticCost(np.ones((20, 1, 1)), np.full((19, 1, 1), 2.0))
    grid, truth, a, noise = np.linspace(-0.7, 1.7, 500), 0.5, 1.05, 0.2

    def promised(gains: np.ndarray) -> np.ndarray:
        machines = clqr.LinearSystem(np.full((len(gains), 1, 1), a), gains[:, None, None])
        return np.asarray(clqr.optimal_cost(machines, cost, [1.0]))

    # What is left when a x, which is known, is taken off: x' - a x = b u + noise.
    only_b = clqr.BlockContext(np.zeros((1, 1)), np.eye(1))
    decoder, rng = clqr.Decoder(only_b, noise**2), np.random.default_rng(1)
    rule, shown = clqr.DeterminantBeta(c_theta=1.0, c_w=noise, delta=0.1), {}
    for episode in range(41):
        half = float(np.sqrt(rule(decoder)) / decoder.factor[1, 1])
        inside = float(decoder.estimate[0, 1]) + half * np.linspace(-1, 1, 201)
        best = inside[int(np.argmin(promised(inside)))]
        shown[episode] = (inside[0], inside[-1], best)
        x, policy = 1.0, clqr.solve(clqr.LinearSystem([[a]], [[best]]), cost).policy.gains
        for gain in policy[:4, 0, 0]:
            u = gain * x
            after = a * x + truth * u + noise * rng.normal()
            decoder.update_rows([{}], [[x]], [[u]], [[after - a * x]])
            x = after
    labels = {"xlabel": "b, what an input does (x' = 1.05 x + b u)", "yscale": "log"}
    with picture("idea-optimism", **labels, ylabel="J*(b), the cost of optimal play") as axes:
        axes.plot(grid, promised(grid), color="black", linewidth=1.2)
        axes.plot(
            truth, promised(np.array([truth])), "*", color="black", markersize=11, label="truth"
        )
        for place, (episodes, colour, marker) in enumerate(
            ((1, RED, "o"), (4, PINK, "^"), (40, BLUE, "s"))
        ):
            low, high, best = shown[episodes]
            height = 0.95 * 0.84**place
            label = f"most optimistic after {4 * episodes} steps"
            axes.plot([low, high], [height, height], color=colour, linewidth=5, alpha=0.6)
            axes.plot([best, best], [height, promised(np.array([best]))[0]], ":", color=colour)
            axes.plot(best, promised(np.array([best])), marker, color=colour, label=label)
        axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        axes.minorticks_off()
        axes.legend(loc="upper right")


def promises() -> None:
    """What true optimism promises, what it pays, and the optimum between the two."""
    fleet, seeds, episodes = path_following("circle"), 20, 25
    promised, paid = np.empty((seeds, episodes)), np.empty((seeds, episodes))
    for seed in range(seeds):
        rng = np.random.default_rng(60_000 + seed)
        agent = fleet.agent(clqr.Optimism(certify=False), seed=seed)
        for k in range(episodes):
            context = fleet.sample_context(rng)
            plan, truth = agent.ask(context), true_system(fleet, context)
            best = clqr.optimal_cost(truth, fleet.cost, fleet.start)
            promised[seed, k] = plan.promised_cost / best
            paid[seed, k] = clqr.policy_cost(plan.policy, truth, fleet.cost, fleet.start) / best
            agent.tell(context, fleet.play(plan.policy, context, rng, state_bound=1e6))
    labels = {"xlabel": "episode", "ylabel": "cost, over the optimum", "yscale": "log"}
    k = np.arange(1, episodes + 1)
    with picture("idea-promises", **labels) as axes:
        for values, colour, label in (
            (paid, RED, "paid, in expectation"),
            (promised, BLUE, "promised by the optimistic decoder"),
        ):
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
            axes.plot(k, middle, "o-", color=colour, markersize=4, label=label)
            axes.fill_between(k, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(1, color="black", linestyle="--", linewidth=1, label="optimum")
        axes.set_xticks([1, 5, 10, 15, 20, 25])
        axes.set_yticks([0.001, 0.01, 0.1, 1, 10, 100], ["0.001", "0.01", "0.1", "1", "10", "100"])
        axes.legend()
    print(f"promises above the optimum: {int((promised > 1 + 1e-9).sum())} of {promised.size}")


def certificates() -> None:
    """The pictures of docs/certificate.md, by its own code."""
    from matplotlib import pyplot

    text = (FIGURES.parent / "certificate.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text.split("## The interval")[0], re.DOTALL)
    exec("\n".join(blocks), {})
    for number, name in zip(pyplot.get_fignums(), ("over-mass", "loop", "theta"), strict=True):
        save_figure(pyplot.figure(number), FIGURES, f"certificates-{name}")
        (FIGURES / f"certificates-{name}.png").unlink()
    pyplot.close("all")


if __name__ == "__main__":
    with figure_style():
        for draw in (hero, one_law, machines_tried, square_roots, caution, optimism, promises):
            draw()
        certificates()
