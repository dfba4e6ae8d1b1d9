"""What the control problem refuses, and in which words."""

from dataclasses import FrozenInstanceError
from types import SimpleNamespace as Some
from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array
from numpy.random import default_rng

from compare import I2
from contextual_lqr import (
    LinearPolicy,
    LinearSystem,
    QuadraticCost,
    Trajectory,
    cost_gradient,
    optimal_cost,
    policy_cost,
    simulate,
    solve,
)
from contextual_lqr.errors import InputError

GOOD = {
    **{"A": I2, "B": np.ones((2, 1)), "noise": I2},
    **{"Q": np.stack([I2] * 3), "R": np.ones((2, 1, 1)), "N": np.zeros((2, 2, 1))},
    **{"gains": np.zeros((2, 1, 2)), "states": np.zeros((3, 2)), "inputs": np.zeros((2, 1))},
    **{"start": np.ones(2), "state_bound": np.ones(2)},
}


def use(**changed: Any) -> dict[str, Any]:
    """Make every record of these fields, and play with them."""
    v = Some(**GOOD | changed)
    system, policy = LinearSystem(v.A, v.B, v.noise), LinearPolicy(v.gains)
    cost, played = QuadraticCost(v.Q, v.R, v.N), Trajectory(v.states, v.inputs)
    policy_cost(policy, system, cost, v.start)
    simulate(policy, system, v.start, default_rng(0), state_bound=v.state_bound)
    return {**vars(system), **vars(cost), **vars(policy), **vars(played)}


