"""Logs as transitions: which rows are good, and which row follows which.

A row is one step of one episode: its state x, the input u played there, the context. Row i + 1
follows row i if it has the same episode and the next step; then (x, u, x') is a transition.

- The last state of an episode is a row without inputs. Without such a row there is one transition
  less.
- A missing step splits an episode in two. That is counted, not refused.
- A row is bad if a value is missing, no number, not finite or out of bounds, if its step does not
  come after the one before, or if its context is not that of its episode. Bad rows are counted,
  located, and written to the quarantine; `strict` refuses them.

Rows are read in batches. The last good row of a batch is carried over to the next. A part of the
logs that begins in the middle looks back first, to know what would have been carried to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.faults import (
    Faults,
    context_changes,
    context_faults,
    order_faults,
    refuse_interleaved,
    value_faults,
)
from contextual_lqr.data.partitions import Part, last_rows, whole
from contextual_lqr.data.quarantine import BadRows, Quarantine
from contextual_lqr.data.report import PLACES, Report, joined
from contextual_lqr.data.rows import Columns, LinkedRows, columns_of, same_episode
from contextual_lqr.data.sources import find_sources, read_ahead, unused_columns
from contextual_lqr.errors import InputError

_LOOK_BACK = (1 << 10, 1 << 13, 1 << 16, 1 << 60)  # rows, until it is known what is carried


class LogReader:
    """Reads logs, or a part of them, batch by batch; `report` says what was found so far."""

    def __init__(
        self,
        description: FleetDescription,
        logs: Sequence[str] | Part,
        *,
        strict: bool = False,
        sort: bool = False,
        quarantine: Quarantine | BadRows | None = None,
    ) -> None:
        self.description, self.strict, self.sort = description, strict, sort
        self.part = logs if isinstance(logs, Part) else whole(find_sources(logs))
        self.report = Report()
        self._quarantine = quarantine
        self._carry: Columns | None = None
        self._carry_linked = False
        # Whether what is carried is what it would be had all rows before been read, too; and how
        # many good rows there were since the beginning of a file.
        self._settled = False
        self._since: int | None = None
        self._looking_back = False

    def batches(self, progress: Callable[[float], None] | None = None) -> Iterator[LinkedRows]:
        """All good rows, in batches; `progress` is told how much of the part is read."""
        done, size = 0.0, self.part.size
        for piece in self.part.pieces:
            source, before, first = piece.source, self.report.rows, piece.start + 1
            self._new_file = piece.start == 0
            self._since = 0 if self._new_file else None
            frames = source.batches(
                self.description, sort=self.sort, start=piece.start, stop=piece.stop
            )
            for frame in read_ahead(frames):
                if len(frame):
                    columns = columns_of(frame, source.name, first, self.description)
                    first += len(frame)
                    self.report.rows += len(frame)
                    if len(batch := self._linked(columns)):
                        yield batch
                if progress is not None:
                    read = (self.report.rows - before) / piece.rows if piece.rows else 0.5
                    progress((done + piece.size * min(read, 1.0)) / size)
            done += piece.size
            if piece.start:
                continue
            self.report.files += 1
            if self.report.rows == before:
                self.report.empty.append(source.name)
            for name in unused_columns(source, self.description):
                self.report.unused.setdefault(name, source.name)
        if self.part.alone:
            self.report.require_rows()
        if progress is not None:
            progress(1.0)

    def _look_back(self) -> None:
        """Find out what a reader of all rows before this part would carry over to it."""
        for rows in _LOOK_BACK if self.part.earlier else ():
            pieces = last_rows(self.part.earlier, rows, self.description)
            before = LogReader(self.description, Part(-1, pieces), sort=self.sort)
            before._looking_back = True
            for _ in before.batches():
                pass
            self._carry, self._carry_linked = before._carry, before._carry_linked
            if before._settled:
                return

    # -- one batch ---------------------------------------------------------------------------------

    def _linked(self, batch: Columns) -> LinkedRows:
        batch = self._without(batch, value_faults(batch, self.description))
        batch = self._joined(batch)
        same = same_episode(batch.episode)
        # Contexts first: a row is late only after rows that are good, which alone are carried over.
        if (same & context_changes(batch, self.description)).any():
            batch = self._without(batch, context_faults(batch, self.description, same))
            same = same_episode(batch.episode)
        ahead = np.diff(batch.step)
        if (same & (ahead <= 0)).any():
            batch = self._without(batch, order_faults(batch, same))
            same, ahead = same_episode(batch.episode), np.diff(batch.step)
        self._settled |= not same.all()  # with an episode everything begins anew
        if not self._looking_back:
            refuse_interleaved(batch, same)
        linked = same & (ahead == 1)
        self._count_splits(batch, same & ~linked)
        idle = np.isnan(batch.column(self.description.input_names[0])[:-1]) & linked
        if idle.any():
            # The state was good to arrive at; nothing is known of what followed.
            faults = np.append(idle, False)
            self._quarantined(batch, {"it has no inputs, though its episode goes on": faults})
            linked &= ~idle
        return self._counted(batch, linked)

    def _joined(self, batch: Columns) -> Columns:
        """The batch with the last good row before it, if that may go on here."""
        if not len(batch):
            return batch
        new_file, goes_on = self._new_file, not self._new_file or bool(batch.step[0] > 0)
        self._new_file = False
        if self._carry is None and goes_on:
            self._look_back()
        carry = self._carry
        if carry is None:
            return batch
        if carry.episode.dtype.kind != batch.episode.dtype.kind:  # numbers here, text there
            carry = replace(carry, episode=carry.episode.astype(str).astype(object))
            batch = replace(batch, episode=batch.episode.astype(str).astype(object))
        if new_file:  # an episode goes on in the next file only seamlessly, and not at step 0
            goes_on = (
                goes_on
                and carry.episode[0] == batch.episode[0]
                and batch.step[0] == carry.step[0] + 1
                and _label(carry) == _label(batch)
                and all(
                    carry.values[name][0] == batch.values[name][0]
                    for name in self.description.context_names
                )
            )
            if not goes_on:
                self._carry_linked = False
                return batch
        return batch.after(carry)

    def _counted(self, batch: Columns, linked: Array) -> LinkedRows:
        """Keeps the books, and the last row for the next batch."""
        n, report = len(batch), self.report
        own = n - (batch.carried is not None)
        at = np.flatnonzero(linked)
        starts = linked.copy()
        starts[1:] &= ~linked[:-1]
        if batch.carried is not None and len(linked):
            starts[0] &= not self._carry_linked
        begins = starts[at]
        report.transitions += len(at)
        report.episodes += int(begins.sum())
        if n:
            if self._since is not None:
                self._since += own
                self._settled |= self._since >= 2
            self._carry = batch.last()
            if n > 1:
                self._carry_linked = bool(linked[-1])
            elif batch.carried is None:
                self._carry_linked = False
        if own:
            columns = {name: batch.values[name] for name in self.description.context_names}
            seen = {name: (float(one.min()), float(one.max())) for name, one in columns.items()}
            report.context_range = joined(report.context_range, seen)
        return LinkedRows(self.description, batch, at, begins)

    # -- what is wrong with rows -------------------------------------------------------------------

    def _without(self, batch: Columns, faults: Faults) -> Columns:
        """The batch without its bad rows, which are counted and quarantined."""
        faults = {reason: rows for reason, rows in faults.items() if rows.any()}
        if not faults:
            return batch
        bad = self._quarantined(batch, faults)
        return batch.take(np.flatnonzero(~bad))

    def _quarantined(self, batch: Columns, faults: Faults) -> Array:
        bad = np.zeros(len(batch), bool)
        report = self.report
        for reason, rows in faults.items():
            new = rows & ~bad  # a row is counted once, for the first thing that is wrong with it
            bad |= rows
            if not new.any():
                continue
            report.bad[reason] = report.bad.get(reason, 0) + int(new.sum())
            places = report.first_bad.setdefault(reason, [])
            for row in batch.numbers(np.flatnonzero(new)[: max(PLACES - len(places), 0)]):
                places.append(f"{batch.source}, row {row}")
            if self.strict:
                raise InputError(f"{places[0]}: {reason}; without --strict it would be set aside")
            if self._quarantine is not None:
                at = np.flatnonzero(new)
                self._quarantine.add(batch.raw(at), batch.source, batch.numbers(at), reason)
        return bad

    def _count_splits(self, batch: Columns, gaps: Array) -> None:
        if not gaps.any():
            return
        self.report.splits += int(gaps.sum())
        before = np.flatnonzero(gaps)[: max(PLACES - len(self.report.first_splits), 0)]
        for i, row in zip(before, batch.numbers(before + 1), strict=True):
            self.report.first_splits.append(
                f"{batch.source}, row {row}: episode {batch.episode[i]} goes from "
                f"step {batch.step[i]:.0f} to {batch.step[i + 1]:.0f}"
            )


def _label(batch: Columns) -> str | None:
    """The machine of the first row."""
    return None if batch.machine is None else str(batch.machine[0])
