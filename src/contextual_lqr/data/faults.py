"""What can be wrong with rows of a log: for each reason, which rows of a batch are bad."""

from __future__ import annotations

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.rows import Columns
from contextual_lqr.errors import InputError

Faults = dict[str, Array]  # reason -> a truth value for each row


def value_faults(batch: Columns, description: FleetDescription) -> Faults:
    """Rows with values that are missing, unreadable, not finite or out of bounds."""
    faults: Faults = {}
    if batch.frame["episode"].null_count():
        faults["'episode' is missing"] = batch.frame["episode"].is_null().to_numpy()
    if batch.machine is not None and batch.frame["machine"].null_count():
        faults["'machine' is missing"] = batch.frame["machine"].is_null().to_numpy()
    if batch.step.dtype.kind == "f":
        finite = np.isfinite(batch.step)
        if not finite.all():
            faults.update(_unreadable(batch, "step", batch.step))
        with np.errstate(invalid="ignore"):
            whole = batch.step == np.floor(batch.step)
        faults["'step' is no whole number"] = ~whole & finite
    idle = _without_inputs(batch, description)
    for one in description.quantities:
        if one.constant:
            continue
        column = batch.values[one.name]
        if not np.isfinite(column.sum()):
            excused = idle if one.name in description.input_names else np.False_
            if (~np.isfinite(column) & ~excused).any():
                found = _unreadable(batch, one.name, column)
                faults.update({reason: rows & ~excused for reason, rows in found.items()})
        if np.isfinite(one.low) or np.isfinite(one.high):
            with np.errstate(invalid="ignore"):
                # nan compares false: it has been found above
                outside = (column < one.low) | (column > one.high)
            if outside.any():
                outside &= np.isfinite(column)
                bounds = f"[{one.low:g}, {one.high:g}]"
                faults[f"'{one.name}' is outside its bounds {bounds}"] = outside
    return {reason: rows for reason, rows in faults.items() if rows.any()}


def order_faults(batch: Columns, same: Array) -> Faults:
    """Rows whose step is not after all the steps of their episode before them."""
    again, back = (np.zeros(len(batch), bool) for _ in range(2))
    run = np.concatenate(([0], np.cumsum(~same)))
    for one in np.unique(run[1:][same & (np.diff(batch.step) <= 0)]):
        rows = np.flatnonzero(run == one)
        steps = batch.step[rows]
        latest = np.maximum.accumulate(steps)
        late = np.concatenate(([False], steps[1:] <= latest[:-1]))
        seen = np.zeros(len(steps), bool)
        _, first = np.unique(steps, return_index=True)
        seen[first] = True
        again[rows] = late & ~seen
        back[rows] = late & seen
    return {"its step is there already": again, "its step is out of order": back}


def context_changes(batch: Columns, description: FleetDescription) -> Array:
    """Whether each row but the first has another context, or machine, than the row before it."""
    changed = np.zeros(max(len(batch) - 1, 0), bool)
    for name in description.context_names:
        column = batch.column(name)
        changed |= column[1:] != column[:-1]
    if batch.machine is not None:
        changed |= np.asarray(batch.machine[1:] != batch.machine[:-1], bool)
    return changed


def context_faults(batch: Columns, description: FleetDescription, same: Array) -> Faults:
    """Rows whose context is not that of the first row of their episode."""
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    lengths = np.diff(np.append(starts, len(batch)))
    faults = {}
    columns: dict[str, Array] = {n: batch.column(n) for n in description.context_names}
    if batch.machine is not None:
        columns["machine"] = batch.machine
    for name, column in columns.items():
        changed = column != np.repeat(column[starts], lengths)
        faults[f"'{name}' changes inside the episode"] = np.asarray(changed, bool)
    return faults


def refuse_interleaved(batch: Columns, same: Array) -> None:
    """Episodes written in turns would be split at every row."""
    if len(same) < 16 or np.count_nonzero(same) > len(same) / 2:
        return
    runs = batch.episode[np.concatenate(([True], ~same))]
    if len(np.unique(runs)) < len(runs) / 2:
        raise InputError(
            f"{batch.source}: rows of different episodes are mixed; sort the log by episode "
            "and step, or let --sort do it"
        )


def _without_inputs(batch: Columns, description: FleetDescription) -> Array:
    """Rows all of whose inputs are missing (not text, not infinite): last states."""
    idle = np.ones(len(batch), bool)
    for name in description.input_names:
        idle &= np.isnan(batch.values[name])
        raw = batch.frame[name]
        if not raw.dtype.is_numeric() and idle.any():
            idle &= (
                raw.is_null().to_numpy()
                | raw.str.to_lowercase().eq("nan").fill_null(True).to_numpy()
            )
    return idle


def _unreadable(batch: Columns, name: str, column: Array) -> Faults:
    """Why values of a column are not finite: missing, text, or nan and infinities."""
    wrong = ~np.isfinite(column)
    raw = batch.frame[name]
    missing = raw.is_null().to_numpy()
    text = np.zeros(len(column), bool)
    if not raw.dtype.is_numeric():
        words = ["nan", "inf", "+inf", "-inf", "infinity"]
        text = ~raw.str.strip_chars().str.to_lowercase().is_in(words).fill_null(False).to_numpy()
    return {
        f"'{name}' is missing": wrong & missing,
        f"'{name}' is no number": wrong & ~missing & text,
        f"'{name}' is not finite": wrong & ~missing & ~text,
    }
