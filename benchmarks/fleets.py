"""Every fleet: 20 episodes, then 100 machines never tried, and what their certificates said.

Writes a section of docs/measured/accuracy.md and one of docs/measured/certificates.md.

`python benchmarks/fleets.py [seeds]`: 8 seeds a fleet unless told otherwise. The seeds start at
70000; the fleets were laid out on seeds 0 to 5.
"""

import os
import sys
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array
from pages import write_section
from peers import ONE_THREAD
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.fleets import FLEETS, Fleet, misfit, true_decoder, true_system
from contextual_lqr.parallel import in_parallel

FIRST_SEED, EPISODES, UNSEEN = 70_000, 20, 100
CANDIDATES = 40  # of whom the advisor chooses the next machine to play
MODES = {
    "step": '`adapt="step"`',
    "episode": '`adapt="episode"`',
    "advised": '`adapt="step"`, machines chosen by the advisor',
}
SETS, DRAWS = ("determinant", "regression"), 200

INTRODUCTION = f"""# Six fleets

Written by `benchmarks/fleets.py`. A cautious agent with the fleet's noise and state limits plays
{EPISODES} episodes, each on another machine. Its controllers then run {UNSEEN} machines never
tried, drawn afresh for every seed. The seeds start at {FIRST_SEED}; none was used to
design a fleet.

## What the features leave out

The error of the best Θ, relative to [A - I, B], over 100 machines, and what it costs: how far the
controllers of that Θ are above the optimum. This is the part that no amount of data removes.

| fleet | p | error: median | worst | cost above optimum: worst |
|---|---|---|---|---|
"""


CONCLUSIONS = """## How to read it

- **Planning at every step meets the target on four fleets of six, in every seed.** On the vehicle
  two seeds of eight miss it, and on the cart-pole one, each with a worst machine 19 % above the
  optimum; medians are within 1 % there too. The reason is the draw of the 20 machines: on the
  vehicle none was as light and slow as the worst of the hundred. Features of the second order
  extrapolate badly.
- **An agent that may choose its machines meets it there too.** With the advisor all seeds of all
  fleets are within the target, the worst machine of 4800 at 4.0 %. Nothing else that we tried had
  helped the vehicle, on seeds 0 to 11 of an earlier version: dither up to 4 times as large with up
  to 10 times the budget, or controllers hedged against 0.1 to 3 times the posterior's covariance.
- **One plan for an episode misses on the vehicle**, in two seeds of eight, where the worst machines
  are outside the data again, light and slow. On the cart-pole, which falls before a fixed plan has
  taught anything, 11 training episodes of 160 go beyond the limit.
- With planning at every step no state went beyond its limit, in training or on machines never
  tried; nor did any with the advisor, which goes to the extremes.
""".splitlines()

TRUSTED = """## How to read it

- **The certificates agree with the truth.** No interval of 14 400 missed, with either set. 13 607
  machines were trusted; none of them is over 5 % above the optimum, and the worst is at 4.0 %. All
  38 bad controllers were warned of beforehand, 15 of them with "do not use".
- **What it does not do.** Trust is withheld from good controllers too: 181 of 800 cart-poles with
  planning at every step, and 36 good ones of all 14 400 are "do not use". The certified upper end
  is sharp where Θ has few columns; for the chain it is certain and says nothing, because the
  adversary may play another Θ at each of 29 steps. The likely excess, meant to be exceeded by 5 %
  of machines, is exceeded by 0 to 12 %. The machines of a seed share one estimate, so it varies a
  lot; it does not allow for features that are only nearly right.
""".splitlines()


@dataclass
class Run:
    """One agent: its unseen machines in truth and by their certificates, and what left its limit.

    `paid` and `excess` are the true cost of each controller, and how far it is above the optimum.
    """

    paid: Array
    excess: Array
    left_training: int
    left_unseen: int
    certificates: dict[str, list[clqr.Certificate]]  # of each set of plausible Θ


def scored(policy: clqr.LinearPolicy, fleet: Fleet, context: object) -> tuple[float, float]:
    """The exact expected cost of the policy on this machine; and over the optimum, less one."""
    truth = true_system(fleet, context)
    best = clqr.optimal_cost(truth, fleet.cost, fleet.start)
    paid = float(clqr.policy_cost(policy, truth, fleet.cost, fleet.start))
    return paid, paid / best - 1


