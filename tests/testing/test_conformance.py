"""The suites that users hold their own parts to: ours pass them, and broken ones are told why."""

from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from contextual_lqr import CertaintyEquivalence, Strategy
from contextual_lqr.envs import IDS, PENDULUM, FleetEnv
from contextual_lqr.fleets import Fleet, heating
from contextual_lqr.planning import Choice
from contextual_lqr.testing import check_environment, check_fleet, check_strategy
from fleet_play import STRATEGIES


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_every_strategy_passes(strategy: Strategy) -> None:
    check_strategy(strategy)


@pytest.mark.parametrize("name", [*IDS.values(), PENDULUM])
def test_every_environment_passes(name: str) -> None:
    env = gymnasium.make(name)
    check_environment(env)
    env.close()


# -- what is broken is found ---------------------------------------------------------------------


@dataclass(frozen=True)
class Broken(CertaintyEquivalence):
    """Certainty equivalence with one thing wrong."""

    fault: str = ""

    def choose(self, problem: Any, rng: np.random.Generator) -> Choice:
        choice = super().choose(problem, rng)
        m, dither = problem.cost.input_size, choice.dither
        gains = np.array(choice.policy.gains)
        if self.fault == "nan":
            gains[0] = np.nan
        if self.fault == "short":
            gains = gains[1:]
        if self.fault == "learns":
            problem.decoder.update_rows([{"mass": 1.0}], [[1.0] * 5], [[1.0] * 2], [[1.0] * 5])
        if self.fault == "dither":
            dither = np.broadcast_to(-np.eye(m), dither.shape)
        policy = object.__new__(type(choice.policy))
        object.__setattr__(policy, "gains", gains)
        promised = {"promise": -1.0, "random": np.random.default_rng().random()}
        return replace(
            choice,
            policy=policy,
            dither=dither,
            promised_cost=promised.get(self.fault, choice.promised_cost),
        )


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("nan", "the gains must be finite"),
        ("short", r"the gains must have shape \(19, 2, 5\), not \(18, 2, 5\)"),
        ("learns", "choose changes what was learnt"),
        ("dither", "positive semi-definite"),
        ("promise", "promised_cost is -1.0, no finite cost"),
        ("random", "the same generator gives another plan"),
    ],
)
def test_a_broken_strategy_is_told(fault: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_strategy(Broken(fault=fault))


def louder(fleet: Fleet) -> Fleet:
    """A fleet with ten times the noise that it says."""

    @dataclass(frozen=True, eq=False)
    class Louder(Fleet):
        def play(self, *arguments: Any, **options: Any) -> Any:
            loud = replace(fleet, noise=10 * fleet.noise)
            return loud.play(*arguments, **options)

    return Louder(**vars(fleet))


ROOM = heating()
BROKEN_FLEETS = {
    "start must be within state_limit": replace(ROOM, state_limit=(2.0, 1.0, 1.0)),
    "states must name all 3 coordinates": replace(ROOM, states=("air",)),
    "which no context has": replace(ROOM, units={"colour": ""}),
    "loss outside its bounds": replace(
        ROOM, sample_context=lambda rng: {"capacity": rng.uniform(2, 8), "loss": 1.0}
    ),
    "cover only": replace(
        ROOM,
        sample_context=lambda rng: {
            "capacity": float(rng.uniform(2, 8)),
            "loss": float(rng.uniform(0.05, 0.06)),
        },
    ),
    "changes neither A nor B": replace(ROOM, _truth=lambda c: ROOM._truth(c | {"loss": 0.1})),
    "covariance of the noise": louder(ROOM),
}


@pytest.mark.parametrize("said", BROKEN_FLEETS)
def test_a_broken_fleet_is_told(said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_fleet(BROKEN_FLEETS[said])


class Deaf(FleetEnv):
    """Does not take a context."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)


class Mute(FleetEnv):
    """Does not tell its context."""

    def __init__(self) -> None:
        super().__init__("heating")
        self.observation_space = self.observation_space["obs"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options)[0]["obs"], {}

    def step(self, action: Any) -> Any:
        seen, *rest, _ = super().step(action)
        return seen["obs"], *rest, {}


class Fickle(FleetEnv):
    """Changes its context within an episode."""

    def step(self, action: Any) -> Any:
        self.context = {name: 1.0001 * value for name, value in self.context.items()}
        return super().step(action)


class Odd(FleetEnv):
    """Rewards that are no numbers."""

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return seen, "good", *rest


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (Deaf("heating"), "reset was asked for"),
        (Mute(), "reports no context"),
        (Fickle("heating"), "within an episode the context changes"),
        (Odd("heating"), "Gymnasium's checks"),
    ],
)
def test_a_broken_environment_is_told(env: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_environment(env)
