"""Rows of logs as arrays: as they are read, linked to the rows after them, and as transitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from contextual_lqr.errors import InputError
from contextual_lqr.logs.description import FleetDescription

if TYPE_CHECKING:
    import polars as pl


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
class Columns:
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

    def take(self, kept: Array) -> Columns:
        """Some of the rows."""
        return Columns(
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

    def above(self, batch: Columns) -> Columns:
        """This row, carried over, and then the batch."""
        machine = None
        if self.machine is not None and batch.machine is not None:
            machine = np.concatenate((self.machine, batch.machine))
        return Columns(
            (self.frames[0], batch.frames[0]),
            np.concatenate(([0], batch.origin + 1)),
            np.concatenate((self.rows, batch.rows)),
            batch.source,
            np.concatenate((self.episode, batch.episode)),
            np.concatenate((self.step, batch.step)),
            {n: np.concatenate((self.values[n], batch.values[n])) for n in batch.values},
            machine,
            carried=True,
        )

    def last(self) -> Columns:
        """A copy of the last row, which does not keep the batch alive."""
        n = len(self.step)
        frame = self.frames[-1].slice(int(self.origin[-1]) - len(self.frames) + 1, 1)
        if self.carried and n == 1:
            frame = self.frames[0]
        return replace(self.take(np.array([n - 1])), frames=(frame,), origin=np.zeros(1, int))


@dataclass(frozen=True)
class LinkedRows:
    """A batch of good rows, and which of them lead to the row after them."""

    description: FleetDescription
    columns: Columns
    at: Array
    begins: Array

    def __len__(self) -> int:
        return len(self.at)

    def transitions(self) -> Transitions:
        """The transitions as arrays of their own; this may run beside the reading."""
        at, batch, names = self.at, self.columns, self.description
        states, after = (np.empty((len(at), len(names.states)), order="F") for _ in range(2))
        played = np.empty((len(at), len(names.inputs)), order="F")
        then = at + 1
        for j, one in enumerate(names.states):
            if one.constant:
                states[:, j] = after[:, j] = 1
            else:
                column = batch.values[one.name]
                np.take(column, at, out=states[:, j], mode="clip")  # others would buffer it
                np.take(column, then, out=after[:, j], mode="clip")
        for j, one in enumerate(names.inputs):
            np.take(batch.values[one.name], at, out=played[:, j], mode="clip")
        follows = np.zeros(len(at), bool)
        follows[1:] = np.diff(at) == 1
        return Transitions(
            {name: batch.values[name][at] for name in names.context_names},
            states,
            played,
            after,
            batch.step[at],
            follows,
            self.begins,
            None if batch.machine is None else batch.machine[at],
        )


def columns_of(frame: pl.DataFrame, source: str, first: int, about: FleetDescription) -> Columns:
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
    return Columns((frame,), origin, rows, source, ids, step, values, machine)


def same_episode(episode: Array) -> Array:
    """Whether each row but the first has the episode of the row before it."""
    return np.asarray(episode[1:] == episode[:-1], bool)


def _stack(above: pl.DataFrame, below: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    if above.schema == below.schema:
        return pl.concat([above, below])
    return pl.concat([above.cast(pl.String), below.cast(pl.String)], how="diagonal")
