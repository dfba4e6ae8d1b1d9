"""Agents on unstable machines, many states, long episodes, and in other units.

Writes a section of docs/measured/accuracy.md.

`python benchmarks/stays_up.py [seeds] [results.json]`: 20 seeds a fleet unless told otherwise, from
180000; the rules were chosen on seeds 0 to 2059, and repaired on seeds from 110000 and 130000. Runs
found in the file are not run again; with 0 seeds the section is written of these alone.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from hard_fleets import HARD, rescaled
from pages import write_section
from peers import ONE_THREAD
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.fleets import Fleet, true_system
from contextual_lqr.parallel import in_parallel
from contextual_lqr.planning.natural_scales import natural_scales

Known, Adapt = Literal["nothing", "nominal", "incumbent"], Literal["step", "episode"]
FIRST_SEED, EPISODES, UNSEEN, SCALED_SEEDS = 180_000, 20, 20, 4
BAD, COSTLIER, OFF = 0.05, 0.1, 0.3
SETTINGS: list[tuple[Known, Adapt]] = [
    ("nothing", "step"),
    ("nominal", "step"),
    ("incumbent", "step"),
    ("nothing", "episode"),
    ("nominal", "episode"),
    ("incumbent", "episode"),
]
LIMIT = 5.0  # times the largest coordinate of the start, where one plan is made an episode

TEXT = f"""# An agent that stays up

Written by `benchmarks/stays_up.py`: {EPISODES} episodes, each on another machine, of up to SEEDS
seeds from {FIRST_SEED}, none of which was used to choose the rule. Known beforehand is *nothing*
but cost, start and noise; or a *nominal* machine, the middle one with all that a step changes off
by {OFF:.0%} up or down; or an *incumbent*, for each machine the best controller of another one
whose context is {OFF:.0%} of the way to the middle. With one plan an *episode* and no incumbent,
episodes end at {LIMIT:g} times the start. Regret in optimal costs over all episodes of a seed,
median and worst, and of how many seeds if they were fewer:

| fleet | step: nothing | nominal | incumbent | episode: nothing | nominal | incumbent |
|---|---|---|---|---|---|---|
"""

MORE = f"""
*Largest*: the largest state with nothing known, planned at every step. *Costlier*: episodes with an
incumbent that cost over {COSTLIER:.0%} more than the incumbent in the same noise, of all, step and
episode. *Scaled*: the largest difference that states and inputs in units of 100 : 1 : 0.01 make to
the regret of a seed (of so many runs, all settings alike). *Trusted* are {UNSEEN} machines
never tried, by their certificates after the last episode, over all of these runs, and *bad* those
of them that cost over {BAD:.0%} more than the best.

| fleet | largest | incumbent's own regret | costlier | scaled | trusted | bad |
|---|---|---|---|---|---|---|
"""

CONCLUSIONS = """
- Units make a difference of 5e-05 at most, which is the rounding of draws solved with 16 digits. No
  machine that was trusted is bad.
- The targets: with nothing known, a levitator should cost at most 10 in the median and 50 at worst,
  with no state above 20, and a segway 300, better 100; with an incumbent, either at most 2.
- Planning at every step, or starting from an incumbent, is what unstable machines need. One plan an
  episode, from nothing, learns too, but the first episodes end at the limit.
- What a nominal machine is worth depends on how far 30 % leads astray: it is least on a segway.
"""


class Job(NamedTuple):
    """One agent."""

    name: str
    known: Known
    adapt: Adapt
    scaled: bool
    seed: int


@dataclass
class Run:
    """Regret in optimal costs, the incumbent's, the largest state, what was costlier, and trust."""

    regret: float = 0.0
    incumbents: float = 0.0
    largest: float = 0.0
    costlier: int = 0
    trusted: int = 0
    bad: int = 0


def middle(fleet: Fleet) -> dict[str, float]:
    """The context in the middle of the fleet."""
    rng = np.random.default_rng(0)
    contexts = [fleet.sample_context(rng) for _ in range(99)]
    return {name: float(np.median([one[name] for one in contexts])) for name in contexts[0]}


def incumbent(fleet: Fleet) -> Callable[[Mapping[str, float]], clqr.LinearPolicy]:
    """The best controller of a machine that is a part of the way to the middle one."""
    centre = middle(fleet)

    def policy(context: Mapping[str, float]) -> clqr.LinearPolicy:
        between = {n: 1 / ((1 - OFF) / v + OFF / centre[n]) for n, v in context.items()}
        return clqr.solve(true_system(fleet, between), fleet.cost, check=True).policy

    return policy


def nominal(fleet: Fleet, seed: int) -> clqr.Prior:
    """The middle machine, all that a step changes off by a part of it."""
    centre = middle(fleet)
    truth = true_system(fleet, centre)
    signs = np.random.default_rng([seed, 3]).choice([-1, 1], (*np.shape(truth.A)[:1], 99))
    d, m = truth.state_size, truth.input_size
    A = np.eye(d) + (truth.A - np.eye(d)) * (1 + OFF * signs[:, :d])
    B = truth.B * (1 + OFF * signs[:, d : d + m])
    scales = natural_scales(fleet.cost, fleet.start, fleet.noise_level)
    return clqr.Prior.nominal(fleet.context_map, A, B, centre, scales, OFF)


