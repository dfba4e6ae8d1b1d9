"""Where logs come from: Parquet, text and Excel files, globs and folders, Minari datasets.

A log is read as an iterator of Polars frames of some ten thousand rows, so that logs larger than
memory need little of it. A row is a step; a frame has the columns `episode`, `step`, the states,
the inputs, the contexts, and perhaps `machine`.

Logs are read side by side in parts, of some million rows. How they are cut depends on the logs
alone. An episode may run across a cut: whoever reads the part after it looks back into the part
before.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.tables.log_table import (
    log_frames,
    require_plain,
    sorted_rows,
    wanted_columns,
)
from contextual_lqr.data.tables.table import KINDS, headings_of, kind_of, opened
from contextual_lqr.data.tables.table_report import TableReport
from contextual_lqr.errors import InputError, MissingExtraError
from contextual_lqr.files import require_regular

if TYPE_CHECKING:
    import polars as pl

BATCH = 1 << 16  # rows of a frame
PART = 1 << 22  # rows of a part, of large logs twice; a multiple of Polars's row groups, 2¹⁸
_AHEAD = 3  # frames
_DECODED = 1 << 19  # rows of a Parquet file at once, a multiple of BATCH
_MINARI = "minari:"


@dataclass(frozen=True)
class Source:
    """One log: what it is called in messages, and how large it is, in bytes or so."""

    name: str
    size: int
    kind: str
    path: str  # absolute, for a process in another folder

    def row_count(self) -> int:
        """How many rows there are, or about how many; 0 if that would take long to know."""
        import polars as pl

        try:
            if self.kind == "parquet":
                rows = pl.scan_parquet(self.path, glob=False)
                return int(rows.select(pl.len()).collect().item())
            if self.kind == "csv":
                with open(self.path, "rb") as file:
                    head = file.read(1 << 16)
                return int(max(head.count(b"\n"), 1) * self.size / max(len(head), 1))
        except (pl.exceptions.PolarsError, OSError):
            return 0  # it will be refused when it is read
        return 0

    def unused_columns(self, description: FleetDescription) -> list[str]:
        """The columns that the description does not name."""
        if self.kind == "minari":
            return []
        columns = headings_of(self.name, self.path, self.kind, description.layout.table)
        wanted = {one.heading for one in wanted_columns(columns, description).values()}
        return [name for name in columns if name not in wanted and name]


@dataclass(frozen=True)
class Piece:
    """Some rows of one log, from `start` to `stop`, or to its end."""

    source: Source
    start: int = 0
    stop: int | None = None
    rows: int = 0  # how many, or about; 0 if that would take long to know
    size: float = 1.0  # in bytes or so

    def frames(
        self,
        description: FleetDescription,
        *,
        sort: bool = False,
        report: TableReport | None = None,
    ) -> Iterator[pl.DataFrame]:
        """The rows, in frames that have the columns we need and no others."""
        source, report = self.source, TableReport() if report is None else report
        if source.kind == "minari":
            require_plain(source.name, description.layout)
            yield from self._of(_minari_frames(source, description))
            return
        yield from log_frames(
            source.name, self._read(description, sort, report), description, report
        )

    def _read(
        self, description: FleetDescription, sort: bool, report: TableReport
    ) -> Iterator[pl.DataFrame]:
        import polars as pl

        source, layout = self.source, description.layout
        try:
            with opened(source.name, source.path, source.kind, layout.table) as table:
                if table.words:
                    report.formats.setdefault(table.words, []).append(source.name)
                wanted = wanted_columns(table.headings, description)
                rows = table.filled(wanted)
                if sort:
                    rows = sorted_rows(rows, wanted, source.name, layout)
                for some in self._slices(rows, whole=sort or source.kind != "parquet"):
                    yield from some.collect_batches(chunk_size=BATCH)
        except pl.exceptions.NoDataError:
            return
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(f"cannot read {source.name}: {_first_line(error)}") from None

    def _slices(self, rows: pl.LazyFrame, *, whole: bool) -> Iterator[pl.LazyFrame]:
        """Our rows, as a whole or few at a time: Polars decodes all that is asked for ahead of us.

        Our own batches are the same.
        """
        start, stop = self.start, self.stop
        if whole or stop is None:
            yield rows.slice(start, None if stop is None else stop - start)
            return
        for first in range(start, stop, _DECODED):
            yield rows.slice(first, min(_DECODED, stop - first))

    def _of(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Only our rows of the frames of the whole log."""
        first = 0
        for frame in frames:
            last = len(frame) if self.stop is None else max(self.stop - first, 0)
            yield frame[max(self.start - first, 0) : last]
            first += len(frame)


@dataclass(frozen=True)
class Part:
    """Pieces that are read one after the other; `earlier` are those of the part before."""

    number: int
    pieces: tuple[Piece, ...]
    earlier: tuple[Piece, ...] = ()

    @property
    def size(self) -> float:
        """In bytes or so."""
        return sum(piece.size for piece in self.pieces)


def find_sources(logs: Sequence[str]) -> list[Source]:
    """The files that paths and globs name, in order, each once."""
    found: dict[str, Source] = {}
    for log in logs:
        if log.startswith(_MINARI) or (Path(log) / "data" / "metadata.json").is_file():
            where = log if log.startswith(_MINARI) else os.path.abspath(log)
            found[where] = Source(log, 1, "minari", where)
            continue
        if Path(log).is_dir():
            paths = sorted(str(p) for p in Path(log).iterdir() if p.suffix.lower() in KINDS)
        else:
            paths = [log] if Path(log).exists() else sorted(glob.glob(log, recursive=True))
        if not paths:
            raise InputError(f"no log is named {log}")
        for path in paths:
            kind = kind_of(path)
            require_regular(path)
            size = max(Path(path).stat().st_size, 1)
            found[os.path.realpath(path)] = Source(path, size, kind, os.path.abspath(path))
    if not found:
        raise InputError("no log is given")
    return list(found.values())


