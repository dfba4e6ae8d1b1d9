"""Inputs beyond their limits, and states far beyond what was logged."""

from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

import deviating_fleet
from contextual_lqr import (
    Decoder,
    FeatureContext,
    InputError,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Trajectory,
    backtest,
    certify,
    certify_many,
    policy_cost,
    simulate,
    solve,
)
from contextual_lqr.certificates.beyond_logs import of_inputs, weaker_costs
from contextual_lqr.certificates.limits import DEVIATIONS, InputLimits, run_range
from contextual_lqr.certificates.model_tests.finding import Finding
from deviating_fleet import learnt

COST = QuadraticCost(np.repeat(np.eye(2)[None], 20, 0), np.full((19, 1, 1), 0.05))
START = np.array([0.8, 0.4])
CONTEXT = {"inertia": 1.1}


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return learnt(12, 0.0, default_rng(1), episodes=4)[0]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_the_range_is_that_of_many_runs(scale: float) -> None:
    rng, steps = default_rng(0), 6
    A, B = 0.6 * rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    noise = scale**2 * np.diag([0.04, 0.01, 0.0])
    policy = LinearPolicy(0.5 * rng.standard_normal((steps, 2, 3)))
    start = scale * np.array([1.0, -2.0, 0.5])
    M = np.concatenate((A, B), 1)[None]
    low, high = run_range(M, noise, policy.gains[None], start)
    many = LinearSystem(np.tile(A, (4000, 1, 1)), np.tile(B, (4000, 1, 1)), noise)
    runs = simulate(policy, many, start, rng)
    rows = np.concatenate((runs.states[:, :-1], runs.inputs), -1)
    mean, spread = rows.mean(0), DEVIATIONS * rows.std(0)
    np.testing.assert_allclose(low[0], (mean - spread).min(0), atol=0.05 * scale)
    np.testing.assert_allclose(high[0], (mean + spread).max(0), atol=0.05 * scale)


def test_an_input_beyond_its_limit_is_not_trusted(decoder: Decoder) -> None:
    free = certify(decoder, CONTEXT, COST, START)
    assert free.verdict == "trust"
    system, noise = decoder.machine(CONTEXT), decoder.noise_estimate
    (low,), (high,) = (
        end[0, 2:] for end in run_range(system.mean[None], noise, free.policy.gains[None], START)
    )
    assert low < -1 < high < 1
    wide = certify(decoder, CONTEXT, COST, START, input_bounds=(1.3 * low, 1.3 * high))
    # Where it ends is declared: what the logs do not exclude of that does not count.
    assert wide.verdict == free.verdict == "trust"
    assert 0 < wide.likely_excess <= free.likely_excess
    near = certify(decoder, CONTEXT, COST, START, input_bounds={"torque": (0.95 * low, 10 * high)})
    assert near.verdict == "trust"  # it costs next to nothing
    assert near.reason.startswith(f"{wide.reason}; inputs are at their limits in ")
    assert wide.likely_excess < near.likely_excess < 0.02
    tight = certify(decoder, CONTEXT, COST, START, input_bounds={"torque": (0.4 * low, 10 * high)})
    assert tight.verdict == "caution"
    said = f"torque would reach {low:.3g}, its limit is {0.4 * low:.3g}; inputs are at their limits"
    assert tight.reason.startswith(said)
    assert tight.reason.endswith(wide.reason)
    assert tight.predicted_cost > free.predicted_cost
    np.testing.assert_array_equal(tight.policy.gains, free.policy.gains)
    useless = certify(decoder, CONTEXT, COST, START, input_bounds=(-1e-3, 1e-3))
    assert useless.verdict == "do not use"


def test_each_machine_is_held_to_the_limits_by_itself(decoder: Decoder) -> None:
    inertias = {"inertia": [0.55, 1.0, 1.95]}
    found = certify_many(decoder, inertias, COST, START, input_bounds=(-2.4, 2.4))
    assert len({one.verdict for one in found}) > 1
    for one in found:
        context = one.context
        alone = certify(decoder, context, COST, START, input_bounds=(-2.4, 2.4))
        assert (alone.verdict, alone.saturation) == (one.verdict, one.saturation)
        assert one.saturation is not None
        assert (one.verdict == "trust") == (one.saturation.excess < 0.02)


def test_noise_alone_can_reach_a_limit() -> None:
    """Two deviations of an input that is zero on average."""
    M, gains = np.array([[[0.5, 1.0]]]), np.full((1, 5, 1, 1), -0.4)
    low, high = (end[:, 1:] for end in run_range(M, np.eye(1), gains, np.zeros(1)))
    variance = sum(0.1 ** (2 * k) for k in range(4))  # of x after four steps of 0.1 x + w
    assert -low[0, 0] == pytest.approx(high[0, 0]) == pytest.approx(0.8 * np.sqrt(variance))


