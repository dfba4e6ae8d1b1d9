"""Features of context, state and input: their values, derivatives, names and refusals."""

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from numpy import ndarray as Array

import contextual_lqr as clqr
from contextual_lqr.context import context_map_from
from contextual_lqr.errors import ContextError, InputError

TEXTS = ["angle", "speed", "sin(angle)/length", "torque/(mass*length**2)"]
STATES, INPUTS = ["angle", "speed"], ["torque"]
HERE = {"length": 0.5, "mass": 2.0}


def pendulum(features: Any = TEXTS, **options: Any) -> clqr.FeatureDynamics:
    return clqr.FeatureDynamics(features, states=STATES, inputs=INPUTS, **options)


def by_hand(context: Any, x: Array, u: Array) -> Array:
    angle, speed = x[..., 0], x[..., 1]
    length, mass = context["length"], context["mass"]
    last = u[..., 0] / (mass * length**2)
    return np.stack([angle, speed, np.sin(angle) / length, last], -1)


def moves(*batch: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(*batch, 2)), rng.normal(size=(*batch, 1))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_expressions_and_a_function_give_the_same(batch: tuple[int, ...]) -> None:
    written, played = pendulum(), clqr.FunctionDynamics(by_hand, STATES, INPUTS)
    x, u = moves(*batch)
    for one in (written, played):
        np.testing.assert_allclose(one.features(HERE, x, u), by_hand(HERE, x, u), rtol=1e-14)
        assert one.shape == (4, 2, 1)
    J = written.jacobian(HERE, x, u)
    assert J.shape == (*batch, 4, 3)
    np.testing.assert_allclose(played.jacobian(HERE, x, u), J, atol=1e-8)
    np.testing.assert_allclose(J[..., 2, 0], np.cos(x[..., 0]) / 0.5, rtol=1e-14)


def test_a_jacobian_of_the_user_is_taken() -> None:
    calls = []

    def slopes(context: Any, x: Array, u: Array) -> Array:
        calls.append(1)
        return pendulum().jacobian(context, x, u)

    one = clqr.FunctionDynamics(by_hand, 2, 1, slopes)
    x, u = moves(5)
    np.testing.assert_array_equal(one.jacobian(HERE, x, u), slopes(HERE, x, u))
    assert len(calls) == 2
    assert one.state_names == ("state 1", "state 2")


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_differences_are_as_good_in_all_units(unit: float) -> None:
    def f(context: Any, x: Array, u: Array) -> Array:
        return np.concatenate((np.sin(x / unit), (u / unit) ** 2), -1)

    x, u = np.array([0.3]) * unit, np.array([2.0]) * unit
    found = clqr.FunctionDynamics(f, 1, 1).jacobian(None, x, u)
    wanted = np.array([[np.cos(0.3), 0.0], [0.0, 4.0]]) / unit
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-12 / unit)


def test_arrays_of_contexts_broadcast() -> None:
    x, u = moves(7, 3)
    several = {"length": np.array([0.5, 1.0, 2.0]), "mass": 2.0}
    found = pendulum().features(several, x, u)
    for i, length in enumerate([0.5, 1.0, 2.0]):
        one = pendulum().features({"length": length, "mass": 2.0}, x[:, i], u[:, i])
        np.testing.assert_array_equal(found[:, i], one)


def test_features_of_each_state() -> None:
    rows = {"angle": ["angle", "speed"], "speed": ["speed", "sin(angle)/length"]}
    one = pendulum(rows)
    assert one.feature_names == ("angle", "speed", "sin(angle)/length")
    assert one.used is not None
    assert one.used.tolist() == [[True, True, False], [False, True, True]]
    assert one == pendulum(list(rows.values()))
    assert one != pendulum()
    assert pendulum([TEXTS, TEXTS]).used is None

    def each(context: Any, x: Array, u: Array) -> Array:
        return np.stack([x, np.concatenate((u, x[..., :1]), -1)], -2)

    own = clqr.FunctionDynamics(each, 2, 1)
    x, u = moves(3)
    assert own.features(None, x, u).shape == (3, 4)
    assert own.shape == (4, 2, 1)
    assert own.used is not None
    assert own.used.tolist() == [[True, True, False, False], [False, False, True, True]]
    assert own.jacobian(None, x, u).shape == (3, 4, 3)


