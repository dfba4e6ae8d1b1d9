"""Machines as a user names them: `--context mass=2.0,length=1`, or a table with a row a machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.context.variables import one_by_one
from contextual_lqr.data import FittedFleet
from contextual_lqr.data.sources import read_table
from contextual_lqr.errors import InputError


@dataclass(frozen=True, eq=False)
class Machines:
    """Contexts by name, an array each; and what the machines are called, if the table says so."""

    contexts: dict[str, Array]
    labels: list[str] | None

    def __len__(self) -> int:
        return len(next(iter(self.contexts.values()))) if self.contexts else 1

    @property
    def rows(self) -> list[dict[str, float]]:
        """One mapping a machine."""
        return one_by_one(self.contexts) if self.contexts else [{}]


def one_machine(pairs: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """The context in `name=value` pairs, separated by commas or given one by one."""
    found: dict[str, float] = {}
    for pair in (part.strip() for text in pairs for part in text.split(",")):
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InputError(f"a context is written name=value, as in mass=2.0, not {pair!r}")
        if name not in names:
            raise InputError(f"there is no context '{name}' (there is {_listed(names)})")
        if name in found:
            raise InputError(f"the context '{name}' is given twice")
        try:
            found[name] = float(text)
        except ValueError:
            raise InputError(f"the context '{name}' must be a number, not {text!r}") from None
        if not math.isfinite(found[name]):
            raise InputError(f"the context '{name}' must be finite, not {text}")
    if missing := [name for name in names if name not in found]:
        raise InputError(f"the context lacks {_listed(missing)}")
    return found


def read_machines(path: Path, names: Sequence[str]) -> Machines:
    """A machine a row, from CSV or Parquet; other columns are ignored, `machine` is its name."""
    import polars as pl

    frame = read_table(path)
    if missing := [name for name in names if name not in frame.columns]:
        raise InputError(f"{path} lacks the column {_listed(missing)} of the context")
    if not len(frame):
        raise InputError(f"{path} names no machine")
    contexts = {}
    for name in names:
        if not frame[name].dtype.is_numeric():
            raise InputError(f"{path}: the column '{name}' must hold numbers alone")
        column = frame[name].cast(pl.Float64).fill_null(math.nan).to_numpy()
        if not np.isfinite(column).all():
            row = int(np.isfinite(column).argmin())
            raise InputError(f"{path}: row {row + 1} of '{name}' is missing or not finite")
        contexts[name] = column
    labels = None
    if "machine" in frame.columns:
        labels = [str(label) for label in frame["machine"].to_list()]
    return Machines(contexts, labels)


def chosen_machines(
    fitted: FittedFleet, context: Sequence[str] | None, table: Path | None
) -> Machines:
    """What `--context` or `--contexts` name; exactly one of them."""
    names = fitted.description.context_names
    if (context is None) == (table is None) and names:
        raise InputError(f"say which machine: --context {names[0]}=value, or a table of them")
    if table is not None:
        return read_machines(table, names)
    values = one_machine(context or [], names)
    fitted.description.context_map.matrix(values)  # refused here, if at all, as the one machine
    return Machines({name: np.array([value]) for name, value in values.items()}, None)


def beyond_logs(fitted: FittedFleet, context: dict[str, float]) -> dict[str, tuple[float, float]]:
    """The values of a context that no log has reached, with the range of the logs."""
    ranges = fitted.context_range
    return {
        name: ranges[name]
        for name, value in context.items()
        if name in ranges and not ranges[name][0] <= value <= ranges[name][1]
    }


def shown(context: dict[str, float], units: dict[str, str] | None = None) -> str:
    """A context in one line."""
    unit = units or {}
    parts = [f"{name} {value:.6g} {unit.get(name, '')}".strip() for name, value in context.items()]
    return ", ".join(parts) or "(no context)"


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
