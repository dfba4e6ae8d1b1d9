"""The folder of a run: its configuration, its rows, and what is finished so far.

Every finished trial is a small file of its own at once, written whole, so stopping loses only the
trials under way. When all are there they become one file, `rows.parquet`.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl

from contextual_lqr.errors import FormatError, InputError
from contextual_lqr.files import atomic_write
from contextual_lqr.paper.reproduce.config import Config, Trial
from contextual_lqr.paper.reproduce.trial import MEASURED

SCHEMA = {
    "setting": pl.String,
    "path": pl.String,
    "decay": pl.Float64,
    "strategy": pl.String,
    "seed": pl.Int64,
    "episode": pl.Int64,
    **dict.fromkeys(MEASURED, pl.Float64),
    "steps": pl.Int64,
    "failure": pl.String,
}


class Store:
    """Results of one configuration in one folder; a folder with those of another is refused."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.rows_file, self._parts = folder / "rows.parquet", folder / "rows"
        make_folder(folder)
        written = folder / "config.json"
        if written.exists():
            _require_same(written, config)
        elif self.rows_file.exists() or self._parts.exists():
            raise InputError(f"{folder} has rows without a config.json: give another --out")
        else:
            atomic_write(written, config.written().encode())

    def missing(self) -> list[Trial]:
        """The trials that are still to be run."""
        if self.rows_file.exists():
            return []
        return [trial for trial in self.config.trials if not (self._parts / trial.file).exists()]

    def keep(self, trial: Trial, columns: dict[str, Any]) -> None:
        """Write the rows of a finished trial."""
        make_folder(self._parts)
        write_rows(self._parts / trial.file, frame(columns))

    def rows(self) -> pl.DataFrame:
        """All rows, in the order of settings, strategies, seeds and episodes."""
        if self.rows_file.exists():
            return _read(self.rows_file)
        order = {one: i for i, one in enumerate((*self.config.settings, *self.config.strategies))}
        trials = sorted(self.config.trials, key=lambda t: (order[t.setting], order[t.strategy]))
        rows = pl.concat([_read(self._parts / trial.file) for trial in trials], rechunk=True)
        write_rows(self.rows_file, rows)
        shutil.rmtree(self._parts, ignore_errors=True)
        return rows


def frame(columns: dict[str, Any]) -> pl.DataFrame:
    """Columns as a table of our schema; what was not measured is missing, not NaN."""
    return pl.DataFrame(columns, schema=SCHEMA).with_columns(pl.col(MEASURED).fill_nan(None))


def make_folder(folder: Path) -> None:
    """Make it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None


def write_rows(path: Path, rows: pl.DataFrame) -> None:
    """Write a table, whole or not at all."""
    content = io.BytesIO()
    rows.write_parquet(content)
    atomic_write(path, content.getvalue())


def _read(path: Path) -> pl.DataFrame:
    try:
        rows = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise FormatError(f"cannot read {path}: {reason}; delete it to run it again") from None
    if rows.schema != SCHEMA:
        raise FormatError(f"{path} does not have the columns of a run; delete it to run it again")
    return rows


def _require_same(written: Path, config: Config) -> None:
    text = written.read_text(encoding="utf-8")
    if text == config.written():
        return
    before, now = vars(Config.load(written)), vars(config)
    differing = [
        f"{name} {_said(before[name])} instead of {_said(now[name])}"
        for name in now
        if before[name] != now[name]
    ]
    what = "; ".join(differing) or f"release {json.loads(text).get('release')} of contextual-lqr"
    raise InputError(
        f"{written.parent} holds results of another configuration ({what}): give another --out, "
        f"or repeat that one with --config {written}"
    )


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
