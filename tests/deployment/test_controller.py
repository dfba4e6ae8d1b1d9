"""A controller that runs on and on: set-points, integrators, limits."""

from typing import Any

import control
import numpy as np
import pytest
import scipy.optimize
from numpy.random import default_rng

from contextual_lqr import (
    Controller,
    InputError,
    LinearSystem,
    OutputHistory,
    StationaryCost,
    solve,
)
from contextual_lqr.deployment.at_rest import at_rest
from contextual_lqr.deployment.task import Task
from contextual_lqr.deployment.trial import run

MOTOR = LinearSystem([[1, 0.1], [0, 0.9]], [[0.01], [0.2]])  # angle, speed; voltage
COST = StationaryCost(np.diag([1.0, 0.01]), [[0.01]])
NAMES = ["angle", "speed"]


def played(
    controller: Controller, system: LinearSystem, steps: int, load: Any = 0.0, start: Any = (0, 0)
) -> tuple[np.ndarray, np.ndarray]:
    """States and inputs, with a load that comes on top of the inputs."""
    states, inputs = [np.array(start, float)], []
    for _ in range(steps):
        inputs.append(controller.input(states[-1]))
        states.append(system.A @ states[-1] + system.B @ (inputs[-1] - load))
    return np.array(states), np.array(inputs)


def test_a_target_is_reached_without_a_load_and_with_an_integral_under_one() -> None:
    plain = Controller(MOTOR, COST, target={"angle": 2.0}, states=NAMES)
    states, _ = played(plain, MOTOR, 300)
    np.testing.assert_allclose(states[-1], [2.0, 0.0], atol=1e-9)
    states, _ = played(plain, MOTOR, 300, load=0.5)
    assert abs(states[-1, 0] - 2.0) > 0.02
    firm = Controller(MOTOR, COST, target={"angle": 2.0}, integral=["angle"], states=NAMES)
    states, _ = played(firm, MOTOR, 600, load=0.5)
    np.testing.assert_allclose(states[-1], [2.0, 0.0], atol=1e-6)
    assert firm.integral["angle"] != 0
    firm.reset()
    assert firm.integral == {"angle": 0.0}


def test_it_holds_also_if_the_model_is_wrong() -> None:
    """Friction, inertia and an offset differ from what is believed: 0.1 % of the set-point."""
    truth = LinearSystem([[1, 0.1], [0, 0.8]], [[0.013], [0.26]])
    firm = Controller(MOTOR, COST, target={"angle": 2.0}, integral=["angle"], states=NAMES)
    states, _ = played(firm, truth, 400, load=0.7)
    assert abs(states[-1, 0] - 2.0) < 0.001 * 2.0


def test_the_target_can_be_changed_while_it_runs() -> None:
    options: dict[str, Any] = {"integral": ["angle"], "states": NAMES}
    controller = Controller(MOTOR, COST, target={"angle": 2.0}, **options)
    states, _ = played(controller, MOTOR, 200, load=0.3)
    assert controller.input(states[-1], target={"angle": -1.0}).shape == (1,)
    assert controller.target == {"angle": -1.0}
    states, _ = played(controller, MOTOR, 300, load=0.3, start=states[-1])
    assert abs(states[-1, 0] + 1.0) < 1e-4


def test_inputs_stay_within_limits_and_the_integral_does_not_wind_up() -> None:
    options: dict[str, Any] = {"target": {"angle": 10.0}, "states": NAMES}
    limits = {"voltage": (-1.0, 2.0)}
    careful = Controller(MOTOR, COST, integral={"angle": 0.1}, input_bounds=limits, **options)
    states, inputs = played(careful, MOTOR, 400, load=0.2)
    assert inputs.min() >= -1
    assert inputs.max() == 2.0
    assert abs(states[-1, 0] - 10.0) < 1e-3
    # One whose integral never stops, clipped by others, passes the target much farther.
    careless = Controller(MOTOR, COST, integral={"angle": 0.1}, **options)
    x, passed = np.zeros(2), 0.0
    for _ in range(400):
        x = MOTOR.A @ x + MOTOR.B @ (np.clip(careless.input(x), -1, 2) - 0.2)
        passed = max(passed, x[0] - 10.0)
    assert states[:, 0].max() - 10.0 < 0.5 * passed


