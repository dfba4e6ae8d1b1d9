"""Expressions mean what Python's own operators mean, and nothing but arithmetic gets in."""

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextual_lqr.context.expressions import parse
from contextual_lqr.context.operators import FUNCTIONS, OPERATORS
from contextual_lqr.context.variables import Variables
from contextual_lqr.errors import ContextError, InputError

NAMES = ("length", "mass", "x")
Tree = tuple[str, Callable[[dict[str, float]], float]]


def leaf(name: str) -> Tree:
    return name, lambda values: values[name]


def number(value: float) -> Tree:
    return repr(value), lambda values: value


def sum_of(a: Tree, b: Tree) -> Tree:
    return f"({a[0]} + {b[0]})", lambda v: a[1](v) + b[1](v)


def difference(a: Tree, b: Tree) -> Tree:
    return f"({a[0]}-{b[0]})", lambda v: a[1](v) - b[1](v)


def product(a: Tree, b: Tree) -> Tree:
    return f"({a[0]} * {b[0]})", lambda v: a[1](v) * b[1](v)


def quotient(a: Tree, b: Tree) -> Tree:
    return f"(({a[0]}) / (1 + abs({b[0]})))", lambda v: a[1](v) / (1 + abs(b[1](v)))


def root(a: Tree) -> Tree:
    return f"sqrt(abs({a[0]}))", lambda v: math.sqrt(abs(a[1](v)))


def sine(a: Tree) -> Tree:
    return f"sin({a[0]})", lambda v: math.sin(a[1](v))


def square(a: Tree) -> Tree:
    return f"(({a[0]})**2)", lambda v: a[1](v) * a[1](v)


def minus(a: Tree) -> Tree:
    return f"(-({a[0]}))", lambda v: -a[1](v)


def grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """Trees of text, and of the function that the text should mean, side by side."""
    return st.one_of(
        *(st.builds(make, inner, inner) for make in (sum_of, difference, product, quotient)),
        *(st.builds(make, inner) for make in (root, sine, square, minus)),
    )


numbers = st.floats(0.0, 9.0).map(lambda value: round(value, 3))
trees = st.recursive(
    st.sampled_from(NAMES).map(leaf) | numbers.map(number), grown, max_leaves=6
).filter(lambda tree: len(tree[0]) < 500)
values = st.fixed_dictionaries({name: st.floats(-5.0, 5.0) for name in NAMES})


@given(trees, values)
def test_an_expression_means_what_python_means(tree: Tree, at: dict[str, float]) -> None:
    text, meaning = tree
    assert parse(text)(at) == pytest.approx(meaning(at), rel=1e-12, abs=1e-12)


@given(trees, st.lists(values, min_size=1, max_size=5))
def test_arrays_are_evaluated_element_by_element(tree: Tree, at: list[dict[str, float]]) -> None:
    expression = parse(tree[0])
    columns = {name: np.array([one[name] for one in at]) for name in NAMES}
    one_by_one = np.array([expression(one) for one in at])
    together = np.broadcast_to(expression(columns), len(at))
    np.testing.assert_allclose(together, one_by_one, rtol=1e-11, atol=1e-11)


