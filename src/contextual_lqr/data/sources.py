"""Where logs come from: Parquet and CSV files, globs of them, Minari datasets.

Every source is an iterator of Polars frames of some ten thousand rows, so that logs larger than
memory are read in bounded memory. A row is a step; the frame has the columns `episode`, `step`, the
states, the inputs, the contexts, and perhaps `machine`.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import polars as pl

BATCH = 1 << 16  # rows
_AHEAD = 3  # batches
_TABLES = (".parquet", ".csv")
_MINARI = "minari:"


@dataclass(frozen=True)
class Source:
    """One log: what it is called in messages, and how large it is, in bytes or so."""

    name: str
    size: int
    kind: str
    path: str  # where it is, also for a process in another folder

    def batches(
        self,
        description: FleetDescription,
        *,
        sort: bool = False,
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[pl.DataFrame]:
        """The rows from `start` to `stop`, in frames; columns not asked for are left out."""
        if self.kind == "minari":
            return _between(_minari_batches(self, description), start, stop)
        return _table_batches(self, description, sort, start, stop)


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


def find_sources(logs: Sequence[str]) -> list[Source]:
    """The files that paths and globs name, in order, each once."""
    found: dict[str, Source] = {}
    for log in logs:
        if log.startswith(_MINARI) or (Path(log) / "data" / "metadata.json").is_file():
            where = log if log.startswith(_MINARI) else os.path.abspath(log)
            found[log] = Source(log, 1, "minari", where)
            continue
        if Path(log).is_dir():
            paths = sorted(str(p) for p in Path(log).iterdir() if p.suffix.lower() in _TABLES)
        else:
            paths = [log] if Path(log).exists() else sorted(glob.glob(log, recursive=True))
        if not paths:
            raise InputError(f"no log is named {log}")
        for path in paths:
            kind = Path(path).suffix.lower()
            if kind not in _TABLES:
                raise InputError(
                    f"{path} is no log: a log is a .parquet or .csv file, or minari:ID"
                )
            size = max(Path(path).stat().st_size, 1)
            found[path] = Source(path, size, kind[1:], os.path.abspath(path))
    if not found:
        raise InputError("no log is given")
    return list(found.values())


def needed_columns(description: FleetDescription) -> list[str]:
    """The columns that every log must have."""
    values = (*description.logged_states, *description.input_names, *description.context_names)
    return ["episode", "step", *values]


def _table_batches(
    source: Source, description: FleetDescription, sort: bool, start: int, stop: int | None
) -> Iterator[pl.DataFrame]:
    import polars as pl

    try:
        if source.kind == "csv":
            # As text: what is no number is found later, with its row.
            frame = pl.scan_csv(source.path, infer_schema=False, null_values=[""])
        else:
            frame = pl.scan_parquet(source.path)
        schema = frame.collect_schema()
        columns = _chosen(source.name, list(schema), description)
        frame = frame.select(columns)
        if sort:
            keys = [pl.col(name).cast(pl.Float64, strict=False) for name in ("step",)]
            frame = frame.with_columns(*(k.alias(f"__{k.meta.output_name()}") for k in keys))
            frame = frame.sort("episode", "__step", maintain_order=True).drop("__step")
        if start or stop is not None:
            frame = frame.slice(start, None if stop is None else stop - start)
        yield from frame.collect_batches(chunk_size=BATCH)
    except pl.exceptions.NoDataError:
        return
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"cannot read {source.name}: {_first_line(error)}") from None


def _between(
    frames: Iterator[pl.DataFrame], start: int, stop: int | None
) -> Iterator[pl.DataFrame]:
    first = 0
    for frame in frames:
        last = len(frame) if stop is None else max(stop - first, 0)
        yield frame[max(start - first, 0) : last]
        first += len(frame)


def _chosen(name: str, columns: list[str], description: FleetDescription) -> list[str]:
    """The columns to read, or a sentence that names those that are missing."""
    needed = needed_columns(description)
    if missing := [column for column in needed if column not in columns]:
        said = []
        for column in missing:
            close = get_close_matches(column, [c for c in columns if c not in needed], 1)
            said.append(f"'{column}'" + (f" (is it '{close[0]}'?)" if close else ""))
        raise InputError(
            f"{name} has no column {', '.join(said)}; it has {', '.join(columns) or 'none'}"
        )
    return [*needed, *(["machine"] if "machine" in columns else [])]


def unused_columns(source: Source, description: FleetDescription) -> list[str]:
    """The columns of a log that the description does not name."""
    import polars as pl

    if source.kind == "minari":
        return []
    try:
        scan = pl.scan_csv if source.kind == "csv" else pl.scan_parquet
        columns = list(scan(source.path).collect_schema())
    except (pl.exceptions.PolarsError, OSError):
        return []  # it will be refused when it is read
    return [name for name in columns if name not in (*needed_columns(description), "machine")]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- Minari ----------------------------------------------------------------------------------------


def _minari_batches(source: Source, description: FleetDescription) -> Iterator[pl.DataFrame]:
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
    observations, actions, infos = episode.observations, episode.actions, episode.infos or {}
    columns: dict[str, Any] = {}
    states = description.logged_states
    if isinstance(observations, dict):
        infos = observations | infos
        observations = _stacked(where, observations, states)
    steps = len(observations)
    for what, array, names in (
        ("observations", observations, states),
        ("actions", actions, description.input_names),
    ):
        array = np.asarray(array, float).reshape(len(array), -1)
        if array.shape[1] != len(names):
            raise InputError(
                f"{where}: {what} have {array.shape[1]} values, but the description has "
                f"{len(names)}: {', '.join(names)}"
            )
        padded = np.full((steps, len(names)), np.nan)
        padded[: len(array)] = array
        columns |= {one: padded[:, j] for j, one in enumerate(names)}
    for one in description.context_names:
        if one not in infos:
            raise InputError(
                f"{where} has no context '{one}': it must be in its infos (or observations), "
                f"which have {', '.join(infos) or 'nothing'}"
            )
        values = np.asarray(infos[one], float).reshape(-1)
        columns[one] = np.broadcast_to(values, steps) if len(values) == 1 else values[:steps]
    return pl.DataFrame({"episode": np.full(steps, episode.id), "step": np.arange(steps)} | columns)


def _stacked(where: str, observations: dict[str, Any], states: Sequence[str]) -> Any:
    if missing := [name for name in states if name not in observations]:
        raise InputError(
            f"{where} has no observation {', '.join(missing)}; it has {', '.join(observations)}"
        )
    return np.stack([np.asarray(observations[name], float).reshape(-1) for name in states], axis=1)
