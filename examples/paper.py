"""The paper in 20 lines: learn to push objects of any mass, by optimism over 100 samples."""

import numpy as np

import contextual_lqr as clqr
from contextual_lqr.fleets import path_following, true_decoder, true_system

fleet, rng = path_following("circle", decay=0.7), np.random.default_rng(0)
agent = fleet.agent(clqr.SampledOptimism(samples=100), regularisation=1.0)
unseen = [fleet.sample_context(rng) for _ in range(100)]
optimal = [clqr.optimal_cost(true_system(fleet, c), fleet.cost, fleet.start) for c in unseen]

print("episode  mass   largest state  ‖Θ - Θ*‖  mean control error")
for episode in range(1, 11):
    context = fleet.sample_context(rng)
    played = fleet.teach(agent, context, rng)
    paid = [
        clqr.policy_cost(agent.controller(c), true_system(fleet, c), fleet.cost, fleet.start)
        for c in unseen
    ]
    off = np.linalg.norm(agent.decoder.estimate - true_decoder(fleet))
    largest, error = np.abs(played.states).max(), np.mean(np.subtract(paid, optimal))
    print(f"{episode:7d}  {context['mass']:5.2f}  {largest:12.1e}  {off:8.4f}  {error:.4g}")
