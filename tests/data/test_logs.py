"""Logs: which rows are learnt, which are set aside and why, whatever the files look like."""

import doctest
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from contextual_lqr import Decoder, InputError, Trajectory
from contextual_lqr.data import FittedFleet, FleetDescription, check_logs, fit, sources
from contextual_lqr.data.given_tables import read_numbers
from contextual_lqr.data.transitions import LogReader
from fleet_logs import CARTS, DESCRIPTION, TRUTH, cart_rows, write, write_minari

MASSES = [0.7, 1.3, 2.0, 3.1, 4.4]


def fitted(*logs: str, **options: Any) -> FittedFleet:
    return fit(DESCRIPTION, logs, **options)


def learnt_by_hand(frame: pl.DataFrame) -> Decoder:
    """The same episodes as trajectories, one by one."""
    decoder = DESCRIPTION.new_decoder()
    for episode in frame.partition_by("episode", maintain_order=True):
        states = episode.select("position", "velocity").to_numpy()
        inputs = episode["force"].to_numpy()[: len(states) - 1, None]
        decoder.update({"mass": episode["mass"][0]}, Trajectory(states, inputs))
    return decoder


def same(one: Decoder, other: Decoder) -> None:
    assert (one.episodes, one.rows, one.ignored_rows) == (
        other.episodes, other.rows, other.ignored_rows,
    )  # fmt: skip
    # Directions that no row excites are determined by next to nothing.
    assert np.allclose(one.estimate, other.estimate, rtol=1e-6, atol=1e-7)
    assert np.allclose(one.factor, other.factor, rtol=1e-9, atol=1e-11)
    assert np.allclose(one.noise_estimate, other.noise_estimate, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("last_row", [True, False])
@pytest.mark.parametrize("batch", [7, 64, 1 << 16])
@pytest.mark.parametrize("name", ["carts.csv", "carts.parquet"])
def test_a_log_teaches_what_its_trajectories_teach(
    name: str, batch: int, last_row: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCH", batch)
    frame = cart_rows(MASSES, last_row=last_row)
    done = fitted(write(frame, tmp_path / name))
    same(done.decoder, learnt_by_hand(frame))
    assert done.report.rows == len(frame)
    assert done.report.transitions == done.decoder.rows
    assert done.report.bad_rows == done.report.splits == 0
    assert done.context_range == {"mass": (0.7, 4.4)}
    assert np.abs(done.decoder.estimate - TRUTH).max() < 0.02
    assert np.array_equal(done.decoder.estimate[0], TRUTH[0])  # known, not learnt


def test_files_folders_globs_and_episodes_over_two_files(tmp_path: Path) -> None:
    frame = cart_rows(MASSES, steps=9)
    cut = 40  # in the middle of an episode
    write(frame[:cut], tmp_path / "1.parquet")
    write(frame[cut:].with_columns(pl.col("episode").cast(pl.Int32)), tmp_path / "2.csv")
    whole = learnt_by_hand(frame)
    for logs in (
        [str(tmp_path)],
        [str(tmp_path / "*")],
        [str(tmp_path / "1.parquet"), str(tmp_path / "2.csv"), str(tmp_path / "*.csv")],
    ):
        done = fitted(*logs)
        assert done.report.files == 2
        same(done.decoder, whole)
    write(frame[cut:], tmp_path / "2.parquet")
    same(fitted(str(tmp_path / "*.parquet")).decoder, whole)
    # Files that count their episodes from 0 again are not taken for one.
    twice = fitted(*[write(cart_rows([2.0], s), tmp_path / f"s{s}.parquet") for s in (1, 2)])
    assert (twice.report.episodes, twice.report.bad_rows) == (4, 0)


def test_missing_steps_split_an_episode(tmp_path: Path) -> None:
    frame = cart_rows([1.0, 2.0], steps=10, episodes=1)
    gap = frame.filter(~((pl.col("episode") == 0) & pl.col("step").is_in([4, 5])))
    done = fitted(write(gap, tmp_path / "gap.csv"))
    assert done.report.splits == 1
    assert done.report.first_splits == [
        f"{tmp_path}/gap.csv, row 5: episode 0 goes from step 3 to 6"
    ]
    assert (done.report.transitions, done.report.episodes) == (18 - 3, 3)
    assert done.report.bad_rows == 0


def replaced(row: int, **values: Any) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def change(frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame.with_columns(pl.all().cast(pl.String)).to_dicts()
        rows[row] |= values
        return pl.DataFrame(rows, schema=dict.fromkeys(frame.columns, pl.String))

    return change


def doubled(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame[:6], frame[5:]])


def swapped(frame: pl.DataFrame) -> pl.DataFrame:
    return frame[[*range(5), 6, 5, *range(7, len(frame))]]


BAD: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], str, int]] = {
    "text in a number": (replaced(5, velocity="fast"), "'velocity' is not a number", 6),
    "nan": (replaced(5, position="NaN"), "'position' is not finite", 6),
    "infinity": (replaced(5, mass="inf"), "'mass' is not finite", 6),
    "a missing state": (replaced(5, position=None), "'position' is missing", 6),
    "a missing input": (replaced(5, force=None), "no inputs, though", 6),
    "text for an input": (replaced(5, force="x"), "'force' is not a number", 6),
    "a missing episode": (replaced(5, episode=None), "'episode' is missing", 6),
    "a missing machine": (replaced(5, machine=None), "'machine' is missing", 6),
    "half a step": (replaced(5, step="4.5"), "'step' is not a whole number", 6),
    "a step twice": (doubled, "its step is there already", 7),
    "steps in disorder": (swapped, "its step is out of order", 7),
    "a context that changes": (replaced(5, mass="2.5"), "'mass' changes inside", 6),
    "a machine that changes": (replaced(5, machine="z"), "'machine' changes inside", 6),
    "a context out of bounds": (replaced(5, mass="99"), "'mass' is outside its bounds", 6),
    "a state out of bounds": (replaced(5, velocity="1e5"), "'velocity' is outside", 6),
    "an input out of bounds": (replaced(5, force="-51"), "'force' is outside", 6),
}


