"""MuJoCo's inverted pendulum, 100 machines never tried; writes docs/pendulum-measured.md.

`python benchmarks/pendulum.py [seeds]`: 5 seeds unless told otherwise, from 90000. Weights were
chosen on seeds 0 to 2; that features have columns of their own, after a look at seeds from 80000.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
from numpy import ndarray as Array
from peers import ONE_THREAD
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.envs import PENDULUM, Rollout, rollout
from contextual_lqr.envs.inverted_pendulum import MAPS, _machine, inverted_pendulum
from contextual_lqr.experiments.parallel import in_parallel
from contextual_lqr.files import write_whole

PAGE = Path(__file__).parent.parent / "docs" / "pendulum-measured.md"
FIRST_SEED, EPISODES, UNSEEN = 90_000, 40, 100


@dataclass(frozen=True)
class Task:
    """How far from upright machines start at most, for how long, and the weight of their input.

    If `compared`, each machine is also balanced by the controller of its own linearisation.
    """

    name: str
    reach: float
    steps: int
    weight: float = 1.0
    compared: bool = False

    @property
    def cost(self) -> clqr.QuadraticCost:
        """The pendulum's, with another weight of the input."""
        usual = inverted_pendulum(horizon=self.steps + 1).cost
        return clqr.QuadraticCost(usual.Q, self.weight * usual.R)


TASKS = (
    Task("Gymnasium's starts", 0.01, 1000),
    Task("hard starts", 0.15, 250, compared=True),
    Task("Gymnasium's starts, cheap inputs", 0.01, 250, 0.01),
)
OWN = "its own"  # the reference: each machine with the controller of its own linearisation


@dataclass
class Score:
    """How long each machine stays up, and what that cost; then the same with its own controller."""

    lasted: list[int]
    paid: list[float]
    own_lasted: list[int]
    own_paid: list[float]


@dataclass
class Run:
    """One agent."""

    scores: dict[str, Score]
    fallen: int
    rows: int


TEXT = f"""# MuJoCo's pendulum, measured

Written by `benchmarks/pendulum.py`. Gymnasium's InvertedPendulum-v5 with cart mass 0.5 to 2 times,
pole mass 0.3 to 3 times and pole length 0.5 to 2 times the original. A cautious agent that plans
anew at every step plays {EPISODES} episodes of at most 49 steps (2 s), each on another machine.
Then {UNSEEN} machines never tried are balanced by the controller of the estimate, without any
trial. A machine counts if its pole is up at the end. The seeds start at {FIRST_SEED}; none was
used for tuning.

The context enters in one of four ways: through six physical features, each in the columns where
physics puts it; the same six in every column; linearly, as the three numbers themselves and a
constant; or not at all, one controller for all machines. Three tasks, all from the same learning:

- Gymnasium's starts, every coordinate of the state within ±0.01, for 1000 steps (40 s);
- hard starts, within ±0.15, for 250 steps; beyond 0.2 rad a pole counts as fallen. What the machine
  pays is compared with what it pays by *its own* controller from the same start: that of its step
  linearised by differences of the engine, which no learner sees. Median / 95 % / 99 % of machines;
- Gymnasium's starts with cheap inputs, for 250 steps: controllers for an input weight of 0.01
  instead of 1. What was learnt is the same; a controller of it is asked for another cost.

| task | features | balanced of {UNSEEN}, by seed | median | worst | fell after | above its own |
|---|---|---|---|---|---|---|
"""


CONCLUSIONS = """
## How to read it

PLACEHOLDER
""".splitlines()


def linearised(context: dict[str, float]) -> clqr.LinearSystem:
    """[A, B] of the engine's step at upright, by central differences: for scoring only."""
    engine, change = _machine(context), 1e-4
    engine.reset(seed=0)

    def step(y: Array) -> Array:
        engine.set_state(y[:2], y[2:4])
        return engine.step(y[4:])[0]

    columns = [step(e) - step(-e) for e in change * np.eye(5)]
    engine.close()
    M = np.array(columns).T / (2 * change)
    return clqr.LinearSystem(M[:, :4], M[:, 4:])


def paid(played: Rollout, cost: clqr.QuadraticCost) -> float:
    """What an episode cost; infinite if the pole fell."""
    x, u = played.trajectory.states, played.trajectory.inputs
    if played.terminated:
        return np.inf
    states = np.einsum("hi,hij,hj->", x, cost.Q[: len(x)], x)
    return float(states + np.einsum("hi,hij,hj->", u, cost.R[: len(u)], u))


