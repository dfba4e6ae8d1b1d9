"""Watch an agent learn a fleet: one row an episode, and an animation of some of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.errors import MissingExtraError
from contextual_lqr.files import atomic_write
from contextual_lqr.fleets import FLEETS, Fleet, true_system
from contextual_lqr.fleets.pictures import picture
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.lqr.solve import optimal_cost, policy_cost
from contextual_lqr.planning import (
    CertaintyEquivalence,
    Optimism,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
)
from contextual_lqr.planning.agent import Agent

PENDULUM = "inverted-pendulum"
NAMES = (*FLEETS, PENDULUM)
STRATEGIES: dict[str, Callable[[], Strategy | None]] = {
    "cautious": lambda: None,  # the fleet's own, which knows its state limit
    "certainty": CertaintyEquivalence,
    "thompson": ThompsonSampling,
    "optimism": Optimism,
    "sampled": SampledOptimism,
}
SHOWN_EPISODES, SHOWN_FRAMES, UNSEEN = 8, 30, 20
EACH, PAUSE = 80, 800  # milliseconds a picture is shown, and the last of an episode


@dataclass(frozen=True)
class Played:
    """One episode, and what the agent knew after it.

    `optimum` is what the best controller costs on this machine in the mean, None if nobody knows;
    `unseen` is the median over 20 machines never tried: of the cost above the optimum, relative to
    it; for the pendulum, of the steps (at most 250) that the controller keeps the pole up.
    """

    episode: int
    context: dict[str, float]
    trajectory: Trajectory
    cost: float
    optimum: float | None
    unseen: float


class Stage:
    """A fleet that can be played, be it ours or the physics engine's."""

    def __init__(self, name: str) -> None:
        require(name in NAMES, f"the fleets are {', '.join(NAMES)}, not {name!r}")
        self.name = name
        self._env: Any = None
        self.fleet = FLEETS[name]() if name in FLEETS else self._engine()

    def _engine(self) -> Fleet:
        """Open the environment of MuJoCo's pendulum."""
        try:
            import gymnasium
        except ImportError as error:
            raise MissingExtraError("Gymnasium", "mujoco") from error
        from contextual_lqr.envs import PENDULUM as ID
        from contextual_lqr.envs.inverted_pendulum import inverted_pendulum

        self._env = gymnasium.make(ID)
        self._long = inverted_pendulum(horizon=251).cost
        return inverted_pendulum()

    def teach(
        self,
        agent: Agent,
        context: dict[str, float],
        rng: np.random.Generator,
        adapt: Literal["episode", "step"],
    ) -> Trajectory:
        """One live episode."""
        if self._env is None:
            return self.fleet.teach(agent, context, rng, adapt)
        from contextual_lqr.envs import rollout

        seed = int(rng.integers(2**31))
        return rollout(agent, self._env, context=context, seed=seed, adapt=adapt).trajectory

    def optimum(self, context: dict[str, float]) -> float | None:
        """The least expected cost of this machine."""
        if self._env is not None:
            return None
        return float(
            optimal_cost(true_system(self.fleet, context), self.fleet.cost, self.fleet.start)
        )

    def score(self, agent: Agent, contexts: list[dict[str, float]]) -> float:
        """How good the estimate's controllers are on these machines, in the median."""
        return float(np.median([self._score(agent, context) for context in contexts]))

    def _score(self, agent: Agent, context: dict[str, float]) -> float:
        if self._env is None:
            truth, cost = true_system(self.fleet, context), self.fleet.cost
            paid = policy_cost(agent.controller(context), truth, cost, self.fleet.start)
            return float(paid / optimal_cost(truth, cost, self.fleet.start)) - 1
        from contextual_lqr.envs import rollout

        policy = agent.controller(context, cost=self._long)
        return float(len(rollout(policy, self._env, context=context, seed=0).trajectory))


def episodes(
    stage: Stage,
    strategy: str = "cautious",
    number: int = 10,
    seed: int = 0,
    adapt: Literal["episode", "step"] = "step",
) -> Iterator[Played]:
    """Learn from one machine after the other."""
    require(strategy in STRATEGIES, f"the strategies are {', '.join(STRATEGIES)}, not {strategy!r}")
    require(number >= 1, f"there must be at least 1 episode, not {number!r}")
    require(seed >= 0, f"seed must be at least 0, not {seed!r}")
    fleet, rng = stage.fleet, np.random.default_rng([seed, 1])
    others = np.random.default_rng([seed, 2])
    unseen = [fleet.sample_context(others) for _ in range(UNSEEN)]
    # The paper's rule goes with the paper's λ = 1.
    options = {"regularisation": 1.0} if strategy == "sampled" else {}
    agent = fleet.agent(STRATEGIES[strategy](), seed, **options)
    for k in range(1, number + 1):
        context = fleet.sample_context(rng)
        played = stage.teach(agent, context, rng, adapt)
        cost = cost_along(fleet, played)
        yield Played(k, context, played, cost, stage.optimum(context), stage.score(agent, unseen))


def cost_along(fleet: Fleet, played: Trajectory) -> float:
    """What the states and inputs of an episode cost, as far as it went."""
    x, u, n = played.states, played.inputs, len(played)
    Q, R = fleet.cost.Q[: n + 1], fleet.cost.R[:n]
    return float(np.einsum("hi,hij,hj", x, Q, x) + np.einsum("hi,hij,hj", u, R, u))


def moments(shown: list[Played]) -> list[tuple[Played, int]]:
    """The steps to draw of some of the episodes, the first ones and the last among them."""
    last, found = len(shown) - 1, []
    chosen = sorted(
        {round(last * (i / (SHOWN_EPISODES - 1)) ** 1.5) for i in range(SHOWN_EPISODES)}
    )
    for k in chosen:
        n = len(shown[k].trajectory)
        steps = np.unique(np.linspace(0, n, min(n + 1, SHOWN_FRAMES)).round().astype(int))
        found += [(shown[k], int(h)) for h in steps]
    return found


def frames(
    stage: Stage, shown: list[Played]
) -> Iterator[tuple[UInt8[Array, "height width 3"], int]]:
    """A picture of each of the moments, and how long to show it."""
    for played, h in moments(shown):
        x, u = played.trajectory.states[: h + 1], played.trajectory.inputs[:h]
        title = f"{stage.name.replace('-', ' ')}, episode {played.episode} of {len(shown)}"
        drawn = picture(stage.name, stage.fleet, played.context, list(x), list(u), title)
        yield drawn, EACH if h < len(played.trajectory) else PAUSE


def animation_path(path: str | Path) -> Path:
    """Where an animation is to go, refused before anything is played if it cannot go there."""
    target = Path(path)
    require(target.suffix.lower() == ".gif", f"--render writes a .gif, not {target.name!r}")
    require(target.parent.is_dir(), f"there is no folder {target.parent} to write {target.name} in")
    return target


def write_animation(path: Path, pictures: list[tuple[Array, int]]) -> None:
    """An animated GIF of pictures and the milliseconds of each, written whole or not at all."""
    from PIL import Image

    first, *rest = (
        Image.fromarray(one).quantize(128, Image.Quantize.MAXCOVERAGE) for one, _ in pictures
    )
    content, times = io.BytesIO(), [each for _, each in pictures]
    first.save(content, "GIF", save_all=True, append_images=rest, duration=times, loop=0)
    atomic_write(path, content.getvalue())
