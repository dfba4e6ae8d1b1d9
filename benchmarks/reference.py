"""Writes docs/reference/: every public name, with its signature and its docstring.

`python benchmarks/reference.py`; a test holds the pages to what this would write today.
"""

import ast
import enum
import importlib
import inspect
import itertools
import re
from pathlib import Path
from types import ModuleType
from typing import Any

PAGES = Path(__file__).parent.parent / "docs" / "reference"
MODULES = {  # the page of each public module, and what stands above it
    "contextual_lqr": "The library",
    "contextual_lqr.fleets": "Fleets",
    "contextual_lqr.envs": "Environments",
    "contextual_lqr.data": "Logs",
    "contextual_lqr.theory": "Theory",
}
TITLES = {  # the parts of the first page, in the order in which they are met
    "problem": "The problem",
    "lqr": "Solving and simulating",
    "context": "Contexts",
    "decoder": "The decoder",
    "confidence": "Confidence sets",
    "agent": "The agent",
    "plan": "Plans",
    "strategies": "Strategies",
    "certificates": "Certificates",
    "kernels": "Threads",
    "errors": "Errors",
}
WIDTH = 88


def public(module: ModuleType) -> dict[str, Any]:
    """The public names of a module: its `__all__`, or else what it defines without underscore."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return {name: getattr(module, name) for name in names}


def prose(text: str | None) -> str:
    """A docstring as Markdown: stars and angles are meant as such, but for code."""
    lines = []
    for line in inspect.cleandoc(text or "").splitlines():
        if line.startswith("    "):  # equations, which Markdown takes for code
            lines.append(line)
            continue
        pieces = re.split(r"(`[^`]*`)", line)
        pieces[::2] = [re.sub(r"([*<])", r"\\\1", piece) for piece in pieces[::2]]
        lines.append("".join(pieces))
    return "\n".join(lines)


def annotation(value: Any) -> str:
    """A type as it is written in the source."""
    value = getattr(value, "__forward_arg__", value)
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    text = text.replace("[ndarray, ", "[Array, ").replace("~Map", "Self").replace("'", '"')
    return re.sub(r"\b(contextual_lqr|collections\.abc|typing|jaxtyping|types)\.", "", text)


def parameter(one: inspect.Parameter) -> str:
    """One parameter, with its type and its default."""
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    typed = "" if one.annotation is one.empty else f": {annotation(one.annotation)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{typed}"
    default = repr(one.default).replace("'", '"')
    if default == "<factory>":
        default = "..."
    return f"{stars}{one.name}{typed}{' = ' if typed else '='}{default}"


def signature(name: str, function: Any, bound: bool = False) -> str:
    """What a call looks like, in one line or one line a parameter."""
    found = inspect.signature(function)
    parameters = [one for i, one in enumerate(found.parameters.values()) if not (bound and i == 0)]
    written: list[str] = []
    for i, one in enumerate(parameters):
        keyword = one.kind is one.KEYWORD_ONLY
        if keyword and (i == 0 or parameters[i - 1].kind is one.POSITIONAL_OR_KEYWORD):
            written.append("*")
        written.append(parameter(one))
    returns = found.return_annotation
    back = "" if returns is found.empty else f" -> {annotation(returns)}"
    whole = f"{name}({', '.join(written)}){back}"
    if len(whole) > WIDTH:
        whole = f"{name}(\n" + "".join(f"    {one},\n" for one in written) + f"){back}"
    return whole


def code(text: str) -> list[str]:
    """A block of code to read, which no test runs."""
    return ["```py", text, "```", ""]


def fields(cls: type) -> list[str]:
    """The fields of a record, as they are annotated."""
    own = {name: kind for name, kind in inspect.get_annotations(cls).items() if name[0] != "_"}
    if not issubclass(cls, tuple) and set(own) == set(inspect.signature(cls).parameters):
        return []  # the call above has said them all
    return [f"{name}: {annotation(kind)}" for name, kind in own.items()]


def members(cls: type, others: dict[str, Any]) -> list[str]:
    """Public methods and properties of a class and of its private bases, in the order of source."""
    lines: list[str] = []
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("contextual_lqr"):
            continue
        if base is not cls and base.__name__ in others:
            lines += [f"And what every [`{base.__name__}`](#{base.__name__}) has.", ""]
            break
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            called = f"{cls.__name__}.{name}"
            if isinstance(value, classmethod | staticmethod):
                function = value.__func__
                text, doc = signature(called, function, isinstance(value, classmethod)), function
            elif inspect.isfunction(value):
                text, doc = signature(called, value, bound=True), value
            elif hasattr(value, "fget") or hasattr(value, "func"):  # properties, cached or not
                doc = getattr(value, "fget", None) or value.func
                kind = doc.__annotations__.get("return")
                text = called if kind is None else f"{called}: {annotation(kind)}"
            else:
                continue
            if doc.__doc__:
                lines += [*code(text), prose(doc.__doc__), ""]
    return lines


def entry(name: str, value: Any, module: ModuleType) -> list[str]:
    """All about one public name."""
    lines = [f"### {name} {{ #{name} }}", ""]
    if inspect.isclass(value):
        if issubclass(value, Exception):
            base = value.__mro__[1].__name__
            also = [one.__name__ for one in value.__bases__[1:]]
            head = code(f"class {name}({', '.join([base, *also])})")
            return [*lines, *head, prose(value.__doc__), ""]
        if issubclass(value, enum.Enum):
            listed = "\n".join(f"{name}.{one.name} = {one.value}" for one in value)
            return [*lines, *code(listed), prose(value.__doc__), ""]
        own = getattr(value, "__init__", None)
        known = "_is_protocol" in vars(value) and value._is_protocol
        call = f"class {name}" if known or own is object.__init__ else signature(name, value)
        lines += [*code(call.replace(" -> None", "")), prose(value.__doc__), ""]
        if listed := fields(value):
            lines += ["Fields:", "", *code("\n".join(listed))]
        return lines + members(value, public(module))
    if callable(value):
        return [*lines, *code(signature(name, value)), prose(value.__doc__), ""]
    if isinstance(value, dict):
        held = {key: getattr(one, "__name__", repr(one)) for key, one in value.items()}
        text = f"{name} = {{\n" + "".join(f'    "{k}": {one},\n' for k, one in held.items()) + "}"
    else:
        text = f"{name} = {value!r}"
    return [*lines, *code(text.replace("'", '"')), prose(said_below(module, name)), ""]


def said_below(module: ModuleType, name: str) -> str:
    """The string that stands below an assignment in the source."""
    body = ast.parse(inspect.getsource(module)).body
    for before, after in itertools.pairwise(body):
        targets = getattr(before, "targets", [getattr(before, "target", None)])
        if any(getattr(one, "id", None) == name for one in targets) and isinstance(after, ast.Expr):
            return str(ast.literal_eval(after.value))
    raise SystemExit(f"{module.__name__}.{name} has no docstring below it")


def page(name: str, title: str) -> str:
    """The page of one module."""
    module = importlib.import_module(name)
    lines = [f"# {title}", "", "Written by `benchmarks/reference.py` from the docstrings.", ""]
    lines += [f"```py\nimport {name}\n```", "", prose(module.__doc__), ""]
    parts: dict[str, list[str]] = {}
    for one, value in public(module).items():
        home = getattr(value, "__module__", name).removeprefix(f"{name}.").split(".")[0]
        heading = TITLES.get(home, home) if name == "contextual_lqr" else ""
        parts.setdefault(heading, []).extend(entry(one, value, module))
    order = [*TITLES.values()]
    for heading in sorted(parts, key=lambda part: order.index(part) if part in order else 99):
        lines += ([f"## {heading}", ""] if heading else ["## Names", ""]) + parts[heading]
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    """The name of each file, and what it should hold."""
    return {f"{name.split('.')[-1]}.md": page(name, title) for name, title in MODULES.items()}


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for file, text in pages().items():
        (PAGES / file).write_text(text, encoding="utf-8")
