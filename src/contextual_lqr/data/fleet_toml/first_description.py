"""A first `fleet.toml` from a table, by asking nothing: what is a guess is marked as one."""

from __future__ import annotations

import json
import math
import os
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.fleet_toml.layout import TableOptions
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.headings import name_for, split_unit
from contextual_lqr.data.tables.table import Table, kind_of, opened
from contextual_lqr.data.tables.table_guess import (
    Guess,
    choose_features,
    find_machines,
    find_moving,
    find_order,
    join_contexts,
    looked_at,
    residuals,
    sizes,
)
from contextual_lqr.errors import InputError
from contextual_lqr.files import require_regular

_MARK = "# guess"
_MEMORY = 1.25  # by which a law without the step before must be worse
_OFFSET = 1.05  # by which a law without a constant must be worse


def describe_table(log: str, contexts: str | None = None, *, folder: Path | None = None) -> str:
    """Guess a description of a fleet from a table of logs; guesses are marked as guesses.

    Parameters
    ----------
    log
        A Parquet, CSV or Excel file with one row per step.
    contexts
        A table of the machines' contexts, if the log does not have them.
    folder
        Where the description will be: the path of the table of contexts is relative to it.

    Returns
    -------
    str
        The text of a `fleet.toml`.

    Raises
    ------
    InputError
        If a table cannot be read, or has no steps or times, no context, or no two numbers that
        change.
    """
    try:
        with _opened(log) as table:
            guess = looked_at(log, table)
            machines: Table | None = None
            if contexts is None:
                find_machines(guess, table)
            else:
                with _opened(contexts) as machines:
                    join_contexts(guess, table, machines)
            find_order(guess, table)
    except pl.exceptions.NoDataError as error:
        raise InputError(f"there is nothing to describe in {error}") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"cannot read {log}: {str(error).splitlines()[0]}") from None
    find_moving(guess, own_contexts=contexts is None)
    return _written(guess, contexts, folder or Path())


def _opened(path: str) -> AbstractContextManager[Table]:
    require_regular(path)
    return opened(os.path.basename(path), os.path.abspath(path), kind_of(path), TableOptions())


# -- the text --------------------------------------------------------------------------------------


def _written(guess: Guess, contexts: str | None, folder: Path) -> str:
    names: dict[str, str] = {}
    for heading in (*guess.states, *guess.inputs, *guess.contexts):
        names[heading] = name_for(heading, names.values())
    features, values = choose_features(guess, names)
    left = residuals(guess, values, constant=True)
    without = residuals(guess, values, constant=False)
    constant = bool((without > _OFFSET * left).any())
    noise = float(np.median(left if constant else without))
    longer = residuals(guess, values, constant=constant, before=True)
    partial = bool(((left if constant else without) > _MEMORY * longer).any())
    kind = "states", "numbers that change, and are not inputs by their headings"
    if partial:
        kind = "outputs", "not a whole state: with the previous step they predict better"
    seen = guess.contexts | guess.listed
    noise = noise if noise > 0 else 1e-9 * float(sizes(guess, guess.states).max())
    lines = [
        f"# Guessed from {guess.log}: check every line that is marked as a guess.",
        "# `contextual-lqr new template.toml` writes a description with every field explained.",
        "",
        f"[{kind[0]}] {_MARK}: {kind[1]}",
        *(f"{names[one]} = {_text(split_unit(one)[1])}" for one in guess.states),
        *(["one = { constant = true } # guess: predicts better"] if constant else []),
        "",
        f"[inputs] {_MARK}: by their headings, or what is hardest to predict",
        *(f"{names[one]} = {_text(split_unit(one)[1])}" for one in guess.inputs),
        "",
        f"[contexts] {_MARK}: the same in all rows of a machine; bounds are what the table has",
        *(_context(names[one], one, values) for one, values in seen.items()),
        "",
        "[context_map]",
        'kind = "features"',
        f"features = [{', '.join(map(_text, features))}] {_MARK}: what predicts the table best",
        "",
        "[task]",
        f"horizon = 50 {_MARK}: states of an episode",
        f"start = {{ {names[guess.states[0]]} = {_size(guess, guess.states[0])} }} {_MARK}",
        "",
        f"[cost] {_MARK}: each by the inverse square of its spread",
        f"Q = {{ {', '.join(f'{names[one]} = {_weight(guess, one)}' for one in guess.states)} }}",
        f"R = {{ {', '.join(f'{names[one]} = {_weight(guess, one)}' for one in guess.inputs)} }}",
        "",
        "[learning]",
        f"noise_level = {noise:.2g} {_MARK}: the error of one law for the whole table",
        "",
        *_logs(guess, contexts, folder),
        "",
        '[columns] # headings; { column = "angle [deg]", factor = 0.01745 } changes units',
        *(
            f"{role} = {_text(guess.labels[role])}"
            for role in ("episode", "step")
            if role in guess.labels
        ),
        *(f"{names[one]} = {_text(one)}" for one in names),
    ]
    return "\n".join(lines) + "\n"


def _logs(guess: Guess, contexts: str | None, folder: Path) -> list[str]:
    lines = []
    if "machine" in guess.labels:
        lines.append(f"machine = {_text(guess.labels['machine'])} {_MARK}")
    if contexts is not None:
        path = os.path.relpath(os.path.abspath(contexts), os.path.abspath(folder))
        lines.append(f"contexts = {_text(path)}")
    if "time" in guess.labels:
        lines.append(f"time = {_text(guess.labels['time'])} {_MARK}")
        said = f"in seconds, the median of the table; numbers are read as {guess.unit}"
        lines.append(f"period = {guess.period:g} {_MARK}: {said}")
    return ["[logs]", *lines] if lines else []


def _context(name: str, heading: str, values: Array) -> str:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    unit = _text(split_unit(heading)[1])
    return f"{name} = {{ unit = {unit}, low = {_rounded(low, -1)}, high = {_rounded(high, 1)} }}"


def _rounded(value: float, direction: int) -> str:
    """Outward, to two digits."""
    if value == 0:
        return "0.0"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    steps = value / unit
    steps = math.floor(steps + 1e-9) if direction < 0 else math.ceil(steps - 1e-9)
    return repr(float(f"{steps * unit:.3g}"))


def _size(guess: Guess, heading: str) -> str:
    return repr(float(f"{sizes(guess, [heading])[0]:.1g}"))


def _weight(guess: Guess, heading: str) -> str:
    return repr(float(f"{sizes(guess, [heading])[0] ** -2:.1g}"))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
