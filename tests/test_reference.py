"""The reference of the site lists every public name, and nothing else."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs" / "reference"
MODULES = ["contextual_lqr", *(f"contextual_lqr.{name}" for name in ("fleets", "envs", "data"))]


def listed(module: str) -> list[str]:
    """The names of a module on its page, `::: module.name` each, in order."""
    paths = directives("contextual_lqr" if module == "contextual_lqr" else "modules")
    return [path.split(".")[-1] for path in paths if path.startswith(f"{module}.")]


def directives(page: str) -> list[str]:
    """What follows `:::` on a page, in order."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^::: (\S+)$", text, re.MULTILINE)


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


def test_no_page_lists_names_of_other_modules() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {"contextual_lqr", "modules"}
    known = {*MODULES[1:], "contextual_lqr.theory"}
    assert {".".join(path.split(".")[:2]) for path in directives("modules")} == known


def test_the_walks_of_contributing_name_files_that_exist_a_dozen_at_most() -> None:
    text = (PAGES.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text.split("## Three walks")[1].split("## House rules")[0].split("\n**")[1:]
    assert len(walks) == 3
    package = Path(inspect.getfile(importlib.import_module("contextual_lqr"))).parent
    for walk in walks:
        files = re.findall(r"^\d+\. `(\S+?)`", walk, re.MULTILINE)
        assert 5 < len(files) <= 12
        assert len(set(files)) == len(files)  # no back and forth
        assert not [file for file in files if not (package / file).is_file()]
