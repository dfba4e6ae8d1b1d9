"""Cart-poles with a weak motor: plans that know its limit, beside a gain that is clipped to it.

At every step the inputs to come are chosen by a quadratic programme, |u| ≤ limit, for the machine
as it is believed to be; the first of them is played. (pip install daqp)
"""

import daqp
import numpy as np

import contextual_lqr as clqr
from contextual_lqr.fleets import cart_pole, true_system

fleet, rng = cart_pole(), np.random.default_rng(0)
agent = fleet.agent()
for _ in range(15):
    fleet.teach(agent, fleet.sample_context(rng), rng, adapt="step")
context = {"cart_mass": 1.0, "pole_mass": 0.2, "length": 1.0}
belief, truth = agent.decoder.machine(context), true_system(fleet, context)
cost = clqr.StationaryCost(fleet.cost.Q[0], fleet.cost.R[0])
best = clqr.solve(belief.system, cost)
K, P = best.policy.gain, best.value_matrix

# The states to come are X = F x + T u, so that their cost is uᵀH u / 2 + (f x)ᵀu.
ahead, A, B = 50, belief.system.A, belief.system.B
H, f = np.kron(np.eye(ahead), cost.R), np.zeros((ahead, 4))
F, T = np.eye(4), np.zeros((4, ahead))
for h in range(ahead):
    F, T = A @ F, A @ T
    T[:, h] = B[:, 0]
    weight = cost.Q if h < ahead - 1 else P  # what comes after is worth xᵀP x
    H, f = H + T.T @ weight @ T, f + T.T @ weight @ F


def clipped(x, limit):
    """The best input without a limit, cut off."""
    return np.clip(K @ x, -limit, limit)


def planned(x, limit):
    """The first of the best inputs within the limit."""
    bound = np.full(ahead, limit)
    return daqp.solve(H, f @ x, np.zeros((0, ahead)), bound, -bound)[0][:1]


def mean_cost(act, limit, runs=20, steps=100):
    """What a run of 4 s costs on the true machine; infinite if one falls."""
    total, noise = 0.0, np.random.default_rng(1).standard_normal((runs, steps, 4))
    for shocks in noise @ truth.noise_factor.T:
        x = np.array(fleet.start)
        for shock in shocks:
            u = act(x, limit)
            total += x @ cost.Q @ x + u @ cost.R @ u
            x = truth.A @ x + truth.B @ u + shock
            if np.abs(x[2]) > 1.5:
                return np.inf  # it has fallen
    return total / runs


usual = abs(K @ fleet.start)[0]  # of 10 N
print("limit / usual   clipped gain   receding horizon")
for share in (1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6):
    paid = [mean_cost(act, share * usual) for act in (clipped, planned)]
    print(f"{share:13.2f}   {paid[0]:12.3f}   {paid[1]:16.3f}")
