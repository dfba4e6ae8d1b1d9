"""What is taken for a number, and what is not."""

import datetime
from contextlib import suppress
from decimal import Decimal
from typing import Any, Literal, get_type_hints

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from numpy.typing import ArrayLike

import contextual_lqr
from contextual_lqr import InputError
from contextual_lqr.checks import (
    as_number,
    as_numbers,
    in_words,
    require,
    require_probability,
)


class Stubborn:
    """An array of another library's that refuses to be one of NumPy's."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("call detach() first")


RAGGED: list[Any] = [[1.0], [1.0, 2.0]]
ITSELF: list[Any] = []
ITSELF.append(ITSELF)
DATES = np.array(["2024-01-01"], "M8[D]")
NO_NUMBERS: dict[str, Any] = {
    "truth": True,
    "truths": [True, False],
    "truth among numbers": [1.0, True],
    "NumPy's truth among numbers": [[1.0, 2.0], [0.5, np.True_]],
    "truths among arrays": [np.array([1.0]), np.array([True])],
    "words": ["1", "2"],
    "dates": DATES,
    "spans": DATES - DATES,
    "a date": [datetime.date(2024, 1, 1)],
    "complex": [1j],
    "nothing": None,
    "holes": [1.0, None],
    "decimals": [Decimal(1)],
    "ragged": RAGGED,
    "itself": ITSELF,
    "400 digits": [10**400],
    "a mapping": {"a": 1.0},
    "a set": {1.0},
    "another's": Stubborn(),
    "a record": np.zeros(2, [("a", float)]),
}


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"x must be an array of real numbers of shape \(n,\)"):
        as_numbers("x", value, "(n,)", 0)


def test_what_is_masked_is_missing() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for value in (masked, [masked, masked], [1.0, np.ma.masked], ([1.0, 2.0], masked)):
        with pytest.raises(InputError, match="x has masked values: fill them or leave them out"):
            as_numbers("x", value, "(n,)", 0)
    full = np.ma.array([1.0, 2.0], mask=False)
    assert as_numbers("x", full, "(n,)", 1).tolist() == [1.0, 2.0]
    assert type(as_numbers("x", full, "(n,)", 1)) is np.ndarray


@pytest.mark.parametrize(
    "value",
    [[1, 2], (1.0, 2), np.array([1, 2], np.uint8), np.array([1, 2], np.float16), range(1, 3)],
)
def test_numbers_of_any_kind_are_taken(value: Any) -> None:
    found = as_numbers("x", value, "(n,)", 1)
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0]


def test_one_number_and_a_probability() -> None:
    assert as_number("x", np.float32(0.5)) == 0.5
    for wrong in ("a", None, [1.0, 2.0], float("nan"), True, 1j):
        with pytest.raises(InputError, match="x must be"):
            as_number("x", wrong)
        with pytest.raises(InputError, match="x must be"):
            require_probability("x", wrong)


class Cart:
    """A class whose methods say what is wrong with their arguments."""

    def __init__(self, mass: float, name: str | None = None) -> None:
        self.heavy = mass > 2
        self.name = name

    def push(self, force: ArrayLike, times: int = 1) -> Any:
        return force + times  # type: ignore[operator]

    @classmethod
    def beside(cls, other: "Cart", how: Literal["left", "right"] = "left") -> bool:
        return other.heavy and {"left": True, "right": False}[how]


class Van(Cart):
    """Inherits what it says."""


def test_an_argument_of_the_wrong_kind_is_named_when_it_fails() -> None:
    cart = in_words(Cart)(3.0)
    assert cart.heavy
    assert cart.push(2.0, 3) == 5
    assert Cart.beside(cart)
    for call, said in (
        (lambda: Cart("a"), "mass must be a number, not 'a'"),
        (lambda: cart.push("a"), "force must be an array of real numbers, not 'a'"),
        (lambda: cart.push(1.0, "b"), "times must be a whole number, not 'b'"),
        (lambda: in_words(Van)(3.0).push("a"), "force must be an array of real numbers, not 'a'"),
        (lambda: Cart.beside(None), "other must be a Cart, not None"),
        (lambda: Cart.beside(cart, "up"), "how must be a .*Literal.*, not 'up'"),
    ):
        with pytest.raises(InputError, match=said):
            call()
    with pytest.raises(TypeError, match="missing"):  # this is Python's to say
        Cart()  # type: ignore[call-arg]


def test_a_fault_with_good_arguments_stays_what_it_is() -> None:
    @in_words
    def divided(a: float, b: float) -> float:
        return a / b

    assert divided(1, 2) == 0.5
    assert divided.__name__ == "divided"
    with pytest.raises(ZeroDivisionError):
        divided(1, 0)
    with pytest.raises(InputError, match=r"b must be a number, not \[0\]"):
        divided(1, [0])  # type: ignore[arg-type]


def test_the_hints_of_everything_public_can_be_read() -> None:
    """Those that cannot be read are not checked either: bad arguments would end in tracebacks."""
    for name in contextual_lqr.__all__:
        thing = getattr(contextual_lqr, name)
        calls = [thing.__init__] if isinstance(thing, type) else [thing] if callable(thing) else []
        for call in calls:
            with suppress(NameError):  # of what is imported for the type checker alone
                get_type_hints(call)


def test_types_are_checked_in_tests() -> None:
    """In the first calls of a function, and in one of 64 later."""
    found = []
    for _ in range(100):
        try:
            require(True, 1)  # type: ignore[arg-type]
            found.append(False)
        except TypeCheckError:
            found.append(True)
    assert all(found[:10])
    assert sum(found) == 11


@pytest.mark.slow
def test_types_are_not_checked_in_slow_tests() -> None:
    require(True, 1)  # type: ignore[arg-type]