@pytest.mark.parametrize("batch", [6, 1 << 16])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("change", "reason", "row"), BAD.values(), ids=BAD)
def test_a_bad_row_is_counted_located_and_set_aside(
    change: Callable[[pl.DataFrame], pl.DataFrame],
    reason: str,
    row: int,
    suffix: str,
    batch: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "BATCH", batch)
    good = cart_rows([1.0, 2.0], steps=12, episodes=1)
    log = write(change(good), tmp_path / f"log.{suffix}")
    quarantine = tmp_path / "aside.csv"
    done = fitted(log, quarantine=quarantine)
    ((said, count),) = done.report.bad.items()
    assert reason in said
    assert count == done.report.bad_rows == 1
    assert done.report.first_bad[said] == [f"{log}, row {row}"]
    aside = pl.read_csv(quarantine, infer_schema=False)
    assert len(aside) == 1
    kept = aside.row(0, named=True)
    assert (kept["file"], kept["row"], kept["reason"]) == (log, str(row), said)
    assert kept["position"] == str(change(good)["position"][row - 1]) or kept["position"] is None
    # Nothing else is lost: only transitions that touch the row, and one after a fall.
    assert 22 - 2 - (change is swapped) <= done.report.transitions <= 22
    assert np.abs(done.decoder.estimate[1] @ [0, 1, 0, 0, 0.5, 0] - 0.95) < 0.1
    with pytest.raises(InputError, match=f"row {row}: .*--strict"):
        fitted(log, strict=True, quarantine=tmp_path / "other.csv")
    assert sorted(os.listdir(tmp_path)) == ["aside.csv", f"log.{suffix}"]


