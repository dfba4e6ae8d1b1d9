"""PPO and SAC on the pendulums of `swing_up.py`, with 100 and 1000 times as many steps as ours.

Writes a section of docs/measured/nonlinear.md.

`python benchmarks/swing_up_peers.py RESULTS.json [PLAYER STEPS SEED]`: with a player, a number of
steps and a seed that run is added to the file; without, the section is written from what is there.
Needs stable-baselines3. Settings are those that its authors' collection (rl-baselines3-zoo) has
for Pendulum-v1, but that SAC makes one gradient step in three steps of its shorter run, and in six
of its longer, with eight environments: a core does only some 40 to 100 a second.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy import ndarray as Array
from pages import write_section
from swing_up import BOUNDS, EPISODES, LAST, STEPS, UNSEEN, UPRIGHT, drawn, environment, scored

OURS = EPISODES * STEPS
LENGTHS = (100 * OURS, 1000 * OURS)

TEXT = f"""# The same pendulums by reinforcement learning

Written by `benchmarks/swing_up_peers.py`. PPO and SAC of Stable-Baselines3, with the settings that
its authors' collection has for `Pendulum-v1`, learn on machines drawn at random for each episode;
gravity, mass and length are among the observations, scaled to ±1. Then the same {UNSEEN} unseen
machines, from the same starts, by the same measure: *upright* within {UPRIGHT} rad in all of the
last {LAST} of {STEPS} steps. Ours has seen {OURS} steps. *Best* is the planner with the true
equations. SAC learns with 8 environments and one gradient step in 3 steps of its shorter run, in 6
of its longer, instead of one in each, because a gradient step takes it some 10 ms.

| | steps | seed | upright | mean return | best | behind by |
|---|---|---|---|---|---|---|
"""

READ = """
With 100 times our steps PPO holds as many upright, and pays 12 to 16 % more; with 1000 times, on
the one seed that was run, it had become worse again. SAC, on that seed, holds all of them: 1.7 %
behind the best with 100 times our steps, 0.5 % with 1000 times. It is a good controller, for those
who have so many steps to spend.
"""


class Pendulums(gymnasium.Env[Array, Array]):
    """Pendulum-v1, another machine in each episode, whose context is observed."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.middle = np.array([sum(ends) / 2 for ends in BOUNDS.values()])
        self.half = np.array([(b - a) / 2 for a, b in BOUNDS.values()])
        self.inner, _ = environment(drawn(rng), rng)
        self.action_space = self.inner.action_space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (6,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """A machine and a start at random."""
        context = drawn(self.rng)
        self.inner.g, self.inner.m, self.inner.l = context.values()
        self.inner.reset(seed=int(self.rng.integers(2**31)))
        self.context = context
        self.steps = 0
        return self.seen(), {}

    def step(self, action: Array) -> Any:
        """A step of the environment's, 200 to an episode."""
        _, reward, *_ = self.inner.step(action)
        self.steps += 1
        return self.seen(), float(reward), False, self.steps >= STEPS, {}

    def seen(self) -> Array:
        """The environment's own observation, and the context within ±1."""
        return observed(np.asarray(self.inner.state), self.context, self.middle, self.half)


def observed(state: Array, context: dict[str, float], middle: Array, half: Array) -> Array:
    """Cosine, sine, speed; gravity, mass and length."""
    scaled = (np.array(list(context.values())) - middle) / half
    return np.concatenate(([np.cos(state[0]), np.sin(state[0]), state[1]], scaled))


def learnt(name: str, steps: int, seed: int) -> Any:
    """A player after so many steps."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    rngs = np.random.default_rng([seed, 3]).spawn(8 if name == "SAC" else 4)
    envs = DummyVecEnv([lambda rng=rng: Pendulums(rng) for rng in rngs])
    shared: dict[str, Any] = {"seed": seed, "device": "cpu", "learning_rate": 1e-3}
    if name == "SAC":
        updates = 16 if steps == LENGTHS[0] else 8  # in 48 steps
        pace = {"train_freq": 6, "gradient_steps": updates}
        player = stable_baselines3.SAC("MlpPolicy", envs, **shared, **pace)
    else:
        more = {"use_sde": True, "sde_sample_freq": 4, "n_steps": 1024, "gamma": 0.9}
        player = stable_baselines3.PPO("MlpPolicy", envs, gae_lambda=0.95, **shared, **more)
    return player.learn(steps)


def run(name: str, steps: int, seed: int) -> dict[str, Any]:
    """One player on the unseen machines of a seed."""
    began = time.perf_counter()
    player = learnt(name, steps, seed)
    minutes = (time.perf_counter() - began) / 60
    rng = np.random.default_rng((seed, 1))
    shape = Pendulums(np.random.default_rng(0))
    returns, upright = [], 0
    for _ in range(UNSEEN):
        context = drawn(rng)
        env, _ = environment(context, rng)
        total, angles = 0.0, []
        for _ in range(STEPS):
            seen = observed(np.asarray(env.state), context, shape.middle, shape.half)
            action, _ = player.predict(seen, deterministic=True)
            _, reward, *_ = env.step(action)
            total += float(reward)
            angles.append(env.state[0])
        turned = (np.array(angles) + np.pi) % (2 * np.pi) - np.pi
        upright += bool((np.abs(turned[-LAST:]) < UPRIGHT).all())
        returns.append(total)
    best = float(scored(seed, None).returns.mean())
    mean = float(np.mean(returns))
    return {"upright": upright, "return": mean, "best": best, "minutes": minutes}


def table(found: dict[str, dict[str, Any]]) -> str:
    """A row for each run."""
    lines = []
    for key, one in sorted(found.items(), key=lambda pair: _order(pair[0])):
        name, steps, seed = key.split()
        lines.append(
            f"| {name} | {int(steps):,} | {seed} | {one['upright']} of {UNSEEN} | "
            f"{one['return']:.1f} | {one['best']:.1f} | {one['return'] / one['best'] - 1:.1%} |\n"
        )
    return "".join(lines)


def _run_of(key: str) -> str:
    name, steps, _ = key.split()
    return f"{name} with {int(steps):,} steps"


def _order(key: str) -> tuple[str, int, int]:
    name, steps, seed = key.split()
    return name, int(steps), int(seed)


def main() -> None:
    """A run into the file, or the section from it."""
    file = Path(sys.argv[1])
    if len(sys.argv) > 2:
        name, steps, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        one = run(name, steps, seed)
        found = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(found | {f"{name} {steps} {seed}": one}, indent=1))
        print(name, steps, seed, one)
        return
    found = json.loads(file.read_text())
    kept = [f"{name} with {n:,} steps" for name in ("PPO", "SAC") for n in LENGTHS]
    missing = [one for one in kept if not any(_run_of(key) == one for key in found)]
    said = f"\nNot run to its end: {' and '.join(missing)}.\n" if missing else ""
    write_section("nonlinear", "swing_up_peers", TEXT + table(found) + said + READ)


if __name__ == "__main__":
    main()
