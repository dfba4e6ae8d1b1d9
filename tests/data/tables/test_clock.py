"""What time stamps say of rows that follow one another, and of those that do not."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contextual_lqr import InputError
from contextual_lqr.data import FleetDescription, check_logs, describe_table
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


@pytest.mark.parametrize("slower", [2.0, 1.4])
@pytest.mark.parametrize("odd", ["cart 0", "cart 1"])
def test_machines_of_another_rate_are_named(tmp_path: Path, odd: str, slower: float) -> None:
    times = pl.col("t") * pl.when(pl.col("machine") == odd).then(slower).otherwise(1)
    rows = minutes(4).drop("episode").with_columns(t=times)
    report = check_logs(CLOCK, write(rows, tmp_path / "log.csv"))
    assert report.tables.time is not None
    assert report.tables.time.other_rates == {odd: (60 * slower, 60.0)}
    said = f"1 machine, {odd}: rows are {60 * slower:g} s apart, but the period is 60 s"
    assert any(one.startswith(said) for one in report.tables.sentences())


def test_jitter_is_no_other_rate(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = minutes(8)
    rows = rows.with_columns(t=pl.col("t") + 20 * pl.Series(rng.uniform(-1, 1, len(rows))))
    report = check_logs(CLOCK, write(rows, tmp_path / "log.csv"))
    assert report.tables.time is not None
    assert report.tables.time.other_rates == {}


@pytest.mark.parametrize("rounded", [120, 600])
def test_rounded_time_stamps_are_refused_as_such(tmp_path: Path, rounded: int) -> None:
    rows = minutes().with_columns(t=pl.col("t") // rounded * rounded)
    with pytest.raises(InputError, match=f"have the same time, then it rises by {rounded} s"):
        check_logs(CLOCK, write(rows, tmp_path / "log.parquet"))


@pytest.mark.parametrize(("unit", "scale"), [("milliseconds", 10**3), ("nanoseconds", 10**9)])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_since_1970_are_no_seconds(
    tmp_path: Path, unit: str, scale: int, suffix: str
) -> None:
    whole = (pl.col("t").cast(pl.Int64) + 1_790_000_000) * scale
    log = write(minutes().with_columns(t=whole), tmp_path / f"log.{suffix}")
    report = check_logs(CLOCK, log)
    assert (report.transitions, report.bad_rows) == (2 * (MINUTES - 1), 0)
    assert f"times of {log} are read as {unit} since 1970" in report.tables.sentences()


@pytest.mark.parametrize(("unit", "times"), [("milliseconds", 1e3), ("days, as Excel", 1 / 86400)])
def test_a_likely_unit_is_named(tmp_path: Path, unit: str, times: float) -> None:
    log = write(minutes().with_columns(t=46000 + pl.col("t") * times), tmp_path / "log.csv")
    with pytest.raises(InputError, match=f"Are times in {unit}"):
        check_logs(CLOCK, log)


@pytest.mark.parametrize("dates", [["04.05.2026"], ["2026-05-04", "2026-05-05"]])
def test_of_a_date_and_a_time_of_day_the_latter_is_the_clock(
    tmp_path: Path, dates: list[str]
) -> None:
    rows = minutes(6).rename({"machine": "Anlage"}).drop("episode", "t")
    days = [dates[i % len(dates)] for i in range(len(rows))]
    clock = [f"08:{i % MINUTES:02d}:00" for i in range(len(rows))]
    table = rows.with_columns(pl.Series("Datum", days), pl.Series("Uhrzeit", clock))
    table = table.select("Datum", "Uhrzeit", *rows.columns)
    made = describe_table(write(table, tmp_path / "log.csv"))
    assert 'time = "Uhrzeit"' in made
    assert 'machine = "Anlage"' in made
