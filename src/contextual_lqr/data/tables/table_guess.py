"""What a table of logs seems to hold.

machine, episode, step, time     by their headings
contexts                         numbers that stay the same in each machine, and differ between
inputs                           by their headings or, failing that, what is hardest to predict
states                           the other numbers
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.data.fleet_toml.layout import Column
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.tables.headings import INPUTS, is_label, words_of
from contextual_lqr.data.tables.table import Table
from contextual_lqr.data.tables.time_stamps import TimeStamps
from contextual_lqr.errors import InputError

_ROWS = 200_000  # that are looked at
_HUGE = 1e100  # beyond, a number is none


@dataclass
class Guess:
    """What a table seems to hold; all by headings."""

    log: str
    numbers: dict[str, Array]
    labels: dict[str, str] = field(default_factory=dict)  # machine, episode, step, time
    machine: Array | None = None  # of each row
    run: Array | None = None  # rows of one episode have one number
    follows: Array | None = None  # whether each row goes on where the row before ends
    period: float | None = None
    unit: str = "seconds"  # of numbers that are times
    contexts: dict[str, Array] = field(default_factory=dict)  # of each row
    listed: dict[str, Array] = field(default_factory=dict)  # the same of all machines in a table
    inputs: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)


def _column(table: Table, heading: str, name: str = "value") -> pl.Series:
    """A column; text as it is under the name of a label, else with its decimal commas read."""
    return table.select({name: Column(heading)}).head(_ROWS).collect()[name]


def _numbers(table: Table) -> dict[str, Array]:
    """The columns that are numbers, nearly all of them."""
    found = {}
    for heading in dict.fromkeys(one for one in table.headings if table.headings.count(one) == 1):
        if not heading:
            continue
        raw = _column(table, heading)
        if not (raw.dtype.is_numeric() or raw.dtype == pl.String):
            continue
        raw = raw.str.strip_chars() if raw.dtype == pl.String else raw
        column = raw.cast(pl.Float64, strict=False)
        if len(raw) and column.null_count() - raw.null_count() <= 0.05 * len(raw):
            values = column.fill_null(math.nan).to_numpy()
            found[heading] = np.where(np.abs(values) < _HUGE, values, np.nan)
    return {heading: one for heading, one in found.items() if np.isfinite(one).any()}


def looked_at(log: str, table: Table) -> Guess:
    """Its numbers, and its labels by their headings."""
    guess = Guess(os.path.basename(log), _numbers(table))
    if times := [one for one in table.headings if is_label(one, "time")]:
        # Of a date and a time of day, in two columns, it is the latter that tells rows apart.
        guess.labels["time"] = max(times, key=lambda one: _times(guess.log, table, one))
    for role in ("episode", "step", "machine"):
        for heading in table.headings:
            if heading not in guess.labels.values() and is_label(heading, role):
                guess.labels[role] = heading
                break
    return guess


def _times(log: str, table: Table, heading: str) -> int:
    """How many different times a column tells; 0 if it cannot be read."""
    try:
        times = TimeStamps(log, heading).seconds(_column(table, heading, "time"))
    except InputError:
        return 0
    return len(np.unique(times[np.isfinite(times)]))


def find_machines(guess: Guess, table: Table) -> None:
    """Machines by a heading or, failing that, by the first column of text that repeats."""
    rows = max(map(len, guess.numbers.values()), default=0)
    if "machine" not in guess.labels:
        for heading in table.headings:
            if heading in guess.numbers or heading in guess.labels.values() or not heading:
                continue
            if is_label(heading, "time"):
                continue
            text = _column(table, heading, "machine")
            if 1 < text.n_unique() <= rows / 5:
                guess.labels["machine"] = heading
                break
    if "machine" in guess.labels:
        guess.machine = _codes(_column(table, guess.labels["machine"], "machine"))


def join_contexts(guess: Guess, table: Table, machines: Table) -> None:
    """Machines by what both tables have, and their contexts."""
    both = [one for one in table.headings if one and one in machines.headings]
    label = guess.labels.get("machine")
    if not both:
        raise InputError(
            f"{guess.log} and {machines.name} have no heading in common, by which contexts could "
            f"be joined: {', '.join(table.headings)}; {', '.join(machines.headings)}"
        )
    guess.labels["machine"] = label = label if label in both else both[0]
    text = _column(table, label, "machine").cast(pl.String).str.strip_chars()
    guess.machine = _codes(text)
    names = _column(machines, label, "machine").cast(pl.String).str.strip_chars()
    place = {name: i for i, name in enumerate(names.to_list())}
    at = np.array([place.get(one, -1) for one in text.to_list()])
    for heading, values in _numbers(machines).items():
        each = np.where(at >= 0, values[at], np.nan)
        if heading != label and len(np.unique(each[np.isfinite(each)])) > 1:
            guess.contexts[heading], guess.listed[heading] = each, values


def _codes(labels: pl.Series) -> Array:
    return np.asarray(labels.rank("dense").fill_null(0).to_numpy())


def find_order(guess: Guess, table: Table) -> None:
    """Which row follows which: by episode and step, or by time."""
    labels, rows = guess.labels, max(map(len, guess.numbers.values()), default=0)
    for name in labels.values():
        guess.numbers.pop(name, None)
    group = np.zeros(rows) if guess.machine is None else guess.machine
    if "episode" in labels:
        group = group + 1j * _codes(_column(table, labels["episode"], "episode"))
    same = group[1:] == group[:-1]
    if "time" in labels and not ("step" in labels and "episode" in labels):
        stamps = TimeStamps(guess.log, labels["time"])
        time = stamps.seconds(_column(table, labels["time"], "time"))
        guess.unit = stamps.words or guess.unit
        labels.pop("step", None)
    elif "step" in labels:
        text = _column(table, labels["step"]).cast(pl.String).str.strip_chars()
        time = text.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
        labels.pop("time", None)
        if "episode" not in labels:  # a count that begins again is a clock of period 1
            labels["time"] = labels.pop("step")
    else:
        raise InputError(
            f"{guess.log} has no column of steps or time stamps that is known by its heading, "
            f"such as 'step' or 'time'; it has {', '.join(table.headings)}"
        )
    ahead = np.diff(time)
    forward = ahead[same & (ahead > 0)]
    if not len(forward):
        raise InputError(f"{guess.log}: no row has a later time than the row before it")
    guess.period = float(f"{np.median(forward):.3g}")
    guess.follows = same & (np.abs(ahead / guess.period - 1) < 0.5)
    guess.run = np.cumsum(np.append(True, ~guess.follows))


def find_moving(guess: Guess, *, own_contexts: bool) -> None:
    """Contexts, inputs and states among the numbers."""
    who = guess.machine if guess.machine is not None else guess.run
    assert who is not None
    for heading, values in list(guess.numbers.items()):
        if np.nanmin(values) == np.nanmax(values):
            del guess.numbers[heading]  # it says nothing
        elif own_contexts and _constant_within(values, who):
            guess.contexts[heading] = guess.numbers.pop(heading)
    if not guess.contexts:
        raise InputError(
            f"no number of {guess.log} differs from machine to machine and stays the same in each: "
            "a fleet needs such a context. If contexts are in another table, give it: --contexts"
        )
    if len(guess.numbers) < 2:
        raise InputError(f"{guess.log} has no two columns of numbers that move: states and inputs")
    numbers = guess.numbers
    guess.inputs = [one for one in numbers if INPUTS & set(words_of(one))]
    surprise = {one: _surprise(values, guess) for one, values in numbers.items()}
    if not guess.inputs:
        guess.inputs = [max(surprise, key=surprise.__getitem__)]
    if len(guess.inputs) == len(numbers):
        guess.inputs.remove(min(surprise, key=surprise.__getitem__))
    guess.states = [one for one in numbers if one not in guess.inputs]


def _constant_within(values: Array, who: Array) -> bool:
    order = np.argsort(who, kind="stable")
    v, same = values[order], np.diff(who[order]) == 0
    return bool(np.all(~same | (v[1:] == v[:-1])))


def _surprise(values: Array, guess: Guess) -> float:
    """How much of a column's variance the row before does not tell."""
    assert guess.follows is not None
    now, then = values[:-1][guess.follows], values[1:][guess.follows]
    good = np.isfinite(now) & np.isfinite(then)
    now, then = now[good], then[good]
    if len(now) < 3 or now.std() == 0 or then.std() == 0:
        return 1.0
    return 1 - float(np.corrcoef(now, then)[0, 1]) ** 2


