"""The agent: ask and tell, live episodes, what is refused, and how well it learns."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    Agent,
    Cautious,
    CertaintyEquivalence,
    Decoder,
    FunctionContext,
    InputError,
    QuadraticCost,
    SampledOptimism,
    Strategy,
    Trajectory,
    UnsolvableError,
    solve,
)
from contextual_lqr.fleets import path_following, true_system
from contextual_lqr.planning import agent as agent_module
from fleet_play import (
    FLEETS,
    STRATEGIES,
    after,
    agent_bits,
    off_policy,
    play_asked,
    play_live,
    play_plan,
    run,
    small_fleet,
    taught,
)

SMALL = FLEETS["small"]
GAIN = {"gain": 1.2}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def unchanged(agent: Agent, act: Callable[[], Any], words: str) -> None:
    """It is refused with these words, and nothing has changed."""
    before = agent_bits(agent)
    with pytest.raises(InputError, match=words):
        act()
    assert agent_bits(agent) == before


# ---- ask, tell and live episodes -----------------------------------------------------------------


@pytest.mark.parametrize("fleet", FLEETS)
@every_strategy
def test_live_episodes_are_ask_and_tell_to_the_bit(strategy: Strategy, fleet: str) -> None:
    one = FLEETS[fleet]
    agents = [Agent(one.context_map, one.cost, one.start, strategy, seed=3) for _ in range(2)]
    for k in range(3):
        context = one.sample_context(default_rng(k))
        asked = play_asked(agents[0], one, context, default_rng([k, 1]))
        live = play_live(agents[1], one, context, default_rng([k, 1]))
        n = len(live)  # a state limit stops a live episode only
        np.testing.assert_array_equal(live.inputs, asked.inputs[:n])
        np.testing.assert_array_equal(live.states, asked.states[: n + 1])
        if n == len(asked):
            assert agent_bits(agents[0]) == agent_bits(agents[1])
        else:
            break


@every_strategy
def test_ask_changes_nothing_that_was_learnt(strategy: Strategy) -> None:
    agent = taught(SMALL, 2, strategy)
    before = agent_bits(agent) | {"random": None}
    first, second = agent.ask(GAIN), agent.ask({"gain": 0.3})
    assert agent_bits(agent) | {"random": None} == before
    for plan, context in ((first, GAIN), (second, {"gain": 0.3})):
        assert plan.context == context
        assert plan.policy.gains.shape == (7, 1, 2)
        assert plan.offsets.shape == (7, 1)
        assert plan.theta.shape == (2, 6)
        assert np.isfinite(plan.promised_cost)
        assert isinstance(plan.diagnostics, dict)
        u = plan.input(4, [0.5, -1.0])
        np.testing.assert_allclose(u, plan.policy.gains[4] @ [0.5, -1.0] + plan.offsets[4])


def test_the_order_of_tell_does_not_matter() -> None:
    rng = default_rng(1)
    told = [off_policy(SMALL, rng, 10.0 ** (k % 3), steps=2 + k) for k in range(12)]
    agents = [Agent(SMALL.context_map, SMALL.cost, SMALL.start) for _ in range(4)]
    for agent in agents:
        for i in rng.permutation(12):
            agent.tell(*told[i])
    for agent in agents[1:]:
        for name in ("estimate", "factor"):
            expected = getattr(agents[0].decoder, name)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(
                getattr(agent.decoder, name), expected, rtol=0, atol=1e-12 * scale
            )


def test_a_shared_seed_is_a_shared_fate_and_another_is_not() -> None:
    same = [Agent(SMALL.context_map, SMALL.cost, SMALL.start, seed=s).ask(GAIN) for s in (4, 4, 5)]
    assert same[0].offsets.tobytes() == same[1].offsets.tobytes()
    assert same[0].offsets.tobytes() != same[2].offsets.tobytes()


@pytest.mark.parametrize("adapt", ["episode", "step"])
@every_strategy
def test_episodes_of_other_lengths_starts_and_costs(strategy: Strategy, adapt: Any) -> None:
    agent = taught(SMALL, 1, strategy)
    for horizon, start in ((2, [0.3, 0.1]), (5, [-0.4, 0.2]), (13, None)):
        cost = small_fleet(horizon).cost
        plan = agent.ask(GAIN, start=start, cost=cost)
        assert plan.policy.gains.shape == (horizon - 1, 1, 2)
        system, rng = true_system(SMALL, GAIN), default_rng(horizon)
        x, rows = np.array(SMALL.start if start is None else start), agent.decoder.rows
        steps = 0
        with agent.episode(GAIN, adapt, start=start, cost=cost) as episode:
            while not episode.finished:
                x = after(system, x, episode.act(x), rng)
                episode.observe(x)
                steps += 1
        assert steps == horizon - 1
        assert agent.decoder.rows == rows + steps
        alone = solve(agent.decoder.system(GAIN), cost).policy.gains
        assert agent.controller(GAIN, cost=cost).gains.tobytes() == alone.tobytes()


@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_an_exception_tells_what_was_played_and_passes_on(adapt: Any) -> None:
    told = taught(SMALL, 1, Cautious())
    expected = told.decoder.copy()
    states = [np.array(SMALL.start)]
    inputs = []

    def break_down(acts: int, observes: int) -> None:
        with told.episode(GAIN, adapt) as episode:
            for h in range(acts):
                inputs.append(episode.act(states[-1]))
                if h < observes:
                    states.append(states[-1] + 0.1)
                    episode.observe(states[-1])
            raise RuntimeError("the belt broke")

    with pytest.raises(RuntimeError, match="the belt broke"):
        break_down(4, 3)
    expected.update(GAIN, Trajectory(np.array(states), np.array(inputs[:3])))
    assert told.decoder.rows == 19 + 3
    assert told.decoder.estimate.tobytes() == expected.estimate.tobytes()
    for acts in (0, 1):
        before = agent_bits(told)
        with pytest.raises(RuntimeError, match="the belt broke"):
            break_down(acts, 0)
        assert {**agent_bits(told), "random": 0} == {**before, "random": 0}


@pytest.mark.parametrize("adapt", ["episode", "step"])
def test_out_of_order_calls_are_refused_and_nothing_is_lost(adapt: Any) -> None:
    agent = taught(SMALL, 1, CertaintyEquivalence())
    x, rng, system = np.array(SMALL.start), default_rng(2), true_system(SMALL, GAIN)
    inputs = []
    with agent.episode(GAIN, adapt) as episode:
        with pytest.raises(InputError, match="act before you observe"):
            episode.observe(x)
        while not episode.finished:
            with pytest.raises(InputError, match="state must be finite"):
                episode.act([np.nan, 0.0])
            with pytest.raises(InputError, match="a state has 2 coordinates"):
                episode.act([0.0])
            inputs.append(episode.act(x))
            with pytest.raises(InputError, match="observe the next state before you act"):
                episode.act(x)
            x = after(system, x, inputs[-1], rng)
            with pytest.raises(InputError, match="state must be finite"):
                episode.observe([np.nan, 0.0])
            episode.observe(x)
            with pytest.raises(InputError, match="act before you observe"):
                episode.observe(x)
        with pytest.raises(InputError, match="finished after 7 steps: leave its block"):
            episode.act(x)
    twin = taught(SMALL, 1, CertaintyEquivalence())
    played = play_live(twin, SMALL, GAIN, default_rng(2), adapt)
    np.testing.assert_array_equal(played.inputs, inputs)
    assert agent_bits(agent) == agent_bits(twin)


@pytest.mark.parametrize("adapt", ["episode", "step"])
@pytest.mark.parametrize("limit", [2.0, (5.0, 2.0)])
def test_a_state_beyond_the_limit_ends_the_episode(adapt: Any, limit: Any) -> None:
    agent = taught(SMALL, 1, Cautious(state_limit=limit))
    with agent.episode(GAIN, adapt) as episode:
        for x in ([1.0, -0.5], [2.0, -1.9], [1.0, -2.1]):
            assert not episode.finished
            episode.act(x)
            episode.observe([*x[:1], x[1] - 0.05])
        assert episode.finished
        with pytest.raises(InputError, match="the episode is finished after 3 steps"):
            episode.act([0.0, 0.0])
    assert agent.decoder.rows == 19 + 3


@pytest.mark.parametrize("adapt", ["episode", "step"])
@pytest.mark.parametrize("bounds", [(-0.1, 0.2), ([-0.1], [0.2]), (-0.1, np.inf)])
def test_inputs_are_clipped_and_the_clipped_are_learnt(adapt: Any, bounds: Any) -> None:
    agent = taught(SMALL, 3, CertaintyEquivalence(0.5), input_bounds=bounds)
    belief = agent.decoder.copy()
    played = play_live(agent, SMALL, GAIN, default_rng(0), adapt)
    low, high = np.ravel(bounds[0]), np.ravel(bounds[1])
    assert (played.inputs >= low).all()
    assert (played.inputs <= high).all()
    assert (played.inputs == low).any()
    belief.update(GAIN, played)
    assert agent.decoder.estimate.tobytes() == belief.estimate.tobytes()
    plan = agent.ask(GAIN)
    assert plan.input(0, [-100.0, 30.0]) in (low, high) or np.isinf(high)


# ---- what was learnt -----------------------------------------------------------------------------


def test_the_controller_is_that_of_the_estimate() -> None:
    agent = taught(SMALL, 3)
    before = agent_bits(agent)
    found = agent.controller(GAIN)
    assert agent_bits(agent) == before
    expected = solve(agent.decoder.system(GAIN), SMALL.cost).policy.gains
    assert found.gains.tobytes() == expected.tobytes()


def test_output_draws_uniformly_from_what_was_played() -> None:
    agent = Agent(SMALL.context_map, SMALL.cost, SMALL.start, SampledOptimism(5, 1.0), seed=1)
    unchanged(agent, agent.output, "nothing to draw from")
    agent.ask(GAIN)
    unchanged(agent, agent.output, "no plan was played and told yet")
    agent = Agent(SMALL.context_map, SMALL.cost, SMALL.start, SampledOptimism(5, 1.0), seed=1)
    pairs = []
    for k in range(4):
        plan = agent.ask(GAIN)
        pairs.append((plan.theta, agent.decoder.estimate))
        agent.tell(*off_policy(SMALL, default_rng(k)))  # somebody else's, in between
        agent.tell(plan, play_plan(plan, SMALL, GAIN, default_rng(k)))
    keys = [(a.tobytes(), b.tobytes()) for a, b in pairs]
    drawn = [agent.output() for _ in range(4000)]
    counts = np.zeros(4)
    for one in drawn:
        counts[keys.index((one.optimistic.tobytes(), one.estimate.tobytes()))] += 1
    assert ((counts - 1000) ** 2 / 1000).sum() < 21  # χ² of 3 degrees: 1e-4


def test_every_plan_that_was_told_counts_in_whatever_order() -> None:
    agent = Agent(SMALL.context_map, SMALL.cost, SMALL.start, SampledOptimism(5, 1.0))
    contexts = [{"gain": g} for g in (0.1, 0.2, 0.3)]
    plans = [agent.ask(context) for context in contexts]
    for k in (2, 0, 1):
        agent.tell(plans[k], play_plan(plans[k], SMALL, contexts[k], default_rng(k)))
    expected = {plan.theta.tobytes() for plan in plans}
    assert {agent.output().optimistic.tobytes() for _ in range(100)} == expected


@pytest.mark.slow
def test_however_many_plans_were_told_a_sample_of_them_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its file stops growing, and `output` is still a uniform draw."""
    monkeypatch.setattr(agent_module, "REMEMBERED", 4)
    plan = Agent(SMALL.context_map, SMALL.cost, SMALL.start, CertaintyEquivalence()).ask(GAIN)
    episodes = [play_plan(plan, SMALL, GAIN, default_rng(k)) for k in range(20)]
    counts, sizes = np.zeros(20), []
    for seed in range(60):
        agent = Agent(SMALL.context_map, SMALL.cost, SMALL.start, seed=seed)
        for k, one in enumerate(episodes):
            agent.tell(replace(plan, theta=np.full_like(plan.theta, k)), one)
            if seed == 0 and k in (9, 19):
                agent.save(tmp_path / "an.agent")
                sizes.append((tmp_path / "an.agent").stat().st_size)
        kept = [int(theta[0, 0]) for theta in agent._played]
        assert len(set(kept)) == 4 == len(agent._estimates)
        counts[kept] += 1
    assert (((counts - 12) ** 2) / (12 * 0.8)).sum() < 55  # χ² of 19 degrees: 2e-5
    assert sizes[1] - sizes[0] <= 8 * 80 + 64  # digests of episodes and their steps, and no plan


