"""A log is read few rows at a time, in the same frames as if it were read at once."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from contextual_lqr.data import sources
from contextual_lqr.data.sources import cut_in_parts, find_sources
from fleet_logs import DESCRIPTION, cart_rows


@pytest.mark.parametrize("sort", [False, True])
def test_of_parquet_few_rows_are_decoded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: bool
) -> None:
    rows = cart_rows([1.0, 2.0, 3.0], episodes=8)
    rows.write_parquet(tmp_path / "log.parquet", row_group_size=100)
    asked: list[int] = []
    collect = pl.LazyFrame.collect_batches

    def counted(rows: pl.LazyFrame, **options: Any) -> Any:
        asked.append(rows.select(pl.len()).collect().item())
        return collect(rows, **options)

    monkeypatch.setattr(pl.LazyFrame, "collect_batches", counted)
    monkeypatch.setattr(sources, "BATCH", 16)
    monkeypatch.setattr(sources, "PART", 128)

    def read() -> list[pl.DataFrame]:
        asked.clear()
        parts = cut_in_parts(find_sources([str(tmp_path / "log.parquet")]), sort=sort)
        pieces = [piece for part in parts for piece in part.pieces]
        return [frame for one in pieces for frame in one.frames(DESCRIPTION, sort=sort)]

    whole, count = read(), sum(asked)
    assert max(asked) > 64
    monkeypatch.setattr(sources, "_DECODED", 32)
    again = read()
    assert sum(asked) == count
    assert max(asked) == (count if sort else 32)  # what is sorted is there at once
    assert [len(frame) for frame in again] == [len(frame) for frame in whole]
    assert all(one.equals(other) for one, other in zip(again, whole, strict=True))
