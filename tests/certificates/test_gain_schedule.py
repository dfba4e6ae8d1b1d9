"""Gains over a grid of contexts: good between its points, certified there, refused outside."""

import numpy as np
import pytest
from numpy.random import default_rng

from contextual_lqr import (
    Decoder,
    FeatureContext,
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    StationaryCost,
    StationaryPolicy,
    gain_schedule,
    optimal_cost,
    policy_cost,
    simulate,
)
from contextual_lqr.errors import InputError

STEPS, START = 12, [1.0, 0.0]
COST = QuadraticCost(Q=[np.eye(2)] * (STEPS + 1), R=[0.05 * np.eye(1)] * STEPS)
LOOSE = {"draws": 20, "bounds": False}


def cart(mass: float, drag: float) -> LinearSystem:
    A, B = [[1, 0.5], [0, 1 - 0.3 * drag / mass]], [[0], [0.5 / mass]]
    return LinearSystem(A, B, 1e-4 * np.eye(2))


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    rng, found = default_rng(0), Decoder(FeatureContext(["1", "1/mass", "drag/mass"]), 1e-6)
    for _ in range(30):
        mass, drag = rng.uniform(0.5, 5), rng.uniform(0, 1)
        somebody = LinearPolicy(rng.normal(scale=0.5, size=(STEPS, 1, 2)))
        played = simulate(somebody, cart(mass, drag), START, rng)
        found.update({"mass": mass, "drag": drag}, played)
    return found


@pytest.mark.parametrize(
    "ranges", [{"mass": (0.6, 4.8), "drag": 0.5}, {"mass": (0.6, 4.8), "drag": (0.0, 1.0)}]
)
def test_between_its_points_a_table_is_within_its_tolerance(decoder: Decoder, ranges: dict) -> None:
    table = gain_schedule(decoder, ranges, COST, START, tolerance=0.002, **LOOSE)
    assert table.interpolation_excess <= 0.002
    coarse = gain_schedule(decoder, ranges, COST, START, tolerance=0.05, **LOOSE)
    assert coarse.gains.size < table.gains.size
    rng = default_rng(1)
    for _ in range(40):
        c = {name: rng.uniform(*np.broadcast_to(value, 2)) for name, value in ranges.items()}
        expected = decoder.machine(c).system
        best = optimal_cost(expected, COST, START)
        assert policy_cost(table(c), expected, COST, START) / best - 1 < 0.003
        truth = cart(**c)
        paid = policy_cost(table(c), truth, COST, START) / optimal_cost(truth, COST, START) - 1
        if table.verdict == "trust":
            assert paid < 0.05


def test_constant_gains_are_interpolated_too(decoder: Decoder) -> None:
    cost = StationaryCost(Q=np.eye(2), R=0.05 * np.eye(1))
    ranges = {"mass": (0.6, 4.8), "drag": 0.5}
    table = gain_schedule(decoder, ranges, cost, START, tolerance=0.002, **LOOSE)
    c = {"mass": 1.0, "drag": 0.5}
    expected = decoder.machine(c).system
    above = policy_cost(table(c), expected, cost) / optimal_cost(expected, cost) - 1
    assert isinstance(table(c), StationaryPolicy)
    assert 0 <= above < 0.003
    assert len(table.cells) == len(table.axes["mass"]) - 1


def test_the_worst_cell_speaks_for_the_table(decoder: Decoder) -> None:
    table = gain_schedule(decoder, {"mass": (0.6, 4.8), "drag": 0.5}, COST, START, **LOOSE)
    (masses,) = table.axes.values()
    assert len(table.cells) == len(masses) - 1
    assert table.cells[0].context["mass"] == pytest.approx((masses[0] + masses[1]) / 2)
    assert table.worst.likely_excess == max(one.likely_excess for one in table.cells)
    assert f"grid {len(masses)} over mass" in repr(table)
    far = gain_schedule(decoder, {"mass": (0.6, 4.8), "drag": (0.0, 9.0)}, COST, START, **LOOSE)
    assert far.verdict != "trust"
    at = table({"mass": float(masses[1]), "drag": 0.5}).gains
    np.testing.assert_allclose(at, table.gains[1], rtol=1e-12)


def test_what_is_refused(decoder: Decoder) -> None:
    table = gain_schedule(decoder, {"mass": (1.0, 4.0), "drag": 0.5}, COST, START, **LOOSE)
    with pytest.raises(InputError, match="mass = 5 is outside the table, 1 to 4"):
        table({"mass": 5.0})
    with pytest.raises(InputError, match=r"the table is for drag = 0\.5, not 0\.6"):
        table({"mass": 2.0, "drag": 0.6})
    with pytest.raises(InputError, match="the context lacks mass"):
        table({})
    with pytest.raises(InputError, match="one to three values"):
        gain_schedule(decoder, {"mass": 2.0, "drag": 0.5}, COST, START)
    with pytest.raises(InputError, match="a range low < high"):
        gain_schedule(decoder, {"mass": (3.0, 1.0), "drag": 0.5}, COST, START)
    ranges = {"mass": (0.6, 4.8), "drag": 0.5}
    with pytest.raises(InputError, match="takes more than 4 points"):
        gain_schedule(decoder, ranges, COST, START, tolerance=1e-5, most=4, **LOOSE)
    for option, value in (("draws", 10**400), ("draws", 2.5), ("bounds", np.array([]))):
        with pytest.raises(InputError, match=f"{option} must be"):
            gain_schedule(decoder, ranges, COST, START, **LOOSE | {option: value})