def test_a_context_may_be_an_array() -> None:
    """A function's context is whatever it takes; to compare arrays is no yes or no."""
    own = FunctionContext(lambda c: np.eye(3) * (1 + c[0]) + np.diag([0, 0, c[1]]))
    agent = Agent(own, SMALL.cost, SMALL.start, SampledOptimism(5, 1.0))
    context = np.array([0.5, 0.2])
    plan = agent.ask(context)
    agent.tell(plan, play_plan(plan, SMALL, GAIN, default_rng(0)))
    assert agent.decoder.rows == 7
    np.testing.assert_array_equal(agent.output().optimistic, plan.theta)


# ---- refusals ------------------------------------------------------------------------------------

GOOD = off_policy(SMALL, default_rng(0))[1]
BIG_COST = QuadraticCost(np.ones((3, 1, 1)), np.ones((2, 1, 1)))


@every_strategy
def test_what_is_refused_changes_nothing(strategy: Strategy) -> None:
    agent = taught(SMALL, 2, strategy)
    short = Trajectory(np.zeros((1, 2)), np.zeros((0, 1)))
    wide = Trajectory(np.zeros((3, 3)), np.zeros((2, 1)))
    many = Trajectory(np.zeros((2, 3, 2)), np.zeros((2, 2, 1)))
    huge = Trajectory(np.full((3, 2), 1e308), np.full((2, 1), 1e308))
    for context, words in (
        ({"gain": 2.5}, "gain.*2.5"),
        ({"gain": np.nan}, "gain.*nan"),
        ({"mass": 1.0}, "mass|gain"),
        ({}, "gain"),
    ):
        unchanged(agent, lambda c=context: agent.ask(c), words)
        unchanged(agent, lambda c=context: agent.tell(c, GOOD), words)
        unchanged(agent, lambda c=context: agent.controller(c), words)
        unchanged(agent, lambda c=context: agent.episode(c, "step").__enter__(), words)
    unchanged(agent, lambda: agent.tell(GAIN, short), "at least two")
    unchanged(agent, lambda: agent.tell(GAIN, wide), "3 coordinates .*decoder is for 2 and 1")
    unchanged(agent, lambda: agent.tell(GAIN, many), "one episode")
    unchanged(agent, lambda: agent.tell({"gain": 2.0}, huge), "overflow")
    unchanged(agent, lambda: agent.ask(GAIN, start=[1.0]), "a state has 2 coordinates")
    unchanged(agent, lambda: agent.ask(GAIN, start=[1.0, np.nan]), "state must be finite")
    unchanged(agent, lambda: agent.ask(GAIN, cost=BIG_COST), "for 2 states and 1 inputs")
    two = QuadraticCost(np.stack([SMALL.cost.Q] * 2), SMALL.cost.R)
    unchanged(agent, lambda: agent.ask(GAIN, cost=two), "the cost must be one")