def changed(name: str, place: tuple[int, ...], value: float) -> dict[str, Array]:
    M = GOOD[name].copy()
    M[place] = value
    return {name: M}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused(name, value):
    place = tuple(n - 1 for n in GOOD[name].shape)
    text = rf"^{name} must be finite, but holds {value} at index \({', '.join(map(str, place))}"
    with pytest.raises(InputError, match=text):
        use(**changed(name, place, value))


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", ["text", 1j, np.array(True), [[1.0], [1.0, 2.0]]], ids=str)
def test_what_is_no_array_of_numbers_is_refused(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be an array of real numbers of shape \("):
        use(**{name: value})


@pytest.mark.parametrize("name", [name for name in GOOD if name != "state_bound"])
def test_too_few_axes_are_refused(name):
    with pytest.raises(InputError, match=rf"^{name} must have shape \(.*\), but has shape \(\)"):
        use(**{name: np.array(1.0)})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"A": np.ones((2, 3))}, "A must be square"),
        ({"A": np.ones((0, 0))}, "A must be square"),
        ({"B": np.ones((3, 1))}, "B must have as many rows as A"),
        ({"B": np.ones((2, 0))}, "B must have as many rows as A"),
        ({"noise": np.eye(3)}, "noise must have shape"),
        (changed("noise", (0, 1), 1e-6), "noise must be symmetric"),
        (changed("noise", (1, 1), -1e-6), "noise, a covariance, must be"),
        ({"Q": np.ones((3, 2, 1))}, "Q must have shape"),
        ({"Q": np.ones((0, 2, 2))}, "Q must have shape"),
        (changed("Q", (1, 0, 1), 1e-6), "Q must be symmetric"),
        (changed("Q", (1, 1, 1), -1e-6), "Q must be positive semi-definite"),
        ({"R": np.ones((3, 1, 1))}, "R must have shape .* one matrix fewer than Q"),
        ({"R": np.ones((2, 1, 2))}, "R must have shape"),
        ({"R": [[[1, 0.1], [0, 1]]] * 2, "N": None}, "R must be symmetric"),
        (changed("R", (1, 0, 0), -1e-6), "R must be positive semi-definite"),
        ({"N": np.zeros((3, 2, 1))}, "N must have shape"),
        ({"N": np.zeros((2, 1, 2))}, "N must have shape"),
        (changed("N", (1, 0, 0), 1.001), "N is too large for Q and R"),
        # A flaw of a small matrix shows beside a large one, too.
        ({"Q": [1e12 * I2, I2, np.diag([-1, 1])]}, "Q must be positive semi-definite"),
        ({"Q": [1e12 * I2, I2, [[1, 1], [0, 1]]]}, "Q must be symmetric"),
        ({"noise": [1e12 * I2, np.diag([1, -1])]}, "noise, a covariance, must be"),
        ({"A": np.ones((3, 2, 2)), "B": np.ones((4, 2, 1))}, "do not broadcast"),
        ({"A": np.ones((3, 2, 2)), "noise": [I2, I2]}, "do not broadcast"),
        ({"Q": np.ones((4, 3, 2, 2)), "R": np.ones((5, 2, 1, 1))}, "do not broadcast"),
        ({"Q": np.ones((4, 3, 2, 2)), "N": np.zeros((5, 2, 2, 1))}, "do not broadcast"),
        ({"A": np.ones((3, 2, 2)), "Q": [GOOD["Q"]] * 2}, "broadcast.*system.*cost"),
        ({"A": np.ones((3, 2, 2)), "gains": [GOOD["gains"]] * 2}, "broadcast.*policy"),
        ({"A": np.ones((3, 2, 2)), "start": np.ones((2, 2))}, "broadcast.*start"),
        ({"A": np.eye(3), "B": np.ones((3, 1)), "noise": None}, "3 states and 1 inputs, but"),
        ({"start": np.ones(3)}, "start must have 2 coordinates, not 3"),
        ({"gains": np.zeros((2, 2, 2))}, "policy is for 2 states and 2 inputs, but"),
        ({"gains": np.zeros((2, 1, 3))}, "policy is for 3 states and 1 inputs, but"),
        ({"gains": np.zeros((3, 1, 2))}, "policy has 3 steps, but the cost 2"),
        ({"states": np.zeros((2, 2))}, "one state more than inputs"),
        ({"states": np.zeros((5, 3, 2))}, "one state more than inputs"),
        ({"state_bound": -1.0}, "state_bound must be positive"),
        ({"state_bound": [1.0, 0.0]}, "state_bound must be positive"),
        ({"state_bound": np.ones(3)}, "a number or 2 of them"),
        ({"start": np.ones((4, 2))}, "a state bound stops one episode"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        use(**fields)


@pytest.mark.parametrize("start", [np.ones(3), [np.nan, 1], "text", np.ones((4, 2))], ids=str)
def test_every_function_checks_its_start(start):
    system, cost = LinearSystem([I2] * 3, GOOD["B"]), QuadraticCost(GOOD["Q"], GOOD["R"])
    policy, solution = LinearPolicy(GOOD["gains"]), solve(system, cost)
    for call in (
        lambda: solution.cost(start),
        lambda: optimal_cost(system, cost, start),
        lambda: cost_gradient(system, cost, start),
        lambda: policy_cost(policy, system, cost, start),
        lambda: simulate(policy, system, start, default_rng(0)),
    ):
        with pytest.raises(InputError, match="start"):
            call()


def test_simulate_checks_the_policy():
    for gains in (np.zeros((2, 2, 2)), np.zeros((2, 1, 3))):
        with pytest.raises(InputError, match="the policy is for"):
            simulate(LinearPolicy(gains), LinearSystem(I2, I2[:, :1]), [1, 1], default_rng(0))


def test_what_is_meant_to_be_indefinite_is_accepted():
    cost = QuadraticCost(-GOOD["Q"], GOOD["R"], 9 + GOOD["N"], indefinite=True)
    np.testing.assert_array_equal(cost.Q, -GOOD["Q"])


def test_records_are_read_only_copies():
    mine = {name: M.copy() for name, M in GOOD.items()}
    records = use(**mine)
    for name in records.keys() & mine.keys():
        mine[name][...] = 7
        np.testing.assert_array_equal(records[name], GOOD[name], err_msg=name)
        with pytest.raises(ValueError, match="read-only"):
            records[name][...] = 7
    system, cost = LinearSystem(I2, GOOD["B"]), QuadraticCost(GOOD["Q"], GOOD["R"])
    with pytest.raises(FrozenInstanceError):
        system.A = I2
    with pytest.raises(ValueError, match="read-only"):
        solve(system, cost).policy.gains[...] = 0