@pytest.mark.parametrize("batch", [1, 3, 1 << 16])
def test_no_transition_joins_rows_across_steps_that_fall_back(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCH", batch)
    frame = cart_rows([1.0], steps=12, episodes=1)
    # Step 6 is counted as 3 again: steps 3, 4, 5 are late, and 6 is in truth 9.
    reset = frame.with_columns(
        step=pl.col("step") - pl.when(pl.col("step") < 6).then(0).otherwise(3)
    )
    for rows, count in ((reset, 5 + 2), (doubled(frame), 11)):
        report = fitted(write(rows, tmp_path / f"{len(rows)}.csv")).report
        assert report.transitions == count
        assert report.bad_rows == len(rows) - count - (2 if rows is reset else 1)
    (said,) = fitted(str(tmp_path / "12.csv")).report.first_splits
    assert said.endswith("row 10: episode 0 goes from step 5 to 6 after steps that fall back")


def test_many_bad_rows_stream_to_the_quarantine_and_an_old_one_stays(tmp_path: Path) -> None:
    frame = cart_rows(MASSES, steps=40)
    wild = frame.with_columns(
        velocity=pl.when(pl.col("step") % 5 == 2).then(None).otherwise("velocity")
    )
    log = write(wild, tmp_path / "log.parquet")
    for name in ("aside.csv", "aside-2.csv"):
        done = fitted(log, quarantine=tmp_path / "aside.csv")
        assert done.report.quarantine == str(tmp_path / name)
        assert len(pl.read_csv(tmp_path / name)) == done.report.bad_rows == 80
        assert len(done.report.first_bad["'velocity' is missing"]) == 5


def test_empty_logs(tmp_path: Path) -> None:
    (tmp_path / "nothing.csv").write_text("")
    write(cart_rows([1.0])[:0], tmp_path / "head.csv")
    write(cart_rows([1.0])[:0], tmp_path / "head.parquet")
    for name in ("nothing.csv", "head.csv", "head.parquet"):
        with pytest.raises(InputError, match=f"empty.*{name}"):
            fitted(str(tmp_path / name))
    full = write(cart_rows(MASSES), tmp_path / "full.parquet")
    assert fitted(str(tmp_path / "head.parquet"), full).report.empty == [
        str(tmp_path / "head.parquet")
    ]
    lonely = write(cart_rows([1.0]).filter(pl.col("step") % 2 == 0), tmp_path / "lonely.csv")
    with pytest.raises(InputError, match="12 rows, but no two successive steps"):
        fitted(lonely)


def test_columns_that_are_not_there_or_not_known(tmp_path: Path) -> None:
    frame = cart_rows(MASSES)
    log = write(frame.rename({"velocity": "velocty", "mass": "m"}), tmp_path / "log.csv")
    with pytest.raises(InputError, match=r"no column 'velocity' \(is it 'velocty'\?\), 'mass'"):
        fitted(log)
    log = write(frame.with_columns(note=pl.lit("x")), tmp_path / "log.parquet")
    assert fitted(log).report.unused == {"note": log}
    listed = frame.with_columns(force=pl.concat_list("force"))
    with pytest.raises(InputError, match=r"'force' must hold numbers, not List"):
        fitted(write(listed, tmp_path / "list.parquet"))


def test_a_path_that_was_found_is_not_a_glob(tmp_path: Path) -> None:
    """Brackets and stars in the name of a file that exists mean themselves."""
    ours, others = cart_rows([1.0]), cart_rows([2.0], first=50)
    for name, other in (("run[1].parquet", "run1.parquet"), ("a*.csv", "ab.csv")):
        write(others, tmp_path / other)
        done = fitted(write(ours, tmp_path / name))
        assert done.context_range == {"mass": (1.0, 1.0)}
        same(done.decoder, learnt_by_hand(ours))
    assert fitted(str(tmp_path / "run*")).report.files == 2  # this one is a glob
    (tmp_path / "p[1].csv").write_text("position\n1\n")
    (tmp_path / "p1.csv").write_text("position\n2\n")
    assert read_numbers(tmp_path / "p[1].csv")["position"].tolist() == [1]
    write(pl.DataFrame({"x": [1.0]}), tmp_path / "p[1].parquet")
    write(pl.DataFrame({"x": [2.0]}), tmp_path / "p1.parquet")
    assert read_numbers(tmp_path / "p[1].parquet")["x"].tolist() == [1]


def test_a_log_that_is_named_twice_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(cart_rows(MASSES), Path("x.csv"))
    Path("y.csv").symlink_to("x.csv")
    assert fitted("x.csv", "./x.csv", "y.csv", "*.csv").report.files == 1


TYPES: dict[str, tuple[pl.Expr, str]] = {
    "a list as episode": (pl.concat_list("episode"), "'episode' must hold numbers or text"),
    "bytes as episode": (pl.lit(b"\xff").alias("episode"), "'episode' must hold numbers or text"),
    "a list as machine": (pl.concat_list("machine"), "'machine' must hold numbers or text"),
    "truth values as state": (pl.lit(True).alias("velocity"), "must hold numbers, not Boolean"),
    "dates as context": (pl.date(2020, 1, 1).alias("mass"), "must hold numbers, not Date"),
    "durations as input": (pl.duration(days=1).alias("force"), "must hold numbers, not Duration"),
    "dates as step": (pl.date(2020, 1, 1).alias("step"), "must hold numbers, not Date"),
    "no episode": (pl.lit(None).alias("episode"), "row 1: 'episode' is missing"),
    "no machine": (pl.lit(None).alias("machine"), "row 1: 'machine' is missing"),
    "no step": (pl.lit(None).alias("step"), "row 1: 'step' is missing"),
    "no state": (pl.lit(None).alias("velocity"), "row 1: 'velocity' is missing"),
    "no context": (pl.lit(None).alias("mass"), "row 1: 'mass' is missing"),
    "no input": (pl.lit(None).alias("force"), "row 1: it has no inputs"),
}


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize(("column", "said"), TYPES.values(), ids=TYPES)
def test_a_column_of_a_wrong_type_is_refused_in_a_sentence(
    column: pl.Expr, said: str, sort: bool, tmp_path: Path
) -> None:
    log = write(cart_rows(MASSES).with_columns(column), tmp_path / "log.parquet")
    with pytest.raises(InputError, match=re.escape(said)):
        fitted(log, sort=sort)


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.Int8, pl.String, pl.Categorical, pl.Float64])
def test_episodes_and_machines_may_be_of_any_type(dtype: Any, tmp_path: Path) -> None:
    frame = cart_rows(MASSES)
    number = pl.col("episode").cast(pl.String) if dtype == pl.Categorical else pl.col("episode")
    typed = frame.with_columns(number.cast(dtype), machine=(pl.col("episode") // 2).cast(pl.UInt8))
    done = fitted(write(typed, tmp_path / "log.parquet"))
    same(done.decoder, learnt_by_hand(frame))
    assert done.alarm is not None
    assert {one.label for one in done.alarm.machines} == set("01234")


def test_the_column_of_machines_may_have_another_name(tmp_path: Path) -> None:
    serial = FleetDescription.parse(CARTS + '\n[logs]\nmachine = "serial"\n')
    frame = cart_rows(MASSES)
    log = write(frame.rename({"machine": "serial"}), tmp_path / "log.parquet")
    done = fit(serial, log)
    assert done.report.unused == {}
    assert {one.label for one in done.alarm.machines} == {f"cart {i}" for i in range(5)}
    with pytest.raises(InputError, match=r"has no column 'serial' \(is it"):
        fit(serial, write(frame.rename({"machine": "serialno"}), tmp_path / "log.parquet"))


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_every_transition_knows_its_machine(
    name: str, labelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCH", 30)  # across episodes and machines
    frame = cart_rows(MASSES)
    log = write(frame if labelled else frame.drop("machine"), tmp_path / name)
    found = []
    for batch in LogReader(
        DESCRIPTION, sources.as_one_part(sources.find_sources([log]))
    ).transitions():
        machines = batch.machines()
        assert machines.codes.max() < len(machines.names) <= 4
        found += list(zip(machines.text, batch.rows.values["mass"][batch.at], strict=True))
        if labelled:  # what a decoder is given: a code for each row of the columns
            rows = batch.rows.machine[batch.at]
            assert rows.text == machines.text
    called = [f"cart {i}" if labelled else f"mass={mass:g}" for i, mass in enumerate(MASSES)]
    assert found == [one for one in zip(called, MASSES, strict=True) for _ in range(22)]


def test_fit_takes_paths_and_says_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(CARTS)
    write(cart_rows(MASSES), tmp_path / "log.csv")
    done = fit(tmp_path / "fleet.toml", tmp_path / "log.csv")
    same(done.decoder, fitted(str(tmp_path / "log.csv")).decoder)
    assert repr(done) == (
        "<FittedFleet: states 2, inputs 1, Θ 2 x 6, episodes 10, rows 110, machines 5, "
        "deviations estimated, mass 0.7 to 4.4, alarm 0 of 5 machines stand out>"
    )
    assert check_logs(DESCRIPTION, tmp_path / "log.csv") == done.report


@pytest.mark.slow  # which runs without the checks of types
def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    for wrong, said in (((3, "x"), "FleetDescription or"), ((DESCRIPTION, 3), "by their paths")):
        with pytest.raises(InputError, match=said):
            fit(*wrong)
    with pytest.raises(InputError, match="into takes a FittedFleet"):
        fit(DESCRIPTION, write(cart_rows(MASSES), tmp_path / "log.csv"), into="x")  # type: ignore


def test_the_example_of_fit_runs() -> None:
    found = doctest.DocTestFinder(recurse=False).find(fit, "fit", globs={})
    assert [doctest.DocTestRunner().run(one).failed for one in found] == [0]
    assert found[0].examples


def test_truth_values_in_minari_are_no_numbers() -> None:
    episode = SimpleNamespace(
        id=0, observations=np.zeros((3, 2)), actions=np.zeros((2, 1)), infos={"mass": [True] * 3}
    )
    with pytest.raises(InputError, match=r"x, episode 0: 'mass' must be numbers, not of type bool"):
        sources._minari_frame("x", episode, DESCRIPTION)
    episode.infos = {"mass": [2.0], "machine": ["cart 7"] * 3}
    frame = sources._minari_frame("x", episode, DESCRIPTION)
    assert frame["machine"].to_list() == ["cart 7"] * 3
    assert frame["mass"].to_list() == [2.0] * 3


def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("x")
    (tmp_path / "log.parquet").write_text("no parquet")
    for name, said in (
        ("log.txt", "is not a log"), ("log.parquet", "cannot read"), ("*.h5", "no log is named"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            fitted(str(tmp_path / name))
    with pytest.raises(InputError, match="no log is given"):
        fitted()


def test_mixed_episodes_are_refused_or_sorted(tmp_path: Path) -> None:
    frame = cart_rows(MASSES, episodes=1)
    mixed = write(frame.sort("step", "episode"), tmp_path / "mixed.csv")
    with pytest.raises(InputError, match=r"mixed.*--sort"):
        fitted(mixed)
    same(fitted(mixed, sort=True).decoder, learnt_by_hand(frame))


def test_adding_is_learning_together(tmp_path: Path) -> None:
    first, second = cart_rows(MASSES[:3], 1), cart_rows(MASSES[3:], 2, first=50)
    logs = [write(f, tmp_path / f"{i}.parquet") for i, f in enumerate((first, second))]
    one = fitted(logs[0])
    before = one.decoder.rows
    both = fitted(logs[1], into=one)
    assert one.decoder.rows == before  # a copy was added to
    same(both.decoder, fitted(*logs).decoder)
    one.merge(fitted(logs[1]))
    same(one.decoder, both.decoder)
    assert one.context_range == both.context_range == {"mass": (0.7, 4.4)}
    other = FleetDescription.parse(CARTS.replace("noise_level = 0.01", "noise_level = 0.02"))
    with pytest.raises(InputError, match="in noise_level"):
        fit(other, logs, into=one)
    with pytest.raises(InputError, match="differently, in noise_level"):
        one.merge(FittedFleet.new(other))


def test_what_a_strange_file_has_for_columns_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(",".join(f"{'x' * 1000}{i}" for i in range(1000)) + "\n1\n")
    with pytest.raises(InputError, match=r"has no column.* 980 more") as said:
        check_logs(DESCRIPTION, tmp_path / "log.csv")
    assert len(str(said.value)) < 1500


def test_a_log_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BATCH", 50)
    log = write(cart_rows(MASSES, steps=60), tmp_path / "log.parquet")
    reader, parts = LogReader(DESCRIPTION, sources.as_one_part(sources.find_sources([log]))), []
    sizes = [len(batch) for batch in reader.transitions(parts.append)]
    assert max(sizes) <= 51
    assert sum(sizes) == 10 * 59
    assert parts == sorted(parts)
    assert parts[-1] == 1


def test_rows_fit_like_least_squares() -> None:
    """The columnar path against NumPy's solver, with known rows and rows to be ignored."""
    rng = np.random.default_rng(3)
    n = 5000
    mass = rng.uniform(0.5, 5, n)
    x, u = rng.normal(size=(n, 2)), rng.normal(size=(n, 1))
    z = np.hstack([np.hstack([x, u]), np.hstack([x, u]) / mass[:, None]])
    after = z @ TRUTH.T + 0.01 * rng.normal(size=(n, 2))
    wild = x.copy()
    wild[::100] *= 1e17
    decoder = DESCRIPTION.new_decoder()
    decoder.update_rows({"mass": mass}, wild, u, after, episodes=7)
    kept = np.arange(n) % 100 != 0
    ridge = np.linalg.lstsq(
        np.vstack([z[kept], 1e-5 * np.diag(np.sqrt(np.square(z[kept]).mean(0)))]),
        np.vstack([after[kept], np.zeros((6, 2))]),
    )[0].T
    assert (decoder.rows, decoder.ignored_rows, decoder.episodes) == (4950, 50, 7)
    assert np.allclose(decoder.estimate[1], ridge[1], rtol=1e-9, atol=1e-12)
    assert np.array_equal(decoder.estimate[0], TRUTH[0])
    left = after[kept] - z[kept] @ decoder.estimate.T
    expected = (left**2).sum(0) / [4950, 4944]
    assert np.allclose(np.diagonal(decoder.noise_estimate), expected, rtol=1e-5)
    assert np.allclose(decoder.penalised_residuals[0], (left[:, 0] ** 2).sum())
    before = decoder.estimate
    u[-1] = np.nan
    with pytest.raises(InputError, match="inputs must be finite, but holds nan at index"):
        decoder.update_rows({"mass": mass}, x, u, after)
    with pytest.raises(InputError, match="update_rows takes"):
        decoder.update_rows({"mass": mass}, x, u[:-1], after)
    assert decoder.estimate is before


def test_minari_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    frame = cart_rows(MASSES, episodes=1)
    write_minari(frame, "carts/test-v0")
    for log in ("minari:carts/test-v0", str(tmp_path / "carts" / "test-v0")):
        same(fitted(log).decoder, learnt_by_hand(frame))
    with pytest.raises(InputError, match="cannot read the Minari dataset"):
        fitted("minari:carts/none-v0")
    text = CARTS.replace("force = {", 'side = "N"\nforce = {').replace("[0.01]", "[1, 1]")
    two = FleetDescription.parse(text)
    with pytest.raises(InputError, match="actions have 1 values"):
        fit(two, ["minari:carts/test-v0"])