def test_a_run_that_explodes_is_beyond_any_limit() -> None:
    M, gains = np.array([[[1e200, 1.0]]]), np.full((1, 5, 1, 1), 1.0)
    (said,) = InputLimits((-1.0, 1.0), 1).beyond(*run_range(M, np.eye(1), gains, np.ones(1)))
    assert "input 1 would reach inf, its limit is 1" in said


NAMES = ["angle", "speed"]


def _runs(unit: float) -> list[tuple[dict[str, float], Trajectory]]:
    rng, contexts = default_rng(1), deviating_fleet.contexts(12)
    machines = deviating_fleet.machines(12, 0.0, rng)
    runs = [deviating_fleet.episode(M, 15, rng) for M in machines for _ in range(4)]
    scaled = [Trajectory(unit * one.states, unit * one.inputs) for one in runs]
    return [(contexts[i // 4], one) for i, one in enumerate(scaled)]


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e12])
def test_a_run_far_beyond_the_logs_is_not_trusted(unit: float) -> None:
    decoder = Decoder(deviating_fleet.context_map())
    for context, run in _runs(unit):
        decoder.update(context, run)
    speeds = np.concatenate([run.states[:-1, 1] for _, run in _runs(unit)])
    low, high = speeds.min(), speeds.max()
    for times, trusted in ((1.0, True), (1.2, True), (1.3, False)):
        start = np.array([0.0, times * max(-low, high)])
        one, other = (
            certify(decoder, CONTEXT, COST, start, states=NAMES, bounds=False, input_bounds=limits)
            for limits in ({"torque": (-1e3 * unit, 1e3 * unit)}, None)
        )
        assert (one.verdict == "trust") == trusted
        # What an input may be is believed if it was declared; else it must have been logged.
        assert other.verdict == "caution"
        assert other.reason.startswith("input 1 would reach")
        assert "(log larger ones, declare its limits or raise R)" in other.reason
        said = f"speed would reach {start[1]:.3g}, 1.3 times what was logged, "
        said += f"{low:.3g} to {high:.3g} (log such runs)"
        assert one.reason.startswith(said) == (not trusted)


def test_a_state_that_is_an_input_of_the_past_has_its_limits() -> None:
    """The state: a place, the input before, the one before that; of two inputs one has limits."""
    M = np.array([[0.9, 0.1, 0, 0.2, 0.1], [0, 0, 0, 1, 0], [0, 1, 0, 0, 0]])
    limits = InputLimits(([-1.0, -np.inf], [1.0, 2.0]), 2)
    assert of_inputs(M[None], limits.finite).tolist() == [False, True, True, True, False]


def test_states_beyond_the_logs_are_trusted_of_no_machine(decoder: Decoder) -> None:
    """Whether it has data of its own or not. The backtest says the same."""
    context = {"inertia": 2.0}
    assert decoder.logged is not None
    size = np.maximum(-decoder.logged.low, decoder.logged.high)[:2]
    for times, verdict in ((1.2, "trust"), (1.35, "caution")):
        start = np.array([times * size[0], 0.0])
        gentle = QuadraticCost(COST.Q, 100 * COST.R)
        found = certify_many(
            decoder, [context] * 2, gentle, start, machine=[None, "m11"], bounds=False
        )
        assert [one.verdict for one in found] == [verdict] * 2
        tried = backtest(decoder, gentle, start, own_steps=[60])
        assert [tried.trusted > 6, tried.few_shot[0].trusted > 6] == [verdict == "trust"] * 2


def test_ranges_are_the_same_however_the_rows_come() -> None:
    runs = _runs(1.0)
    by_episode, by_rows, parts = (Decoder(deviating_fleet.context_map()) for _ in range(3))
    for context, run in runs:
        by_episode.update(context, run)
        part = Decoder(deviating_fleet.context_map())
        columns = {name: np.full(len(run.inputs), value) for name, value in context.items()}
        for one in (by_rows, part):
            one.update_rows(columns, run.states[:-1], run.inputs, run.states[1:])
        parts.merge(part)
    found = [one.logged.array() for one in (by_episode, by_rows, parts) if one.logged is not None]
    y = np.concatenate([np.hstack((run.states[:-1], run.inputs)) for _, run in runs])
    np.testing.assert_array_equal(found[0][:2], (y.min(0), y.max(0)))
    np.testing.assert_array_equal(found, found[:1] * 3)


@pytest.mark.parametrize("unit", [1e-6, 1.0])
def test_a_pendulum_logged_near_its_rest_is_not_trusted_far_from_it(unit: float) -> None:
    """Logs within 0.05 rad, a task at 0.9: the sine is no line there."""
    rng, g, dt = default_rng(0), 9.81, 0.05
    decoder = Decoder(FeatureContext(["1", "1/length"]))
    for length in np.linspace(0.5, 2, 20):
        x = [np.zeros(2)]
        inputs = 0.3 * rng.standard_normal((40, 1))
        for u in inputs:
            (angle, speed), noise = x[-1], 1e-4 * rng.standard_normal(2)
            pull = -g / length * np.sin(angle) + u[0]
            x.append(np.array([angle + dt * speed, 0.95 * speed + dt * pull]) + noise)
        decoder.update({"length": length}, Trajectory(unit * np.array(x), unit * inputs))
    near, far = (
        certify(decoder, {"length": 1.1}, COST, [unit * angle, 0.0], bounds=False)
        for angle in (0.02, 0.9)
    )
    assert (near.verdict, far.verdict) == ("trust", "caution")
    assert "state 1 would reach" in far.reason


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((1.0, -1.0), "low <= high"),
        ((-1.0,), "must be a pair"),
        (([-1.0, -2.0], 1.0), "each a number or 1 of them"),
        ((float("nan"), 1.0), "low <= high"),
        (("a", 1.0), "must be numbers"),
        ({"a": (-1.0, 1.0), "b": (-1.0, 1.0)}, "a pair .* for each of 1 inputs"),
        ({"a": 3.0}, "a pair .* for each of 1 inputs"),
    ],
)
def test_bounds_that_are_none_are_refused(bounds: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        InputLimits(bounds, 1)


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e12])
def test_inputs_beyond_the_logs_count_at_what_they_may_cost(unit: float) -> None:
    """Where it matters little that they may give less than asked for, they are trusted."""
    decoder = Decoder(deviating_fleet.context_map(), deviations="estimated")
    for i, (context, run) in enumerate(_runs(unit)):
        decoder.update(context, run, machine=f"m{i // 4}")
    context = deviating_fleet.contexts(12)[5]
    assert decoder.logged is not None
    most = np.abs([decoder.logged.low[2], decoder.logged.high[2]]).max()
    for share, verdict in ((1.2, "trust"), (1.4, "trust"), (1.7, "caution"), (3.0, "caution")):
        # of the largest input logged: the first that is asked for
        start = unit * START
        asked = certify(decoder, context, COST, start, machine="m5", bounds=False).policy(0, start)
        start = start * share * most / abs(asked[0])
        for label in ("m5", None):
            free, one = (
                certify(
                    decoder, context, COST, start, machine=label, bounds=False, input_bounds=limits
                )
                for limits in ((-1e3 * most, 1e3 * most), None)
            )
            assert (free.verdict, one.verdict) == ("trust", verdict)
            beyond = f"input 1 reaches {share:.3g} times the largest logged, which may cost"
            assert (beyond in one.reason) == (share == 1.4)
            if share == 3.0:  # γ u⁵ is counted as what was not excluded, too
                assert one.likely_excess > free.likely_excess


