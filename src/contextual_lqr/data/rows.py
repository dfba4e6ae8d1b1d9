"""Rows of logs as arrays: as they are read, linked to the rows after them, and as transitions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Num
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.errors import InputError

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
    steps: Num[Array, " n"]
    follows: Bool[Array, " n"]
    begins: Bool[Array, " n"]
    machines: Array | None  # labels, if there is such a column

    @property
    def episodes(self) -> int:
        """How many episodes, or parts of split ones, begin here."""
        return int(self.begins.sum())

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True)
class Columns:
    """A batch as arrays; missing and unreadable values are NaN.

    The row carried over from the batch before, if there is one, is the first row of all. Most
    columns are only gathered from, so their values are not copied to make room for it.
    """

    frame: Any  # as it was read
    first: int  # where its first row is in the file, counted from 1
    source: str
    episode: Array  # integers, or objects
    step: Array  # integers where the file has them
    machine: Array | None
    values: dict[str, Array]  # without the row carried over
    origin: Array | None = None  # which rows of the frame these are, unless all
    carried: Columns | None = None

    def __len__(self) -> int:
        return len(self.step)

    def column(self, name: str) -> Array:
        """The values of all rows."""
        if self.carried is None:
            return self.values[name]
        return np.concatenate((self.carried.values[name], self.values[name]))

    def gather(self, name: str, at: Array, out: Array) -> None:
        """The values of some rows, in their order."""
        if self.carried is not None:
            at = at - 1
        np.take(self.values[name], at, out=out, mode="clip")  # other modes would buffer it
        if self.carried is not None and len(at) and at[0] < 0:
            out[0] = self.carried.values[name][0]

    def numbers(self, at: Array) -> Array:
        """Where rows are in the file, counted from 1."""
        own = np.arange(len(self.frame)) if self.origin is None else self.origin
        own = own + self.first
        if self.carried is not None:
            own = np.concatenate((self.carried.numbers(np.zeros(1, int)), own))
        return np.asarray(own[at])

    def raw(self, at: Array) -> pl.DataFrame:
        """Rows as they were read."""
        frame = self.frame if self.origin is None else self.frame[self.origin]
        if self.carried is not None:
            frame = _stack(self.carried.frame, frame)
        chosen: pl.DataFrame = frame[at]
        return chosen

    def take(self, kept: Array) -> Columns:
        """Some of the rows; the one carried over always."""
        own = kept if self.carried is None else kept[1:] - 1
        return Columns(
            self.frame,
            self.first,
            self.source,
            self.episode[kept],
            self.step[kept],
            None if self.machine is None else self.machine[kept],
            {name: column[own] for name, column in self.values.items()},
            own if self.origin is None else self.origin[own],
            self.carried,
        )

    def after(self, carried: Columns) -> Columns:
        """The batch, and before it the row carried over."""
        machine = None
        if self.machine is not None and carried.machine is not None:
            machine = np.concatenate((carried.machine, self.machine))
        return replace(
            self,
            episode=np.concatenate((carried.episode, self.episode)),
            step=np.concatenate((carried.step, self.step)),
            machine=machine,
            carried=carried,
        )

    def last(self) -> Columns:
        """A copy of the last row, which does not keep the batch alive."""
        if self.carried is not None and len(self) == 1:
            return self.carried
        place = len(self.frame) - 1 if self.origin is None else int(self.origin[-1])
        end = np.array([-1])
        return Columns(
            self.frame[[place]],
            self.first + place,
            self.source,
            self.episode[end],
            self.step[end],
            None if self.machine is None else self.machine[end],
            {name: column[end] for name, column in self.values.items()},
        )


@dataclass(frozen=True)
class LinkedRows:
    """A batch of good rows, and which of them lead to the row after them."""

    description: FleetDescription
    columns: Columns
    at: Array
    begins: Array

    def __len__(self) -> int:
        return len(self.at)

    def only(self, which: Bool[Array, " n"]) -> LinkedRows:
        """Some of the transitions."""
        return replace(self, at=self.at[which], begins=self.begins[which])

    def teach(self, decoder: Decoder) -> None:
        """Let a decoder learn the transitions, from the columns as they were read."""
        at, begins, values = self.at, self.begins, self.columns.values
        if (carried := self.columns.carried) is not None:
            over = int(len(at) > 0 and at[0] == 0)  # whether the row carried over leads on
            first = {name: column[:1] for name, column in values.items()}
            self._teach(decoder, carried.values, first, at[:over], begins[:over])
            at, begins = at[over:] - 1, begins[over:]
        now = {name: column[:-1] for name, column in values.items()}
        then = {name: column[1:] for name, column in values.items()}
        self._teach(decoder, now, then, at, begins)

    def _teach(
        self,
        decoder: Decoder,
        now: dict[str, Array],
        then: dict[str, Array],
        at: Array,
        begins: Array,
    ) -> None:
        """Rows of `now` lead to the rows at the same places in `then`."""
        if not len(at):
            return
        names = self.description
        contexts = {name: now[name] for name in names.context_names}
        ones = np.ones(len(now[names.input_names[0]]))
        states, after = (
            [ones if one.constant else values[one.name] for one in names.states]
            for values in (now, then)
        )
        inputs = [now[name] for name in names.input_names]
        episodes = int(np.count_nonzero(begins))
        decoder.update_columns(contexts, states, inputs, after, chosen=at, episodes=episodes)

    def transitions(self) -> Transitions:
        """The transitions as arrays of their own."""
        at, batch, names = self.at, self.columns, self.description
        states, after = (np.empty((len(at), len(names.states)), order="F") for _ in range(2))
        played = np.empty((len(at), len(names.inputs)), order="F")
        contexts = {name: np.empty(len(at)) for name in names.context_names}
        then = at + 1
        for j, one in enumerate(names.states):
            if one.constant:
                states[:, j] = after[:, j] = 1
            else:
                batch.gather(one.name, at, states[:, j])
                batch.gather(one.name, then, after[:, j])
        for j, one in enumerate(names.inputs):
            batch.gather(one.name, at, played[:, j])
        for name, column in contexts.items():
            batch.gather(name, at, column)
        follows = np.zeros(len(at), bool)
        follows[1:] = np.diff(at) == 1
        machines = None if batch.machine is None else batch.machine[at]
        return Transitions(
            contexts, states, played, after, batch.step[at], follows, self.begins, machines
        )


def columns_of(frame: pl.DataFrame, source: str, first: int, about: FleetDescription) -> Columns:
    """The batch as arrays; what cannot be read as a number becomes NaN."""
    import polars as pl

    values = {}
    for name in (*about.logged_states, *about.input_names, *about.context_names, "step"):
        series = frame[name]
        if name == "step" and series.dtype.is_signed_integer() and not series.null_count():
            series = series.cast(pl.Int64)
        elif series.dtype != pl.Float64:
            if not (series.dtype.is_numeric() or series.dtype in (pl.String, pl.Null)):
                raise InputError(
                    f"{source}: the column '{name}' must hold numbers, not {series.dtype}"
                )
            if series.dtype == pl.String:
                series = series.str.strip_chars()
            series = series.cast(pl.Float64, strict=False)
        if series.null_count():
            series = series.fill_null(math.nan)  # to_numpy would do that more slowly
        values[name] = series.to_numpy()
    step = values.pop("step")
    machine = frame["machine"].cast(pl.String).to_numpy() if "machine" in frame.columns else None
    episode = frame["episode"]
    integers = episode.dtype.is_integer() and not episode.null_count()
    ids = episode.to_numpy() if integers else episode.cast(pl.String).to_numpy()
    return Columns(frame, first, source, ids, step, machine, values)


def same_episode(episode: Array) -> Array:
    """Whether each row but the first has the episode of the row before it."""
    return np.asarray(episode[1:] == episode[:-1], bool)


def _stack(above: pl.DataFrame, below: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    if above.schema == below.schema:
        return pl.concat([above, below])
    return pl.concat([above.cast(pl.String), below.cast(pl.String)], how="diagonal")
