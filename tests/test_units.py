"""Nothing depends on units: states, inputs, noise, features and contexts by powers of ten.

Powers of ten round, so answers agree to the rounding that least squares amplifies: 1e-16 times the
condition of the data (1e3 or so here), and once more where differences of costs are taken. What
is decided by comparing numbers (a verdict, who is named) must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array
from numpy.random import default_rng

from contextual_lqr import (
    Agent,
    Cautious,
    CertaintyEquivalence,
    Decoder,
    FeatureContext,
    LinearSystem,
    Prior,
    QuadraticCost,
    ThompsonSampling,
    Trajectory,
    backtest,
    certify_many,
    optimal_cost,
    rank_candidates,
    trajectory_cost,
    unexcited_directions,
)
from contextual_lqr.certificates.model_tests.unmodelled import findings_of
from contextual_lqr.data.misfit import find_misfits
from contextual_lqr.fleets import FLEETS, true_system

LAW = np.array([[1, 0.1, 0, 0, 0, 0], [0, 1, 0, 0, -0.05, 0.1]])  # of 1 and 1/inertia
COST = QuadraticCost([np.eye(2)] * 15, [0.1 * np.eye(1)] * 14)
START = np.array([1.0, 0.0])
INERTIAS = np.linspace(0.5, 2.0, 16)


@dataclass(frozen=True)
class Units:
    """What everything is multiplied by: states, the input, the feature and the context."""

    x: Array
    u: Array
    feature: float = 1.0
    context: float = 1.0

    @property
    def y(self) -> Array:
        return np.concatenate((self.x, self.u))

    @property
    def cost(self) -> QuadraticCost:
        x, u = self.x, self.u
        return QuadraticCost(COST.Q / x[:, None] / x, COST.R / u[:, None] / u)

    @property
    def context_map(self) -> FeatureContext:
        features = ["1", f"{self.feature!r}*{self.context!r}/inertia"]
        return FeatureContext(features, states=2, inputs=1)

    def run(self, run: Trajectory) -> Trajectory:
        return Trajectory(run.states * self.x, run.inputs * self.u)

    def contexts(self, inertias: Any) -> dict[str, Any]:
        return {"inertia": np.asarray(inertias) * self.context}


USUAL = Units(np.ones(2), np.ones(1))
powers = st.lists(st.integers(-6, 6), min_size=5, max_size=5)


def units(given: list[int]) -> Units:
    by = 10.0 ** np.array(given)
    return Units(by[:2], by[2:3], *by[3:].tolist())


def machines(deviation: float, seed: int) -> Array:
    M = LAW @ USUAL.context_map.matrices(USUAL.contexts(INERTIAS))
    M[:, 1] += deviation * default_rng(seed).standard_normal((len(M), 3))
    return np.asarray(M)


def fitted(into: Units, deviation: float, seed: int, **options: Any) -> Decoder:
    """Two episodes of each machine, the last of which has another law."""
    rng, decoder = default_rng(seed), Decoder(into.context_map, **options)
    M = machines(deviation, seed)
    M[-1, 1, 2] *= 1.5
    for i, own in enumerate(M):
        for _ in range(2):
            states, inputs = [rng.standard_normal(2)], rng.standard_normal((20, 1))
            for u in inputs:
                y = np.concatenate((states[-1], u))
                states.append(own @ y + 0.01 * rng.standard_normal(2))
            run = into.run(Trajectory(np.array(states), inputs))
            decoder.update({"inertia": INERTIAS[i] * into.context}, run, machine=f"m{i}")
    return decoder


def options_in(into: Units, kind: str) -> dict[str, Any]:
    if kind == "nothing":
        return {}
    if kind == "scales":
        return {"scales": into.y, "noise_level": 0.01 * into.x}
    M = LAW @ USUAL.context_map.matrix({"inertia": 1.2}) * into.x[:, None] / into.y
    context = {"inertia": 1.2 * into.context}
    prior = Prior.nominal(into.context_map, M[:, :2], M[:, 2:], context, into.y)
    return {"prior": prior, "noise_level": 0.01 * into.x}


@settings(max_examples=4, deadline=None)
@given(
    powers,
    st.sampled_from([0.0, 0.05]),
    st.sampled_from(["nothing", "scales", "nominal"]),
    st.integers(0, 99),
)
def test_what_a_fleet_says(given: list[int], deviation: float, kind: str, seed: int) -> None:
    """Gains, costs, verdicts, extrapolation, backtest, alarms, advice."""
    other = units(given)
    usual, scaled = (
        fitted(one, deviation, seed, **options_in(one, kind)) for one in (USUAL, other)
    )
    tried = [0.6, 1.1, 1.9, 9.0]
    certified, its = (
        certify_many(decoder, one.contexts(tried), one.cost, one.x * START, bounds=False, draws=50)
        for decoder, one in ((usual, USUAL), (scaled, other))
    )
    for a, b in zip(certified, its, strict=True):
        assert a.verdict == b.verdict
        assert a.extrapolation.place == b.extrapolation.place
        assert b.extrapolation.score == pytest.approx(a.extrapolation.score, rel=1e-6)
        assert b.predicted_cost == pytest.approx(a.predicted_cost, rel=1e-6)
        assert b.likely_excess == pytest.approx(a.likely_excess, rel=1e-3)
        assert b.upper.searched == pytest.approx(a.upper.searched, rel=1e-3)
        assert b.lower.searched == pytest.approx(a.lower.searched, rel=1e-3)
        gains = b.policy.gains * other.x / other.u[:, None]
        np.testing.assert_allclose(gains, a.policy.gains, rtol=1e-5, atol=1e-6)
    ours, theirs = (
        backtest(decoder, one.cost, one.x * START)
        for decoder, one in ((usual, USUAL), (scaled, other))
    )
    assert ours is not None
    assert theirs is not None
    assert (ours.trusted, ours.wrongly, ours.hedge) == (
        theirs.trusted,
        theirs.wrongly,
        theirs.hedge,
    )
    assert theirs.factor == pytest.approx(ours.factor, rel=1e-3)
    alarms = [
        find_misfits(
            decoder,
            one.cost,
            one.x * START,
            states=["angle", "speed"],
            bounds={"inertia": (0.4 * one.context, 2.5 * one.context)},
        )
        for decoder, one in ((usual, USUAL), (scaled, other))
    ]
    named = [[machine.label for machine in alarm.named] for alarm in alarms]
    assert named[0] == named[1]
    kinds = [[(f.kind, f.state) for f in findings_of(one)] for one in (usual, scaled)]
    assert kinds[0] == kinds[1]
    advice = [
        rank_candidates(decoder, one.contexts(tried), one.cost, one.x * START)
        for decoder, one in ((usual, USUAL), (scaled, other))
    ]
    assert [one.place for one in advice[0]] == [one.place for one in advice[1]]
    np.testing.assert_allclose(*([one.saving for one in each] for each in advice), rtol=1e-3)
    assert len(unexcited_directions(usual)) == len(unexcited_directions(scaled))


@settings(max_examples=6, deadline=None)
@given(
    powers,
    st.sampled_from(["episode", "step"]),
    st.sampled_from([Cautious(), CertaintyEquivalence(), ThompsonSampling()]),
    st.sampled_from(["nothing", "nominal"]),
    st.integers(0, 99),
)
def test_what_an_agent_does(
    given: list[int], adapt: Any, strategy: Any, kind: str, seed: int
) -> None:
    """Inputs, states and regret of four episodes, with the same shocks."""
    played = []
    for one in (USUAL, units(given)):
        own = strategy
        if isinstance(strategy, CertaintyEquivalence):  # its dither is in units of the input
            own = CertaintyEquivalence(dither=strategy.dither * float(one.u[0]))
        informed = options_in(one, kind)
        noise = informed.pop("noise_level", 0.01 * one.x)
        agent = Agent(one.context_map, one.cost, one.x * START, own, noise, seed=seed, **informed)
        rng, regret, runs = default_rng(seed), 0.0, []
        for inertia in rng.uniform(0.5, 2.0, 4):
            M = LAW @ USUAL.context_map.matrix({"inertia": inertia})
            with agent.episode({"inertia": inertia * one.context}, adapt) as episode:
                x = one.x * START
                states, inputs = [x], []
                while not episode.finished:
                    u = episode.act(x)
                    y = np.concatenate((x / one.x, u / one.u))
                    x = one.x * (M @ y + 0.01 * rng.standard_normal(2))
                    episode.observe(x)
                    states.append(x)
                    inputs.append(u)
            system = LinearSystem(M[:, :2], M[:, 2:], noise=1e-4 * np.eye(2))
            usual = Trajectory(np.array(states) / one.x, np.array(inputs) / one.u)
            regret += float(trajectory_cost(usual, COST) - optimal_cost(system, COST, START))
            runs.append(np.concatenate((usual.states[:-1], usual.inputs), 1))
        played.append((regret, np.concatenate(runs)))
    (regret, rows), (same, others) = played
    size = np.abs(rows).max(0)
    np.testing.assert_allclose(others / size, rows / size, atol=1e-4)
    assert same == pytest.approx(regret, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", ["path-following", "chain", "quadrotor"])
@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_two_inputs_and_simulated_noise(name: str, adapt: Any) -> None:
    """Two episodes of a fleet with several inputs: dither and simulator draw the same, too."""
    fleet = FLEETS[name]()
    d, m = fleet.cost.state_size, fleet.cost.input_size
    x, u = np.resize((100.0, 1.0, 0.01), d), np.resize((100.0, 1.0, 0.01), m)

    def physics(context: Any) -> tuple[Array, Array]:
        truth = true_system(fleet, context)
        return x[:, None] * truth.A / x, x[:, None] * truth.B / u

    scaled = replace(
        fleet,
        cost=QuadraticCost(fleet.cost.Q / np.outer(x, x), fleet.cost.R / np.outer(u, u)),
        start=x * fleet.start,
        noise=np.outer(x, x) * fleet.noise,
        _truth=physics,
    )
    agents = [one.agent(Cautious(), seed=1) for one in (fleet, scaled)]
    streams = [default_rng(4), default_rng(4)]
    for context in (fleet.sample_context(default_rng(5)), fleet.sample_context(default_rng(6))):
        a, b = (
            one.teach(agent, context, rng, adapt)
            for one, agent, rng in zip((fleet, scaled), agents, streams, strict=True)
        )
        np.testing.assert_allclose(b.inputs / u, a.inputs, atol=1e-7 * np.abs(a.inputs).max())
        np.testing.assert_allclose(b.states / x, a.states, atol=1e-7 * np.abs(a.states).max())