@every_strategy
def test_an_ask_that_fails_leaves_the_generator_alone(strategy: Strategy) -> None:
    agent = taught(SMALL, 2, strategy)
    bad = QuadraticCost(SMALL.cost.Q, -1e9 * np.ones((7, 1, 1)), indefinite=True)
    before = agent_bits(agent)
    if not isinstance(strategy, Cautious):  # which then does nothing
        with pytest.raises(UnsolvableError, match="not positive definite"):
            agent.ask(GAIN, cost=bad)
        assert agent_bits(agent) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise_level": 0.0}, "noise_level must be positive"),
        ({"noise_level": -1.0}, "noise_level must be positive"),
        ({"noise_level": np.nan}, "noise_level must be finite"),
        ({"noise_level": [0.1, 0.1, 0.1]}, "noise_level must be positive, or 2 numbers"),
        ({"noise_level": [0.0, 0.0]}, "noise_level must be positive"),
        ({"noise_level": "low"}, "noise_level must be an array of real numbers"),
        ({"regularisation": 0.0}, "regularisation must be a positive number"),
        ({"regularisation": np.inf}, "regularisation must be a positive number"),
        ({"start": [1.0]}, "a state has 2 coordinates"),
        ({"start": [1.0, np.inf]}, "state must be finite"),
        ({"input_bounds": (1.0, -1.0)}, "input_bounds must be low <= high"),
        ({"input_bounds": (np.nan, 1.0)}, "input_bounds must be low <= high"),
        ({"input_bounds": ([0.0, 0.0], 1.0)}, "input_bounds must be low <= high"),
        ({"cost": BIG_COST}, "a state has 1 coordinates"),
        ({"cost": {"Q": SMALL.cost.Q, "R": SMALL.cost.R}}, "cost must be a QuadraticCost"),
        ({"cost": QuadraticCost(np.stack([SMALL.cost.Q] * 2), SMALL.cost.R)}, "cost must be one"),
        ({"beta": -1.0}, "beta must be"),
        ({"beta": np.nan}, "beta must be"),
        ({"seed": -1}, "seed must be"),
        ({"strategy": Cautious(state_limit=(1.0, 1.0, 1.0))}, "state_limit"),
    ],
)
def test_bad_constructor_arguments(options: dict[str, Any], words: str) -> None:
    good = {"context_map": SMALL.context_map, "cost": SMALL.cost, "start": SMALL.start}
    with pytest.raises(InputError, match=words):
        Agent(**{**good, **options})


