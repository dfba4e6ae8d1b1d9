"""Transitions whose states are histories: the columns of a log, some of them steps ago.

Of a run of L transitions, one after the other, the next one has a whole history. What a column was
i steps ago is the column itself, begun i rows earlier: nothing is copied. If the past fades, it is
computed, each run by itself. Runs do not go on from one stretch to the next, so that what is learnt
does not depend on where a log is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt64
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.episodes import Names, RowLabels
from contextual_lqr.belief.fading import faded
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.rows import Labels
from contextual_lqr.data.transitions import Transitions


class LaggedColumns(NamedTuple):
    """What `Decoder.update_columns` takes, and how many episodes are shorter than the history."""

    contexts: dict[str, Array]
    states: list[Array]
    inputs: list[Array]
    next_states: list[Array]
    chosen: Int[Array, " some"]
    machine: RowLabels | None
    short: int


def lagged_columns(batch: Transitions, new: Bool[Array, " n"] | None = None) -> LaggedColumns:
    """Transitions of stretches as transitions of histories; of these, where given, the new."""
    about, at, rows = batch.description, batch.at, batch.rows
    assert about.history is not None
    L = about.history.reach
    continues = batch.follows & ~batch.begins & (np.diff(batch.stretch, prepend=-1) == 0)
    starts = np.flatnonzero(~continues)
    lengths = np.diff(starts, append=len(at))
    run = np.arange(len(at)) - np.repeat(starts, lengths)  # how many there are before each
    new = np.ones(len(at), bool) if new is None else new
    chosen = at[(run >= L) & new] - L
    values = dict(rows.values)
    for one in about.declared:
        if one.wraps is not None:
            values[one.name] = unwrapped(values[one.name], at, continues, one.wraps)
    count = len(rows.values[about.input_names[0]]) - 1 - L
    long = lengths > L
    pasts = _pasts(about, values, at[starts[long]], lengths[long])

    def column(name: str, lag: int, ahead: int = 0) -> Array:
        past = pasts.get((name, lag))
        if past is not None:
            return past[L + ahead : L + ahead + count]
        first = L - lag + ahead
        return np.asarray(values[name][first : first + count])

    labels = None if rows.machine is None else rows.machine[L : L + count].named
    return LaggedColumns(
        {name: column(name, 0) for name in about.context_names},
        [column(name, lag) for name, lag in about.lags],
        [column(name, 0) for name in about.input_names],
        [column(name, lag, 1) for name, lag in about.lags],
        chosen,
        labels,
        int(np.count_nonzero((lengths <= L) & (batch.begins & new)[starts])),
    )


def _pasts(
    about: FleetDescription,
    values: Mapping[str, Array],
    firsts: Int[Array, " runs"],
    lengths: Int[Array, " runs"],
) -> dict[tuple[str, int], Array]:
    """By column and stage what fades, in the runs of transitions with these first rows, lengths."""
    if about.history is None or about.history.spacing == 1:
        return {}
    found: dict[tuple[str, int], Array] = {}
    last = {name: lag for name, lag in about.lags}  # stages, of each column
    for name, most in last.items():
        late = about.history.delay if name in about.input_names else 0
        many, column = most - late, np.asarray(values[name], float)
        if many < 1:
            continue
        stages = np.zeros((many, len(column)))
        for length in np.unique(lengths).tolist():  # runs of one length together
            rows = firsts[lengths == length] + np.arange(length + 1)[:, None]
            own = column[rows]
            own = np.concatenate((own[:1].repeat(late, 0), own[: len(own) - late]))
            stages[:, rows] = faded(own, many, about.history.spacing)[1:]
        found |= {(name, late + k): stage for k, stage in enumerate(stages, 1)}
    return found


def unwrapped(
    column: Array, at: Int[Array, " n"], continues: Bool[Array, " n"], period: float
) -> Array:
    """A column that begins anew after a period, without its jumps within runs of transitions."""
    jumps = np.zeros(len(column))
    jumps[at + 1] = -period * np.round((column[at + 1] - column[at]) / period)
    total = np.cumsum(jumps)
    begun = np.zeros(len(column), np.int64)
    begun[at[~continues]] = at[~continues]
    return np.asarray(column + total - total[np.maximum.accumulate(begun)])


def joined(held: Sequence[Transitions]) -> Transitions:
    """The pieces of one stretch as one; a piece that goes on begins in the row where one ended."""
    first = held[0]
    if len(held) == 1:
        return first
    rows, values = first.rows, {name: [column] for name, column in first.rows.values.items()}
    at, count = [first.at], len(first.rows)
    for piece in held[1:]:
        skip = int(not piece.begins[0])
        for name, column in piece.rows.values.items():
            values[name].append(column[skip:])
        at.append(piece.at + count - skip)
        count += len(piece.rows) - skip
    same = None
    if rows.machine is not None:
        same = Labels(np.zeros(count, int), Names(rows.machine[:1].text))
    whole = replace(
        rows,
        origin=np.arange(count),
        step=np.arange(count),
        machine=same,
        episode=Labels(np.zeros(count, int)),
        values={name: np.concatenate(pieces) for name, pieces in values.items()},
    )
    begins = np.concatenate([piece.begins for piece in held])
    stretch = np.full(len(begins), first.stretch[0])
    return Transitions(first.description, whole, np.concatenate(at), begins, stretch)


def teach_histories(
    batch: Transitions,
    new: Bool[Array, " n"],
    decoder: Decoder,
    digests: UInt64[Array, " stretches"],
) -> int:
    """Let a decoder learn what is new; returns how many episodes are shorter than the history."""
    short = 0
    starts = np.diff(batch.stretch, prepend=batch.stretch[:1]) != 0
    cuts = [0, *np.flatnonzero(starts & ~batch.begins).tolist(), len(batch)]
    for first, end in pairwise(cuts):  # no episode goes on from one stretch to the next in a piece
        part = slice(first, end)
        told = lagged_columns(batch[part], new[part])
        short += told.short
        decoder.update_columns(
            told.contexts,
            told.states,
            told.inputs,
            told.next_states,
            chosen=told.chosen,
            episodes=int(np.count_nonzero(batch.begins[part] & new[part])) - told.short,
            machine=told.machine,
            digests=digests if first == 0 else digests[:0],
        )
    return short
