"""Context maps: what G is, that a batch is the same as its members, and what is refused."""

import copy
import json
import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag

from context_maps import (
    BOUNDS,
    FEATURES,
    C,
    D,
    all_maps,
    by_mass,
    contexts,
    every_map,
    inverse_mass,
    wide,
)
from contextual_lqr.context import (
    BlockContext,
    ContextMap,
    FeatureContext,
    FunctionContext,
    context_map_from,
)
from contextual_lqr.errors import ContextError, FormatError, InputError

# What G is


@given(contexts, st.integers(0, 2**32 - 1))
def test_features_weigh_the_blocks_of_theta(context: dict[str, float], seed: int) -> None:
    d, m = 3, 2
    M = np.random.default_rng(seed).normal(size=(4, d, d + m))
    feature_map = FeatureContext(FEATURES, states=d, inputs=m)
    mass, length = context["mass"], context["length"]
    phi = [1.0, 1 / mass, length / mass, math.sqrt(length) * math.exp(-mass)]
    dynamics = np.hstack(list(M)) @ feature_map.matrix(context)
    expected = sum(weight * block for weight, block in zip(phi, M, strict=True))
    np.testing.assert_allclose(feature_map.features(context), phi, rtol=1e-14)
    np.testing.assert_allclose(dynamics, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(
        feature_map.matrix(context),
        np.kron(feature_map.features(context)[:, None], np.eye(d + m)),
    )


def test_blocks_are_the_diagonal_of_g() -> None:
    expected = block_diag(C, D)
    np.testing.assert_array_equal(BlockContext(C, D).matrix(None), expected)
    np.testing.assert_array_equal(BlockContext().matrix((C, D.tolist())), expected)
    functions = BlockContext(lambda c: c * C, lambda c: D.astype(int))
    np.testing.assert_array_equal(functions.matrix(2.0), block_diag(2 * C, D.astype(int)))


def test_a_function_gives_g() -> None:
    G = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(FunctionContext(lambda c: c * G).matrix(3), 3 * G)


def test_a_matrix_is_the_callers_own() -> None:
    G = np.ones((2, 2))
    for map_ in (BlockContext(G, G), FunctionContext(lambda _: G)):
        map_.matrix(None)[:] = 7.0
        map_.matrices([None])[:] = 7.0
        assert np.all(G == 1.0)
        assert np.all(np.isin(map_.matrix(None), [0.0, 1.0]))


def test_functions_receive_the_checked_mapping() -> None:
    seen: list[Any] = []

    def f(context: Mapping[str, float]) -> list[list[float]]:
        seen.append(context)
        return [[context["mass"]]]

    FunctionContext(f, bounds={"mass": (0, 10)}).matrix({"mass": np.int64(3)})
    assert seen == [{"mass": 3.0}]
    assert type(seen[0]["mass"]) is float
    marker = object()
    FunctionContext(lambda context: [[float(context is marker)]]).matrix(marker)


# A batch is its members


@every_map
@given(batch=st.lists(contexts, min_size=1, max_size=5))
def test_a_batch_is_the_stack_of_its_members(map_: ContextMap, batch: list[Any]) -> None:
    expected = np.stack([map_.matrix(context) for context in batch])
    columns = {name: np.array([context[name] for context in batch]) for name in BOUNDS}
    for many in (batch, columns, iter(batch), {n: c.tolist() for n, c in columns.items()}):
        np.testing.assert_allclose(map_.matrices(many), expected, rtol=1e-14, atol=0)


@every_map
def test_an_empty_batch_has_the_shape_of_a_full_one(map_: ContextMap) -> None:
    map_.matrix({"mass": 1.0, "length": 1.0})
    assert map_.shape is not None
    p, d, m = map_.shape
    assert (d, m) == (5, 2)
    columns = {"mass": np.array([]), "length": np.array([])}
    assert map_.matrices([]).shape == map_.matrices(columns).shape == (0, p, d + m)


def test_batches_without_names() -> None:
    batch = [(C, D), (2 * C, D), (C, 3 * D)]
    pairs = BlockContext().matrices(batch)
    np.testing.assert_array_equal(pairs, [block_diag(*pair) for pair in batch])
    assert BlockContext(C, D).matrices([None, None]).shape == (2, 7, 7)
    functions = FeatureContext(["1", abs, math.sqrt])
    np.testing.assert_array_equal(functions.feature_rows([1.0, 4.0]), [[1, 1, 1], [1, 4, 2]])
    assert functions.feature_rows([]).shape == (0, 3)


def test_a_map_without_any_names() -> None:
    constant = FeatureContext(["1"], states=1, inputs=1)
    assert constant.names == ()
    assert constant.matrices([{}, {}]).shape == (2, 2, 2)
    with pytest.raises(ContextError, match=r"'mass' is unknown \(the names are \(none\)\)"):
        constant.matrix({"mass": 1.0})
    with pytest.raises(ContextError, match="needs declared names: give a list"):
        constant.matrices({})
    with pytest.raises(ContextError, match="context 0: the feature '1/0' is inf"):
        FeatureContext(["1/0"]).feature_rows([{}])


# Names, shapes and sizes


def test_names_and_bounds() -> None:
    declared = FeatureContext(["1/mass"], bounds=BOUNDS)
    assert declared.names == ("mass", "length")
    assert declared.bounds == {"mass": (0.1, 10.0), "length": (0.0, math.inf)}
    inferred = FeatureContext({"b": "z*a", "a": "pi"})
    assert inferred.names == ("a", "z")
    assert inferred.bounds == {"a": (-math.inf, math.inf), "z": (-math.inf, math.inf)}
    assert inferred.feature_names == ("b", "a")
    assert BlockContext().names is None
    assert BlockContext().bounds is None
    assert FeatureContext([inverse_mass, " 1 "]).feature_names == ("inverse_mass", "1")


def test_allow_outside_lets_any_finite_value_pass() -> None:
    outside = FeatureContext(["mass"], bounds={"mass": (0, 1)}, allow_outside=True)
    assert outside.features({"mass": 5}) == [5.0]
    assert outside.feature_rows({"mass": [5.0]}) == [[5.0]]
    with pytest.raises(ContextError, match="'mass' is inf, which is not finite"):
        outside.features({"mass": math.inf})


def test_shapes_become_known() -> None:
    assert BlockContext(C, D).shape == (7, 5, 2)
    assert FeatureContext(["1", "x"], states=3, inputs=1).shape == (8, 3, 1)
    assert FeatureContext(["1", "x"], states=3).shape is None
    pairs = BlockContext()
    assert pairs.shape is None
    pairs.matrix((C, D))
    assert pairs.shape == (7, 5, 2)
    function = FunctionContext(lambda c: np.ones((4, 3)))
    function.matrix(None)
    assert function.shape is None
    function = function.sized(2, 1)
    function.matrix(None)
    assert function.shape == (4, 2, 1)


def test_sized() -> None:
    assert BlockContext(C, D).sized(5, 2) == BlockContext(C, D)
    sized = FeatureContext(["1"], bounds=BOUNDS, allow_outside=True).sized(2, 1)
    assert sized == FeatureContext(["1"], states=2, inputs=1, bounds=BOUNDS, allow_outside=True)
    with pytest.raises(InputError, match="has 5 states, it cannot be sized for 4"):
        BlockContext(C, D).sized(4, 2)
    with pytest.raises(InputError, match="has 1 inputs, it cannot be sized for 3"):
        sized.sized(2, 3)
    with pytest.raises(InputError, match=r"the matrix C has shape \(4, 5\).* must be 4 states"):
        BlockContext(C, D, states=4)
    with pytest.raises(InputError, match=r"matrix D has shape \(3, 2\).* must be 1 inputs"):
        BlockContext(C, D, inputs=1)
    with pytest.raises(InputError, match="states must be a whole number of at least 1, not 0"):
        BlockContext().sized(0, 1)
    pairs = BlockContext()
    pairs.matrix((C, D))
    with pytest.raises(InputError, match=r"C of this context map has shape \(4, 5\)"):
        pairs.sized(4, 2)
    function = FunctionContext(lambda c: np.ones((4, 3)))
    function.matrix(None)
    with pytest.raises(InputError, match=r"G of this .* \(4, 3\).* must be 3 states \+ 1 inputs"):
        function.sized(3, 1)


# What is refused in a context


def test_maps_are_frozen() -> None:
    mine = C.copy()
    map_ = BlockContext(mine, D, bounds=BOUNDS)
    mine[:] = 0.0
    np.testing.assert_array_equal(map_.C, C)
    with pytest.raises(ValueError, match="read-only"):
        map_.C[0, 0] = 1.0
    with pytest.raises(AttributeError):
        map_.C = C  # type: ignore[misc]
    with pytest.raises(TypeError):
        map_.bounds["mass"] = (0, 1)  # type: ignore[index]


def test_equality_is_by_content() -> None:
    mine, theirs = all_maps(), all_maps()
    for a in mine:
        for b in theirs:
            assert (mine[a] == theirs[b]) == (a == b), (a, b)
    assert BlockContext(C, D) != BlockContext(C, 2 * D)
    assert BlockContext(C, D) != BlockContext() != BlockContext(by_mass, D)
    assert FeatureContext(["1", "x"]) != FeatureContext(["x", "1"])
    assert FeatureContext(["x"]) == FeatureContext({"x": "x"}, bounds={"x": (None, None)})
    assert FeatureContext(["x"]) != FeatureContext({"y": "x"})
    assert FunctionContext(wide) != FunctionContext(by_mass)
    assert BlockContext() != 3
    assert "BlockContext(" in repr(BlockContext(C, D))
    assert "1/mass" in repr(mine["features"])


@every_map
def test_copies_and_pickles_are_equal_and_frozen(map_: ContextMap) -> None:
    for twin in (copy.deepcopy(map_), pickle.loads(pickle.dumps(map_))):
        assert twin == map_
        context = {"mass": 2.0, "length": 3.0}
        np.testing.assert_array_equal(twin.matrix(context), map_.matrix(context))
    assert not copy.deepcopy(BlockContext(C, D)).C.flags.writeable


finite = st.floats(allow_nan=False, allow_infinity=False)
matrices = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(finite, min_size=width, max_size=width), min_size=1, max_size=3)
)
bounds = st.dictionaries(
    st.sampled_from(["mass", "length", "Größe"]),
    st.tuples(finite | st.just(-math.inf), finite | st.just(math.inf)).filter(
        lambda pair: pair[0] <= pair[1]
    ),
)
blocks = st.fixed_dictionaries(
    {"C": matrices, "D": matrices}, optional={"bounds": bounds, "allow_outside": st.booleans()}
)
weighted = st.fixed_dictionaries(
    {"features": st.permutations(FEATURES)},
    optional={
        "states": st.integers(1, 9),
        "inputs": st.integers(1, 9),
        "bounds": bounds.map(lambda b: {"mass": (0, 1), "length": (-1e-300, 1)} | b),
        "allow_outside": st.booleans(),
    },
)