# -- what the rows say -----------------------------------------------------------------------------


def choose_features(guess: Guess, names: Mapping[str, str]) -> tuple[list[str], list[Array]]:
    """How each context enters, c or 1/c, by what predicts better; and their values."""
    features, values = ["1"], [np.ones(len(next(iter(guess.numbers.values()))))]
    for heading, c in guess.contexts.items():
        choices = [(names[heading], c)]
        if np.nanmin(c) > 0:
            choices.insert(0, (f"1/{names[heading]}", 1 / c))
        left = [_residual(guess, [*values, f]) for _, f in choices]
        text, f = choices[int(np.argmin(left))]
        features.append(text)
        values.append(f)
    return features, values


def _residual(guess: Guess, features: Sequence[Array]) -> float:
    """The mean of the states' residuals over their sizes, of the law with these features."""
    left = residuals(guess, features, constant=True)
    return float(np.mean(left / sizes(guess, guess.states)))


def residuals(
    guess: Guess, features: Sequence[Array], *, constant: bool, before: bool = False
) -> Array:
    """The root mean square of what the law with these features leaves of each state.

    `before` adds the step before to what the law may use.
    """
    assert guess.follows is not None
    moving = np.stack([guess.numbers[one] for one in (*guess.states, *guess.inputs)], 1)
    moving = np.append(moving, np.ones((len(moving), 1)), 1) if constant else moving
    at = np.flatnonzero(guess.follows)
    at = at[:: max(len(at) // 20_000, 1)]
    at = at[at > 0] if before else at
    Z = np.concatenate([moving[at] * f[at, None] for f in features], 1)
    if before:
        Z = np.concatenate([Z, *(moving[at - 1] * f[at, None] for f in features)], 1)
        Z[~guess.follows[at - 1]] = np.nan
    after = moving[at + 1, : len(guess.states)]
    good = np.isfinite(Z).all(1) & np.isfinite(after).all(1)
    require(good.any(), f"{guess.log} has no two complete rows, one after the other")
    Z, after = Z[good], after[good]
    size = np.sqrt(np.square(Z).mean(0))
    Z = Z / np.where(size > 0, size, 1)
    theta = np.linalg.lstsq(Z, after, rcond=None)[0]
    return np.asarray(np.sqrt(np.square(after - Z @ theta).mean(0)))


def sizes(guess: Guess, names: Sequence[str]) -> Array:
    """The standard deviations of columns; 1 for one that does not move."""
    found = np.array([np.nanstd(guess.numbers[one]) for one in names])
    return np.where(found > 0, found, 1.0)
