"""From rows of logs to transitions (context, x, u, x').

A row is one step of one episode: its state x, the input u played there, the context. Row i + 1
follows row i if it has the same episode and the next step; then (x, u, x') is a transition.

- The last state of an episode is a row without inputs. If it is not logged, there is one transition
  less.
- A missing step splits an episode in two. That is counted, not refused.
- A row is bad if a value is missing, not a number, not finite or out of bounds, if its step does
  not come after the one before, or if its context is not that of its episode, unless that varies.
  Bad rows are counted, located, and kept for the quarantine; `strict` refuses them.
- Steps that fall back split an episode, too: a counter was reset, and the next good row may be long
  after the last. Only a row that repeats the one before, to the last digit, does no harm.

The last good row of a frame is carried over to the next. A part of the logs that begins in the
middle looks back first, to know what would have been carried to it.

Whether a log was learnt before is told by the stretches of its episodes: all transitions of an
episode from one multiple of STRETCH steps to the next. The same rows make the same stretch in
whatever file, wherever in it, and of however long a log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from jaxtyping import Bool, Int, UInt64
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.evidence.digests import row_hashes
from contextual_lqr.belief.evidence.episodes import Names
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.rows import LabelBook, Labels, Rows
from contextual_lqr.data.screening import (
    PLACES,
    BadRows,
    Faults,
    LogReport,
    context_faults,
    joined_ranges,
    order_faults,
    refuse_interleaved,
    value_faults,
)
from contextual_lqr.data.sources import Part, last_rows, read_ahead
from contextual_lqr.errors import InputError

STRETCH = 1 << 12  # steps; most episodes are one stretch, and none too long to be held
_LOOK_BACK = (1 << 10, 1 << 13, 1 << 16, 1 << 60)  # rows, until it is known what is carried


Columns = tuple[dict[str, Array], list[Array], list[Array], list[Array]]


@dataclass(frozen=True)
class Transitions:
    """Rows of a log that lead to the row after them: rows `at` of the columns."""

    description: FleetDescription
    rows: Rows
    at: Int[Array, " n"]
    begins: Bool[Array, " n"]  # with which of them an episode, or a part of a split one, begins
    stretch: Int[Array, " n"]  # of which stretch they are; 0 is one that began before the part

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, which: slice | Bool[Array, " n"]) -> Transitions:
        some = self.at[which], self.begins[which], self.stretch[which]
        return Transitions(self.description, self.rows, *some)

    @property
    def starting(self) -> list[str]:
        """The labels of the machines, if they have any, whose episodes begin here."""
        labels = self.rows.machine
        return [] if labels is None else labels[self.at[self.begins]].text

    @property
    def follows(self) -> Bool[Array, " n"]:
        """Which of them go on where the transition before them here ends."""
        return np.asarray(np.diff(self.at, prepend=-2) == 1)

    def of_machine(self, name: str) -> Transitions:
        """Those of one machine."""
        machines = self.machines()
        wanted = np.array([one == name for one in machines.names or ()], bool)
        return self[wanted[machines.codes]]

    def compact(self) -> Transitions:
        """The same without the rows around them."""
        first, last = int(self.at[0]), int(self.at[-1]) + 1
        rows = self.rows.take(np.arange(first, last + 1))
        return replace(self, rows=rows.compact(), at=self.at - first)

    def hashes(self) -> UInt64[Array, " n"]:
        """A hash of what each says: the step, the machine, its context, x, u and x'."""
        about, few = self.description, slice(int(self.at[0]), int(self.at[-1]) + 2)
        columns = {name: column[few] for name, column in self.rows.values.items()}
        x = row_hashes([columns[one.name] for one in about.declared])
        given = row_hashes([columns[name] for name in (*about.context_names, *about.input_names)])
        own = [x[:-1], given[:-1], x[1:], self.rows.step[few][:-1].astype(np.float64)]
        if self.rows.machine is not None:
            own.append(self.rows.machine[few][slice(None, -1)].hashes())
        return np.asarray(row_hashes(own)[self.at - self.at[0]])

    def contents(self) -> UInt64[Array, " n"]:
        """A hash of each without its step: the same wherever in an episode it is."""
        few = slice(int(self.at[0]), int(self.at[-1]) + 2)
        x = row_hashes([self.rows.values[one.name][few] for one in self.description.declared])
        names = (*self.description.context_names, *self.description.input_names)
        own = [x[:-1], x[1:], *(self.rows.values[name][few][:-1] for name in names)]
        if self.rows.machine is not None:
            own.append(self.rows.machine[few][slice(None, -1)].hashes())
        return np.asarray(row_hashes(own)[self.at - self.at[0]])

    def place(self, i: int) -> str:
        """Where the row of one of them is."""
        rows = self.rows
        return f"{rows.source}, row {int(rows.origin[self.at[i]]) + rows.first}"

    def teach(self, decoder: Decoder, digests: UInt64[Array, " stretches"]) -> None:
        """Let a decoder learn them, from the columns as they were read, and who they are of."""
        now = {name: column[:-1] for name, column in self.rows.values.items()}
        then = {name: column[1:] for name, column in self.rows.values.items()}
        episodes = int(np.count_nonzero(self.begins))
        labels = self.rows.machine
        machine = None if labels is None else labels[:-1].named
        decoder.update_columns(
            *self._sides(now, then),
            chosen=self.at,
            episodes=episodes,
            machine=machine,
            digests=digests,
            changing=bool(self.description.varying_names),
        )

    def machines(self) -> Labels:
        """Which machine each is of: by its label or, without labels, by equal contexts."""
        starts = np.flatnonzero(~self.follows)  # an episode is of one machine
        labels, at = self.rows.machine, self.at[starts]
        if labels is not None:
            names = labels[at].text
        else:
            columns = {name: self.rows.values[name] for name in self.description.context_names}
            form = ", ".join(f"{name}=%.15g" for name in columns)
            names = [
                form % x for x in zip(*(c[at].tolist() for c in columns.values()), strict=True)
            ]
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in names], int)
        lengths = np.diff(np.append(starts, len(self)))
        return Labels(np.repeat(codes, lengths), Names(numbers))

    def _sides(self, now: dict[str, Array], then: dict[str, Array]) -> Columns:
        about = self.description
        contexts = {name: now[name] for name in about.context_names}
        inputs = [now[name] for name in about.input_names]
        states, after = ([side[name] for name in about.state_names] for side in (now, then))
        return contexts, states, inputs, after


