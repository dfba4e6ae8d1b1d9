"""Inputs that the expected run would take beyond their limits."""

from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    Decoder,
    InputError,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    certify,
    certify_many,
    simulate,
)
from contextual_lqr.certificates.limits import DEVIATIONS, InputLimits, input_range
from deviating_fleet import learnt

COST = QuadraticCost(np.repeat(np.eye(2)[None], 20, 0), np.full((19, 1, 1), 0.05))
START = np.array([1.0, 0.5])
CONTEXT = {"inertia": 1.1}


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return learnt(12, 0.0, default_rng(1), episodes=4)[0]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_the_range_of_inputs_is_that_of_many_runs(scale: float) -> None:
    rng, steps = default_rng(0), 6
    A, B = 0.6 * rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    noise = scale**2 * np.diag([0.04, 0.01, 0.0])
    policy = LinearPolicy(0.5 * rng.standard_normal((steps, 2, 3)))
    start = scale * np.array([1.0, -2.0, 0.5])
    M = np.concatenate((A, B), 1)[None]
    low, high = input_range(M, noise, policy.gains[None], start)
    system = LinearSystem(A, B, noise)
    inputs = np.stack([simulate(policy, system, start, rng).inputs for _ in range(4000)])
    mean, spread = inputs.mean(0), DEVIATIONS * inputs.std(0)
    np.testing.assert_allclose(low[0], (mean - spread).min(0), atol=0.05 * scale)
    np.testing.assert_allclose(high[0], (mean + spread).max(0), atol=0.05 * scale)


def test_an_input_beyond_its_limit_is_not_trusted(decoder: Decoder) -> None:
    free = certify(decoder, CONTEXT, COST, START)
    assert free.verdict == "trust"
    system, noise = decoder.machine(CONTEXT), decoder.noise_estimate
    (low,), (high,) = (
        end[0] for end in input_range(system.mean[None], noise, free.policy.gains[None], START)
    )
    assert low < -1 < high < 1
    wide = certify(decoder, CONTEXT, COST, START, input_bounds=(1.01 * low, 1.01 * high))
    assert (wide.verdict, wide.reason) == (free.verdict, free.reason)
    tight = certify(decoder, CONTEXT, COST, START, input_bounds={"torque": (0.9 * low, 10 * high)})
    assert tight.verdict == "caution"
    said = f"torque would reach {low:.3g}, its limit is {0.9 * low:.3g}; "
    assert tight.reason == said + free.reason
    np.testing.assert_array_equal(tight.policy.gains, free.policy.gains)
    one_side = certify(decoder, CONTEXT, COST, START, input_bounds=([-np.inf], [0.5 * high]))
    assert "input 1 would reach" in one_side.reason


def test_each_machine_is_held_to_the_limits_by_itself(decoder: Decoder) -> None:
    inertias = {"inertia": [0.55, 1.0, 1.95]}
    limits = InputLimits((-5.0, 5.0), 1)
    found = certify_many(decoder, inertias, COST, START, input_bounds=(-5.0, 5.0))
    beyond = limits.beyond(
        decoder.machines(inertias).mean,
        decoder.noise_estimate,
        np.stack([one.policy.gains for one in found]),
        START,
    )
    assert 0 < sum(map(bool, beyond)) < 3
    for one, said in zip(found, beyond, strict=True):
        assert said in one.reason
        assert (one.verdict == "trust") == (not said)


def test_noise_alone_can_reach_a_limit() -> None:
    """Two deviations of an input that is zero on average."""
    M, gains = np.array([[[0.5, 1.0]]]), np.full((1, 5, 1, 1), -0.4)
    low, high = input_range(M, np.eye(1), gains, np.zeros(1))
    variance = sum(0.1 ** (2 * k) for k in range(4))  # of x after four steps of 0.1 x + w
    assert -low[0, 0] == pytest.approx(high[0, 0]) == pytest.approx(0.8 * np.sqrt(variance))


def test_a_run_that_explodes_is_beyond_any_limit() -> None:
    M, gains = np.array([[[1e200, 1.0]]]), np.full((1, 5, 1, 1), 1.0)
    (said,) = InputLimits((-1.0, 1.0), 1).beyond(M, np.eye(1), gains, np.ones(1))
    assert "input 1 would reach inf, its limit is 1" in said


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
