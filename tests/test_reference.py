"""The reference of the site lists every public name, and nothing else."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs" / "reference"
MODULES = ["contextual_lqr", *(f"contextual_lqr.{name}" for name in ("fleets", "envs", "data"))]


def listed(module: str) -> list[str]:
    """The names on the page of a module, `::: module.name` each, in order."""
    page = (PAGES / f"{module.split('.')[-1]}.md").read_text(encoding="utf-8")
    return [path.split(".")[-1] for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_listed_once(module: str) -> None:
    assert sorted(listed(module)) == sorted(importlib.import_module(module).__all__)


def test_every_function_and_class_of_the_theory_is_listed_once() -> None:
    theory = importlib.import_module("contextual_lqr.theory")
    public = [
        name
        for name, value in vars(theory).items()
        if not name.startswith("_") and inspect.getmodule(value) is theory
    ]
    assert sorted(listed("contextual_lqr.theory")) == sorted(public)