class LogReader:
    """Reads a part of the logs, frame by frame; `report` says what has been found so far."""

    def __init__(
        self,
        description: FleetDescription,
        part: Part,
        *,
        strict: bool = False,
        sort: bool = False,
        keep_bad: bool = False,
    ) -> None:
        self.description, self.part, self.strict, self.sort = description, part, strict, sort
        self.report = LogReport()
        self.bad: list[BadRows] | None = [] if keep_bad else None
        self.stretch = 0  # that of the last good row
        self._books = LabelBook(), LabelBook()
        self._carry: Rows | None = None
        self._carry_linked = False  # whether the row carried over continues the one before it
        self._fallen = False  # whether steps have fallen back since
        # Whether what is carried is what it would be had all earlier rows been read, too; and how
        # many good rows there were since the beginning of a file.
        self._settled = False
        self._since = -math.inf
        self._looking_back = False

    def transitions(self, progress: Callable[[float], None] | None = None) -> Iterator[Transitions]:
        """All of them, in batches; `progress` is told how much of the part has been read."""
        done, size, report = 0.0, self.part.size, self.report
        for piece in self.part.pieces:
            source, before, first = piece.source, report.rows, piece.start + 1
            self._new_file = piece.start == 0
            self._since = 0 if self._new_file else -math.inf
            frames = piece.frames(self.description, sort=self.sort, report=report.tables)
            for frame in read_ahead(frames):
                if len(frame):
                    rows = Rows.of(frame, source.name, first, self.description, self._books)
                    first += len(frame)
                    report.rows += len(frame)
                    yield from self._linked(rows)
                if progress is not None:
                    read = (report.rows - before) / piece.rows if piece.rows else 0.5
                    progress((done + piece.size * min(read, 1.0)) / size)
            done += piece.size
            if piece.start == 0:
                report.files += 1
                if report.rows == before:
                    report.empty.append(source.name)
                for name in source.unused_columns(self.description):
                    report.unused.setdefault(name, source.name)
        if progress is not None:
            progress(1.0)

    def _look_back(self) -> None:
        """Find out what a reader of everything before this part would carry over to it."""
        for rows in _LOOK_BACK if self.part.earlier else ():
            pieces = last_rows(self.part.earlier, rows, self.description)
            before = LogReader(self.description, Part(-1, pieces), sort=self.sort)
            before._looking_back = True
            for _ in before.transitions():
                pass
            self._carry, self._carry_linked = before._carry, before._carry_linked
            self._fallen = before._fallen
            if before._settled:
                return

    # -- one frame ---------------------------------------------------------------------------------

    def _linked(self, rows: Rows) -> Iterator[Transitions]:
        about = self.description
        rows = self._without(rows, value_faults(rows.frame, rows.step, rows.values, about))
        rows = self._after_carried(rows)
        same = rows.same_episode
        # Contexts first: a row is late only after rows that are good, which alone are carried over.
        if (same & _changes(rows.context(about))).any():
            rows = self._without(rows, context_faults(rows.context(about), same))
            same = rows.same_episode
        faults = Faults()
        if (same & (np.diff(rows.step) <= 0)).any():
            faults = order_faults(rows.step, same)
        fallen = self._fallen_before(rows, faults)
        rows = self._without(rows, faults)
        same, ahead = rows.same_episode, np.diff(rows.step)
        self._settled |= not same.all()  # with an episode everything begins anew
        if not self._looking_back:
            refuse_interleaved(rows.source, rows.episode.codes, same)
        linked = same & (ahead == 1) & ~fallen
        self._count_splits(rows, same & ~linked, fallen)
        idle = rows.missing(about.input_names[0])[:-1] & linked
        if idle.any():
            # The state was good to arrive at; nothing is known of what followed.
            faults = {"it has no inputs, though its episode goes on": np.append(idle, False)}
            self._set_aside(rows, faults)
            linked &= ~idle
        return self._counted(rows, linked, self._stretches(rows, same))

    def _after_carried(self, rows: Rows) -> Rows:
        """The rows, with the last good row before them if their episode may have begun there."""
        if not len(rows):
            return rows
        new_file, self._new_file = self._new_file, False
        # An episode goes on in the next file only without a gap, and not at step 0.
        goes_on = not new_file or bool(rows.step[0] > 0)
        if self._carry is None and goes_on:
            self._look_back()
        if self._carry is None:
            return rows
        if new_file and not (goes_on and self._seamless(self._carry, rows)):
            self._carry_linked = False
            return rows
        return rows.after(self._carry)

    def _seamless(self, carry: Rows, rows: Rows) -> bool:
        if (carry.machine is None) != (rows.machine is None):
            return False
        pair = rows.take(np.array([0])).after(carry)
        next_step = pair.same_episode[0] and pair.step[1] == pair.step[0] + 1
        return bool(next_step and not _changes(pair.context(self.description)).any())

    def _stretches(self, rows: Rows, same: Array) -> Int[Array, " n"]:
        """The number of the stretch that each row is of."""
        new = np.ones(len(rows), bool)
        new[1:] = ~same | (np.diff(rows.step // STRETCH) != 0)
        new[:1] = rows.carried is None
        numbers = self.stretch + np.cumsum(new)
        if len(rows):
            self.stretch = int(numbers[-1])
        return numbers

    def _counted(self, rows: Rows, linked: Array, stretch: Array) -> Iterator[Transitions]:
        """Keeps the books, and the last row for the next frame."""
        n, own, report, about = len(rows), len(rows.origin), self.report, self.description
        begins = linked & ~np.concatenate(([self._carry_linked], linked[:-1]))[: len(linked)]
        report.transitions += int(np.count_nonzero(linked))
        report.episodes += int(np.count_nonzero(begins))
        if own:
            self._since += own
            self._settled |= self._since >= 2
            self._carry = rows.last()
            self._carry_linked = n > 1 and bool(linked[-1])
            columns = {name: rows.values[name] for name in about.context_names}
            seen = {name: (float(one.min()), float(one.max())) for name, one in columns.items()}
            report.context_range = joined_ranges(report.context_range, seen)
        if rows.carried is not None:
            if linked[:1].any():
                yield Transitions(about, rows.seam(), np.array([0]), begins[:1], stretch[:1])
            rows, linked, begins, stretch = rows.own(), linked[1:], begins[1:], stretch[1:]
        if linked.any():
            at = np.flatnonzero(linked)
            yield Transitions(about, rows, at, begins[at], stretch[at])

    # -- what is wrong with rows -------------------------------------------------------------------

    def _without(self, rows: Rows, faults: Faults) -> Rows:
        """The rows without the bad ones, which are counted and kept for the quarantine."""
        if not any(bad.any() for bad in faults.values()):
            return rows
        return rows.take(np.flatnonzero(~self._set_aside(rows, faults)))

    def _set_aside(self, rows: Rows, faults: Faults) -> Array:
        bad, report = np.zeros(len(rows), bool), self.report
        for reason, which in faults.items():
            at = np.flatnonzero(which & ~bad)  # a row is counted once, for its first fault
            bad |= which
            if not len(at):
                continue
            report.bad[reason] = report.bad.get(reason, 0) + len(at)
            places = report.first_bad.setdefault(reason, [])
            for some in rows.originals(at[: PLACES - len(places)], reason):
                places += [f"{some.source}, row {row}" for row in some.numbers]
            if self.strict:
                raise InputError(f"{places[0]}: {reason}; without --strict it would be set aside")
            if self.bad is not None:
                self.bad += rows.originals(at, reason)
        return bad

    def _fallen_before(self, rows: Rows, late_rows: Faults) -> Array:
        """Before which of the other rows but the first steps fell back; a repeated row is none."""
        late = reduce(np.logical_or, late_rows.values(), np.zeros(len(rows), bool))
        good, harm = np.flatnonzero(~late), late.copy()
        if late.any():
            harm &= ~_repeats(rows, np.repeat(good, np.diff(np.append(good, len(late)))))
        count = np.cumsum(harm)
        fallen, after = np.diff(count[good]) > 0, len(good) > 0 and count[good[-1]] < count[-1]
        if rows.carried is not None:
            fallen[:1] |= self._fallen
            after |= self._fallen and len(good) == 1
        if len(good):
            self._fallen = bool(after)
        return np.asarray(fallen)

    def _count_splits(self, rows: Rows, gaps: Array, fallen: Array) -> None:
        before, report = np.flatnonzero(gaps), self.report
        report.splits += len(before)
        for i in before[: PLACES - len(report.first_splits)]:
            (there,) = rows.originals(np.array([i + 1]), "")
            jump = f"step {rows.step[i]:.0f} to {rows.step[i + 1]:.0f}"
            jump += " after steps that fall back" if fallen[i] else ""
            (episode,) = rows.episode[[int(i)]].text
            what = f"episode {episode} goes from {jump}"
            report.first_splits.append(f"{there.source}, row {there.numbers[0]}: {what}")


def _repeats(rows: Rows, before: Array) -> Array:
    """Whether each row is the same as one before it, to the last digit."""
    columns = [rows.step, *map(rows.column, rows.values)]
    with np.errstate(invalid="ignore"):
        same = ((one == one[before]) | (np.isnan(one) & np.isnan(one[before])) for one in columns)
        return np.asarray(reduce(np.logical_and, same))


def _changes(columns: dict[str, Array]) -> Array:
    """Whether each row but the first differs from the row before it."""
    changed = (column[1:] != column[:-1] for column in columns.values())
    return np.asarray(reduce(np.logical_or, changed, np.False_))
