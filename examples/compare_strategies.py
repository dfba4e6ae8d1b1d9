"""Strategies compared on the same machines and the same noise: what does learning cost?"""

import numpy as np

import contextual_lqr as clqr
from contextual_lqr.fleets import heating, true_system

fleet, rng = heating(), np.random.default_rng(1)
rooms = [fleet.sample_context(rng) for _ in range(5)]
rules = {
    "cautious, each step": (clqr.Cautious(), "step"),
    "cautious": (clqr.Cautious(), "episode"),
    "certainty equivalence": (clqr.CertaintyEquivalence(dither=0.1), "episode"),
    "Thompson sampling": (clqr.ThompsonSampling(), "episode"),
}
print(f"{'cost above the optimum, room':28s}" + "".join(f"{k:>10d}" for k in range(1, 6)))
for name, (strategy, adapt) in rules.items():
    agent, noise, above = fleet.agent(strategy), np.random.default_rng(2), []
    for room in rooms:
        paid = clqr.trajectory_cost(fleet.teach(agent, room, noise, adapt), fleet.cost)
        above.append(paid - clqr.optimal_cost(true_system(fleet, room), fleet.cost, fleet.start))
    print(f"{name:28s}" + "".join(f"{value:10.3g}" for value in above))
