"""Stretches of rows that are in the logs twice count once."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contextual_lqr.cli.check_page import summary
from contextual_lqr.data import fit, sources, survey_logs
from contextual_lqr.data.tables.copies import LENGTH, SeenRows, copied_runs
from fleet_logs import DESCRIPTION, cart_rows, write

FRAME = cart_rows([0.7, 1.3, 2.0], steps=80, episodes=1)


def piece(first: int, rows: int, *, at: int = 0, name: int = 100) -> pl.DataFrame:
    """Rows of the first machine, cut out, with other steps and another episode."""
    some = FRAME[first : first + rows]
    return some.with_columns(
        episode=pl.lit(name, pl.Int64), step=pl.int_range(at, at + rows, dtype=pl.Int64)
    )


@pytest.mark.parametrize("part", [64, 1 << 20])
def test_copied_stretches_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(sources, "PART", part)
    whole = fit(DESCRIPTION, write(FRAME, tmp_path / "a.parquet"), alarm=False)
    copy = write(piece(20, 45, at=7), tmp_path / "b.parquet")
    pasted = write(pl.concat([FRAME, piece(10, 30)]), tmp_path / "c.parquet")
    for logs, copied in (
        ([str(tmp_path / "a.parquet"), copy], 44),
        ([pasted], 29),
        ([pasted, copy], 29 + 44),
    ):
        for workers in (2,) if part == 64 else (1, 2):
            done = fit(DESCRIPTION, logs, alarm=False, workers=workers)
            assert done.report is not None
            assert done.report.copied == copied
            assert done.report.learnt == done.decoder.rows
            assert done.decoder.rows == whole.decoder.rows
            np.testing.assert_allclose(done.decoder.estimate, whole.decoder.estimate, atol=1e-12)
            again = fit(DESCRIPTION, logs, alarm=False, into=done)  # known from then on
            assert again.decoder.rows == whole.decoder.rows
    twice = fit(DESCRIPTION, [str(tmp_path / "a.parquet"), copy], alarm=False, allow_repeats=True)
    assert twice.decoder.rows == whole.decoder.rows + 44


def test_an_overlap_is_left_out_and_what_is_new_is_learnt(tmp_path: Path) -> None:
    early, late = FRAME[:50], piece(20, 60)
    logs = [write(early, tmp_path / "early.csv"), write(late, tmp_path / "late.csv")]
    done, whole = (
        fit(DESCRIPTION, some, alarm=False)
        for some in (logs, write(FRAME[:80], tmp_path / "whole.csv"))
    )
    assert done.report is not None
    assert done.report.first_copies == [f"{tmp_path}/late.csv, row 1: 29 transitions"]
    assert done.decoder.rows == whole.decoder.rows == 79
    np.testing.assert_allclose(done.decoder.estimate, whole.decoder.estimate, atol=1e-12)


def test_rows_at_rest_and_short_runs_are_no_copies(tmp_path: Path) -> None:
    rest = FRAME.with_columns(position=0.0, velocity=0.0, force=pl.col("step") % 7 * 1.0)
    report = fit(DESCRIPTION, write(rest, tmp_path / "rest.csv"), alarm=False).report
    assert report is not None
    assert report.copied == 0
    short = pl.concat([FRAME, piece(20, LENGTH)])  # one transition fewer than rows
    report = fit(DESCRIPTION, write(short, tmp_path / "short.csv"), alarm=False).report
    assert report is not None
    assert report.copied == 0


def test_few_values_in_another_order_are_no_copies() -> None:
    """Of a coarse sensor every transition recurs, and short runs do; long ones only in copies."""
    rng = np.random.default_rng(6)
    some = rng.integers(0, 1 << 60, 60).astype(np.uint64)
    # A switch that is mostly left alone: a step has so few bits that chance repeats 30 of them.
    log = some[np.cumsum(rng.random(6000) < 0.2) % 60]
    begins = np.arange(len(log)) % 1000 == 0
    seen = SeenRows()
    for at in (slice(0, 3000), slice(3000, 6000)):
        runs, windows = copied_runs(log[at], begins[at], [seen])
        assert runs == []
        seen.add(windows)
    assert len(seen) < 6000 - 6 * (LENGTH - 1)
    for first, last, found in ((1100, 1300, []), (1100, 1900, [(0, 800)])):
        begins = np.arange(last - first) == 0
        assert copied_runs(log[first:last], begins, [seen])[0] == found


def test_copies_against_all_pairs() -> None:
    """Random lists of hashes with pasted runs, against looking at every earlier run."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        seen = SeenRows()
        before = rng.integers(0, 1 << 60, 300).astype(np.uint64)
        for some in np.array_split(before, 7):
            seen.add(copied_runs(some, np.zeros(len(some), bool), [seen])[1])
        now = rng.integers(0, 1 << 60, 200).astype(np.uint64)
        expected = np.zeros(200, bool)
        for start, first in ((10, 0), (120, 86)):  # of lists of 43
            length = int(rng.integers(10, 43))
            now[start : start + length] = before[first : first + length]
            expected[start : start + length] = length >= LENGTH
        found = np.zeros(200, bool)
        for a, b in copied_runs(now, np.zeros(200, bool), [seen])[0]:
            found[a:b] = True
        assert np.array_equal(found, expected)
        assert len(seen) == 300 - 7 * (LENGTH - 1)
        assert copied_runs(rng.permutation(before), np.zeros(300, bool), [seen])[0] == []


def test_a_survey_counts_what_there_is_to_learn_from(tmp_path: Path) -> None:
    log = write(pl.concat([FRAME, piece(10, 30)]), tmp_path / "log.csv")
    survey = survey_logs(DESCRIPTION, log)
    learnt = survey.report.learnt
    assert f"{learnt} of {learnt + 29} transitions to learn from" in summary(survey)[0]
