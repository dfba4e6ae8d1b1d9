"""Labels of machines and episodes, however their column stores them."""

from pathlib import Path

import polars as pl
import pytest

from contextual_lqr.data import FleetDescription, check_logs, survey_logs
from fleet_logs import CARTS, cart_rows, write

ROWS = cart_rows([1.0, 2.0, 3.0], steps=10, episodes=2).with_columns(
    machine=pl.col("episode") // 2 + 1
)


def test_whole_numbers_that_are_stored_as_floats_are_the_same_machines(tmp_path: Path) -> None:
    early, late = ROWS.filter(pl.col("step") < 5), ROWS.filter(pl.col("step") >= 5)
    late = late.with_columns(pl.col("machine", "episode").cast(pl.Float64))
    logs = [write(early, tmp_path / "a.parquet"), write(late, tmp_path / "b.parquet")]
    survey = survey_logs(FleetDescription.parse(CARTS), logs)
    assert survey.machines == 3
    odd = late.with_columns(machine=pl.when(pl.col("step") == 5).then(float("nan")).otherwise(2.5))
    report = check_logs(FleetDescription.parse(CARTS), write(odd, tmp_path / "c.parquet"))
    assert report.bad == {"'machine' is missing": 6}


@pytest.mark.parametrize("stored", [pl.Float64, pl.Float32, pl.Int64])
def test_contexts_are_found_by_numbers_of_any_kind(tmp_path: Path, stored: type) -> None:
    contexts = ROWS.select("machine", "mass").unique()
    write(contexts.with_columns(pl.col("machine").cast(stored)), tmp_path / "carts.parquet")
    fleet = f'{CARTS}[logs]\ncontexts = "{tmp_path.as_posix()}/carts.parquet"\n'
    report = check_logs(
        FleetDescription.parse(fleet), write(ROWS.drop("mass"), tmp_path / "log.csv")
    )
    assert (report.bad_rows, report.tables.without_context) == (0, [])
