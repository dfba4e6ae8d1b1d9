"""What every strategy must satisfy, whatever it is asked for."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.fleets import Fleet, heating, path_following, true_system
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost
from contextual_lqr.lqr.rollout import rollout, rollout_live
from contextual_lqr.planning import Choice, Strategy
from contextual_lqr.planning.agent import Agent
from contextual_lqr.testing.verdict import expect

# What an agent has seen: episodes, how large states and inputs were; and the noise it assumes.
KNOWLEDGE: dict[str, tuple[int, float, float]] = {
    "nothing": (0, 1.0, 0.01),
    "one episode": (1, 1.0, 0.01),
    "five episodes": (5, 1.0, 0.01),
    "little noise": (2, 1.0, 1e-8),
    "little noise, nothing seen": (0, 1.0, 1e-8),
    "much noise": (2, 1.0, 1e3),
    "much noise, nothing seen": (0, 1.0, 1e3),
    "huge states": (3, 1e10, 0.01),
    "huge states, little noise": (3, 1e10, 1e-8),
}


def check_strategy(strategy: Strategy, fleet: Fleet | None = None) -> None:
    """Plan episodes, and single steps, in many situations.

    A strategy must answer with finite numbers of the right shapes, a cost that is not negative and
    a dither that is a covariance; the same for the same generator; and leave what was learnt as it
    was. It is tried with little and much data, noise of many sizes, huge states, coordinates
    without noise, a cost with a cross term and a horizon of 200; on the fleet given too.
    """
    fleets = {
        "path following": path_following(),
        "heating, cross term": _crossed(heating(horizon=8)),
    }
    if fleet is not None:
        fleets["your fleet"] = fleet
    for name, one in fleets.items():
        for knowledge, (episodes, scale, level) in KNOWLEDGE.items():
            _check(strategy, one, episodes, scale, level, f"{name}, {knowledge}")
        exact = np.where(np.arange(len(one.start)) == 0, 0.0, 0.01)
        _check(strategy, one, 2, 1.0, exact, f"{name}, a coordinate without noise")
    # Over 200 steps most of what a prior draws overflows.
    _check(strategy, path_following(horizon=200), 0, 1.0, 0.01, "a horizon of 200", steps=2)


class _Watched:
    """A strategy whose every answer is checked."""

    def __init__(self, strategy: Strategy, where: str) -> None:
        self._strategy, self._where = strategy, where
        self.agent: Any = None  # who asks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)  # a state_limit, say

    def choose(self, problem: Any, rng: np.random.Generator) -> Choice:
        again = copy.deepcopy(rng)
        before = _learnt(self.agent)
        choice = self._strategy.choose(problem, rng)
        self._expect(_learnt(self.agent) == before, "choose changes what was learnt")
        H, d, m = problem.cost.horizon, problem.cost.state_size, problem.cost.input_size
        self._numbers("the gains", choice.policy.gains, (H - 1, m, d))
        if choice.theta is not None:
            self._numbers("theta", choice.theta, self.agent.decoder.estimate.shape)
        promised = choice.promised_cost
        self._expect(0 <= promised < np.inf, f"promised_cost is {promised}, no finite cost")
        self._covariance(choice.dither, (H - 1, m, m))
        same = self._strategy.choose(problem, again)
        pairs = ((one.policy.gains, one.theta, one.dither) for one in (choice, same))
        equal = all(np.array_equal(a, b) for a, b in zip(*pairs, strict=True))
        self._expect(
            equal and promised == same.promised_cost, "the same generator gives another plan"
        )
        return choice

    def next_input(self, problem: Any, rng: np.random.Generator) -> tuple[Array, Array | None]:
        again = copy.deepcopy(rng)
        u, S = self._strategy.next_input(problem, rng)
        m = problem.cost.input_size
        self._numbers("the next input", u, (m,))
        self._covariance(S, (m, m))
        same, _ = self._strategy.next_input(problem, again)
        self._expect(np.array_equal(u, same), "the same generator gives another input")
        return u, S

    def _expect(self, condition: object, sentence: str) -> None:
        expect(condition, f"{self._strategy!r} ({self._where}): {sentence}")

    def _numbers(self, name: str, array: Array, shape: tuple[int, ...]) -> None:
        self._expect(array.shape == shape, f"{name} must have shape {shape}, not {array.shape}")
        self._expect(np.isfinite(array).all(), f"{name} must be finite")

    def _covariance(self, S: Array | None, shape: tuple[int, ...]) -> None:
        if S is None:
            return
        self._numbers("the dither", S, shape)
        skew = np.abs(S - S.mT).max()
        self._expect(skew <= 1e-12 * np.abs(S).max(), "the dither must be symmetric")
        sizes = np.linalg.eigvalsh(S)
        good = (sizes >= -1e-12 * np.abs(sizes).max()).all()
        self._expect(good, "the dither must be a covariance: positive semi-definite")


def _check(
    strategy: Strategy,
    fleet: Fleet,
    episodes: int,
    scale: float,
    level: Any,
    where: str,
    steps: int | None = None,
) -> None:
    """One plan, and one episode that is planned anew at every step."""
    rng = np.random.default_rng(5)
    watched = _Watched(strategy, where)
    # What it is told contradicts the noise that it assumes: nothing of it must be left out.
    agent = Agent(fleet.context_map, fleet.cost, fleet.start, watched, level, region=np.inf)
    watched.agent = agent
    for _ in range(episodes):
        _tell_random(agent, fleet, scale, rng)
    context = fleet.sample_context(rng)
    agent.ask(context)
    system, H = true_system(fleet, context), fleet.cost.horizon
    shocks = rng.standard_normal((H - 1 if steps is None else steps, len(fleet.start)))
    with agent.episode(context, adapt="step") as episode:
        rollout_live(episode, system, fleet.start, 0.01 * shocks)


def _tell_random(agent: Agent, fleet: Fleet, scale: float, rng: np.random.Generator) -> None:
    """An episode of random inputs from a random start, all about as large as `scale`."""
    context, (steps, m) = fleet.sample_context(rng), fleet.cost.R.shape[:2]
    system, d = true_system(fleet, context), len(fleet.start)
    start = fleet.start + scale * rng.standard_normal(d) * (fleet.start != 1)
    shocks = rng.standard_normal((steps, d)) @ system.noise_factor.T
    inputs, idle = scale * rng.standard_normal((steps, m)), LinearPolicy(np.zeros((steps, m, d)))
    agent.tell(context, rollout(idle, system, start, shocks, offsets=inputs))


def _learnt(agent: Agent) -> tuple[Any, ...]:
    decoder = agent.decoder
    return decoder.rows, decoder.episodes, decoder.estimate.tobytes(), decoder.factor.tobytes()


def _crossed(fleet: Fleet) -> Fleet:
    """The same fleet, with a small cross term in its cost."""
    Q, R = fleet.cost.Q, fleet.cost.R
    N = np.zeros((len(R), Q.shape[-1], R.shape[-1]))
    N[:, 1] = 0.1
    return replace(fleet, cost=QuadraticCost(Q, R, N))
