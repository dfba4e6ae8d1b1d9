"""`contextual-lqr info`."""

from __future__ import annotations

from importlib.metadata import version

from contextual_lqr import kernels
from contextual_lqr.cli.options import AsJson
from contextual_lqr.cli.terminal import Console, print_json, say


def info(*, as_json: AsJson = False) -> None:
    """Say which version this is, and how its kernels run on this machine."""
    facts = {
        "version": version("contextual-lqr"),
        "kernels": "NumPy reference" if kernels.compiled is None else "compiled",
        "processor": kernels.compiled,
        "threads": kernels.threads(),
    }
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        say(Console(), f"{name:<10} {value}")