def run(job: Job) -> Run:
    """One agent."""
    fleet = HARD[job.name]()
    sizes = np.ones(len(fleet.start))
    if job.scaled:
        fleet, sizes = rescaled(fleet), np.resize((100.0, 1.0, 0.01), len(sizes))
    limit = None
    if job.adapt == "episode" and job.known != "incumbent":
        limit = tuple(LIMIT * np.abs(fleet.start / sizes).max() * sizes)
    runs = incumbent(fleet)
    known: dict[str, Any] = {}
    if job.known == "nominal":
        known["prior"] = nominal(fleet, job.seed)
    elif job.known == "incumbent":
        known["incumbent"] = runs
    agent = fleet.agent(clqr.Cautious(state_limit=limit), seed=job.seed, **known)
    contexts, found = np.random.default_rng([job.seed, 1]), Run()
    for k in range(EPISODES):
        context, noise = fleet.sample_context(contexts), [job.seed, 2, k]
        truth = true_system(fleet, context)
        best = clqr.solve(truth, fleet.cost, check=True)
        played = fleet.teach(agent, context, np.random.default_rng(noise), job.adapt)
        found.largest = max(found.largest, float(np.abs(played.states / sizes).max()))
        found.regret += regret(fleet, truth, best, played)
        if job.known == "incumbent":
            theirs = fleet.play(runs(context), context, np.random.default_rng(noise))
            found.incumbents += regret(fleet, truth, best, theirs)
            ours, usual = (clqr.trajectory_cost(one, fleet.cost) for one in (played, theirs))
            found.costlier += bool(ours > (1 + COSTLIER) * usual)
    unseen = [fleet.sample_context(contexts) for _ in range(UNSEEN)]
    for one in clqr.certify_many(agent.decoder, unseen, fleet.cost, fleet.start, bounds=False):
        if one.verdict == "trust":
            truth = true_system(fleet, one.context)
            paid = clqr.policy_cost(one.policy, truth, fleet.cost, fleet.start)
            found.trusted += 1
            found.bad += bool(paid > (1 + BAD) * clqr.optimal_cost(truth, fleet.cost, fleet.start))
    return found


def regret(
    fleet: Fleet, truth: clqr.LinearSystem, best: clqr.Solution, played: clqr.Trajectory
) -> float:
    """The performance-difference identity: Σ ‖u - K*x‖² in the metric R + BᵀP*B."""
    n = len(played.inputs)
    off = played.inputs - np.einsum("hij,hj->hi", best.policy.gains[:n], played.states[:-1])
    metric = fleet.cost.R + truth.B.T @ best.value_matrices[1:] @ truth.B
    return float(np.einsum("hi,hij,hj->", off, metric[:n], off) / best.cost(fleet.start))


def main() -> None:
    """Run everything on all cores, and write the section."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    done: dict[Job, Run] = {}
    if file is not None and file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            job, found = json.loads(line)
            done[Job(*job)] = Run(**found)
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    jobs = [Job(n, k, a, False, s) for s in seeds for n in HARD for k, a in SETTINGS]
    jobs += [job._replace(scaled=True) for job in jobs if job.seed < FIRST_SEED + SCALED_SEEDS]
    jobs = [job for job in jobs if job not in done]
    work = in_parallel(run, jobs, int(os.environ.get("WORKERS", "2")))
    for job, found in track(work, "playing", len(jobs)):
        done[job] = found
        if file is not None:
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([job, asdict(found)]) + "\n")
    write_section("accuracy", "stays_up", section(done))


def section(done: Mapping[Job, Run]) -> str:
    """Both tables, of the runs that there are."""
    most = len({job.seed for job in done})
    table, more = [TEXT.replace("SEEDS", str(most))], [MORE]
    for name in HARD:
        own = {job: found for job, found in done.items() if job.name == name}
        plain = {job: found for job, found in own.items() if not job.scaled}
        cells = []
        for setting in SETTINGS:
            each = [one.regret for job, one in plain.items() if (job.known, job.adapt) == setting]
            seeds = f" ({len(each)})" if len(each) < most else ""
            cells.append(f"{np.median(each):.2g} / {max(each):.2g}{seeds}" if each else "")
        table.append(f"| {name} | {' | '.join(cells)} |\n")
        largest = [one.largest for job, one in plain.items() if job[1:3] == ("nothing", "step")]
        with_it = [one for job, one in plain.items() if job.known == "incumbent"]
        scaled = [
            abs(one.regret / done[job._replace(scaled=False)].regret - 1)
            for job, one in own.items()
            if job.scaled
        ]
        trusted, bad = (sum(getattr(one, k) for one in own.values()) for k in ("trusted", "bad"))
        more.append(
            f"| {name} | {max(largest):.3g} | "
            f"{np.median([one.incumbents for one in with_it]):.2g} | "
            f"{sum(one.costlier for one in with_it)} of {len(with_it) * EPISODES} | "
            f"{max(scaled):.1g} ({len(scaled)}) | {trusted} of {len(own) * UNSEEN} | {bad} |\n"
        )
    return "".join([*table, *more, CONCLUSIONS])


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