def survives_json(map_: ContextMap) -> Any:
    text = json.dumps(map_.describe(), allow_nan=False)
    for again in (text, json.dumps(json.loads(text), sort_keys=True)):
        twin = context_map_from(json.loads(again))
        assert twin == map_
        assert twin.describe() == map_.describe()
    return twin


@given(blocks)
def test_described_blocks_survive_json_to_the_bit(arguments: dict[str, Any]) -> None:
    map_ = BlockContext(**arguments)
    twin = survives_json(map_)
    assert twin.C.tobytes() == map_.C.tobytes()
    assert twin.D.tobytes() == map_.D.tobytes()


@given(weighted)
def test_described_features_survive_json(arguments: dict[str, Any]) -> None:
    twin = survives_json(FeatureContext(**arguments))
    assert twin.feature_names == tuple(arguments["features"])


def test_described_pairs_survive_json() -> None:
    survives_json(BlockContext())
    survives_json(BlockContext().sized(5, 2))


def test_functions_cannot_be_described() -> None:
    for name in ("one block a function", "mixed features", "function"):
        assert all_maps()[name].describe() is None


GOOD = FeatureContext(["1"], bounds={"x": (0, None)}).describe() or {}
GOOD_BLOCK = BlockContext(C, D).describe() or {}


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        (None, "has the kind BlockContext or FeatureContext or FeatureDynamics, unlike None"),
        ([1], "has the kind"),
        ({}, "has the kind"),
        ({**GOOD, "kind": "FunctionContext"}, "has the kind BlockContext or"),
        ({**GOOD, "kind": ["FeatureContext"]}, "has the kind"),
        ({**GOOD, "colour": 1}, "missing or unknown: colour"),
        ({"kind": "BlockContext"}, "missing or unknown: C, D, allow_outside, bounds, inputs"),
        ({**GOOD, "states": "4"}, "description of a FeatureContext is wrong"),
        ({**GOOD, "states": 0}, "states must be a whole number"),
        ({**GOOD, "inputs": True}, "inputs must be a whole number"),
        ({**GOOD, "bounds": [1]}, "description of a FeatureContext is wrong"),
        ({**GOOD, "bounds": {"x": 1}}, "bounds of 'x' must be a pair"),
        ({**GOOD, "bounds": {"x": [1, 0]}}, "bounds of 'x' must be numbers"),
        ({**GOOD, "allow_outside": "no"}, "description of a FeatureContext is wrong"),
        ({**GOOD, "features": None}, "features must be a list"),
        ({**GOOD, "features": [["a", 1]]}, "a feature must be an expression"),
        ({**GOOD, "features": [["a", "1"], ["a", "2"]]}, "two features are named 'a'"),
        ({**GOOD, "features": [["a", "__import__('os')"]]}, "calls __import__"),
        ({**GOOD_BLOCK, "C": None}, "give both C and D"),
        ({**GOOD_BLOCK, "C": "x"}, "matrix C must be a two-dimensional"),
        ({**GOOD_BLOCK, "D": [[1, None]]}, "matrix D must be a two-dimensional"),
        ({**GOOD_BLOCK, "states": 4}, "must be 4 states"),
    ],
)
def test_a_malformed_description_is_refused(description: Any, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        context_map_from(description)


@every_map
@settings(max_examples=8)
@given(st.lists(contexts, min_size=1, max_size=5), st.integers(0, 1000))
def test_encoding_rows_is_multiplying_by_the_matrices(
    map_: ContextMap, batch: list[dict[str, float]], seed: int
) -> None:
    moves = np.random.default_rng(seed).normal(size=(len(batch), 7))
    columns = {name: np.array([float(one[name]) for one in batch]) for name in BOUNDS}
    expected = np.stack([map_.matrix(c) @ y for c, y in zip(batch, moves, strict=True)])
    for given_as in (batch, columns):
        z = map_.encode(given_as, list(moves.T[:5]), list(moves.T[5:]))
        assert np.allclose(np.stack(z, 1), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="contexts"):
        map_.encode(batch, [np.zeros(len(batch) + 1)] * 5, [np.zeros(len(batch) + 1)] * 2)


def test_encoding_with_entries_that_depend_on_the_context() -> None:
    map_ = BlockContext([["1/mass", 2.0], [0.0, "mass"]], [["1/mass"]], bounds={"mass": (0, 9)})
    moves = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    z = map_.encode({"mass": np.array([2.0, 4.0])}, list(moves.T[:2]), list(moves.T[2:]))
    assert np.allclose(np.stack(z, 1), [[4.5, 4.0, 1.5], [11.0, 20.0, 1.5]])
    with pytest.raises(ContextError, match="context 1: the entry '1/mass'"):
        map_.encode({"mass": np.array([2.0, 0.0])}, list(moves.T[:2]), list(moves.T[2:]))
