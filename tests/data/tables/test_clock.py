"""What time stamps say of rows that follow one another, and of those that do not."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contextual_lqr.data import FleetDescription, check_logs
from fleet_logs import CARTS, cart_rows, write

MINUTES = 40
CLOCK = FleetDescription.parse(CARTS + '[logs]\ntime = "t"\nperiod = 60\n')
RESAMPLED = FleetDescription.parse(CARTS + '[logs]\ntime = "t"\nperiod = 60\nresample = true\n')


def minutes(machines: int = 2) -> pl.DataFrame:
    """A row a minute, of each machine."""
    frame = cart_rows([1.0 + i for i in range(machines)], steps=MINUTES, episodes=1)
    return frame.with_columns(t=60.0 * pl.col("step")).drop("step")


@pytest.mark.parametrize("fleet", [CLOCK, RESAMPLED], ids=["as it is", "resampled"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("batch", [7, 1 << 16])
def test_a_clock_that_is_set_back_splits_episodes_and_loses_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    named: bool,
    fleet: FleetDescription,
) -> None:
    monkeypatch.setattr("contextual_lqr.data.sources.BATCH", batch)
    rows = minutes().with_columns(
        t=pl.col("t") - pl.when(pl.col("t") < 1200).then(0).otherwise(600)
    )
    rows = rows if named else rows.drop("episode")
    report = check_logs(fleet, write(rows, tmp_path / "log.csv"))
    assert (report.bad_rows, report.episodes) == (0, 4)
    assert report.transitions == 2 * (MINUTES - 2)
    assert report.tables.time is not None
    assert report.tables.time.restarts == 2
    said = "; ".join(report.tables.sentences())
    assert "time falls back 2 times, which splits episodes" in said
    np.testing.assert_allclose(report.tables.time.mean, 1)
