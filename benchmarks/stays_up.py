"""Agents on unstable machines, many states, long episodes, and in other units.

Writes a section of docs/measured/accuracy.md.

`python benchmarks/stays_up.py [seeds]`: 20 seeds a fleet unless told otherwise, from 110000; the
rule was chosen on seeds 0 to 15.
"""

import os
import sys
from dataclasses import dataclass

import numpy as np
from hard_fleets import HARD, rescaled
from pages import write_section
from peers import ONE_THREAD
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.fleets import true_system
from contextual_lqr.parallel import in_parallel

FIRST_SEED, EPISODES, UNSEEN = 110_000, 20, 20
BAD = 0.05

TEXT = f"""# An agent that stays up

Written by `benchmarks/stays_up.py`: `adapt="step"`, nothing known but cost, start and noise,
{EPISODES} episodes, each on another machine. *Regret* is in optimal costs, over all episodes of a
seed. *Trusted* are {UNSEEN} machines never tried, by their certificates after the last episode, and
*bad* those of them that cost over 5 % more than the best. *Scaled*: states and inputs in units of
100 : 1 : 0.01. No state limit is set. Of each fleet SEEDS seeds from {FIRST_SEED}; none was used to
choose the rule.

| fleet | regret: median | worst | largest state | scaled: median | worst | trusted | bad |
|---|---|---|---|---|---|---|---|
"""


@dataclass
class Run:
    """One seed: regret in optimal costs, the largest state, who was trusted, and who was bad."""

    regret: float
    largest: float
    trusted: int
    bad: int


def run(job: tuple[str, bool, int]) -> Run:
    """One agent."""
    name, scaled, seed = job
    fleet = HARD[name]()
    sizes = np.ones(len(fleet.start))
    if scaled:
        fleet, sizes = rescaled(fleet), np.resize((100.0, 1.0, 0.01), len(sizes))
    contexts, noise = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    agent = fleet.agent(clqr.Cautious(), seed=seed)
    regret = largest = 0.0
    for _ in range(EPISODES):
        context = fleet.sample_context(contexts)
        truth = true_system(fleet, context)
        best = clqr.solve(truth, fleet.cost, check=True)
        x, u = (played := fleet.teach(agent, context, noise, "step")).states, played.inputs
        # The performance-difference identity: Σ ‖u - K*x‖² in the metric R + BᵀP*B.
        off = u - np.einsum("hij,hj->hi", best.policy.gains, x[:-1])
        metric = fleet.cost.R + truth.B.T @ best.value_matrices[1:] @ truth.B
        extra = np.einsum("hi,hij,hj->", off, metric, off)
        regret += float(extra / best.cost(fleet.start))
        largest = max(largest, float(np.abs(x / sizes).max()))
    unseen = [fleet.sample_context(contexts) for _ in range(UNSEEN)]
    found = clqr.certify_many(agent.decoder, unseen, fleet.cost, fleet.start, bounds=False)
    trusted = [one for one in found if one.verdict == "trust"]
    bad = 0
    for one in trusted:
        truth = true_system(fleet, one.context)
        paid = clqr.policy_cost(one.policy, truth, fleet.cost, fleet.start)
        bad += bool(paid > (1 + BAD) * clqr.optimal_cost(truth, fleet.cost, fleet.start))
    return Run(regret, largest, len(trusted), bad)


def main() -> None:
    """Run everything on all cores, and write the section."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    jobs = [(n, s, FIRST_SEED + i) for n in HARD for s in (False, True) for i in range(seeds)]
    work = in_parallel(run, jobs, int(os.environ.get("WORKERS", "2")))
    done = dict(track(work, "playing", len(jobs)))
    lines = [TEXT.replace("SEEDS", str(seeds))]
    for name in HARD:
        plain, other = (
            [done[name, s, FIRST_SEED + i] for i in range(seeds)] for s in (False, True)
        )
        regret, scaled = (np.array([one.regret for one in runs]) for runs in (plain, other))
        trusted, bad = (
            sum(getattr(one, key) for one in (*plain, *other)) for key in ("trusted", "bad")
        )
        lines.append(
            f"| {name} | {np.median(regret):.3g} | {regret.max():.3g} | "
            f"{max(one.largest for one in plain):.3g} | {np.median(scaled):.3g} | "
            f"{scaled.max():.3g} | {trusted} of {2 * seeds * UNSEEN} | {bad} |\n"
        )
    write_section("accuracy", "stays up", "".join(lines))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
