"""Small tables from Parquet or CSV files, whole: a target path, a list of machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.errors import InputError

if TYPE_CHECKING:
    import polars as pl


def read_frame(path: str | os.PathLike[str]) -> pl.DataFrame:
    """The table as it is."""
    import polars as pl

    path = Path(path)
    if not path.exists():
        raise InputError(f"there is no file {path}")
    try:
        if path.suffix.lower() == ".parquet":
            return pl.read_parquet(path)
        return pl.read_csv(path, infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}") from None


def read_table(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The columns of a table of finite numbers, by name."""
    import polars as pl

    frame, columns = read_frame(path), {}
    for name in frame.columns:
        raw = frame[name]
        if not (raw.dtype.is_numeric() or raw.dtype == pl.String):
            raise InputError(f"{path}: the column '{name}' must hold numbers, not {raw.dtype}")
        column = raw.cast(pl.Float64, strict=False).to_numpy()
        if not np.isfinite(column).all():
            row = int(np.isfinite(column).argmin())
            raise InputError(f"{path}: row {row + 1} of '{name}' is {raw[row]}, no finite number")
        columns[name] = column
    return columns
