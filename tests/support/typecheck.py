"""Types and shapes are checked while the tests run; an int will do for a float.

A check costs five to ten times as much as a call on small matrices, and making it (beartype writes
code) more again. So of every function, in every test (whatever its parameters), the first ten calls
are checked and then one in 64, and a check is made when it is first needed. In a test that is
marked slow none is: it does by the thousand what quick tests do with the checks on, or what a user
does, who has none.
"""

import dataclasses
import functools
from collections import defaultdict
from typing import Any

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
_jaxtyped = jaxtyping.jaxtyped
_calls: defaultdict[int, int] = defaultdict(int)  # of each function in this test, by its code

_test, _unchecked = "", False


def pytest_runtest_setup(item: pytest.Item) -> None:
    global _test, _unchecked
    _unchecked = item.get_closest_marker("slow") is not None
    before, _test = _test, item.nodeid.partition("[")[0]
    if _test != before:
        _calls.clear()


def sometimes_jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """For `jaxtyping.jaxtyped`, with which its import hook decorates functions and classes."""
    if function is None:
        return functools.partial(sometimes_jaxtyped, typechecker=typechecker)
    if isinstance(function, type):
        init = vars(function).get("__init__")
        if dataclasses.is_dataclass(function) and init and not hasattr(init, "__wrapped__"):
            function.__init__ = sometimes_jaxtyped(init, typechecker=typechecker)  # type: ignore[misc]
        return function
    code, strict = id(function.__code__), None

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        nonlocal strict
        _calls[code] = calls = _calls[code] + 1
        if _unchecked or (calls > 10 and calls % 64):
            return function(*arguments, **named)
        if strict is None:
            strict = _jaxtyped(function, typechecker=typechecker)
        return strict(*arguments, **named)

    return called


jaxtyping.jaxtyped = sometimes_jaxtyped
