"""What context maps refuse, and in which words."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from context_maps import BOUNDS, C, D, all_maps, inverse_mass, wide
from contextual_lqr.context import (
    BlockContext,
    FeatureContext,
    FunctionContext,
)
from contextual_lqr.errors import ContextError, InputError


@pytest.mark.parametrize(
    ("context", "complaint"),
    [
        ({"mas": 1.0, "length": 1.0}, "'mas' is unknown .*mass, length.*; 'mass' is missing"),
        ({"mass": 1.0}, "^'length' is missing$"),
        ({"mass": 1.0, "length": 1.0, "x": 1.0}, "^'x' is unknown"),
        ({"mass": 20, "length": 1.0}, r"'mass' is 20, outside its bounds \[0.1, 10.0\].*allow_out"),
        ({"mass": 1.0, "length": -1.0}, r"'length' is -1.0, outside its bounds \[0.0, inf\]"),
        ({"mass": 1.0, "length": math.inf}, "'length' is inf, which is not finite"),
        ({"mass": math.nan, "length": 1.0}, "'mass' is nan, which is not finite"),
        ({"mass": np.float64("nan"), "length": 1.0}, "'mass' is nan, which is not finite"),
        ({"mass": 1.0, "length": 10**400}, "'length' is 1000.*, which is not finite"),
        ({"mass": True, "length": 1.0}, "'mass' is True, which is not a number"),
        ({"mass": np.True_, "length": 1.0}, "True.*, which is not a number"),
        ({"mass": "heavy", "length": 1.0}, "'mass' is 'heavy', which is not a number"),
        ({"mass": None, "length": 1.0}, "'mass' is None, which is not a number"),
        ({"mass": np.ones(2), "length": 1.0}, "which is not a number"),
        ({"mass": "a", "length": -1.0, "x": 0}, "'x' is unknown.*'mass' is 'a'.*'length' is -1.0"),
        (3.0, "must be a mapping with the names mass, length, not 3.0"),
        (None, "must be a mapping"),
    ],
)
def test_a_faulty_context_is_told_all_its_faults(context: Any, complaint: str) -> None:
    for map_ in all_maps().values():
        if map_.bounds == all_maps()["function"].bounds:
            with pytest.raises(ContextError, match=complaint):
                map_.matrix(context)
            with pytest.raises(ContextError, match=r"^context 1: .*" + complaint.removeprefix("^")):
                map_.matrices([{"mass": 1.0, "length": 1.0}, context])


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"mass": [1.0, 2.0]}, "'length' is missing"),
        ({"mass": [1.0], "length": [1.0], "x": [1.0]}, "'x' is unknown"),
        ({"mass": [1.0], "length": [1.0, 2.0]}, "the same length, but mass has 1, length has 2"),
        ({"mass": 1.0, "length": 1.0}, "values of 'mass' must be a one-dimensional array"),
        ({"mass": [[1.0]], "length": [1.0]}, "values of 'mass' must be a one-dimensional array"),
        ({"mass": [[1.0], 2.0], "length": [1.0]}, "'mass' must be a one-dimensional array"),
        ({"mass": [True], "length": [1.0]}, "values of 'mass' must be .* numbers"),
        ({"mass": ["1"], "length": [1.0]}, "values of 'mass' must be .* numbers"),
        ({"mass": [1.0, 11.0], "length": [1.0, -2.0]}, "context 1: 'mass' is 11.0.*'length' is -2"),
        ({"mass": [1.0, 2.0], "length": [math.nan, 2.0]}, "context 0: 'length' is nan"),
    ],
)
def test_faulty_columns_are_refused(columns: Any, complaint: str) -> None:
    for map_ in all_maps().values():
        if map_.bounds == all_maps()["function"].bounds:
            with pytest.raises(ContextError, match=complaint):
                map_.matrices(columns)


def test_values_that_are_not_finite_name_the_feature_and_the_context() -> None:
    features = FeatureContext({"one": "1", "lightness": "1/mass"}, states=1, inputs=1)
    with pytest.raises(ContextError, match=r"the feature 'lightness' is inf at mass=0.0"):
        features.matrix({"mass": 0})
    for many in ([{"mass": 1}, {"mass": 0}], {"mass": np.array([1.0, 0.0])}):
        with pytest.raises(ContextError, match="context 1: the feature 'lightness' is inf at mass"):
            features.matrices(many)
    function = FunctionContext(lambda c: [[math.nan]], bounds={"mass": (0, 1)})
    with pytest.raises(ContextError, match=r"<lambda>, has values .* not finite at mass=0.5"):
        function.matrix({"mass": 0.5})
    with pytest.raises(ContextError, match="D of the pair has values that are not finite"):
        BlockContext().matrix((C, D + np.inf))


@pytest.mark.parametrize(
    "answer", [[1.0, 2.0], 3.0, [[1.0], [2.0, 3.0]], "text", None, [[1j]], [[]]]
)
def test_a_function_must_give_a_matrix(answer: Any) -> None:
    def broken(context: Any) -> Any:
        return answer

    complaint = "from the function broken, (must be a two-dim.* has shape|has rows of different)"
    for map_ in (FunctionContext(broken), BlockContext(broken, D), BlockContext(C, broken)):
        with pytest.raises(ContextError, match=complaint):
            map_.matrix(None)
        with pytest.raises(ContextError, match=r"context 0: .*function broken"):
            map_.matrices([None])


def test_a_function_must_keep_its_shape() -> None:
    def growing(rows: int) -> NDArray[np.float64]:
        return np.ones((rows, 3))

    function = FunctionContext(growing)
    function.matrix(2)
    with pytest.raises(
        ContextError, match=r"growing, has shape \(4, 3\), but G had \(2, 3\) before"
    ):
        function.matrix(4)
    with pytest.raises(ContextError, match=r"context 1: .*growing, has shape \(5, 3\)"):
        FunctionContext(growing).matrices([2, 5])
    with pytest.raises(ContextError, match=r"growing, .*\(2, 3\).* must be 2 states \+ 2 inputs"):
        FunctionContext(growing).sized(2, 2).matrix(2)
    pairs = BlockContext().sized(5, 2)
    with pytest.raises(ContextError, match=r"C of the pair has shape \(5, 4\).*5 states"):
        pairs.matrix((C.T, D))
    with pytest.raises(
        ContextError, match=r"context 1: D of the pair has shape \(1, 2\), but D had"
    ):
        pairs.matrices([(C, D), (C, D[:1])])


def test_a_refused_pair_teaches_nothing() -> None:
    pairs = BlockContext()
    with pytest.raises(ContextError, match="D of the pair"):
        pairs.matrix((C.T, "no matrix"))
    assert pairs.matrix((C, D)).shape == (7, 7)


@pytest.mark.parametrize("context", [None, 3.0, (C,), {"C": C, "D": D}, "CD"])
def test_without_blocks_a_context_is_a_pair(context: Any) -> None:
    with pytest.raises(ContextError, match=r"a context must be a pair \(C, D\), not"):
        BlockContext().matrix(context)


def test_an_exception_in_a_function_is_put_in_its_place() -> None:
    def careless(context: Any) -> Any:
        raise KeyError("speed")

    for map_ in (
        FunctionContext(careless, bounds={"x": (0, 1)}),
        FeatureContext([careless], bounds={"x": (0, 1)}, states=1, inputs=1),
    ):
        complaint = r"the function careless failed at x=0.5 \(KeyError: 'speed'\)"
        with pytest.raises(ContextError, match=complaint) as caught:
            map_.matrix({"x": 0.5})
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(ContextError, match="context 0: " + complaint) as caught:
            map_.matrices([{"x": 0.5}])
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("answer", ["1", None, [1.0], True, 1j])
def test_a_feature_must_be_one_number(answer: Any) -> None:
    with pytest.raises(ContextError, match="the feature 'odd' must be one real number, not"):
        FeatureContext({"odd": lambda _: answer}).features(0.0)


def test_batches_that_are_not() -> None:
    with pytest.raises(ContextError, match="no declared names: give its contexts as a list"):
        BlockContext(C, D).matrices({"mass": [1.0]})
    with pytest.raises(InputError, match="no contexts are given, and the shape of G is not known"):
        BlockContext().matrices([])
    with pytest.raises(InputError, match=r"sizes are not known yet: call sized\(states, inputs\)"):
        FeatureContext(["1"]).matrix({})


# What is refused at construction


@pytest.mark.parametrize(
    ("bounds", "complaint"),
    [
        ({"x": (2, 1)}, r"bounds of 'x' must be numbers with low <= high, not \(2, 1\)"),
        ({"x": (math.nan, 1)}, "bounds of 'x' must be numbers"),
        ({"x": (False, 1)}, "bounds of 'x' must be numbers"),
        ({"x": ("0", "1")}, "bounds of 'x' must be numbers"),
        ({"x": (math.inf, math.inf)}, "bounds of 'x' must be numbers"),
        ({"x": (-math.inf, -math.inf)}, "bounds of 'x' must be numbers"),
        ({"x": 3}, r"bounds of 'x' must be a pair \(low, high\), not 3"),
        ({"x": (1, 2, 3)}, "bounds of 'x' must be a pair"),
        ({"pi": (0, 1)}, "'pi' in bounds already means something"),
    ],
)
def test_bad_bounds_are_refused(bounds: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        FunctionContext(wide, bounds=bounds)
    with pytest.raises(InputError, match=complaint):
        FeatureContext(["1"], bounds=bounds)


@pytest.mark.parametrize(
    ("features", "complaint"),
    [
        ("1/mass", "features must be a list or a mapping of features, not '1/mass'"),
        (3, "features must be a list"),
        ([], "at least one feature"),
        ({}, "at least one feature"),
        (["1", 1], "a feature must be an expression or a function, not 1"),
        ({"a": None}, "a feature must be an expression or a function"),
        ({3: "1"}, "a feature must be"),
        (["1", " 1"], "two features are named '1'"),
        ([lambda c: 1, lambda c: 2], "two features are named '<lambda>': name them in a mapping"),
        (["1/mas"], "the features use mas, but bounds declares mass, length"),
        (["1/(mass"], "cannot be read at column"),
    ],
)
def test_bad_features_are_refused(features: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        FeatureContext(features, bounds=BOUNDS)


def test_functions_beside_expressions_need_declared_names() -> None:
    with pytest.raises(InputError, match="the features use mass, but bounds declares no names"):
        FeatureContext(["1/mass", inverse_mass])


def test_bad_blocks_are_refused() -> None:
    with pytest.raises(InputError, match="give both C and D, or neither"):
        BlockContext(C)
    with pytest.raises(InputError, match="give both C and D, or neither"):
        BlockContext(D=D)
    with pytest.raises(InputError, match="bounds are given without C and D"):
        BlockContext(bounds=BOUNDS)
    with pytest.raises(InputError, match="matrix C has values that are not finite"):
        BlockContext([[math.inf]], D)
    with pytest.raises(InputError, match=r"matrix D must be a two-dimensional .* shape \(2,\)"):
        BlockContext(C, [1.0, 2.0])
    with pytest.raises(InputError, match="matrix C has rows of different lengths"):
        BlockContext([[1.0], [1.0, 2.0]], D)


# Frozen, equal, written down
