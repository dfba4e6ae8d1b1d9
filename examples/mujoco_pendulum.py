"""MuJoCo's inverted pendulum: learn on a few machines, then balance others without any trial.

Needs the extra `mujoco`. Nobody tells the agent the engine's equations.
"""

import sys

import gymnasium
import numpy as np

from contextual_lqr.envs import PENDULUM, rollout
from contextual_lqr.envs.inverted_pendulum import inverted_pendulum

episodes, steps = (int(word) for word in (sys.argv[1:] or ["15", "250"]))
fleet, rng = inverted_pendulum(), np.random.default_rng(0)
env = gymnasium.make(PENDULUM)
agent = fleet.agent(region=(None, 0.2, None, None))  # rad: farther out no pendulum is linear
for _ in range(episodes):
    rollout(agent, env, seed=int(rng.integers(2**31)), adapt="step")

long = inverted_pendulum(horizon=steps + 1).cost
for _ in range(5):
    new = rollout(
        lambda context: agent.controller(context, cost=long), env, seed=int(rng.integers(2**31))
    )
    machine = ", ".join(f"{name.replace('_', ' ')} {v:.2f}" for name, v in new.context.items())
    print(f"{machine}: up for {len(new.trajectory)} of {steps} steps")
