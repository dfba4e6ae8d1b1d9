"""Rows of a log as arrays: numbers as floats, labels as small integers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int, Num, UInt64
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.digests import text_hashes
from contextual_lqr.belief.evidence.episodes import Names, RowLabels
from contextual_lqr.belief.machines.key_table import KeyTable
from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.lazy_polars import pl
from contextual_lqr.data.screening import BadRows
from contextual_lqr.errors import InputError

_REMEMBERED = 1 << 16  # labels


@dataclass(frozen=True)
class Labels:
    """Labels as small integers: row i has `names[codes[i]]`, or codes[i] itself without names."""

    codes: Int[Array, " n"]
    names: Names | None = None

    def __getitem__(self, at: Array | list[int] | slice) -> Labels:
        return Labels(self.codes[at], self.names)

    @property
    def text(self) -> list[str]:
        """The labels themselves."""
        codes = self.codes.tolist()
        return [str(code if self.names is None else self.names[code]) for code in codes]

    @property
    def named(self) -> RowLabels:
        """The same for a decoder."""
        codes, names = self.codes, self.names
        if names is None:
            values, codes = np.unique(codes, return_inverse=True)
            names = Names(Labels(values).text)
        return RowLabels(codes.astype(np.int64, copy=False), names)

    def hashes(self) -> UInt64[Array, " n"]:
        """A hash of each label."""
        if self.names is None:
            return text_hashes(self.text)
        return np.asarray(self.names.hashes[self.codes])

    def compact(self) -> Labels:
        """The same without names that no row has."""
        if self.names is None:
            return self
        values, codes = np.unique(self.codes, return_inverse=True)
        return Labels(codes, Names(self.names[i] for i in values.tolist()))

    def after(self, first: Labels) -> Labels:
        """These, and before them the one that `first` holds."""
        if self.names is first.names:
            return Labels(np.concatenate((first.codes, self.codes)), self.names)
        codes, names, (label,) = self.codes, self.names, first.text
        if names is None:  # numbers here, text there
            values, codes = np.unique(codes, return_inverse=True)
            names = Names(Labels(values).text)
        names = names if label in names else Names([*names, label])
        return Labels(np.concatenate(([names.index(label)], codes)), names)


class LabelBook:
    """The labels of frames that are read one after the other, each numbered and hashed once."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names, self._known = Names(), KeyTable()
        self._column: pl.Series | None = None  # the labels that are known by Polars's hashes

    def read(self, series: pl.Series) -> Labels:
        """A column of text, or of whatever else can be written as text."""
        runs = series.rle().struct.unnest()  # labels come in runs: few are looked at
        codes = self._codes(runs["value"].cast(pl.String).fill_null(""))
        return Labels(np.repeat(codes, runs["len"].to_numpy()), self._names)

    def _codes(self, labels: pl.Series) -> Int[Array, " n"]:
        """The numbers of labels; those that are met again and again are looked up all at once."""
        if self._column is not None:
            codes = self._known.find(labels.hash().to_numpy())
            if codes.min(initial=0) >= 0 and (self._column.gather(codes) == labels).all():
                return codes
        if len(self._numbers) > _REMEMBERED:
            self._forget()
        numbers, names, first = self._numbers, self._names, len(self._names)
        texts = labels.to_list()
        codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], int)
        if len(numbers) > first:
            names += dict.fromkeys(text for text in texts if numbers[text] >= first)
        elif len(self._known) < len(names):  # none is new: more of these are to come
            self._column, self._known = pl.Series(names), KeyTable()
            self._known.append(self._column.hash().to_numpy())
        return codes


