"""What it costs that machines play at once: total regret beside that of one after the other.

The same masses in the same order, each machine's own noise: an agent that is told every episode
before it plans the next; a study of which the last episode is always still out ("an episode
behind"); and a study that fifty machines share, all of them asking, then all of them telling.
Regret is exact: the expected cost of the plan, its dither included, on the true machine, less that
of its optimal controller. It is shown in idle episodes: what doing nothing costs above the optimum.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from contextual_lqr import LinearPolicy, Study, Trajectory, optimal_cost, policy_cost
from contextual_lqr.fleets import Fleet, cart_pole, chain, true_system

MACHINES, ROUNDS = 50, 1


def _played(fleet: Fleet, plan: Any, rng: np.random.Generator) -> Trajectory:
    system, x = true_system(fleet, plan.context), fleet.start
    states, inputs = [x], []
    for step in range(len(plan.policy.gains)):
        inputs.append(plan.input(step, x))
        x = system.A @ x + system.B @ inputs[-1] + system.noise_factor @ rng.normal(size=len(x))
        states.append(x)
    return Trajectory(states, inputs)


def _regret(fleet: Fleet, plan: Any) -> float:
    system = true_system(fleet, plan.context)
    paid = policy_cost(plan.policy, system, fleet.cost, fleet.start, dither=plan.dither)
    return float(paid - optimal_cost(system, fleet.cost, fleet.start))


def _idle(fleet: Fleet, context: Any) -> float:
    system, cost = true_system(fleet, context), fleet.cost
    nothing = LinearPolicy(np.zeros((cost.horizon - 1, cost.input_size, cost.state_size)))
    paid = policy_cost(nothing, system, cost, fleet.start)
    return float(paid - optimal_cost(system, cost, fleet.start))


def totals(make: Callable[[], Fleet], seed: int) -> dict[str, float]:
    """The regret of all episodes, in idle episodes, of each way to play them."""
    fleet, rng = make(), np.random.default_rng(seed)
    contexts = [fleet.sample_context(rng) for _ in range(MACHINES)]
    idle = float(np.mean([_idle(fleet, one) for one in contexts]))
    order = [(k, contexts[k]) for _ in range(ROUNDS) for k in range(MACHINES)]
    found = {}
    for name, behind in (("one after the other", 0), ("an episode behind", 1), ("at once", None)):
        noise = np.random.default_rng([seed, 1])
        regret: list[float] = []
        out: list[Any] = []
        with Study.open("sqlite://", fleet) as study:
            for place, (k, context) in enumerate(order):
                plan = study.ask(context, f"M-{k}", key=f"{seed}-{place}")
                regret.append(_regret(fleet, plan))
                out.append(plan)
                full = len(out) == MACHINES if behind is None else len(out) > behind
                for one in out[: (MACHINES if behind is None else 1) if full else 0]:
                    study.tell(one, _played(fleet, one, noise))
                    out = out[1:]
        found[name] = sum(regret) / idle
        found[f"{name}, first round"] = sum(regret[:MACHINES]) / idle
    return found


def table(seeds: range) -> str:
    """As Markdown: medians over seeds, the ratio of all regret, and of each seed's."""
    lines = [
        "| fleet | one after the other | an episode behind | of all | median | above 1.5 "
        "| largest | fifty at once |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, make in (("cart-pole", cart_pole), ("chain", chain)):
        runs = [totals(make, seed) for seed in seeds]
        one, behind, all_ = (
            np.array([run[way] for run in runs])
            for way in ("one after the other", "an episode behind", "at once")
        )
        ratio = behind / one
        lines.append(
            f"| {name} | {np.median(one):.2f} | {np.median(behind):.2f} | "
            f"{behind.sum() / one.sum():.2f} | {np.median(ratio):.2f} | "
            f"{np.count_nonzero(ratio > 1.5)} of {len(ratio)} | {ratio.max():.2f} | "
            f"{np.median(all_):.2f} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    first, count = (int(one) for one in sys.argv[1:3]) if len(sys.argv) > 2 else (7100, 6)
    table(range(first, first + count))
