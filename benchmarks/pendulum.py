"""MuJoCo's inverted pendulum, 100 machines never tried.

Writes a section of docs/measured/accuracy.md.

`python benchmarks/pendulum.py [seeds]`: 5 seeds unless told otherwise, from 90000. Weights were
chosen on seeds 0 to 2; that features have columns of their own, after a look at seeds from 80000.
"""

import os
import sys
from dataclasses import dataclass

import gymnasium
import numpy as np
from numpy import ndarray as Array
from pages import write_section
from peers import ONE_THREAD
from rich.progress import track

import contextual_lqr as clqr
from contextual_lqr.envs import PENDULUM, Rollout, rollout
from contextual_lqr.envs.inverted_pendulum import MAPS, _machine, inverted_pendulum
from contextual_lqr.parallel import in_parallel

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


TEXT = f"""# MuJoCo's pendulum

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
  pays is compared with what it pays under *its own* controller from the same start: that of its
  step linearised by differences of the engine, which no learner sees. Median / 95 % / 99 % of
  machines;
- Gymnasium's starts with cheap inputs, for 250 steps: controllers for an input weight of 0.01
  instead of 1. What was learnt is the same; its controllers are for another cost.

| task | features | balanced of {UNSEEN}, by seed | median | worst | fell after | above its own |
|---|---|---|---|---|---|---|
"""


CONCLUSIONS = """
## How to read it

- **With physical features where physics puts them** all 500 machines stay up from Gymnasium's
  starts, and 499 of 500 from the hard ones. The target was 95 of 100 in the median seed and 85 in
  the worst.
- **The same six features in every column are worse,** 86 to 100 of 100 from Gymnasium's starts.
  They are 30 columns of Θ instead of 16. In the falls we looked at, while tuning, carts crept to
  the end of the rail: how position enters is badly known then, and it does not enter at all.
- **Balancing hardly needs the context; controlling well does.** One controller for all machines
  balances 93 to 97 of 100 from Gymnasium's starts, the context entering linearly 81 to 96. (A
  rough prototype had 0 and 41 to 64. We do not see that.) But from hard starts one machine in
  twenty then falls, and the median pays half or a third more than under its own controller; with
  physical features it pays 9 % more, and one in twenty 1.7 times as much.
- **Why one controller for all balances nearly all.** It is not the small starts: from ±0.15 it
  balances 88 to 99. It is the weights, which make inputs expensive: 1 for 100 N. Gains are then
  mild, and a mild controller for the mean machine stabilises 97 of 100, as the last table shows
  without any learning. With inputs a hundred times cheaper the best fit without a context
  stabilises 84 of 100, and what was learnt balances 81 to 88; with physical features 98 to 100.
- **With physical features the median pays 9 % more, and need not.** Their best Θ is within 0.1 % of
  the optimum. What is learnt depends on how training begins: on seeds 5 and 6, with starts within
  ±0.05 instead of ±0.01, the median fell from 5 % and 3 % to 0.3 % and -0.2 %, and 4 of 80 training
  poles fell instead of 1. The likely reason is that the engine's pole leans by 0.0017 rad, of which
  a model without a constant knows nothing, and which is not small next to 0.01.
- With linear contexts, or none, no law fits all machines, and the agent takes that for machines
  that are not linear far out: it leaves out two rows in five. With all rows one controller balanced
  97 to 100 of 100.
- The seeds from 90000 were not looked at before the first two tasks were laid out; the third, and
  the comparison with each machine's own controller, were added later, with the features and weights
  as they were. Seeds from 80000 were looked at: after a run on them the six features were given
  columns of their own, and hard starts were added.
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


def best_fits() -> list[str]:
    """What each map allows: the Θ nearest to 128 linearised machines, on 100 others."""
    lines = [
        "",
        "## What the features allow",
        "",
        "No learning: for each map the Θ that is nearest to 128 machines as linearised, by least",
        f"squares, and its controllers for {UNSEEN} others, linearised too. The loop is stable if",
        "the first gain, held, brings every state home. Cost above the optimum of 250 steps from",
        "0.1 rad, median / 95 % of the machines, for the usual weight of inputs and the cheap one.",
        "",
        "| features | weight 1: stable | above optimum | weight 0.01: stable | above optimum |",
        "|---|---|---|---|---|",
    ]
    fleet, rng = inverted_pendulum(), np.random.default_rng(FIRST_SEED)
    contexts = [fleet.sample_context(rng) for _ in range(128 + UNSEEN)]
    M = np.stack([np.hstack((one.A, one.B)) for one in map(linearised, contexts)])
    truth = clqr.LinearSystem(M[128:, :, :4], M[128:, :, 4:])
    start = np.array([0.0, 0.1, 0.0, 0.0])
    for name, make in MAPS.items():
        G = make().matrices(contexts)
        rows, columns = (np.concatenate(list(one[:128]), axis=1).T for one in (G, M))
        found = np.linalg.lstsq(rows, columns, rcond=None)[0].T @ G[128:]
        cells = []
        for weight in (1.0, 0.01):
            cost = Task("", 0.1, 250, weight).cost
            policy = clqr.solve(clqr.LinearSystem(found[..., :4], found[..., 4:]), cost).policy
            loops = truth.A + truth.B @ policy.gains[:, 0]
            stable = (np.abs(np.linalg.eigvals(loops)).max(1) < 1).sum()
            excess = clqr.policy_cost(policy, truth, cost, start)
            excess = excess / clqr.optimal_cost(truth, cost, start) - 1
            tails = np.quantile(excess, [0.5, 0.95], method="higher")
            shown = [percent(one) if one < 100 else "diverges" for one in tails]
            cells += [f"{stable} of {UNSEEN}", " / ".join(shown)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
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
    work = in_parallel(run, jobs, int(os.environ.get("WORKERS", "2")))
    found = dict(track(work, "balancing", len(jobs)))
    page = written(found, seeds)
    write_section("accuracy", "pendulum", page)
    print(page)


def written(found: dict[tuple[str, int], Run], seeds: list[int]) -> str:
    """The page."""
    page = TEXT.splitlines() + balance_rows(found, seeds)
    page += ["", "| features | training episodes that fell | rows learnt |", "|---|---|---|"]
    for name in MAPS:
        runs = [found[name, seed] for seed in seeds]
        fallen, rows = sum(one.fallen for one in runs), np.median([one.rows for one in runs])
        page.append(f"| {name} | {fallen} of {EPISODES * len(seeds)} | {rows:g} |")
    page += best_fits()
    page += CONCLUSIONS
    return "\n".join(page).rstrip() + "\n"


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    main()
