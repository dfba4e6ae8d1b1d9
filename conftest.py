"""Every block of README and docs is run as a test, and what it prints is held to what is shown.

A block of `python` is run; a block of `output` after it is what it must print. In a block of
`console` each line `$ contextual-lqr ...` is run as the command would be; what stands below, if
anything does, must be printed, `...` standing for whatever is left out. A block of `c` is written
to the file that its first line names, for the next block of `python` to compile.
"""

import doctest
import glob
import io
import os
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

from typecheck import pytest_runtest_setup  # noqa: F401  (which makes checks of types quicker, too)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what tests start is compiled once

PRINTED = "__printed__"
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: none of them is left over when the others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def run_python(example: Example) -> None:
    """Run a block, and keep what it prints."""
    with redirect_stdout(io.StringIO()) as printed:
        PythonEvaluator()(example)
    example.namespace[PRINTED] = printed.getvalue()


def compare(example: Example) -> str | None:
    """What the block above has printed, beside what the page shows."""
    return difference(str(example.parsed), example.namespace[PRINTED])


def run_console(example: Example) -> str | None:
    """Run the commands of a session one after the other."""
    commands: list[tuple[str, list[str]]] = []
    for line in example.parsed.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands:
            commands[-1][1].append(line)
    for command, shown in commands:
        code, printed = run_command(command)
        if code:
            return f"$ {command}\nended with {code}\n{printed}"
        if any(shown) and (found := difference("\n".join(shown), printed)):
            return f"$ {command}\n{found}"
    return None


def run_command(line: str) -> tuple[int, str]:
    """The exit code and the output of one call of `contextual-lqr`, in this process."""
    from contextual_lqr.cli import app

    name, *words = shlex.split(line.partition(" #")[0])
    assert name == "contextual-lqr", f"{name} is none of our commands"
    words = [one for word in words for one in (sorted(glob.glob(word)) or [word])]
    plain = mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"})
    with plain, redirect_stdout(io.StringIO()) as printed:
        try:
            app(words)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return code, printed.getvalue()


def write_c(example: Example) -> None:
    """Write the block to the file of its first line, `// name.c`."""
    Path(example.parsed.split(maxsplit=2)[1]).write_text(example.parsed, encoding="utf-8")


def difference(shown: str, printed: str) -> str | None:
    """Nothing, or what was expected and what came."""
    if doctest.OutputChecker().check_output(shown.strip() + "\n", printed.strip() + "\n", LOOSELY):
        return None
    return f"the page shows\n{shown}\nbut this was printed:\n{printed}"


pytest_collect_file = Sybil(
    parsers=[
        CodeBlockParser("python", run_python),
        CodeBlockParser("output", compare),
        CodeBlockParser("console", run_console),
        CodeBlockParser("c", write_c),
    ],
    patterns=["*.md"],
).pytest()
