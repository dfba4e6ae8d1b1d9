"""States that no logged run has had: found between the logs and beyond, and never trusted."""

from typing import Any

import numpy as np
import pytest

import contextual_lqr as clqr
from contextual_lqr.certificates.paths.between_logs import gaps_of, told

CART = clqr.FeatureDynamics(
    {"place": ["place", "speed"], "speed": ["speed", "push/mass"]},
    states=["place", "speed"],
    inputs=["push"],
    bounds={"mass": (0.5, 2)},
)


def logged(*runs: Any, dynamics: clqr.FeatureDynamics = CART) -> clqr.Decoder:
    """A decoder of runs whose first state has these values; the second is at rest."""
    decoder = clqr.Decoder(dynamics, noise_level=0.1)
    for i, x in enumerate(runs):
        states = np.stack([x, np.zeros(len(x))], 1)
        run = clqr.Trajectory(states, np.zeros((len(x) - 1, 1)))
        decoder.update({"mass": 1.0}, run, machine=f"cart {i}")
    return decoder


def places(decoder: clqr.Decoder, *x: float, angles: tuple[int, ...] = ()) -> str:
    """What is said of a path with these values of the first state."""
    found = gaps_of(decoder, np.stack([x, np.zeros(len(x))], 1), angles)
    return told(found, decoder) if found else ""


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_a_gap_is_seen_and_both_its_ends_are_told(unit: float) -> None:
    decoder = logged(unit * np.linspace(-3, -1, 9), unit * np.linspace(3, 1, 9))
    assert places(decoder, -2.0 * unit, 1.1 * unit, 3.5 * unit) == ""
    said = places(decoder, -2.0 * unit, 0.25 * unit, 2.0 * unit)
    wanted = f"place between {-unit:.3g} and {unit:.3g} (the path has {0.25 * unit:.3g})"
    assert said == f"no logged run has had {wanted}"
    assert f"place above {3 * unit:.3g}" in places(decoder, 2.0 * unit, 4.0 * unit)
    assert f"place below {-3 * unit:.3g}" in places(decoder, 2.0 * unit, -4.0 * unit)


def test_what_a_run_passes_in_a_step_is_no_gap() -> None:
    assert places(logged([-3.0, -2.0, 2.0, 3.0]), -2.5, 0.0, 2.5) == ""


def test_an_angle_may_be_whole_turns_away() -> None:
    decoder = logged(np.linspace(9.0, 10.0, 9), np.linspace(4.0, 7.0, 9))
    assert places(decoder, 0.0, angles=(0,)) == ""
    assert places(decoder, 9.5 - 4 * np.pi, angles=(0,)) == ""
    assert "between 0.717 and 2.72" in places(decoder, 1.5, angles=(0,))
    assert "below 4" in places(decoder, 1.5)


def test_a_state_that_is_always_the_same_may_round() -> None:
    decoder = logged([1.0, 1.0, 1.0])
    assert places(decoder, 1.0 + 1e-12) == ""
    assert places(decoder, 1.1) != ""


def test_without_runs_nothing_is_said() -> None:
    assert places(clqr.Decoder(CART, noise_level=0.1), 0.0) == ""


def carts(middles: tuple[float, ...], reach: float) -> clqr.Decoder:
    """Of 24 carts, each logged about one of these places as long as it stays within reach of it."""
    rng, decoder = np.random.default_rng(0), clqr.Decoder(CART, noise_level=2e-3)
    for i in range(24):
        mass, middle = float(rng.uniform(0.7, 1.5)), middles[i % len(middles)]
        x, u = [np.array([middle, rng.uniform(-6, 6)])], []
        for push in rng.uniform(-4, 4, 40):
            rates = np.array([x[-1][1], 4 * push / mass - 0.4 * x[-1][1]])
            after = x[-1] + 0.05 * rates + 2e-3 * rng.standard_normal(2)
            if abs(after[0] - middle) > reach:
                break
            x.append(after)
            u.append([push])
        decoder.update({"mass": mass}, clqr.Trajectory(x, u), machine=f"cart {i}")
    return decoder


def test_a_path_through_a_gap_is_caution_at_best() -> None:
    Q = [np.diag([1.0, 0.1])] * 50
    cost = clqr.TargetCost(Q, [[[0.3]]] * 49, target=[2.0, 0.0])
    for middles, reach, verdict in (((-2.2, 2.2), 1.1, "caution"), ((-1.0, 1.0), 3.0, "trust")):
        found = clqr.certify(
            carts(middles, reach), {"mass": 1.0}, cost, [-2.0, 0.0], input_bounds=(-4, 4), draws=24
        )
        assert found.verdict == verdict, found.reason
        assert ("no logged run has had place between" in found.reason) == (verdict == "caution")
        assert (found.extrapolation.place == "in a gap of the data") == (verdict == "caution")
