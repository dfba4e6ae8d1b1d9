"""Where machines are linear: rows from beyond are left out, and the fit near the target holds."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import Generator, default_rng

from contextual_lqr import (
    Agent,
    Cautious,
    Decoder,
    FeatureContext,
    InputError,
    LinearSystem,
    QuadraticCost,
    Trajectory,
    certify,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.belief.factors import triangle
from contextual_lqr.fleets import FLEETS, true_system
from contextual_lqr.planning.region import restore
from fleet_play import agent_bits

STEP, NOISE = 0.05, np.array([1e-3, 1e-2])
COST = QuadraticCost([np.diag([1.0, 0.1])] * 41, [[[0.1]]] * 40)
MAP = FeatureContext(["1", "1/mass"], bounds={"mass": (0.5, 2.0)})


def pendulum(mass: float, x: Array, u: float) -> Array:
    """A step of an inverted pendulum, angle and rate, with a torque; in ten small ones."""
    angle, rate = x
    for _ in range(10):
        rate = rate + STEP / 10 * (15 * np.sin(angle) + u / mass)
        angle = angle + STEP / 10 * rate
    return np.array([angle, rate])


def linearised(mass: float) -> LinearSystem:
    """[A, B] at upright, by differences."""
    columns = [pendulum(mass, e[:2], e[2]) for e in 1e-6 * np.eye(3)]
    M = np.array(columns).T / 1e-6
    return LinearSystem(M[:, :2], M[:, 2:])


def fall(rng: Generator, steps: int = 25) -> tuple[dict[str, float], Trajectory]:
    """A pendulum that nobody holds, pushed about at random until it swings round."""
    mass, x = rng.uniform(0.5, 2.0), np.array([0.05 * rng.normal(), 0.0])
    states, inputs = [x], []
    for _ in range(steps):
        u = 2 * rng.normal()
        x = pendulum(mass, x, u) + NOISE * rng.normal(size=2)
        states.append(x)
        inputs.append([u])
    return {"mass": mass}, Trajectory(np.array(states), np.array(inputs))


def new_agent(**options: Any) -> Agent:
    return Agent(MAP, COST, [0.2, 0.0], noise_level=NOISE, **options)


def told(agent: Agent, seed: int = 0, episodes: int = 30) -> Agent:
    rng = default_rng(seed)
    with warnings.catch_warnings(action="ignore"):
        for _ in range(episodes):
            agent.tell(*fall(rng))
    return agent


def excess(agent: Agent, mass: float) -> float:
    """What the controller costs above the optimum of the machine near upright; inf if it falls."""
    truth, policy = linearised(mass), agent.controller({"mass": mass})
    return float(
        policy_cost(policy, truth, COST, [0.1, 0.0]) / optimal_cost(truth, COST, [0.1, 0.0]) - 1
    )


# ---- found ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_rows_from_far_out_do_not_spoil_the_fit_near_the_target(seed: int) -> None:
    spoilt, own, given = (told(new_agent(region=r), seed) for r in (np.inf, None, (0.6, None)))
    for mass in (0.6, 1.0, 1.8):
        assert excess(spoilt, mass) > 0.5
        assert excess(own, mass) < 0.1
        assert excess(given, mass) < 0.1
    limits = own.region.limits
    assert 0.2 <= limits[0] <= 1.7
    assert own.decoder.rows + own.region.left_out == spoilt.decoder.rows == 30 * 25
    assert f"left out {own.region.left_out} rows beyond ±({limits[0]:.3g}, " in repr(own)
    # The belief is that of the rows within, and only these count as logged.
    rows: list[tuple[float, Array, Array, Array]] = []
    rng = default_rng(seed)
    for _ in range(30):
        context, played = fall(rng)
        x, u = played.states, played.inputs
        inside = (np.abs(x) <= limits).all(1)
        rows += [
            (context["mass"], x[h], u[h], x[h + 1])
            for h in np.flatnonzero(inside[:-1] & inside[1:])
        ]
    masses, *columns = (np.array(one) for one in zip(*rows, strict=True))
    alone = Decoder(MAP.sized(2, 1), noise_level=NOISE, scales=own.decoder.scales, deviations=None)
    alone.update_rows({"mass": masses}, *columns)
    assert own.decoder.rows == alone.rows
    np.testing.assert_allclose(own.decoder.estimate, alone.estimate, rtol=1e-3)
    assert (own.decoder.logged.high[:2] <= limits).all()
    far = certify(own.decoder, {"mass": 1.0}, COST, [4 * limits[0], 0.0], bounds=False)
    assert far.verdict != "trust"


def test_it_is_said_once() -> None:
    agent, rng = new_agent(), default_rng(0)
    with warnings.catch_warnings(record=True, action="always") as caught:
        for _ in range(30):
            agent.tell(*fall(rng))
    assert len(caught) == 1
    assert "rows beyond ±(" in str(caught[0].message)
    assert "region= says where" in str(caught[0].message)


def test_an_error_made_of_the_warning_loses_nothing() -> None:
    agent, quiet, rng = new_agent(), told(new_agent()), default_rng(0)
    for _ in range(30):
        try:
            agent.tell(*fall(rng))
        except UserWarning:
            continue
    assert agent_bits(agent) == agent_bits(quiet)


@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_live_steps_beyond_are_not_believed(adapt: Any) -> None:
    agent = told(new_agent())
    rows, left = agent.decoder.rows, agent.region.left_out
    x = [0.1, 0.0]
    with agent.episode({"mass": 1.0}, adapt) as episode:
        for angle in (0.1, 2.0, 3.0):
            episode.act(x)
            x = [angle, 0.0]
            episode.observe(x)
            if episode._believed is not None:
                assert episode._believed.rows == rows + 1
        assert not episode.finished  # it is for people to say that machines must be stopped
    assert agent.decoder.rows + agent.region.left_out == rows + left + 3
    assert agent.region.left_out >= left + 2


@pytest.mark.parametrize("power", [-6, 6])
def test_any_units(power: int) -> None:
    size = 10.0**power
    units = np.array([size, 1 / size])
    rng, plain = default_rng(0), told(new_agent())
    scaled = Agent(
        MAP,
        QuadraticCost([np.diag([1.0, 0.1] / units**2)] * 41, [[[0.1]]] * 40),
        [0.2 * size, 0.0],
        noise_level=NOISE * units,
    )
    with warnings.catch_warnings(action="ignore"):
        for _ in range(30):
            context, played = fall(rng)
            scaled.tell(context, Trajectory(played.states * units, played.inputs))
    assert scaled.region.left_out == plain.region.left_out
    np.testing.assert_allclose(scaled.region.limits, plain.region.limits * units)


def test_a_file_holds_the_shells(tmp_path: Path) -> None:
    for episodes in (0, 3, 20):
        agent = told(new_agent(), 1, episodes)
        agent.save(tmp_path / "agent")
        loaded = Agent.load(tmp_path / "agent")
        assert (loaded.region.limits == agent.region.limits).all()
        assert repr(loaded) == repr(agent)
        assert agent_bits(told(loaded, 2, 10)) == agent_bits(told(agent, 2, 10))


def test_shells_of_a_file_without_the_constant_are_read() -> None:
    old, new = told(new_agent()), new_agent()
    arrays, p = old.region.state(), old.decoder.regression.p
    factors = np.delete(arrays["shell_factors"], p, 2)
    arrays["shell_factors"] = np.stack([triangle(one) for one in factors])
    restore(new.region, arrays, old.decoder.regression.data.shape)
    assert (new.region.left_out, new.region.limits.tolist()) == (
        old.region.left_out,
        old.region.limits.tolist(),
    )
    widths = {one.shape for one in new.region.state()["shell_factors"]}
    assert widths == {one.shape for one in old.region.state()["shell_factors"]}


def test_what_was_learnt_elsewhere_is_kept() -> None:
    agent, other = told(new_agent()), told(new_agent(region=(0.3, None)), 5)
    rows = agent.decoder.rows + other.decoder.rows
    agent.decoder.merge(other.decoder)
    left = agent.region.left_out
    told(agent, 9, 4)
    assert agent.region.left_out > left
    assert agent.decoder.rows + agent.region.left_out == rows + left + 4 * 25
    assert excess(agent, 1.0) < 0.1


def test_a_repeat_changes_nothing() -> None:
    agent = told(new_agent())
    before = agent_bits(agent), agent.region.left_out
    told(agent)
    assert (agent.decoder.repeats, agent.region.left_out) == (30, before[1])
    more, rng = fall(default_rng(0), 20), default_rng(0)
    fresh = new_agent()
    with warnings.catch_warnings(action="ignore"):
        fresh.tell(*more)
        fresh.tell(*fall(rng))  # of which the first 20 steps are known
    assert sum(fresh.region._rows.values()) == fresh.decoder.rows == 25


def test_machines_that_are_kept_apart_keep_all_rows() -> None:
    agent, rng = new_agent(deviations="estimated"), default_rng(0)
    with warnings.catch_warnings(record=True, action="once") as caught:
        for _ in range(30):
            agent.tell(*fall(rng))
    (said,) = {str(one.message) for one in caught}
    assert "rows from far out contradict those within; region=" in said
    assert agent.decoder.rows == 30 * 25
    assert agent.region.left_out == 0


@pytest.mark.parametrize("name", FLEETS)
def test_no_alarm_where_machines_are_linear(name: str) -> None:
    fleet = FLEETS[name]()
    for seed in range(2):
        rng, agent = default_rng([seed, 7]), fleet.agent(Cautious(), seed=seed)
        for _ in range(15):  # from up to eight times the start
            context = fleet.sample_context(rng)
            truth = true_system(fleet, context)
            x = fleet.start * 2 ** rng.uniform(0, 3)
            states, inputs = [x], []
            for gain in solve(truth, fleet.cost).policy.gains:
                push = 0.3 * np.abs(gain @ fleet.start).max() * rng.normal(size=len(gain))
                inputs.append(gain @ x + push)
                shock = truth.noise_factor @ rng.normal(size=len(x))
                x = truth.A @ x + truth.B @ inputs[-1] + shock
                states.append(x)
            agent.tell(context, Trajectory(np.array(states), np.array(inputs)))
        assert (agent.region.limits == np.inf).all()
        assert len(agent.region._rows) > 1  # there was something to find


def test_no_alarm_where_machines_rest_beside_zero() -> None:
    # Near by the offset is most of what a step does, far out nothing: no bend, and all rows count.
    agent, rng = new_agent(), default_rng(0)
    for _ in range(20):
        mass, x = rng.uniform(0.5, 2.0), np.array([2.0, 1.0]) * rng.normal(size=2)
        truth, states, inputs = linearised(mass), [x], []
        for gain in solve(truth, COST).policy.gains:
            inputs.append(gain @ x + 0.1 * rng.normal(size=1))
            shock = 0.1 * NOISE * rng.normal(size=2)
            x = truth.A @ x + truth.B @ inputs[-1] + [0.0, 0.2] + shock
            states.append(x)
        agent.tell({"mass": mass}, Trajectory(np.array(states), np.array(inputs)))
    assert len(agent.region._rows) > 2  # type: ignore[attr-defined]
    assert agent.region.left_out == 0
    assert agent.decoder.rows == 800


# ---- given ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapt", ["episode", "step"])
@pytest.mark.parametrize("region", [0.5, (0.5, None), [0.5, np.inf], np.array([0.5, 9.0])])
def test_an_episode_that_leaves_the_region_ends(adapt: Any, region: Any) -> None:
    agent = new_agent(region=region)
    with agent.episode({"mass": 1.0}, adapt) as episode:
        x = [0.1, 0.0]
        for angle in (0.2, 0.4, 0.6):
            assert not episode.finished
            episode.act(x)
            x = [angle, 0.1]
            episode.observe(x)
        assert episode.finished
    assert agent.decoder.rows == 2
    assert agent.region.left_out == 1
    assert "left out 1 rows beyond ±(0.5, " in repr(agent)


def test_told_stretches_inside_are_learnt() -> None:
    rng, context = default_rng(3), {"mass": 1.0}
    played = Trajectory(rng.normal(size=(61, 2)), rng.normal(size=(60, 1)))  # in and out
    angle = np.abs(played.states[:, 0]) <= 0.8
    agent, free = new_agent(region=(0.8, None)), new_agent(region=np.inf)
    agent.tell(context, played)
    for h in np.flatnonzero(angle[:-1] & angle[1:]):
        free.tell(context, Trajectory(played.states[h : h + 2], played.inputs[h : h + 1]))
    assert agent.decoder.rows == free.decoder.rows == 60 - agent.region.left_out
    np.testing.assert_allclose(agent.decoder.estimate, free.decoder.estimate, rtol=1e-9)
    agent.tell(context, played)
    assert agent.decoder.rows == free.decoder.rows == 60 - agent.region.left_out


def test_a_region_that_holds_everything_is_none(tmp_path: Path) -> None:
    agents = [new_agent(region=region) for region in (None, np.inf, 1e9)]
    rng = default_rng(0)
    for _ in range(3):
        context, played = fall(rng, 4)
        for agent in agents:
            agent.tell(context, played)
    for agent in agents[1:]:
        assert agent.decoder.estimate.tobytes() == agents[0].decoder.estimate.tobytes()
        agent.tell(context, Trajectory([[0.1, 0.0], [2e9, 0.0]], [[0.0]]))
        agent.save(tmp_path / "agent")
        loaded = Agent.load(tmp_path / "agent")
        assert repr(loaded) == repr(agent)
        assert agent_bits(loaded) == agent_bits(agent)


@pytest.mark.parametrize(
    "region", [0.0, -1.0, np.nan, (1.0,), (1.0, 2.0, 3.0), (1.0, -1.0), "far", [[1.0, 1.0]]]
)
def test_a_bad_region_is_refused(region: Any) -> None:
    with pytest.raises(InputError, match="region must be"):
        new_agent(region=region)


def test_what_is_wrong_with_an_episode_is_said_before_it_is_left_out() -> None:
    agent = new_agent(region=0.5)
    far = Trajectory([[1.0, 0.0], [2.0, 0.0]], [[0.0]])
    for context, played in (
        ({"mass": 99.0}, far),
        ({"mass": 1.0}, Trajectory([[1.0], [2.0]], [[0.0]])),
        ({"mass": 1.0}, Trajectory([[[1.0, 0.0], [2.0, 0.0]]], [[[0.0]]])),
    ):
        with pytest.raises(InputError):
            agent.tell(context, played)
    assert agent.region.left_out == 0
    agent.tell({"mass": 1.0}, far)
    assert (agent.region.left_out, agent.decoder.rows) == (1, 0)
