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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr.errors import InputError
from contextual_lqr.logs.description import FleetDescription
from contextual_lqr.logs.partitions import Part, last_rows, whole
from contextual_lqr.logs.quarantine import BadRows, Quarantine
from contextual_lqr.logs.sources import find_sources, unused_columns

if TYPE_CHECKING:
    import polars as pl

_PLACES = 5  # how many are named for each kind of fault
_LOOK_BACK = (1 << 10, 1 << 13, 1 << 16, 1 << 60)  # rows, until it is known what is carried


@dataclass
class Report:
    """What was found in the logs."""

    files: int = 0
    rows: int = 0
    transitions: int = 0
    episodes: int = 0
    splits: int = 0
    first_splits: list[str] = field(default_factory=list)
    bad: dict[str, int] = field(default_factory=dict)
    first_bad: dict[str, list[str]] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)  # column -> a file that has it
    context_range: dict[str, tuple[float, float]] = field(default_factory=dict)
    quarantine: str | None = None

    @property
    def bad_rows(self) -> int:
        """How many rows are in the quarantine."""
        return sum(self.bad.values())

    def add(self, later: Report) -> None:
        """Take in what was found in the part of the logs that comes next."""
        for name in ("files", "rows", "transitions", "episodes", "splits"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.first_splits = (self.first_splits + later.first_splits)[:_PLACES]
        for reason, count in later.bad.items():
            self.bad[reason] = self.bad.get(reason, 0) + count
            places = self.first_bad.get(reason, []) + later.first_bad[reason]
            self.first_bad[reason] = places[:_PLACES]
        self.empty += later.empty
        self.unused = later.unused | self.unused
        self.context_range = joined(self.context_range, later.context_range)

    def require_rows(self) -> None:
        """Refuse logs without any."""
        if not self.rows:
            raise InputError(f"the log is empty: {', '.join(self.empty)} has no rows")


@dataclass(frozen=True)
class Transitions:
    """Some transitions: contexts and arrays with a row for each.

    `follows` says which row is the next step of the same episode as the row before it here,
    `begins` with which an episode begins.
    """

    contexts: dict[str, Float[Array, " n"]]
    states: Float[Array, "n d"]
    inputs: Float[Array, "n m"]
    after: Float[Array, "n d"]
    steps: Float[Array, " n"]
    follows: Bool[Array, " n"]
    begins: Bool[Array, " n"]
    machines: Array | None  # labels, if there is such a column

    @property
    def episodes(self) -> int:
        """How many episodes, or parts of split ones, begin here."""
        return int(self.begins.sum())

    def only(self, which: Bool[Array, " n"]) -> Transitions:
        """Some of them; whole episodes."""
        return Transitions(
            {name: column[which] for name, column in self.contexts.items()},
            self.states[which],
            self.inputs[which],
            self.after[which],
            self.steps[which],
            self.follows[which],
            self.begins[which],
            None if self.machines is None else self.machines[which],
        )

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True)
class _Columns:
    """A batch as arrays; missing and unreadable values are NaN."""

    frames: tuple[Any, ...]  # as they were read: perhaps one row carried over, then the batch
    origin: Array  # where in these
    rows: Array  # where in the file, counted from 1
    source: str
    episode: Array  # integers, or objects
    step: Array
    values: dict[str, Array]
    machine: Array | None
    carried: bool = False  # whether the first row is the last good one of the batch before

    def raw(self, at: Array) -> pl.DataFrame:
        """Rows as they were read."""
        frame = self.frames[0] if len(self.frames) == 1 else _stack(*self.frames)
        chosen: pl.DataFrame = frame[self.origin[at]]
        return chosen

    def take(self, kept: Array) -> _Columns:
        return _Columns(
            self.frames,
            self.origin[kept],
            self.rows[kept],
            self.source,
            self.episode[kept],
            self.step[kept],
            {name: column[kept] for name, column in self.values.items()},
            None if self.machine is None else self.machine[kept],
            self.carried,
        )


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
        self._carry: _Columns | None = None
        self._carry_linked = False
        # Whether what is carried is what it would be had all rows before been read, too; and how
        # many good rows there were since the beginning of a file.
        self._settled = False
        self._since: int | None = None
        self._looking_back = False

    def transitions(self, progress: Callable[[float], None] | None = None) -> Iterator[Transitions]:
        """All transitions, in batches; `progress` is told how much of the part is read."""
        done, size = 0.0, self.part.size
        self._look_back()
        for piece in self.part.pieces:
            source, before, first = piece.source, self.report.rows, piece.start + 1
            self._new_file = piece.start == 0
            self._since = 0 if self._new_file else None
            for frame in source.batches(
                self.description, sort=self.sort, start=piece.start, stop=piece.stop
            ):
                if len(frame):
                    columns = _columns(frame, source.name, first, self.description)
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
            for _ in before.transitions():
                pass
            self._carry, self._carry_linked = before._carry, before._carry_linked
            if before._settled:
                return

    # -- one batch ---------------------------------------------------------------------------------

    def _linked(self, batch: _Columns) -> Transitions:
        batch = self._without(batch, self._value_faults(batch))
        batch = self._joined(batch)
        same = _same(batch.episode)
        if (same & (np.diff(batch.step) <= 0)).any():
            batch = self._without(batch, self._order_faults(batch, same))
            same = _same(batch.episode)
        names = self.description.context_names
        changed = np.zeros(len(same), bool)
        for name in names:
            changed |= batch.values[name][1:] != batch.values[name][:-1]
        if batch.machine is not None:
            changed |= batch.machine[1:] != batch.machine[:-1]
        if (same & changed).any():
            batch = self._without(batch, self._context_faults(batch, same))
            same = _same(batch.episode)
        self._settled |= not same.all()  # with an episode everything begins anew
        self._refuse_interleaved(batch, same)
        linked = same & (np.diff(batch.step) == 1)
        self._count_splits(batch, same & ~linked)
        inputs = [batch.values[name] for name in self.description.input_names]
        idle = np.isnan(inputs[0][:-1]) & linked
        if idle.any():
            # The state was good to arrive at; nothing is known of what followed.
            faults = np.append(idle, False)
            self._quarantined(batch, {"it has no inputs, though its episode goes on": faults})
            linked &= ~idle
        return self._assembled(batch, linked, inputs)

    def _joined(self, batch: _Columns) -> _Columns:
        """The batch with the last good row before it, if that may go on here."""
        if not len(batch.step):
            return batch
        carry, new_file = self._carry, self._new_file
        self._new_file = False
        if carry is None:
            return batch
        if carry.episode.dtype.kind != batch.episode.dtype.kind:  # numbers here, text there
            carry = replace(carry, episode=carry.episode.astype(str).astype(object))
            batch = replace(batch, episode=batch.episode.astype(str).astype(object))
        if new_file:  # an episode goes on in the next file only if it does so seamlessly
            goes_on = (
                carry.episode[0] == batch.episode[0]
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
        return _Columns(
            (carry.frames[0], batch.frames[0]),
            np.concatenate(([0], batch.origin + 1)),
            np.concatenate((carry.rows, batch.rows)),
            batch.source,
            np.concatenate((carry.episode, batch.episode)),
            np.concatenate((carry.step, batch.step)),
            {n: np.concatenate((carry.values[n], batch.values[n])) for n in batch.values},
            None
            if batch.machine is None or carry.machine is None
            else np.concatenate((carry.machine, batch.machine)),
            carried=True,
        )

    def _assembled(self, batch: _Columns, linked: Array, inputs: list[Array]) -> Transitions:
        description, n = self.description, len(batch.step)
        at = np.flatnonzero(linked)
        d, m = len(description.states), len(inputs)
        states, after = (np.empty((len(at), d), order="F") for _ in range(2))
        for j, one in enumerate(description.states):
            if one.constant:
                states[:, j] = after[:, j] = 1
            else:
                column = batch.values[one.name]
                np.take(column, at, out=states[:, j])
                np.take(column, at + 1, out=after[:, j])
        played = np.empty((len(at), m), order="F")
        for j, column in enumerate(inputs):
            np.take(column, at, out=played[:, j])
        starts = linked.copy()
        starts[1:] &= ~linked[:-1]
        if batch.carried and len(linked):
            starts[0] &= not self._carry_linked
        follows = np.zeros(len(at), bool)
        follows[1:] = np.diff(at) == 1
        begins = starts[at]
        self.report.transitions += len(at)
        self.report.episodes += int(begins.sum())
        if n:
            if self._since is not None:
                self._since += n - batch.carried
                self._settled |= self._since >= 2
            last = np.array([n - 1])
            # A copy of the row, which does not keep the batch alive.
            frame = batch.frames[-1].slice(int(batch.origin[-1]) - len(batch.frames) + 1, 1)
            if batch.carried and n == 1:
                frame = batch.frames[0]
            self._carry = replace(batch.take(last), frames=(frame,), origin=np.zeros(1, int))
            if n > 1:
                self._carry_linked = bool(linked[-1])
            elif not batch.carried:
                self._carry_linked = False
            for name in description.context_names:
                column = batch.values[name]
                low, high = float(column.min()), float(column.max())
                if name in self.report.context_range:
                    a, b = self.report.context_range[name]
                    low, high = min(a, low), max(b, high)
                self.report.context_range[name] = low, high
        return Transitions(
            {name: batch.values[name][at] for name in description.context_names},
            states,
            played,
            after,
            batch.step[at],
            follows,
            begins,
            None if batch.machine is None else batch.machine[at],
        )

    # -- what is wrong with rows -------------------------------------------------------------------

    def _value_faults(self, batch: _Columns) -> dict[str, Array]:
        """Rows with values that are missing, unreadable, not finite or out of bounds."""
        faults: dict[str, Array] = {}
        if batch.frames[0]["episode"].null_count():
            faults["'episode' is missing"] = batch.frames[0]["episode"].is_null().to_numpy()
        if batch.machine is not None and batch.frames[0]["machine"].null_count():
            faults["'machine' is missing"] = batch.frames[0]["machine"].is_null().to_numpy()
        if not np.isfinite(batch.step.sum()):
            faults.update(_unreadable(batch, "step", batch.step))
        with np.errstate(invalid="ignore"):
            whole = batch.step == np.floor(batch.step)
        if not whole.all():
            faults["'step' is no whole number"] = ~whole & np.isfinite(batch.step)
        idle = self._without_inputs(batch)
        for one in self.description.quantities:
            if one.constant:
                continue
            column = batch.values[one.name]
            if not np.isfinite(column.sum()):
                found = _unreadable(batch, one.name, column)
                if one.name in self.description.input_names:
                    found = {reason: rows & ~idle for reason, rows in found.items()}
                faults.update(found)
            if np.isfinite(one.low) or np.isfinite(one.high):
                with np.errstate(invalid="ignore"):
                    # nan compares false: it has been found above
                    outside = (column < one.low) | (column > one.high)
                if outside.any():
                    outside &= np.isfinite(column)
                    bounds = f"[{one.low:g}, {one.high:g}]"
                    faults[f"'{one.name}' is outside its bounds {bounds}"] = outside
        return {reason: rows for reason, rows in faults.items() if rows.any()}

    def _without_inputs(self, batch: _Columns) -> Array:
        """Rows all of whose inputs are missing (not text, not infinite): last states."""
        idle = np.ones(len(batch.step), bool)
        for name in self.description.input_names:
            idle &= np.isnan(batch.values[name])
            raw = batch.frames[0][name]
            if not raw.dtype.is_numeric() and idle.any():
                idle &= (
                    raw.is_null().to_numpy()
                    | raw.str.to_lowercase().eq("nan").fill_null(True).to_numpy()
                )
        return idle

    def _order_faults(self, batch: _Columns, same: Array) -> dict[str, Array]:
        """Rows whose step is not after all the steps of their episode before them."""
        again, back = (np.zeros(len(batch.step), bool) for _ in range(2))
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

    def _context_faults(self, batch: _Columns, same: Array) -> dict[str, Array]:
        """Rows whose context is not that of the first row of their episode."""
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        lengths = np.diff(np.append(starts, len(batch.step)))
        faults = {}
        columns: dict[str, Array] = {n: batch.values[n] for n in self.description.context_names}
        if batch.machine is not None:
            columns["machine"] = batch.machine
        for name, column in columns.items():
            changed = column != np.repeat(column[starts], lengths)
            faults[f"'{name}' changes inside the episode"] = np.asarray(changed, bool)
        return faults

    def _refuse_interleaved(self, batch: _Columns, same: Array) -> None:
        """Episodes written in turns would be split at every row."""
        if self._looking_back or len(same) < 16 or same.sum() > len(same) / 2:
            return
        runs = batch.episode[np.concatenate(([True], ~same))]
        if len(np.unique(runs)) < len(runs) / 2:
            raise InputError(
                f"{batch.source}: rows of different episodes are mixed; sort the log by episode "
                "and step, or let --sort do it"
            )

    def _without(self, batch: _Columns, faults: dict[str, Array]) -> _Columns:
        """The batch without its bad rows, which are counted and quarantined."""
        faults = {reason: rows for reason, rows in faults.items() if rows.any()}
        if not faults:
            return batch
        bad = self._quarantined(batch, faults)
        return batch.take(np.flatnonzero(~bad))

    def _quarantined(self, batch: _Columns, faults: dict[str, Array]) -> Array:
        bad = np.zeros(len(batch.step), bool)
        report = self.report
        for reason, rows in faults.items():
            new = rows & ~bad  # a row is counted once, for the first thing that is wrong with it
            bad |= rows
            if not new.any():
                continue
            report.bad[reason] = report.bad.get(reason, 0) + int(new.sum())
            places = report.first_bad.setdefault(reason, [])
            for i in np.flatnonzero(new)[: max(_PLACES - len(places), 0)]:
                places.append(f"{batch.source}, row {batch.rows[i]}")
            if self.strict:
                raise InputError(f"{places[0]}: {reason}; without --strict it would be set aside")
            if self._quarantine is not None:
                at = np.flatnonzero(new)
                self._quarantine.add(batch.raw(at), batch.source, batch.rows[at], reason)
        return bad

    def _count_splits(self, batch: _Columns, gaps: Array) -> None:
        if not gaps.any():
            return
        self.report.splits += int(gaps.sum())
        for i in np.flatnonzero(gaps)[: max(_PLACES - len(self.report.first_splits), 0)]:
            self.report.first_splits.append(
                f"{batch.source}, row {batch.rows[i + 1]}: episode {batch.episode[i]} goes from "
                f"step {batch.step[i]:.0f} to {batch.step[i + 1]:.0f}"
            )


def _columns(frame: pl.DataFrame, source: str, first: int, about: FleetDescription) -> _Columns:
    """The batch as arrays; what cannot be read as a number becomes NaN."""
    import polars as pl

    values = {}
    for name in (*about.logged_states, *about.input_names, *about.context_names, "step"):
        series = frame[name]
        if series.dtype != pl.Float64:
            if not (series.dtype.is_numeric() or series.dtype in (pl.String, pl.Null)):
                raise InputError(
                    f"{source}: the column '{name}' must hold numbers, not {series.dtype}"
                )
            if series.dtype == pl.String:
                series = series.str.strip_chars()
            series = series.cast(pl.Float64, strict=False)
        values[name] = series.to_numpy()
    step = values.pop("step")
    machine = frame["machine"].cast(pl.String).to_numpy() if "machine" in frame.columns else None
    episode = frame["episode"]
    rows = np.arange(first, first + len(frame))
    integers = episode.dtype.is_integer() and not episode.null_count()
    ids = episode.to_numpy() if integers else episode.cast(pl.String).to_numpy()
    origin = np.arange(len(frame))
    return _Columns((frame,), origin, rows, source, ids, step, values, machine)


def _unreadable(batch: _Columns, name: str, column: Array) -> dict[str, Array]:
    """Why values of a column are not finite: missing, text, or nan and infinities."""
    wrong = ~np.isfinite(column)
    raw = batch.frames[0][name]
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


def _same(episode: Array) -> Array:
    """Whether each row but the first has the episode of the row before it."""
    return np.asarray(episode[1:] == episode[:-1], bool)


def _label(batch: _Columns) -> str | None:
    """The machine of the first row."""
    return None if batch.machine is None else str(batch.machine[0])


def joined(
    mine: Mapping[str, tuple[float, float]], its: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """The smallest ranges that hold both."""
    if not mine or not its:
        return dict(mine or its)
    return {n: (min(a, its[n][0]), max(b, its[n][1])) for n, (a, b) in mine.items()}


def _stack(above: pl.DataFrame, below: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    if above.schema == below.schema:
        return pl.concat([above, below])
    return pl.concat([above.cast(pl.String), below.cast(pl.String)], how="diagonal")