def test_it_travels() -> None:
    one = pendulum(bounds={"length": (0.1, 3), "mass": (0.1, None)})
    for twin in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert twin == one
    assert context_map_from(json.loads(json.dumps(one.describe()))) == one
    assert clqr.FunctionDynamics(by_hand, STATES, INPUTS).describe() is None


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: pendulum("angle"), "features must be a list of expressions"),
        (lambda: pendulum([]), "features must be a list of expressions"),
        (lambda: pendulum(["angle", "angle "]), "'angle' is given twice"),
        (lambda: pendulum(["angle", 1]), "expressions, or one list of expressions for each"),
        (lambda: pendulum([["angle"]]), "1 lists of features, but 2 states"),
        (lambda: pendulum([["angle"], []]), "at least one feature"),
        (lambda: pendulum({"angle": ["angle"]}), "missing or unknown: speed"),
        (lambda: pendulum(["angle/mass"], bounds={}), "use mass, but the states are angle, speed"),
        (lambda: pendulum(bounds={"angle": (0, 1)}), "angle in bounds is a state or an input"),
        (lambda: pendulum(["angle +"]), "cannot be read"),
        (lambda: clqr.FeatureDynamics(["x"], states="x", inputs=["u"]), "states must be a list"),
        (lambda: clqr.FeatureDynamics(["x"], states=["x"], inputs=["x"]), "share a name: x"),
        (lambda: clqr.FeatureDynamics(["x"], states=["sin"], inputs=["u"]), "already means"),
        (lambda: clqr.FeatureDynamics(["x"], states=["x", "x"], inputs=["u"]), "two states share"),
        (lambda: clqr.FeatureDynamics(["x"], states=[], inputs=["u"]), "at least one state"),
        (lambda: clqr.FunctionDynamics(3, 1, 1), "function must be a Callable"),
        (lambda: clqr.FunctionDynamics(by_hand, 0, 1), "states must be a list of names, or how"),
        (lambda: clqr.FunctionDynamics(by_hand, 2, 1, "no"), "jacobian must be a Callable"),
        (lambda: clqr.FunctionDynamics(by_hand, 2, 1, scales=[1, 1]), "3 sizes of states"),
        (lambda: pendulum().sized(3, 1), "these dynamics have 2 states, not 3"),
        (lambda: pendulum().features(HERE, [1.0], [1.0]), "states must have 2 entries"),
        (lambda: pendulum().features(HERE, [1.0, 1], [np.nan]), "inputs must be finite"),
        (
            lambda: pendulum().features(HERE, np.ones((3, 2)), np.ones((2, 1))),
            "same leading axes",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make()


def test_a_feature_without_a_value_is_named() -> None:
    tank = clqr.FeatureDynamics(["level", "sqrt(level)/area"], states=["level"], inputs=["valve"])
    with pytest.raises(
        ContextError, match=r"the feature 'sqrt\(level\)/area' is nan at .*level=-1"
    ):
        tank.features({"area": 1.0}, [[1.0], [-1.0]], [0.0])
    with pytest.raises(ContextError, match=r"derivative of the feature 'sqrt\(level\)/area' is"):
        tank.jacobian({"area": 1.0}, [0.0], [0.0])
    with pytest.raises(ContextError, match="'width' is unknown"):
        tank.features({"width": 1.0}, [0.0], [0.0])
    with pytest.raises(ContextError, match="the arrays of a context must have the leading axes"):
        tank.features({"area": np.ones(3)}, np.ones((2, 1)), np.ones((2, 1)))


def test_where_a_root_has_no_slope_hypot_is_recommended() -> None:
    root, arm = (
        clqr.FeatureDynamics([text], states=["x", "v"], inputs=["u"])
        for text in ("sqrt(x**2 + v**2)", "hypot(x, v)")
    )
    with pytest.raises(ContextError, match=r"a derivative .* at 0: hypot\(a, b\) stands for"):
        root.jacobian({}, [0.0, 0.0], [0.0])
    assert np.isfinite(arm.jacobian({}, [0.0, 0.0], [0.0])).all()


def test_functions_that_fail_are_told_apart() -> None:
    def fails(context: Any, x: Array, u: Array) -> Array:
        raise KeyError("mass")

    def wide(context: Any, x: Array, u: Array) -> Array:
        return np.ones((*x.shape[:-1], 3, 2))

    def grows(context: Any, x: Array, u: Array) -> Array:
        return np.ones((*x.shape[:-1], x.ndim))

    for function, complaint in (
        (fails, "the function fails failed at 1 .KeyError"),
        (wide, r"must give \(..., p\) or \(..., d, p\)"),
        (lambda c, x, u: np.inf * x, "not finite"),
        (lambda c, x, u: "no", "array of real numbers"),
    ):
        with pytest.raises(InputError, match=complaint):
            clqr.FunctionDynamics(function, 2, 1).features(1, *moves(4))
    one = clqr.FunctionDynamics(grows, 2, 1)
    one.features(None, *moves())
    with pytest.raises(InputError, match=r"but \(1,\) before"):
        one.features(None, *moves(3))


def test_a_function_is_tried_within_its_bounds_and_its_features_have_names() -> None:
    def each(context: Any, x: Array, u: Array) -> Array:
        return np.stack([x * context["mass"], x], -2)

    own = clqr.FunctionDynamics(each, ["a", "b"], 1, bounds={"mass": (1.0, 2.0)})
    assert own.shape == (4, 2, 1)
    assert own.feature_names == tuple(f"feature {j} of {r}" for r in "ab" for j in (1, 2))

    def fails(context: Any, x: Array, u: Array) -> Array:
        raise ValueError("no value at 1")

    assert clqr.FunctionDynamics(fails, 1, 1, bounds={"mass": (1.0, 2.0)}).shape is None


def test_machines_of_whatever_context_are_told_apart() -> None:
    def features(context: Any, x: Array, u: Array) -> Array:
        return np.concatenate((x * float(np.sum(context["masses"])), u), -1)

    decoder = clqr.Decoder(clqr.FunctionDynamics(features, 1, 1), noise_level=1e-3)
    x, u = np.ones((2, 5, 1)), np.arange(8.0).reshape(2, 4, 1)
    contexts = [{"masses": np.array([1.0, 2.0])}, {"masses": np.array([2.0, 2.0])}]
    decoder.update_many(contexts, clqr.Trajectory(x, u), machine=["A", "B"])
    assert decoder.rows == 8
    with pytest.raises(ContextError, match="something that can be pickled"):
        decoder.update({"masses": [1.0], "odd": lambda: 1}, clqr.Trajectory(x[0], u[0]))
    assert decoder.rows == 8  # nothing is half taken in