def run(job: tuple[str, int]) -> Run:
    """Learn from 40 machines, then balance 100 others, task by task."""
    features, seed = job
    fleet, rng = inverted_pendulum(features), np.random.default_rng(seed)
    env, agent = gymnasium.make(PENDULUM), fleet.agent(seed=seed)
    fallen = 0
    for _ in range(EPISODES):
        context, start = fleet.sample_context(rng), int(rng.integers(2**31))
        fallen += rollout(agent, env, context=context, seed=start, adapt="step").terminated
    scores = {}
    for task in TASKS:
        machines = gymnasium.make(PENDULUM, reset_noise_scale=task.reach)
        cost, score = task.cost, Score([], [], [], [])
        for _ in range(UNSEEN):
            context, start = fleet.sample_context(rng), int(rng.integers(2**31))
            players = [(agent.controller(context, cost=cost), score.lasted, score.paid)]
            if task.compared:
                own = clqr.solve(linearised(context), cost).policy
                players.append((own, score.own_lasted, score.own_paid))
            for policy, lasted, costs in players:
                played = rollout(policy, machines, context=context, seed=start)
                lasted.append(len(played.trajectory) - played.terminated)
                costs.append(paid(played, cost))
        scores[task.name] = score
    return Run(scores, fallen, agent.decoder.rows)


def balance_rows(found: dict[tuple[str, int], Run], seeds: list[int]) -> list[str]:
    """How many stayed up, and how much more than with their own controller it cost."""
    lines = []
    for task in TASKS:
        for name in (*MAPS, *([OWN] if task.compared else [])):
            own = name == OWN
            each = [found[next(iter(MAPS)) if own else name, s].scores[task.name] for s in seeds]
            lasted = [one.own_lasted if own else one.lasted for one in each]
            ups = [sum(steps == task.steps for steps in one) for one in lasted]
            falls = [steps for one in lasted for steps in one if steps < task.steps]
            cells = [task.name, name, ", ".join(map(str, ups)), f"{np.median(ups):g}", min(ups)]
            cells += [f"{np.median(falls):g} steps" if falls else "none fell"]
            excess = ""
            if task.compared and not own:
                costs, best = (
                    np.concatenate([getattr(one, of) for one in each])
                    for of in ("paid", "own_paid")
                )
                up = np.isfinite(best)  # where it fell by its own controller nothing is compared
                tails = np.quantile(costs[up] / best[up] - 1, [0.5, 0.95, 0.99], method="higher")
                excess = " / ".join(map(percent, tails))
            lines.append(f"| {' | '.join(map(str, [*cells, excess]))} |")
    return lines


def percent(part: float) -> str:
    """A part of one; what fell has no cost."""
    if part == np.inf:
        return "fell"
    return f"{100 * part:.2g} %" if part < 1 else f"{100 * part:.0f} %"


def main() -> None:
    """Run everything, and write the page."""
    seeds = list(range(FIRST_SEED, FIRST_SEED + int(sys.argv[1] if len(sys.argv) > 1 else 5)))
    jobs = [(name, seed) for seed in seeds for name in MAPS]
    begin = time.perf_counter()
    work = in_parallel(run, jobs, int(os.environ.get("WORKERS", "2")))
    found = dict(track(work, "balancing", len(jobs)))
    page = written(found, seeds, (time.perf_counter() - begin) / 60)
    write_whole(PAGE, page.encode())
    print(page)


def written(found: dict[tuple[str, int], Run], seeds: list[int], minutes: float) -> str:
    """The page."""
    page = TEXT.splitlines() + balance_rows(found, seeds)
    page += ["", "| features | training episodes that fell | rows learnt |", "|---|---|---|"]
    for name in MAPS:
        runs = [found[name, seed] for seed in seeds]
        fallen, rows = sum(one.fallen for one in runs), np.median([one.rows for one in runs])
        page.append(f"| {name} | {fallen} of {EPISODES * len(seeds)} | {rows:g} |")
    page += [*CONCLUSIONS, "", f"Measured in {minutes:.1f} minutes."]
    return "\n".join(page).rstrip() + "\n"


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
