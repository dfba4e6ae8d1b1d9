"""Tests of actuators whose inputs act late, through states that hold what the input was."""

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import Decoder, FeatureContext, QuadraticCost, Trajectory
from contextual_lqr.certificates.model_tests.actuators import WAYS
from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.certificates.model_tests.unmodelled import doubts_of

STEPS = 40
COST = QuadraticCost([np.eye(2)] * 9, [np.eye(1)] * 8)
CONTEXT = FeatureContext(["1", "1/mass"], states=2, inputs=1)
KNOWN = {1: np.eye(6)[2]}  # the second state is what the input was


def learnt(seed: int, way: str = "", rate: float = 0.0, now: float = 0.0) -> Decoder:
    """Carts: speed' = 0.8 speed + (the input, `now`, and mostly that of the step before) / mass."""
    rng, n = default_rng(seed), 15
    mass = rng.uniform(1, 3, n)
    x, u = np.zeros((n, STEPS + 1)), 0.5 * rng.standard_normal((n, STEPS))
    u += 0.5 * np.sin(np.arange(STEPS) / 3)
    before = np.concatenate((u[:, :1], u[:, :-1]), 1)
    instead = {
        "": 0 * u,
        "signs": np.sign(u),
        "squares": u * np.abs(u),
        "sizes": np.abs(u),
        "offset": np.ones_like(u),
        "steps": np.arange(STEPS) * u,
        "turns": np.sign(u - before),
        "fifths": u**5,
    }
    acting = u + rate * instead[way]
    for t in range(STEPS):
        late = acting[:, t - 1] if t else 0.0
        push = now * acting[:, t] + (1 - now) * late
        x[:, t + 1] = 0.8 * x[:, t] + push / mass + 0.02 * rng.standard_normal(n)
    held = np.concatenate((np.zeros((n, 1)), u), 1)
    decoder = Decoder(CONTEXT, noise_level=[0.02, 0.0], known=KNOWN)
    episodes = Trajectory(np.stack((x, held), -1), u[..., None])
    decoder.update_many({"mass": mass}, episodes, [f"cart {i}" for i in range(n)])
    return decoder


def of_way(decoder: Decoder, way: str) -> Finding:
    """What the tests say of it."""
    (one,) = [f for f in doubts_of(decoder, COST) if f.kind == "actuator" and f.way == way]
    return one


@pytest.mark.parametrize("now", [0.0, 0.3])
@pytest.mark.parametrize("way", WAYS)
def test_faults_of_late_inputs_are_found_and_bounded(way: str, now: float) -> None:
    rate = {"steps": -0.01, "fifths": -0.03}.get(way, 0.1)
    one = of_way(learnt(0, way, rate, now), way)
    assert one.found
    # What a linear law explains of it is part of the law.
    assert 0.7 * abs(rate) < one.limit < 1.5 * abs(rate)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_small_faults_are_below_the_limit_in_most_fleets(way: str) -> None:
    """In all but 5 % of 60 fleets, give or take what 60 can show."""
    rate = 0.003
    limits = np.array([of_way(learnt(seed, way, rate), way).limit for seed in range(60)])
    assert np.mean(limits < rate) < 0.15
    assert np.median(limits) < 10 * rate


def test_files_and_merges_keep_what_states_hold(tmp_path) -> None:
    decoder, other = learnt(0), learnt(1)
    expected = of_way(decoder, "fifths").limit
    decoder.save(tmp_path / "carts.decoder")
    again = Decoder.load(tmp_path / "carts.decoder")
    assert of_way(again, "fifths").limit == expected
    again.merge(other)
    assert of_way(again, "fifths").limit < expected  # twice the logs exclude more
    empty = Decoder(CONTEXT, noise_level=[0.02, 0.0], known=KNOWN)
    empty.merge(decoder)
    assert of_way(empty, "fifths").limit == pytest.approx(expected, rel=1e-9)