def leaves(fleet: Fleet, trajectory: clqr.Trajectory) -> bool:
    """Whether a state is beyond the fleet's limit."""
    limit = np.inf if fleet.state_limit is None else np.asarray(fleet.state_limit)
    return bool((np.abs(trajectory.states) > limit).any())


def any_machine(fleet: Fleet, agent: clqr.Agent, rng: np.random.Generator) -> object:
    """As they come."""
    return fleet.sample_context(rng)


def next_machine(fleet: Fleet, agent: clqr.Agent, rng: np.random.Generator) -> object:
    """Of some machines at random the one from which the fleet's controllers gain most."""
    candidates = [fleet.sample_context(rng) for _ in range(CANDIDATES)]
    if not agent.decoder.rows:
        return candidates[0]
    return clqr.rank_candidates(agent.decoder, candidates, fleet.cost, fleet.start)[0].context


def run(job: tuple[str, str, int]) -> Run:
    """Learn from 20 machines, then control 100 others."""
    name, mode, seed = job
    fleet, rng = FLEETS[name](), np.random.default_rng(seed)
    agent, played = fleet.agent(seed=seed), []
    for _ in range(EPISODES):
        context = (
            next_machine(fleet, agent, rng) if mode == "advised" else fleet.sample_context(rng)
        )
        played.append(fleet.teach(agent, context, rng, "episode" if mode == "episode" else "step"))
    contexts, scores, left = [], [], 0
    for _ in range(UNSEEN):
        contexts.append(fleet.sample_context(rng))
        policy = agent.controller(contexts[-1])
        scores.append(scored(policy, fleet, contexts[-1]))
        left += leaves(fleet, fleet.play(policy, contexts[-1], rng))
    certificates = {
        beta: clqr.certify_many(
            agent.decoder, contexts, fleet.cost, fleet.start, beta=beta, draws=DRAWS
        )
        for beta in SETS
    }
    paid, excess = np.array(scores).T
    return Run(paid, excess, sum(leaves(fleet, one) for one in played), left, certificates)


def percent(value: float) -> str:
    """Two digits; what has exploded, as a power of ten."""
    return f"{value:.2%}" if value < 100 else f"{100 * value:.0e} %"


def features_row(name: str) -> str:
    """What the best Θ misses."""
    fleet, rng = FLEETS[name](), np.random.default_rng(FIRST_SEED)
    contexts = [fleet.sample_context(rng) for _ in range(UNSEEN)]
    theta, d = true_decoder(fleet), len(fleet.start)
    off, excess = misfit(fleet, contexts), []
    for context in contexts:
        M = theta @ fleet.context_map.matrix(context)
        policy = clqr.solve(clqr.LinearSystem(M[:, :d], M[:, d:]), fleet.cost).policy
        excess.append(scored(policy, fleet, context)[1])
    exact = off.max() < 1e-12
    cells = (
        ("exact", "exact", "0")
        if exact
        else (percent(np.median(off)), percent(off.max()), f"{max(excess):.1e}")
    )
    return f"| {name} | {theta.shape[1]} | {' | '.join(cells)} |"


