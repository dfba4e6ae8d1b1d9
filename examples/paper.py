"""The paper's experiment, small: the best of 100 samples of the confidence set is played.

Ten objects of different mass are pushed along a circle, one episode each. After every episode
the learnt decoder controls 100 objects it has never met, from their mass alone.
"""

import numpy as np
from rich.console import Console
from rich.table import Table

import contextual_lqr as clqr
from contextual_lqr.fleets import path_following, true_decoder, true_system

fleet = path_following("circle", decay=0.7)
rng = np.random.default_rng(0)
test_masses = [fleet.sample_context(rng) for _ in range(100)]
optimal = [clqr.optimal_cost(true_system(fleet, c), fleet.cost, fleet.start) for c in test_masses]
decoder = clqr.Decoder(fleet.context_map, regularisation=1.0, noise_level=0.01)


def mean_control_error() -> float:
    """What 100 unseen objects cost with the learnt controllers, above the optimum."""
    policies = clqr.solve(decoder.systems(test_masses), fleet.cost, check=True).policy
    costs = [
        clqr.policy_cost(clqr.LinearPolicy(gains), true_system(fleet, c), fleet.cost, fleet.start)
        for gains, c in zip(policies.gains, test_masses, strict=True)
    ]
    return float(np.mean(np.subtract(costs, optimal)))


table = Table(title="Path following: learning from one episode an object")
for column in ("episode", "mass \\[kg]", "largest state", "‖Θ - Θ*‖", "mean control error"):
    table.add_column(column, justify="right")

for episode in range(1, 11):
    context = fleet.sample_context(rng)
    plausible = clqr.ConfidenceSet(decoder, radius=1e4).sample(100, rng)
    dynamics = plausible @ fleet.context_map.matrix(context)
    candidates = clqr.LinearSystem(dynamics[..., :5], dynamics[..., 5:], fleet.noise)
    solution = clqr.solve(candidates, fleet.cost)
    best = np.argmin(solution.cost(fleet.start))  # optimism: the one that promises most
    policy = clqr.LinearPolicy(solution.policy.gains[best])

    trajectory = fleet.play(policy, context, rng)
    decoder.update(context, trajectory)
    table.add_row(
        str(episode),
        f"{context['mass']:.2f}",
        f"{np.abs(trajectory.states).max():.1e}",
        f"{np.linalg.norm(decoder.estimate - true_decoder(fleet)):.4f}",
        f"{mean_control_error():.4g}",
    )

console = Console()
console.print(table)
console.print(
    f"The optimum costs {np.mean(optimal):.2f} on average. The first episodes are wild: "
    "with β = 10⁴ the paper's rule plays the gains of wild models."
)