@given(trees)
def test_only_the_names_that_are_used_are_needed(tree: Tree) -> None:
    expression = parse(tree[0])
    assert set(expression.names) == {name for name in NAMES if name in tree[0]}
    assert isinstance(expression(dict.fromkeys(expression.names, 1.0)), float)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2**3**2", 512.0),
        ("-2**2", -4.0),
        ("2**-1", 0.5),
        ("+x - -x", 4.0),
        ("1 - 2 - 3", -4.0),
        ("8/4/2", 1.0),
        ("2 + 3*x", 8.0),
        ("cos(pi)", -1.0),
        ("log(exp(x))", 2.0),
        ("tan(x)/tanh(x)", math.tan(2) / math.tanh(2)),
        ("abs(-x)", 2.0),
        ("0x10 + 1_000 + 1e1", 1026.0),
        ("7/2", 3.5),
        ("  x  ", 2.0),
        ("1/0", math.inf),
        ("-1/0", -math.inf),
        ("1/-0.0", -math.inf),
        ("0/0", math.nan),
        ("0**-1", math.inf),
        ("(-8)**(1/3)", math.nan),
        ("log(-1)", math.nan),
        ("log(0)", -math.inf),
        ("sqrt(-1)", math.nan),
        ("exp(1000)", math.inf),
        ("9**9**9", math.inf),
        ("sin(1/0)", math.nan),
    ],
)
def test_values_and_precedence(text: str, value: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(parse(text)({"x": 2}), value, rtol=1e-15)
        np.testing.assert_allclose(parse(f"0*y + {text}")({"x": 2, "y": np.zeros(3)}), [value] * 3)


@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0), np.int64(0), np.float32(0), np.zeros(2)])
def test_division_by_any_zero_is_quiet(zero: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.all(parse("1/mass")({"mass": zero}) == np.inf)


def test_whole_numbers_are_floats() -> None:
    np.testing.assert_array_equal(parse("x**-1")({"x": np.array([1, 2])}), [1.0, 0.5])
    assert parse("x*x*x*x*x*x*x")({"x": 10**60}) == math.inf


def test_the_result_is_not_the_argument() -> None:
    mass = np.ones(3)
    result = parse("mass")({"mass": mass})
    assert isinstance(result, np.ndarray)
    result[0] = 7.0
    assert mass[0] == 1.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("__import__('os')", "'__import__\\('os'\\)' at column 1 calls __import__"),
        ("2 + eval(x)", "'eval\\(x\\)' at column 5 calls eval"),
        ("x.real", "'x.real' at column 1 is not arithmetic"),
        ("1 + x.__class__()", "'x.__class__\\(\\)' at column 5 is not arithmetic"),
        ("[y for y in x]", "at column 1 is not arithmetic"),
        ("1*(lambda: 1)", "'lambda: 1' at column 4 is not arithmetic"),
        ("1 + 'a'", "''a'' at column 5 is not arithmetic"),
        ("f'{x}'", "is not arithmetic"),
        ("True + 1", "'True' at column 1 is not arithmetic"),
        ("None", "'None' at column 1"),
        ("1j", "'1j' at column 1 is not arithmetic"),
        ("x < 1", "'x < 1' at column 1"),
        ("x and y", "'x and y' at column 1"),
        ("not x", "'not x' at column 1"),
        ("~x", "'~x' at column 1"),
        ("x if y else z", "at column 1"),
        ("x // 2", "'x // 2' at column 1"),
        ("x % 2", "'x % 2' at column 1"),
        ("1 + x ^ 2", "write \\*\\* for a power"),
        ("x[0]", "'x\\[0\\]' at column 1"),
        ("(x := 3)", "'x := 3' at column 2"),
        ("(1, 2)", "'\\(1, 2\\)' at column 1"),
        ("sqrt(1, 2)", "gives 2 arguments to sqrt, which takes one"),
        ("sqrt()", "gives 0 arguments"),
        ("sqrt(x=1)", "takes one"),
        ("sqrt(1, x=1)", "gives 2 arguments"),
        ("sqrt(*x)", "'\\*x' at column 6 is not arithmetic"),
        ("1 + sqrt", "'sqrt' at column 5 is a function: write sqrt\\(...\\)"),
        ("pi(2)", "calls pi"),
        ("1e999", "too large a number"),
        ("9" * 400, "too large a number"),
        ("µ + é.x", "'é.x' at column 5"),
        ("1 +", "cannot be read at column"),
        ("mass mass", "cannot be read at column"),
        ("x = 1", "cannot be read at column"),
        ("", "one line of text, and not empty"),
        ("x +\n1", "one line of text"),
        ("(x +\r1)", "one line of text"),
        ("x\0y", "cannot be read"),
        ("x + \ud800", "cannot be read"),
        ("1+" * 300 + "1", "601 characters long; at most 500"),
        ("1+" * 200 + "1", "nested more than 100 deep"),
        ("-" * 300 + "1", "nested more than 100 deep|cannot be read"),
        ("(" * 240 + "1" + ")" * 240, "cannot be read"),
    ],
)
def test_what_is_not_arithmetic_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser's own advice on odd text
        try:
            expression = parse(text)
        except InputError:
            return
    expression(dict.fromkeys(expression.names, 0.5))


def test_a_name_is_kept_as_typed() -> None:
    assert parse("µ")({"µ": 2.0}) == 2.0  # the micro sign, which Python itself would make a mu


def test_a_missing_value_is_named() -> None:
    with pytest.raises(
        InputError, match=r"'length / mass' needs .*length, mass, but 'mass' is not"
    ):
        parse("length / mass")({"length": 1.0})


def test_equality_copies_and_pickles() -> None:
    expression = parse(" 1/mass ")
    assert expression.text == "1/mass"
    assert expression == parse("1/mass") != parse("1 / mass")
    for twin in (copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):
        assert twin == expression
        assert hash(twin) == hash(expression)
        assert twin({"mass": 4}) == 0.25
    with pytest.raises(AttributeError):
        expression.text = "2"  # type: ignore[misc]


def test_variables_turn_numbers_into_floats() -> None:
    variables = Variables({"mass": (0, 10), "length": (None, None)}, allow_outside=False)
    assert variables.bounds == {"mass": (0.0, 10.0), "length": (-math.inf, math.inf)}
    checked = variables.checked({"length": np.float32(0.5), "mass": np.int64(3)})
    assert checked == {"mass": 3.0, "length": 0.5}
    assert all(type(value) is float for value in checked.values())