@pytest.mark.slow
@pytest.mark.parametrize("odd", [{"Q": 1}, "text", 3, b"x", len, [{"a": 1}], object(), 1j, {1.0}])
def test_arguments_of_the_wrong_kind_are_refused_in_words(odd: Any) -> None:
    """Every one of an agent and a decoder, unless the odd thing happens to be of its kind."""
    agent = taught(SMALL, 1)
    good = {"context_map": SMALL.context_map, "cost": SMALL.cost, "start": SMALL.start}
    for kind, fixed in ((Agent, good), (Decoder, {"context_map": SMALL.context_map})):
        for name in inspect.signature(kind).parameters:
            with suppress(InputError):
                kind(**{**fixed, name: odd})  # type: ignore[arg-type]
    for options in ({"start": odd}, {"cost": odd}):
        for call in (agent.ask, lambda c, **o: agent.episode(c, **o).__enter__()):
            with pytest.raises(InputError):
                call(GAIN, **options)


def test_adapt_is_refused_in_words() -> None:
    agent = taught(SMALL, 1)
    with pytest.raises((InputError, TypeError), match="adapt"):
        agent.episode(GAIN, "always").__enter__()


# ---- how well it learns --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("decay", [1.0, 0.7])
@pytest.mark.parametrize("path", ["circle", "parabola", "lemniscate"])
def test_the_papers_rule_learns_in_five_episodes(path: str, decay: float) -> None:
    rule, options = SampledOptimism(), {"regularisation": 1.0}
    runs = [
        run(path_following(path, decay), rule, seed, 5, **options) for seed in range(7000, 7010)
    ]
    decoder = np.median([one.decoder_error for one in runs])
    control = np.mean([one.errors[5] for one in runs])
    print(f"{path} {decay}: decoder {decoder:.4f}, control {control:.4f}")  # noqa: T201
    assert {one.plans for one in runs} == {5}
    assert decoder <= 0.015
    assert control <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("adapt", ["episode", "step"])
@pytest.mark.parametrize(("path", "decay"), [("circle", 1.0), ("lemniscate", 0.7)])
def test_cautious_is_safe_and_learns(path: str, decay: float, adapt: Any) -> None:
    fleet = path_following(path, decay)
    runs = [run(fleet, Cautious(), seed, 10, adapt) for seed in range(8000, 8005)]
    regrets = np.array([one.regrets for one in runs])
    total, each = regrets.sum(1), np.median(regrets, 0)
    largest = max(one.largest for one in runs)
    after_5, after_10 = (float(np.median([one.errors[k] for one in runs])) for k in (5, 10))
    print(  # noqa: T201
        f"{path} {decay} {adapt}: regret median {np.median(total):.1f} worst {total.max():.1f}, "
        f"largest {largest:.2f}, errors {after_5:.4f} {after_10:.4f}, each {each.round(3).tolist()}"
    )
    assert largest <= 10
    assert np.median(total) <= 80
    assert total.max() <= 200
    assert after_5 <= 0.03
    assert after_10 <= 0.01
    if adapt == "step":
        assert each[1] <= 2
        assert (each[2:] <= 1).all()
