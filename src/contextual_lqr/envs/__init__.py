"""Gymnasium environments: one for each fleet, and MuJoCo's inverted pendulum with a context.

Importing this module registers `contextual_lqr/PathFollowing-v0` and the others with Gymnasium, so
that `gymnasium.make` knows them. It needs the extra `gym`; the pendulum needs `mujoco`.
"""

from contextual_lqr.errors import MissingExtraError

try:
    import gymnasium
except ImportError as error:
    raise MissingExtraError("Gymnasium", "gym") from error

from contextual_lqr.envs.fleet_env import ContextualEnv, DynamicsEnv, FleetEnv
from contextual_lqr.envs.output_env import OutputHistoryEnv
from contextual_lqr.envs.rollout import Rollout, rollout

IDS = {
    "path-following": "contextual_lqr/PathFollowing-v0",
    "cart-pole": "contextual_lqr/CartPole-v0",
    "quadrotor": "contextual_lqr/Quadrotor-v0",
    "chain": "contextual_lqr/Chain-v0",
    "vehicle": "contextual_lqr/Vehicle-v0",
    "heating": "contextual_lqr/Heating-v0",
}
"""The environment of each fleet in `FLEETS`."""

NONLINEAR_IDS = {
    "pendulum-swing-up": "contextual_lqr/PendulumSwingUp-v0",
    "cart-pole-swing-up": "contextual_lqr/CartPoleSwingUp-v0",
    "slippery-curve": "contextual_lqr/SlipperyCurve-v0",
    "two-tanks": "contextual_lqr/TwoTanks-v0",
}
"""The environment of each fleet in `NONLINEAR_FLEETS`."""

PENDULUM = "contextual_lqr/InvertedPendulum-v0"
"""MuJoCo's inverted pendulum with a context; it needs the extra `mujoco`."""

for _kind, _ids in (("FleetEnv", IDS), ("DynamicsEnv", NONLINEAR_IDS)):
    for _name, _id in _ids.items():
        _place = f"contextual_lqr.envs.fleet_env:{_kind}"
        gymnasium.register(_id, _place, kwargs={"fleet": _name})
gymnasium.register(
    PENDULUM, "contextual_lqr.envs.inverted_pendulum:InvertedPendulum", max_episode_steps=1000
)

__all__ = [
    "IDS",
    "NONLINEAR_IDS",
    "PENDULUM",
    "ContextualEnv",
    "DynamicsEnv",
    "FleetEnv",
    "OutputHistoryEnv",
    "Rollout",
    "rollout",
]