def table(mode: str, runs: dict[str, list[Run]]) -> list[str]:
    """One row a fleet."""
    lines = [
        f"### {MODES[mode]}",
        "",
        "| fleet | median of 100: median seed | worst seed | worst of 100: median seed | "
        "worst seed | seeds within 1 % and 10 % | limit left: training | unseen |",
        "|---" * 8 + "|",
    ]
    for name, found in runs.items():
        medians = np.array([np.median(one.excess) for one in found])
        worst = np.array([max(one.excess) for one in found])
        good = int(((medians <= 0.01) & (worst <= 0.10)).sum())
        cells = [percent(np.median(medians)), percent(medians.max())]
        cells += [percent(np.median(worst)), percent(worst.max()), f"{good} of {len(found)}"]
        cells += [f"{sum(one.left_training for one in found)} of {EPISODES * len(found)}"]
        cells += [f"{sum(one.left_unseen for one in found)} of {UNSEEN * len(found)}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


CERTIFICATES = f"""# Six fleets, learnt by an agent

Written by `benchmarks/fleets.py`; what the agents reached is [elsewhere](accuracy.md#six-fleets).
Before any of the {UNSEEN} machines ran, `certify` was asked about each. The *interval* must hold
the true expected cost of the controller; the number after it is its upper end over the predicted
cost, in the median, with the set "determinant" (the default, which allows for an agent that chooses
its inputs) and "regression". *Bad* is a controller that is truly over 5 % above the optimum; *above
likely* is the share of machines above their likely excess. No threshold was chosen on these fleets.
One rule was changed after looking at these seeds: a growing mode counts only if the best controller
avoids it. Before, 42 fewer good cart-poles were trusted with planning at every step, 123 fewer with
one plan, and no bad one either.
""".splitlines()


def certificate_table(mode: str, runs: dict[str, list[Run]]) -> list[str]:
    """One row a fleet: intervals and verdicts beside the truth."""
    heads = [f"interval holds: {name}" for name in SETS]
    heads += ["trust: all, over 5 %, over 10 %", "worst trusted"]
    heads += ["caution: all, bad", "do not use: all, bad", "above likely"]
    lines = [f"## {MODES[mode]}", "", f"| fleet | {' | '.join(heads)} |"]
    lines.append("|---" * (len(heads) + 1) + "|")
    for name, found in runs.items():
        paid, excess = (
            np.concatenate([getattr(one, of) for one in found]) for of in ("paid", "excess")
        )
        cells = []
        for beta in SETS:
            said = [c for one in found for c in one.certificates[beta]]
            low, high = np.array([c.interval for c in said]).T
            wide = np.median(high / np.array([c.predicted_cost for c in said]))
            held = int(((low <= paid) & (paid <= high)).sum())
            cells.append(f"{held} of {len(said)}, {wide:.2g}")
        verdicts = np.array([c.verdict for c in said])  # the same for both sets
        bad = ~(excess <= 0.05)
        trusted = excess[verdicts == "trust"]
        cells += [f"{len(trusted)}, {(trusted > 0.05).sum()}, {(trusted > 0.10).sum()}"]
        cells += [percent(trusted.max()) if len(trusted) else "none"]
        for verdict in ("caution", "do not use"):
            said_so = verdicts == verdict
            cells += [f"{said_so.sum()}, {(bad & said_so).sum()}"]
        likely = np.array([c.likely_excess for c in said])
        cells += [f"{(excess > likely).mean():.1%}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    """Run everything, and write the page."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    jobs = [(name, mode, FIRST_SEED + i) for mode in MODES for name in FLEETS for i in range(seeds)]
    work = in_parallel(run, jobs, int(os.environ.get("WORKERS", "2")))
    reached, trusted = written(dict(track(work, "playing", len(jobs))), seeds)
    write_section("accuracy", "fleets", reached)
    write_section("certificates", "fleets", trusted)
    print(reached, trusted)


def written(found: dict[tuple[str, str, int], Run], seeds: int) -> tuple[str, str]:
    """What the controllers cost, and what their certificates said."""
    page = INTRODUCTION.splitlines() + [features_row(name) for name in FLEETS]
    page += [
        "",
        "## After 20 episodes",
        "",
        f"{seeds} seeds a fleet. Costs are exact expected costs above the optimum; the target is a",
        "median within 1 %, the worst of 100 within 10 %, and no state beyond its limit. In the",
        f"last table each machine to play is the one of {CANDIDATES}, drawn at random, that",
        "`rank_candidates` puts first.",
        "",
    ]
    runs = {
        mode: {n: [found[n, mode, FIRST_SEED + i] for i in range(seeds)] for n in FLEETS}
        for mode in MODES
    }
    for mode, of_fleets in runs.items():
        page += table(mode, of_fleets)
    trusted = [*CERTIFICATES, ""]
    for mode, of_fleets in runs.items():
        trusted += certificate_table(mode, of_fleets)
    return "\n".join([*page, *CONCLUSIONS]), "\n".join([*trusted, *TRUSTED])


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
