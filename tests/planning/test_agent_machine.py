"""Agents driven through any order of ask, tell, save, load, merge and copy: nothing is lost.

The model of an agent is the list of episodes it was told. Whatever the order, the counts are those
of the list, and the estimate is that of one decoder that learns the whole list at once.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.random import default_rng

from contextual_lqr import (
    Agent,
    Cautious,
    CertaintyEquivalence,
    Decoder,
    InputError,
    Plan,
    Trajectory,
)
from episodes import snapshot
from fleet_play import agent_bits, off_policy, play_plan, small_fleet

FLEET = small_fleet()
seeds = st.integers(0, 2**32 - 1)
Told = list[tuple[Any, Trajectory]]
WRONG: dict[str, tuple[Any, Trajectory]] = {
    "context": ({"mass": 1.0}, Trajectory(np.ones((3, 2)), np.ones((2, 1)))),
    "nan": ({"gain": np.nan}, Trajectory(np.ones((3, 2)), np.ones((2, 1)))),
    "sizes": ({"gain": 1.0}, Trajectory(np.ones((3, 3)), np.ones((2, 1)))),
    "length": ({"gain": 1.0}, Trajectory(np.ones((1, 2)), np.ones((0, 1)))),
    "overflow": ({"gain": 2.0}, Trajectory(np.full((3, 2), 1.7e308), np.ones((2, 1)))),
    "batch": ({"gain": 1.0}, Trajectory(np.ones((4, 3, 2)), np.ones((4, 2, 1)))),
}


def like(decoder: Decoder, deviations: Any, scale: float = 1.0) -> Decoder:
    """A new decoder that could be merged with this one, unless λ or its scales are scaled."""
    given = decoder.regularisation
    return Decoder(
        decoder.context_map,
        None if given is None else scale * given,
        noise_level=decoder.noise_level,
        deviations=deviations,
        scales=None if decoder.scales is None else scale * decoder.scales,
    )


def refit(decoder: Decoder, deviations: Any, told: Told) -> Decoder:
    """One decoder that learns all episodes at once."""
    fresh = like(decoder, deviations)
    if told:
        fresh.update_many([context for context, _ in told], [played for _, played in told])
    return fresh


class Agents(RuleBasedStateMachine):
    """One agent, what it was told, and plans it has made."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.told: Told = []
        self.plans: list[Plan] = []
        self.drawn = 0

    def noise(self, seed: int) -> np.random.Generator:
        """Of an episode never played before, which is not one that was learnt already."""
        self.drawn += 1
        return default_rng([seed, self.drawn])

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(cautious=st.booleans(), deviations=st.sampled_from([None, "estimated"]), seed=seeds)
    def begin(self, cautious: bool, deviations: Any, seed: int) -> None:
        self.deviations = deviations
        strategy = Cautious(draws=8, stress=4) if cautious else CertaintyEquivalence()
        self.agent = Agent(
            FLEET.context_map, FLEET.cost, FLEET.start, strategy, seed=seed, deviations=deviations
        )

    @rule(gain=st.floats(0, 2))
    def ask(self, gain: float) -> None:
        before = snapshot(self.agent.decoder)
        self.plans.append(self.agent.ask({"gain": gain}))
        assert snapshot(self.agent.decoder) == before

    @rule(seed=seeds)
    def tell_a_plan(self, seed: int) -> None:
        """Plans may be told in any order, and long after they were made."""
        if self.plans:
            plan = self.plans.pop(seed % len(self.plans))
            trajectory = play_plan(plan, FLEET, plan.context, self.noise(seed))
            played = len(self.agent._played)
            self.agent.tell(plan, trajectory)
            self.told.append((plan.context, trajectory))
            assert len(self.agent._played) == played + 1
            np.testing.assert_array_equal(self.agent._played[-1], plan.theta)

    @rule(seed=seeds, scale=st.sampled_from([1e-3, 1.0, 1e3]), steps=st.integers(1, 20))
    def tell_what_somebody_else_chose(self, seed: int, scale: float, steps: int) -> None:
        episode = off_policy(FLEET, self.noise(seed), scale, steps)
        played = len(self.agent._played)
        self.agent.tell(*episode)
        self.told.append(episode)
        assert len(self.agent._played) == played

    @rule(seed=seeds)
    def tell_it_again(self, seed: int) -> None:
        """An episode counts once."""
        if self.told:
            repeats = self.agent.decoder.repeats
            self.agent.tell(*self.told[seed % len(self.told)])
            assert self.agent.decoder.repeats == repeats + 1

    @rule(what=st.sampled_from(list(WRONG)), as_plan=st.booleans())
    def tell_something_wrong(self, what: str, as_plan: bool) -> None:
        context, trajectory = WRONG[what]
        if as_plan and what not in ("context", "nan"):
            context = self.agent.ask(context)
        before = agent_bits(self.agent)
        with pytest.raises(InputError):
            self.agent.tell(context, trajectory)
        assert agent_bits(self.agent) == before

    @rule()
    def save_and_load(self) -> None:
        """The agent goes on from its file; the one that wrote it would have asked the same."""
        file = self.folder / "one.agent"
        self.agent.save(file)
        loaded = Agent.load(file)
        assert agent_bits(loaded) == agent_bits(self.agent)
        ours, theirs = self.agent.ask({"gain": 1.0}), loaded.ask({"gain": 1.0})
        assert ours.policy.gains.tobytes() == theirs.policy.gains.tobytes()
        assert ours.offsets.tobytes() == theirs.offsets.tobytes()
        self.agent = loaded

    @rule(seed=seeds, count=st.integers(0, 3), by_file=st.booleans())
    def merge_what_another_site_learnt(self, seed: int, count: int, by_file: bool) -> None:
        rng = self.noise(seed)
        episodes = [off_policy(FLEET, rng) for _ in range(count)]
        other = refit(self.agent.decoder, self.deviations, episodes)
        if by_file:
            other.save(self.folder / "other.decoder")
            other = Decoder.load(self.folder / "other.decoder")
        before = snapshot(other)
        self.agent.decoder.merge(other)
        assert snapshot(other) == before
        self.told += episodes

    @rule(regularisation=st.sampled_from([0.5, 2.0]))
    def merge_what_does_not_fit(self, regularisation: float) -> None:
        own = self.agent.decoder
        other = like(own, self.deviations, regularisation)
        before = agent_bits(self.agent)
        with pytest.raises(InputError, match=r"regularisation|scales"):
            own.merge(other)
        assert agent_bits(self.agent) == before

    @rule()
    def merge_what_is_known(self) -> None:
        if self.told:
            other = refit(self.agent.decoder, self.deviations, self.told[-1:])
            before = agent_bits(self.agent)
            with pytest.raises(InputError, match="the same data"):
                self.agent.decoder.merge(other)
            assert agent_bits(self.agent) == before

    @rule(seed=seeds)
    def teach_a_copy(self, seed: int) -> None:
        """A copy learns, and the original does not."""
        before = snapshot(self.agent.decoder)
        twin = self.agent.decoder.copy()
        assert snapshot(twin) == before
        twin.update(*off_policy(FLEET, self.noise(seed)))
        assert twin.episodes == len(self.told) + 1
        assert snapshot(self.agent.decoder) == before

    @invariant()
    def all_that_was_told_is_known_once(self) -> None:
        if not hasattr(self, "agent"):
            return
        decoder = self.agent.decoder
        assert decoder.episodes == len(self.told)
        assert decoder.rows == sum(len(played) for _, played in self.told)
        assert decoder.ignored_rows == 0
        expected = refit(decoder, self.deviations, self.told)
        scale = np.abs(expected.factor).max()
        np.testing.assert_allclose(decoder.factor, expected.factor, rtol=0, atol=1e-12 * scale)
        # About a prior, the noise's variance is estimated too. It is 1e-4, and rows of size 1000
        # leave rounding of about 1e-13 a row, times their number and that of the unknowns.
        settled = 0.0 if expected.prior is None else 1e-4 * np.abs(expected.estimate).max()
        rounding = 1e-14 * np.linalg.cond(expected.factor) + settled
        np.testing.assert_allclose(decoder.estimate, expected.estimate, rtol=0, atol=rounding)


@pytest.mark.slow
class TestAgents(Agents.TestCase):  # type: ignore[misc]
    settings = settings(stateful_step_count=15)