def as_one_part(sources: Sequence[Source]) -> Part:
    """All logs as one part."""
    return Part(0, tuple(Piece(s, rows=s.row_count(), size=s.size) for s in sources))


def cut_in_parts(sources: Sequence[Source], *, sort: bool) -> list[Part]:
    """Large Parquet files are cut, small files joined; CSV and what is sorted stays whole."""
    groups: list[list[Piece]] = [[]]
    counts = [source.row_count() for source in sources]
    part = PART if sum(counts) < 4 * PART else 2 * PART  # fewer, as all that they learn is merged
    for source, rows in zip(sources, counts, strict=True):
        starts = [0]
        if source.kind == "parquet" and not sort:
            starts = list(range(0, rows - part // 2, part)) or [0]
        for start, stop in zip(starts, [*starts[1:], None], strict=True):
            count = (rows if stop is None else stop) - start
            share = source.size * count / max(rows, 1) if len(starts) > 1 else source.size
            if sum(piece.rows for piece in groups[-1]) >= part // 2:
                groups.append([])
            end = rows if stop is None and rows and source.kind == "parquet" else stop
            groups[-1].append(Piece(source, start, end, count, share))
    pieces = [tuple(group) for group in groups]
    return [Part(i, now, before) for i, (now, before) in enumerate(zip(pieces, [(), *pieces]))]  # noqa: B905


def last_rows(
    pieces: Sequence[Piece], rows: int, description: FleetDescription
) -> tuple[Piece, ...]:
    """The last so many rows of the pieces."""
    chosen: list[Piece] = []
    for piece in reversed(pieces):
        if rows <= 0:
            break
        stop = piece.stop
        if stop is None:
            stop = sum(map(len, Piece(piece.source).frames(description)))
        start = max(piece.start, stop - rows)
        chosen.append(replace(piece, start=start, stop=stop))
        rows -= stop - start
    return tuple(reversed(chosen))


def read_ahead(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same frames, read by a thread of their own while earlier ones are in use."""
    pool = ThreadPoolExecutor(1)
    try:
        coming = deque(pool.submit(next, frames, None) for _ in range(_AHEAD))
        while (frame := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, frames, None))
            yield frame
    finally:
        pool.shutdown(cancel_futures=True)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- Minari ----------------------------------------------------------------------------------------


def _minari_frames(source: Source, description: FleetDescription) -> Iterator[pl.DataFrame]:
    import polars as pl

    episodes = iter(_minari_dataset(source.path))
    while group := list(itertools.islice(episodes, 256)):
        yield pl.concat([_minari_frame(source.name, episode, description) for episode in group])


def _minari_dataset(name: str) -> Any:
    try:
        import minari  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("Minari", "minari") from error
    try:
        if name.startswith(_MINARI):
            return minari.load_dataset(name.removeprefix(_MINARI))
        return minari.MinariDataset(Path(name) / "data")
    except ImportError as error:
        raise InputError(f"cannot read {name}: {_first_line(error)}") from None
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"cannot read the Minari dataset {name}: {_first_line(error)}") from None


def _minari_frame(name: str, episode: Any, description: FleetDescription) -> pl.DataFrame:
    """One episode: observations are the states in order, actions the inputs, infos the contexts."""
    import polars as pl

    where = f"{name}, episode {episode.id}"
    observations, infos = episode.observations, episode.infos or {}
    states = [one.name for one in description.declared if not one.constant]
    if isinstance(observations, dict):
        infos = observations | infos
        columns = [_looked_up(where, "observation", one, observations) for one in states]
        flat = [_numbers(where, "observations", one).reshape(-1) for one in columns]
        observations = np.stack(flat, axis=1)
    steps, frame = len(observations), dict[str, Array]()
    for what, array, names in (
        ("observations", observations, states),
        ("actions", episode.actions, description.input_names),
    ):
        array = _numbers(where, what, array).reshape(len(array), -1)
        if array.shape[1] != len(names):
            raise InputError(
                f"{where}: {what} have {array.shape[1]} values, but the description has "
                f"{len(names)}: {', '.join(names)}"
            )
        padded = np.full((steps, len(names)), np.nan)
        padded[: len(array)] = array
        frame |= {one: padded[:, j] for j, one in enumerate(names)}
    for one in description.context_names:
        values = _numbers(where, f"'{one}'", _looked_up(where, "context", one, infos)).reshape(-1)
        frame[one] = np.broadcast_to(values, steps) if len(values) == 1 else values[:steps]
    frame |= {"episode": np.full(steps, episode.id), "step": np.arange(steps)}
    if description.machine_column or "machine" in infos:
        label = _looked_up(where, "machine", description.machine_column or "machine", infos)
        frame["machine"] = np.full(steps, str(np.asarray(label).reshape(-1)[0]))
    return pl.DataFrame(frame)


def _looked_up(where: str, what: str, name: str, there: dict[str, Any]) -> Any:
    if name not in there:
        listed = ", ".join(there) or "nothing"
        raise InputError(f"{where} has no {what} '{name}'; among its values are {listed}")
    return there[name]


def _numbers(where: str, what: str, values: Any) -> Array:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":  # truth values and dates would pass for numbers
        raise InputError(f"{where}: {what} must be numbers, not of type {array.dtype}")
    return array.astype(float)