@pytest.mark.parametrize("seed", range(8))
def test_rest_is_the_cheapest_that_holds_the_target(seed: int) -> None:
    """Against SciPy's SLSQP, in random units, with more inputs than targets."""
    rng = default_rng(seed)
    n, m = 4, 3
    A, B = rng.standard_normal((n, n)), rng.standard_normal((n, m))
    half = rng.standard_normal((n, n))
    Q, R = half @ half.T, np.diag(rng.uniform(0.5, 2, m))
    offset, target, held = rng.standard_normal(n), rng.standard_normal(2), [2, 0]
    wanted = np.zeros(n)
    wanted[held] = target

    def moved(z: Any) -> Any:
        return np.concatenate((A @ z[:n] + B @ z[n:] + offset - z[:n], z[held] - target))

    def price(z: Any) -> Any:
        away = z[:n] - wanted
        return away @ Q @ away + z[n:] @ R @ z[n:]

    best = scipy.optimize.minimize(
        price, np.zeros(n + m), constraints={"type": "eq", "fun": moved}, tol=1e-12
    )
    for unit in (np.ones(n + m), 10.0 ** rng.uniform(-4, 4, n + m)):
        x, u = unit[:n], unit[n:]
        scaled = (x[:, None] * A / x, x[:, None] * B / u, x * offset, Q / x / x[:, None])
        found = at_rest(*scaled, R / u / u[:, None], held, x[held] * target)
        assert found is not None
        np.testing.assert_allclose(np.concatenate(found) / unit, best.x, rtol=1e-4, atol=1e-5)


def test_many_runs_at_once_are_those_of_the_controller() -> None:
    """Clipped, with noise, an integral and its anti-windup."""
    rng, limits = default_rng(2), (-1.0, 1.5)
    made = Controller(
        MOTOR, COST, target={"angle": 3.0}, integral={"angle": 0.05}, input_bounds=limits,
        states=NAMES,
    )  # fmt: skip
    A = MOTOR.A + 0.02 * rng.standard_normal((3, 2, 2))
    systems = LinearSystem(A, np.repeat(MOTOR.B[None], 3, axis=0))
    shocks = 0.05 * rng.standard_normal((3, 60, 2))
    states, inputs, clipped = run(made, systems, np.array([0.5, 0.0]), shocks)
    assert 0 < clipped.mean() < 1
    for i, own in enumerate(A):
        made.reset()
        x = np.array([0.5, 0.0])
        for h, shock in enumerate(shocks[i]):
            np.testing.assert_allclose(states[i, h], x, rtol=1e-9, atol=1e-12)
            u = made.input(x)
            np.testing.assert_allclose(inputs[i, h], u, rtol=1e-9, atol=1e-12)
            assert made.saturated == clipped[i, h]
            x = own @ x + MOTOR.B @ u + shock


def test_a_step_of_the_target_hardly_overshoots() -> None:
    """An integral from 0 must overshoot until it is back at 0; ours begins where that is cheap."""
    made = Controller(MOTOR, COST, target={"angle": 1.0}, integral={"angle": 0.01}, states=NAMES)
    states, _ = played(made, MOTOR, 300)
    assert states[:, 0].max() < 1.1
    made.lead = np.zeros((1, 2))
    made.reset()
    naive, _ = played(made, MOTOR, 300)
    assert naive[:, 0].max() > 1.15


