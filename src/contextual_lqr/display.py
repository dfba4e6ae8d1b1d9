"""How a record shows itself: one line in a terminal, a small table in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from numbers import Real
from reprlib import repr as short


class Displayed:
    """Shows the class's name and its key facts, which `_facts` gives in the order to read them."""

    def _facts(self) -> Mapping[str, object]:
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<{type(self).__name__}: {facts}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def batch_fact(shape: tuple[int, ...]) -> dict[str, object]:
    """The shape of a batch, where there is one."""
    return {"batch": " x ".join(map(str, shape))} if shape else {}


def context_fact(context: object) -> dict[str, object]:
    """A context in one line, its numbers to six digits."""
    if not isinstance(context, Mapping):
        return {"context": short(context)}
    values = (
        (name, f"{v:.6g}" if isinstance(v, Real) else short(v)) for name, v in context.items()
    )
    return {"context": ", ".join(f"{name}={value}" for name, value in values) or "none"}