def test_what_weaker_inputs_cost_is_what_their_runs_pay() -> None:
    """Of an actuator that gives u - γ u⁵, with γ so small that it does not matter twice."""
    rng, gamma, steps = default_rng(5), 1e-5, 8
    A, B = 0.6 * rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 2, 1))
    system, cost = (
        LinearSystem(A, B, np.zeros((2, 2))),
        QuadraticCost(COST.Q[:steps], COST.R[: steps - 1]),
    )
    gains, x = solve(system, cost).policy.gains, np.tile(START, (2, 1))
    fault = Finding("actuator", 0.5, 0.0, 0.0, 0, 2, "", way="fifths", limit=gamma)
    found = weaker_costs([fault], system, gains, cost, START, np.array([False]))
    paid = np.zeros(2)
    for t in range(steps - 1):
        u = np.einsum("nmd,nd->nm", gains[:, t], x)
        paid += np.square(x).sum(1) + 0.05 * np.square(u).sum(1)
        x = np.einsum("nij,nj->ni", A, x) + (B @ (u - gamma * u**5)[..., None])[..., 0]
    paid += np.square(x).sum(1)
    usual = policy_cost(LinearPolicy(gains), system, cost, START)
    np.testing.assert_allclose(found, np.abs(paid / usual - 1), rtol=1e-2)


def test_where_no_log_tells_how_inputs_end_none_may_go_there() -> None:
    M, gains = LinearSystem(np.eye(1)[None], np.eye(1)[None]), np.zeros((1, 19, 1, 1))
    cost = QuadraticCost(np.ones((20, 1, 1)), np.ones((19, 1, 1)))
    for declared, expected in ((False, np.inf), (True, 0.0)):
        found = weaker_costs([], M, gains, cost, np.ones(1), np.array([declared]))
        assert found == [expected]
