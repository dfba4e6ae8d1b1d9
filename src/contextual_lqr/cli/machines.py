"""Machines as a user names them: `--context mass=2.0,length=1`, or a table with a row a machine.

A machine that was logged under a label, `--machine M-011` or the column `machine` of a table, has
data of its own if they were logged with the same context.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import require
from contextual_lqr.cli.terminal import Console, say
from contextual_lqr.context import Schedule
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.data import FittedFleet, FleetDescription
from contextual_lqr.data.given_tables import read_given
from contextual_lqr.data.machine_context import logged_contexts
from contextual_lqr.errors import InputError


def load_learnt(path: Path) -> FittedFleet:
    """What `fit` wrote, if there was any log in it."""
    fitted = FittedFleet.load(path)
    learnt = fitted.decoder.rows > 0
    require(learnt, f"{path} has learnt from no log yet: `contextual-lqr fit` comes first")
    return fitted


@dataclass(frozen=True, eq=False)
class Machines:
    """Contexts by name, an array each; what the machines are called, if that is said.

    `own_rows` has for each how many rows of its own the decoder has learnt, if that was asked.
    """

    contexts: dict[str, Array]
    labels: list[str] | None
    own_rows: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.contexts.values()))) if self.contexts else 1

    @property
    def own_labels(self) -> list[str | None]:
        """The labels of those that have data of their own, None for the others."""
        labels = self.labels or [""] * len(self)
        return [label if n else None for label, n in zip(labels, self.own_rows, strict=True)]

    @property
    def rows(self) -> list[dict[str, float]]:
        """One mapping a machine."""
        return one_by_one(self.contexts) if self.contexts else [{}]


def one_machine(
    pairs: Sequence[str], names: Sequence[str], what: str = "context"
) -> dict[str, float]:
    """The context in `name=value` pairs, separated by commas or given one by one."""
    found: dict[str, float] = {}
    for pair in (part.strip() for text in pairs for part in text.split(",")):
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InputError(f"a {what} is written name=value, as in mass=2.0, not {pair!r}")
        if name not in names:
            raise InputError(f"there is no {what} '{name}' (there is {_listed(names)})")
        if name in found:
            raise InputError(f"the {what} '{name}' is given twice")
        try:
            found[name] = float(text)
        except ValueError:
            raise InputError(f"the {what} '{name}' must be a number, not {text!r}") from None
        if not math.isfinite(found[name]):
            raise InputError(f"the {what} '{name}' must be finite, not {text}")
    if missing := [name for name in names if name not in found]:
        raise InputError(f"the {what} lacks {_listed(missing)}")
    return found


def read_machines(
    path: Path, about: FleetDescription, names: Sequence[str] | None = None
) -> Machines:
    """A machine a row, with its context, or some of it; other columns are ignored."""
    names = about.context_names if names is None else names
    found = read_given(path, about.layout, names, about.machine_column or "machine")
    if missing := [name for name in names if name not in found.columns]:
        called = [dict.fromkeys((about.layout.column(name).heading, name)) for name in missing]
        listed = ", ".join(" or ".join(map(repr, one)) for one in called)
        raise InputError(f"{path} lacks the column {listed} of the context")
    if not found.rows:
        raise InputError(f"{path} names no machine")
    for sentence in found.said:
        say(Console(stderr=True), sentence)
    return Machines(found.columns, found.labels)


def chosen_machines(
    fitted: FittedFleet,
    context: Sequence[str] | None,
    table: Path | None,
    machine: str | None = None,
) -> Machines:
    """What `--context`, `--contexts` or `--machine` name: a machine, or a table of them.

    A machine by its label may leave its context out, if the logs have it with one context only.
    """
    names = fitted.description.context_names
    if table is not None and context is None and machine is None:
        return _with_own_rows(fitted, read_machines(table, fitted.description))
    if table is not None or (context is None and machine is None and names):
        raise InputError(
            f"say which machine: --context {names[0]}=value, --machine LABEL, or a table of them"
        )
    if machine is None or context is not None:
        values = one_machine(context or [], names)
        fitted.description.context_map.matrix(values)  # refused here, if at all, as the one machine
    else:
        values = _logged(fitted, machine)
    contexts = {name: np.array([value]) for name, value in values.items()}
    found = _with_own_rows(fitted, Machines(contexts, None if machine is None else [machine]))
    if machine is not None and not found.own_rows[0]:
        known = [one for one in _all_logged(fitted, machine) if one is not None]
        its = f": its data are from {'; '.join(map(shown, known))}" if known else ""
        raise InputError(f"there are no data of '{machine}' with this context{its}")
    return found


def _with_own_rows(fitted: FittedFleet, machines: Machines) -> Machines:
    """Look up which of the labels have data of their own, with this very context."""
    store, context_map = fitted.decoder.store, fitted.decoder.context_map
    counts = [0] * len(machines)
    for i, (label, context) in enumerate(zip(machines.labels or (), machines.rows, strict=False)):
        if store is not None and (known := dict(store.of_label(label))):
            place = store.place(label, context_map.keys([context])[0])
            counts[i] = 0 if place is None else known[place].rows
    return replace(machines, own_rows=tuple(counts))


def _logged(fitted: FittedFleet, machine: str) -> dict[str, float]:
    """The one context that a machine was logged with, if it can be told."""
    found = _all_logged(fitted, machine)
    if len(found) > 1:
        known = "; ".join(shown(one) for one in found[:3] if one is not None)
        said = f", among them {known}" if known else ""
        raise InputError(
            f"'{machine}' has been logged with {len(found)} contexts{said}: say which, with "
            "--context"
        )
    if found[0] is None:
        raise InputError(f"the logs do not say the context of '{machine}': give it with --context")
    return found[0]


def _all_logged(fitted: FittedFleet, machine: str) -> list[dict[str, float] | None]:
    found = logged_contexts(fitted, machine)
    if not found:
        store = fitted.decoder.store
        labels = sorted(set(store.labels) - {""}) if store is not None else []
        if not labels:
            raise InputError("the logs name no machines: they have no column that says which")
        alike = difflib.get_close_matches(machine, labels, n=1)
        hint = f"did you mean '{alike[0]}'?" if alike else f"there are {_few(labels)}"
        raise InputError(f"there are no data of a machine '{machine}'; {hint}")
    return found


def beyond_logs(
    fitted: FittedFleet, context: dict[str, float] | Schedule
) -> dict[str, tuple[float, float]]:
    """The values of a context, or of a schedule, that no log has reached, and the logs' range."""
    ranges = fitted.context_range
    return {
        name: ranges[name]
        for one in (context.one_by_one if isinstance(context, Schedule) else [context])
        for name, value in one.items()
        if name in ranges and not ranges[name][0] <= value <= ranges[name][1]
    }


def own_data(decoder: Decoder, rows: int) -> str:
    """What a machine has itself shown, and what that counts for, in words."""
    if not rows:
        return "none: this rests on the other machines"
    said = f"{rows:,} row{'s' if rows > 1 else ''} of its own"
    if not decoder.deviations.any():
        said += ", which count like any other's: no machine deviates from the law"
    return said


def shown(context: dict[str, float] | Schedule, units: dict[str, str] | None = None) -> str:
    """A context in one line."""
    if isinstance(context, Schedule):
        first, last = (shown(context.one_by_one[i], units) for i in (0, -1))
        return f"{len(context)} steps, from {first} to {last}"
    unit = units or {}
    parts = [f"{name} {value:.6g} {unit.get(name, '')}".strip() for name, value in context.items()]
    return ", ".join(parts) or "(no context)"


def _few(labels: Sequence[str], most: int = 5) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return _listed(labels[:most]) + more


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