@dataclass(frozen=True)
class Rows:
    """Rows of one frame as arrays; missing and unreadable values are NaN.

    A row that was carried over is the first of all. Columns are not copied to make room for it:
    `values` are those of the frame's own rows.
    """

    frame: pl.DataFrame  # as it was read
    source: str
    first: int  # where its first row is in the file, counted from 1
    origin: Int[Array, " own"]  # which rows of the frame these are
    episode: Labels
    step: Num[Array, " n"]  # integers where the file has them
    machine: Labels | None
    values: dict[str, Num[Array, " own"]]
    carried: Rows | None = None

    @classmethod
    def of(
        cls,
        frame: pl.DataFrame,
        source: str,
        first: int,
        about: FleetDescription,
        books: tuple[LabelBook, LabelBook],
    ) -> Rows:
        """What cannot be read as a number becomes NaN; `books` of machines and of episodes."""
        step, episode = frame["step"], frame["episode"]
        values = _floats(frame, [one.name for one in about.logged], source)
        values |= {one.name: np.ones(len(frame)) for one in about.states if one.constant}
        if step.dtype.is_signed_integer() and not step.null_count():
            steps = step.cast(pl.Int64).to_numpy()
        else:
            steps = _floats(frame, ["step"], source)["step"]
        machine = None
        if "machine" in frame.columns:
            machine = _labels(frame["machine"], source, books[0])
        if episode.dtype.is_integer() and episode.dtype != pl.UInt64 and not episode.null_count():
            episodes = Labels(episode.cast(pl.Int64).to_numpy())
        else:
            episodes = _labels(episode, source, books[1])
        origin = np.arange(len(frame))
        return cls(frame, source, first, origin, episodes, steps, machine, values)

    def __len__(self) -> int:
        return len(self.step)

    @property
    def same_episode(self) -> Bool[Array, " pairs"]:
        """Whether each row but the first has the episode of the row before it."""
        return np.asarray(self.episode.codes[1:] == self.episode.codes[:-1])

    def column(self, name: str) -> Num[Array, " n"]:
        """The values of all rows."""
        if self.carried is None:
            return self.values[name]
        return np.concatenate((self.carried.values[name], self.values[name]))

    def missing(self, name: str) -> Bool[Array, " n"]:
        """Where there is no value, though the row is good: inputs of a last state."""
        first = [] if self.carried is None else np.isnan(self.carried.values[name])
        return np.concatenate((np.asarray(first, bool), np.isnan(self.values[name])))

    def context(self, about: FleetDescription) -> dict[str, Array]:
        """The columns that must not change along an episode."""
        fixed = (name for name in about.context_names if name not in about.varying_names)
        columns = {name: self.column(name) for name in fixed}
        return columns if self.machine is None else columns | {"machine": self.machine.codes}

    def originals(self, at: Array, reason: str) -> Iterator[BadRows]:
        """Rows as they were read."""
        if self.carried is not None:
            if len(at) and at[0] == 0:
                yield from self.carried.originals(at[:1], reason)
                at = at[1:]
            at = at - 1
        if len(at):
            own = self.origin[at]
            yield BadRows(self.frame[own], self.source, own + self.first, reason)

    def take(self, kept: Array) -> Rows:
        """Some of the rows; the one carried over always."""
        own = kept if self.carried is None else kept[1:] - 1
        return replace(
            self._keyed(kept),
            origin=self.origin[own],
            values={name: column[own] for name, column in self.values.items()},
        )

    def compact(self) -> Rows:
        """The rows without what else was in their frame."""
        machine = None if self.machine is None else self.machine.compact()
        return replace(
            self, frame=self.frame.clear(), episode=self.episode.compact(), machine=machine
        )

    def after(self, carried: Rows) -> Rows:
        """The rows, and before them the one carried over."""
        machine = self.machine
        if machine is not None and carried.machine is not None:
            machine = machine.after(carried.machine)
        return replace(
            self,
            episode=self.episode.after(carried.episode),
            step=np.concatenate((carried.step, self.step)),
            machine=machine,
            carried=carried,
        )

    def own(self) -> Rows:
        """The rows without the one carried over."""
        return replace(self._keyed(slice(1, None)), carried=None)

    def seam(self) -> Rows:
        """The row carried over and the first after it, as two rows of one table."""
        pair = self.take(np.array([0, 1]))
        values = {name: pair.column(name) for name in self.values}
        return replace(pair, origin=np.zeros(2, int), values=values, carried=None)

    def last(self) -> Rows:
        """The last row alone."""
        if self.carried is not None and len(self) == 1:
            return self.carried
        place, row = int(self.origin[-1]), self._keyed([-1])
        return replace(
            row,
            frame=self.frame[place : place + 1],
            first=self.first + place,
            origin=np.array([0]),
            values={name: column[-1:].copy() for name, column in self.values.items()},
            carried=None,
        )

    def _keyed(self, kept: Array | list[int] | slice) -> Rows:
        machine = None if self.machine is None else self.machine[kept]
        return replace(self, episode=self.episode[kept], step=self.step[kept], machine=machine)


def _floats(frame: pl.DataFrame, names: list[str], source: str) -> dict[str, Array]:
    """Columns as floats; NaN where there is no number."""
    numbers = []
    for name in names:
        dtype, number = frame[name].dtype, pl.col(name)
        if dtype == pl.Float64 and not frame[name].null_count():
            continue  # as it is
        if dtype == pl.String:
            number = number.str.strip_chars()
        elif not (dtype.is_numeric() or dtype == pl.Null):
            raise InputError(f"{source}: the column '{name}' must hold numbers, not {dtype}")
        numbers.append(number.cast(pl.Float64, strict=False).fill_null(math.nan))
    frame = frame.with_columns(numbers)
    return {name: frame[name].to_numpy() for name in names}


def _labels(series: pl.Series, source: str, book: LabelBook) -> Labels:
    try:
        return book.read(series)
    except pl.exceptions.PolarsError:
        raise InputError(
            f"{source}: the column '{series.name}' must hold numbers or text, not {series.dtype}"
        ) from None