@given(st.floats(), st.floats(-10, 10), st.floats(0, 10))
def test_variables_accept_just_what_is_within_bounds(value: float, low: float, span: float) -> None:
    variables = Variables({"x": (low, low + span)}, allow_outside=False)
    if low <= value <= low + span:
        assert variables.checked({"x": value}) == {"x": value}
        assert variables.columns({"x": [value]})[0] == 1
    else:
        with pytest.raises(ContextError, match=r"'x' is .*(outside its bounds|not finite)"):
            variables.checked({"x": value})
        with pytest.raises(ContextError, match="context 0: 'x' is"):
            variables.columns({"x": [value]})


def sloped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Texts of smooth expressions that have values everywhere between -3 and 3, and no corners."""
    one = st.sampled_from(
        [
            "sin({})",
            "cos({})",
            "tanh({})",
            "atan({})",
            "exp(sin({}))",
            "sqrt(2 + cos({}))",
            "log(3 + sin({}))",
            "asin(0.7*sin({}))",
            "acos(0.7*cos({}))",
            "sinh(sin({}))",
            "cosh(tanh({}))",
            "tan(0.7*sin({}))",
            "-({})",
            "+({})",
            "(2 + sin({}))**2",
        ]
    )
    two = st.sampled_from(
        [
            "({} + {})",
            "({} - {})",
            "sin({})*cos({})",
            "sin({})/(2 + cos({}))",
            "(2 + sin({}))**cos({})",
            "hypot(1 + exp(sin({})), {})",
            "atan2(2 + sin({}), cos({}))",
        ]
    )
    return st.one_of(
        st.builds(lambda form, a: form.format(a), one, inner),
        st.builds(lambda form, a, b: form.format(a, b), two, inner, inner),
    )


smooth = st.recursive(st.sampled_from([*NAMES, "1.5", "pi"]), sloped, max_leaves=5).filter(
    lambda text: len(text) < 400
)


@given(smooth, st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6))
def test_slopes_are_those_of_small_steps(text: str, numbers: list[float]) -> None:
    expression, h = parse(text), 1e-5
    at = {name: np.array(numbers[2 * i : 2 * i + 2]) for i, name in enumerate(NAMES)}
    value, slopes = expression.slopes(at, NAMES)
    np.testing.assert_allclose(value, expression(at), rtol=1e-14)
    for name, slope in zip(NAMES, slopes, strict=True):
        ends = [np.asarray(expression(at | {name: at[name] + e})) for e in (h, -h)]
        size = 1 + np.abs(ends[0]).max()
        wanted = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(slope + 0 * wanted, wanted, rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize(
    ("text", "x", "slope"),
    [
        ("abs(x)", -2.0, -1.0),
        ("abs(x)", 0.0, 0.0),
        ("sign(x)", 3.0, 0.0),
        ("min(x, 1)", 0.0, 1.0),
        ("min(x, 1)", 2.0, 0.0),
        ("max(x, 1, 3*x)", 2.0, 3.0),
        ("x**2", 0.0, 0.0),
        ("x**0", 0.0, 0.0),
        ("x**3", -2.0, 12.0),
        ("2**x", 0.0, math.log(2)),
        ("hypot(x, 0)", 0.0, 0.0),
        ("sqrt(x)", 4.0, 0.25),
        ("1/x", -2.0, -0.25),
        ("x*x*x", 2.0, 12.0),
    ],
)
def test_slopes_at_corners_and_of_powers(text: str, x: float, slope: float) -> None:
    assert float(parse(text).slopes({"x": x}, ["x"])[1][0]) == pytest.approx(slope, rel=1e-14)


@given(smooth, st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3))
def test_a_program_for_a_stack_computes_the_same(text: str, numbers: list[float]) -> None:
    at, stack = dict(zip(NAMES, numbers, strict=True)), []
    for kind, value in parse(text).postfix():
        if kind == "number":
            stack.append(float(value or 0.0))
        elif kind == "name":
            stack.append(at[str(value)])
        else:
            arity = FUNCTIONS.get(kind, 1 if kind in ("positive", "negative") else 2)
            arguments = [stack.pop() for _ in range(arity)][::-1]
            stack.append(OPERATORS[kind].on_floats(*arguments))
    assert stack == [pytest.approx(parse(text)(at), rel=1e-14)]


def test_functions_of_two_take_two() -> None:
    assert parse("atan2(1, 0)")({}) == pytest.approx(math.pi / 2)
    assert parse("min(3, 1, 2)")({}) == 1.0
    for text, takes in (("atan2(1)", "takes two"), ("max(1)", "takes two or more")):
        with pytest.raises(InputError, match=takes):
            parse(text)