def test_python_control_agrees() -> None:
    made = Controller(MOTOR, COST, target={"angle": 1.0}, integral={"angle": 0.2}, states=NAMES)
    plant, K = made.to_control(dt=0.1)
    theirs, _, poles = control.dlqr(plant, np.diag([1.0, 0.01, 0.2]), COST.R)
    np.testing.assert_allclose(K, theirs, rtol=1e-9)
    plain = solve(MOTOR, COST).policy.to_control()
    np.testing.assert_allclose(plain, control.dlqr(MOTOR.A, MOTOR.B, COST.Q, COST.R)[0], rtol=1e-9)
    assert plant.dt == 0.1
    assert np.abs(poles).max() < 1
    assert made.gain_columns == ["angle", "speed", "integral of angle"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"target": {"speed": 1.0}},
            "no input can hold speed at 1: the machine has no equilibrium",
        ),
        ({"target": [1.0, 2.0]}, "no input can hold angle at 1, speed at 2"),
        ({"target": 1.0}, "target must be 2 numbers, or some by name"),
        ({"target": {"angel": 1.0}}, "there is no state 'angel' that moves; there are angle, sp"),
        ({"target": {"angle": np.nan}}, "target of angle must be finite"),
        ({"integral": ["angel"]}, "integral: there is no state 'angel' that moves"),
        ({"integral": ["speed"]}, "the integral of speed would never settle: no input can hold"),
        ({"integral": ["angle", "speed"]}, "the integral of speed would never settle"),
        ({"integral": {"angle": 0.0}}, "the integral of angle must have a weight above 0"),
        ({"input_bounds": (1.0, -1.0)}, "low <= high"),
        ({"constant": ["one"]}, "there is no state 'one'"),
        ({"constant": NAMES}, "every state is constant"),
        ({"states": ["angle"]}, "there are 2 states, but 1 names"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Controller(MOTOR, COST, **({"states": NAMES} | options))


def test_a_target_beyond_the_limits_is_refused_and_changes_nothing() -> None:
    heater = LinearSystem([[0.9]], [[0.1]])
    cost = StationaryCost([[1.0]], [[0.1]])
    limits = {"power": (0.0, 20.0)}
    warm = Controller(heater, cost, target=15.0, input_bounds=limits, states=["heat"])
    before = warm.input([10.0])
    with pytest.raises(InputError, match="hold heat at 30: power would have to be 30, its limit"):
        warm.input([10.0], target=30.0)
    with pytest.raises(InputError, match="state must be finite"):
        warm.input([np.nan])
    with pytest.raises(InputError, match="state must be 1 numbers"):
        warm.input([1.0, 2.0])
    assert warm.target == {"heat": 15.0}
    np.testing.assert_array_equal(warm.input([10.0]), before)
    with pytest.raises(InputError, match="this controller holds no target"):
        Controller(heater, cost).input([1.0], target=2.0)


def test_a_disturbance_that_is_measured_is_balanced_before_it_is_felt() -> None:
    """Rest moves with it: after its step the machine does not move, but for what limits forbid."""
    A = [[0.9, 0.1, 0.05], [0.0, 0.95, 0.02], [0.0, 0.0, 1.0]]
    house = LinearSystem(A, [[0.2], [0.0], [0.0]])
    cost = StationaryCost(np.diag([1.0, 0.0, 0.0]), [[0.01]])
    names = {"states": ["indoor", "wall", "outdoor"], "measured": ["outdoor"]}
    one = Controller(house, cost, target={"indoor": 20.0}, **names)
    other = Controller(house, cost, target={"indoor": 20.0}, integral=["indoor"], **names)
    for controller in (one, other):
        x = np.array([20.0, 0.4 * 5, 5.0])
        for step in range(400):
            if step == 200:
                assert x[0] == pytest.approx(20.0, abs=1e-6)
                x[2] = -5.0
            u = controller.input(x)
            np.testing.assert_allclose(controller.rest[0][1], 0.4 * x[2], atol=1e-9)
            x = house.A @ x + house.B @ u
            assert abs(x[0] - 20.0) < 1.0
        assert x[0] == pytest.approx(20.0, abs=1e-3)  # the wall is slow
    with pytest.raises(InputError, match="no input can balance outdoor at the target"):
        Controller(house, cost, target={"wall": 1.0, "indoor": 20.0}, **names)


@pytest.mark.parametrize("spacing", [1.0, 4.0])
def test_only_outputs_are_given_and_the_rest_is_remembered(spacing: float) -> None:
    history = OutputHistory(1, 1, n=2, delay=1, spacing=spacing)
    A = history.shift[:, :4].copy()
    A[0] = [1.6, -0.7, 0.3, 0.1]
    machine = LinearSystem(A, history.shift[:, 4:])
    task = Task.of(
        StationaryCost(np.diag([1.0, 0, 0, 0]), [[0.1]]),
        input_bounds={"u": (-1.0, 1.0)},
        states=["y", "y_1", "u_1", "u_2"],
        lags=[("y", 0), ("y", 1), ("u", 1), ("u", 2)],
        fades=[0.0, 1 - 1 / spacing, 0.0, 1 - 1 / spacing],
    )
    remembers, told = Controller.of(machine, task), Controller.of(machine, task)
    memory, played, rng = history.memory(), None, default_rng(0)
    for _ in range(20):
        y = 3 * rng.standard_normal(1)
        played = told.input(memory.see(y, played))
        np.testing.assert_allclose(remembers.input(y), played, rtol=1e-12)
    remembers.reset()
    np.testing.assert_array_equal(remembers.input(y), told.input(history.at_rest(y)))
    with pytest.raises(InputError, match="state must be 1 numbers, or 4, not of shape"):
        remembers.input([1.0, 2.0])
