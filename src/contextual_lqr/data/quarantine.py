"""Where bad rows go: a CSV file beside the output, each row with its file, its place, and why."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from numpy import ndarray as Array

from contextual_lqr.errors import InputError

if TYPE_CHECKING:
    import polars as pl


class BadRows:
    """Bad rows of a part of the logs, to be written where all of them are."""

    def __init__(self) -> None:
        self._found: list[tuple[pl.DataFrame, str, Array, str]] = []

    def add(self, rows: pl.DataFrame, source: str, numbers: Array, reason: str) -> None:
        """Set rows aside."""
        self._found.append((rows, source, numbers, reason))

    def give(self, quarantine: Quarantine) -> None:
        """Write them."""
        for one in self._found:
            quarantine.add(*one)


class Quarantine:
    """Rows as text, written as they come; the file appears, whole, with `close`.

    An older quarantine is never overwritten: the name gets a number.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.{os.getpid()}")
        self._file: IO[bytes] | None = None
        self._columns: list[str] = []

    def add(self, rows: pl.DataFrame, source: str, numbers: Array, reason: str) -> None:
        """Set rows aside."""
        import polars as pl

        text = rows.select(pl.all().cast(pl.String))
        about = pl.DataFrame({"file": [source] * len(rows), "row": numbers})
        about = about.with_columns(pl.lit(reason).alias("reason"), pl.col("row").cast(pl.String))
        frame = pl.concat([about, text], how="horizontal")
        if self._file is None:
            columns = [name for name in frame.columns if name != "machine"]
            self._columns = [*columns, "machine"]  # which not every log has
            self._file = self._reporting(lambda: self._beside.open("xb"))
            pl.DataFrame(schema=self._columns).write_csv(self._file)
        for name in self._columns:
            if name not in frame.columns:
                frame = frame.with_columns(pl.lit(None, pl.String).alias(name))
        frame.select(self._columns).write_csv(self._file, include_header=False)

    def close(self) -> Path | None:
        """Put the file in its place; returns its name, or None if no row was bad."""
        if self._file is None:
            return None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        place, number = self._path, 1
        while place.exists():
            number += 1
            place = self._path.with_stem(f"{self._path.stem}-{number}")
        os.replace(self._beside, place)
        return place

    def discard(self) -> None:
        """Leave nothing behind, after a failure."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._beside.unlink(missing_ok=True)

    def _reporting(self, act: Callable[[], IO[bytes]]) -> IO[bytes]:
        try:
            return act()
        except OSError as error:
            raise InputError(f"cannot write {self._path}: {error.strerror}") from error
