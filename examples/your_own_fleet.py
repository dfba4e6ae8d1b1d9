"""A fleet of your own: water tanks of different area, each with a pump and a leak.

The level obeys  level' = level + (pump - leak · level) / area,  so [A, B] is linear in the
features 1 and 1/area. Bounds on the area and the rough noise are all that the agent is told.
"""

import numpy as np

import contextual_lqr as clqr
from contextual_lqr.fleets import Fleet, true_system

theta = np.array([[1.0, 0.0, -0.2, 1.0]])  # for the features 1 and 1/area, each of [level, pump]
H = 30
tanks = Fleet(
    clqr.FeatureContext(["1", "1/area"], states=1, inputs=1, bounds={"area": (0.5, 4.0)}),
    clqr.QuadraticCost(np.ones((H, 1, 1)), np.full((H - 1, 1, 1), 0.1)),
    np.array([1.0]),  # one metre above the level wanted
    np.array([[1e-4]]),
    lambda rng: {"area": float(rng.uniform(0.5, 4.0))},
    theta,
)

rng = np.random.default_rng(0)
agent = tanks.agent()
for _ in range(10):
    tanks.teach(agent, tanks.sample_context(rng), rng, adapt="step")

for area in (0.6, 1.5, 3.9):
    tank = true_system(tanks, {"area": area})
    paid = clqr.policy_cost(agent.controller({"area": area}), tank, tanks.cost, tanks.start)
    above = paid / clqr.optimal_cost(tank, tanks.cost, tanks.start) - 1
    print(f"a tank of {area} m², never filled before: {above:.3%} above the optimum")
