"""No episode of a log counts twice: however the log has grown, is ordered, cut or written."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_lqr import InputError
from contextual_lqr.belief.evidence import digests as evidence
from contextual_lqr.belief.evidence.digests import row_hashes, stretch_digests, text_hashes
from contextual_lqr.data import FittedFleet, fit, sources, transitions
from fleet_logs import DESCRIPTION, cart_rows, write

MASSES = [0.7, 1.3, 2.0, 3.1, 4.4, 1.7]
STEPS = 9  # rows of an episode


def rows(episodes: int, masses: list[float] = MASSES) -> pl.DataFrame:
    return cart_rows(masses, steps=STEPS, episodes=episodes)


def assert_same(one: FittedFleet, other: FittedFleet) -> None:
    """All that was learnt is the same, to rounding."""
    mine, its = one.decoder, other.decoder
    assert (mine.rows, mine.episodes) == (its.rows, its.episodes)
    assert np.array_equal(mine.evidence.arrays()["digests"], its.evidence.arrays()["digests"])
    np.testing.assert_allclose(mine.estimate, its.estimate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mine.noise_estimate, its.noise_estimate, atol=1e-12)


def test_of_a_log_that_has_grown_only_what_is_new_is_learnt(tmp_path: Path) -> None:
    whole = rows(5)
    log = write(whole[: 20 * STEPS], tmp_path / "log.csv")
    before = fit(DESCRIPTION, log)
    write(whole, tmp_path / "log.csv")
    grown = fit(DESCRIPTION, log, into=before)
    assert grown.report is not None
    assert grown.report.repeated == 20 * (STEPS - 1)
    assert grown.decoder.repeats == 20
    assert_same(grown, fit(DESCRIPTION, log))
    # Once more: there is nothing new in it, and nothing changes.
    again = fit(DESCRIPTION, log, into=grown)
    assert_same(again, grown)
    assert again.decoder.repeats == 50
    twice = fit(DESCRIPTION, log, into=grown, allow_repeats=True)
    assert (twice.decoder.rows, twice.decoder.repeats) == (2 * grown.decoder.rows, 20)


def assert_learnt_once(found: FittedFleet, whole: FittedFleet) -> None:
    """As `assert_same`, but that beginnings are known as well."""
    mine, its = found.decoder, whole.decoder
    assert (mine.rows, mine.episodes) == (its.rows, its.episodes)
    assert set(its.evidence.arrays()["digests"]) <= set(mine.evidence.arrays()["digests"])
    np.testing.assert_allclose(mine.estimate, its.estimate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mine.noise_estimate, its.noise_estimate, atol=1e-12)


@pytest.mark.parametrize("stretch", [1, 3, 4096])
@pytest.mark.parametrize("part", [8, 1 << 20])
def test_an_episode_that_has_grown_is_learnt_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretch: int, part: int
) -> None:
    monkeypatch.setattr(transitions, "STRETCH", stretch)
    monkeypatch.setattr(transitions, "_LOOK_BACK", (2, 1 << 60))
    monkeypatch.setattr(sources, "PART", part)
    frame = rows(1, MASSES[:3])
    whole = fit(DESCRIPTION, write(frame, tmp_path / "whole.parquet"))
    before, last = None, 2 * STEPS
    for end in (2 * STEPS + 3, 2 * STEPS + 4, 3 * STEPS - 1, 3 * STEPS):
        log = write(frame[:end], tmp_path / f"{end}.parquet")
        before = fit(DESCRIPTION, log, into=before)
        assert before.report is not None
        new = end - last - (last == 2 * STEPS) + (last == 2 * STEPS) * 2 * (STEPS - 1)
        assert before.report.transitions - before.report.repeated == new
        last = end
    assert_learnt_once(before, whole)
    # Several copies, as it grew, in one fit; and all of them again.
    logs = sorted(map(str, tmp_path.glob("*.parquet")))
    together = fit(DESCRIPTION, logs)
    assert_learnt_once(together, whole)
    assert_learnt_once(fit(DESCRIPTION, logs, into=together), whole)


@pytest.mark.parametrize("part", [8, 1 << 20])
def test_an_old_log_that_ends_earlier_teaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(transitions, "_LOOK_BACK", (2, 1 << 60))
    monkeypatch.setattr(sources, "PART", part)
    frame = rows(1, MASSES[:3])
    new = write(frame, tmp_path / "a.parquet")
    old = write(frame[: 2 * STEPS + 4], tmp_path / "b.parquet")
    whole = fit(DESCRIPTION, new)
    for found in (
        fit(DESCRIPTION, old, into=whole),
        fit(DESCRIPTION, [new, old]),
        fit(DESCRIPTION, [old, new]),
        fit(DESCRIPTION, new, into=fit(DESCRIPTION, old)),
    ):
        assert_learnt_once(found, whole)
    stopped, other = fit(DESCRIPTION, old), fit(DESCRIPTION, new)
    with pytest.raises(InputError, match="the same data"):
        stopped.merge(other)


_logs = st.fixed_dictionaries(
    {
        "order": st.permutations(range(12)),
        "known": st.sets(st.integers(0, 11)),
        "files": st.sets(st.integers(1, 11), max_size=4).map(sorted),
        "again": st.lists(st.integers(0, 11), max_size=4),
        "dropped": st.sets(st.integers(0, 12 * STEPS - 1), max_size=6),
        "part": st.integers(8, 50),  # one that looks back must find two rows
        "batch": st.integers(4, 50),
        "stretch": st.sampled_from([1, 4, 7, 4096]),
        "csv": st.booleans(),
    }
)


@given(_logs)
@settings(max_examples=10, deadline=None)
def test_wherever_an_episode_stands_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any]
) -> None:
    folder, place = tmp_path_factory.mktemp("repeats"), pl.int_range(pl.len())
    frame = rows(2).filter(~place.is_in(sorted(drawn["dropped"])))  # episodes with gaps, too
    episode = {i: frame.filter(pl.col("episode") == i) for i in range(12)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transitions, "STRETCH", drawn["stretch"])
        whole = fit(DESCRIPTION, write(frame, folder / "whole.parquet"))
        before = None
        if drawn["known"]:
            part = pl.concat(episode[i] for i in sorted(drawn["known"]))
            before = fit(DESCRIPTION, write(part, folder / "before.parquet"))
        # All episodes in another order, some of them several times, in files and parts cut anew.
        order, logs = [*drawn["order"], *drawn["again"]], []
        for k, (a, b) in enumerate(pairwise([0, *drawn["files"], len(order)])):
            some = pl.concat(
                episode[i].with_columns(episode=pl.lit(100 * k + j))
                for j, i in enumerate(order[a:b])
            )
            logs.append(write(some, folder / f"{k}.{'csv' if drawn['csv'] else 'parquet'}"))
        patch.setattr(sources, "PART", drawn["part"])
        patch.setattr(sources, "BATCH", drawn["batch"])
        patch.setattr(transitions, "_LOOK_BACK", (2, 1 << 60))
        found = fit(DESCRIPTION, logs, into=before)
        assert_same(found, whole)
        assert found.report is not None
        known = 0 if before is None else before.decoder.rows
        assert found.report.transitions - found.report.repeated == whole.decoder.rows - known
        twice = fit(DESCRIPTION, logs, into=before, allow_repeats=True)
        assert twice.report is not None
        assert twice.decoder.rows == known + twice.report.transitions


def test_two_machines_that_do_the_same_are_two(tmp_path: Path) -> None:
    frame = rows(1, [1.0, 2.0, 3.0]).with_columns(machine=pl.lit("a"))
    other = frame.with_columns(pl.col("episode") + 100, machine=pl.lit("b"))
    both = fit(DESCRIPTION, write(pl.concat([frame, other]), tmp_path / "both.parquet"))
    assert (both.decoder.repeats, both.decoder.episodes) == (0, 6)


def test_what_cannot_be_told_apart_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "LIMIT", 20)
    whole = rows(10)
    log = write(whole[: 50 * STEPS], tmp_path / "log.parquet")
    before = fit(DESCRIPTION, log)
    assert before.decoder.evidence.coverage < 0.7
    for grown in (whole, whole[: 50 * STEPS]):
        write(grown, tmp_path / "log.parquet")
        with pytest.raises(InputError, match="learnt before, but which cannot be told"):
            fit(DESCRIPTION, log, into=before)
    fresh = write(whole[50 * STEPS :], tmp_path / "new.parquet")
    assert fit(DESCRIPTION, fresh, into=before).decoder.episodes == 60
    assert fit(DESCRIPTION, log, into=before, allow_repeats=True).decoder.episodes == 100


def test_hashes_tell_all_rows_apart() -> None:
    """Also where numbers are few and round, which have few bits."""
    grid = np.stack(np.meshgrid(*[np.arange(-8.0, 8.0)] * 4), -1).reshape(-1, 4)
    many = row_hashes(list(grid.T))
    assert len(np.unique(many)) == len(grid) == 65536
    for shift in (0, 32, 48):  # and their bits are as random as they look
        share = np.bincount((many >> np.uint64(shift)).astype(np.uint16), minlength=65536)
        assert 0.35 < (share == 0).mean() < 0.39  # 1/e
    assert np.array_equal(row_hashes(list(-0.0 * grid.T)), row_hashes(list(0.0 * grid.T)))
    assert np.array_equal(row_hashes(list(grid[7:9].T)), many[7:9])
    swapped = row_hashes([grid[:, 1], grid[:, 0], grid[:, 2], grid[:, 3]])
    assert (swapped == many).mean() == pytest.approx(1 / 16)
    sums = np.add.reduceat(many, np.arange(0, len(many), 2))
    assert len(np.unique(stretch_digests(sums))) == len(sums)
    assert len(set(text_hashes(["a", "b", "", "ä"]).tolist())) == 4
