"""The examples in docstrings run, and print what they show; `np` and `clqr` are imported there."""

import ast
import doctest
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import contextual_lqr as clqr

PACKAGE = Path(clqr.__file__).parent


def examples() -> Iterator[doctest.DocTest]:
    parser = doctest.DocTestParser()
    for path in sorted(PACKAGE.rglob("*.py")):
        # Read, not imported: functions whose types are checked hide their source from doctest.
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if ">>> " in source else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                text, name = ast.get_docstring(node) or "", getattr(node, "name", path.stem)
                found = parser.get_doctest(text, {"np": np, "clqr": clqr}, name, str(path), 0)
                if found.examples:
                    yield found


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_an_example_prints_what_it_shows(example: doctest.DocTest) -> None:
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert not said, "".join(said)
