"""Tables as engineers have them: what is between a file and a table with the names we know."""

import datetime
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from contextual_lqr.data import (
    DescriptionError,
    FleetDescription,
    LogReport,
    check_logs,
    fit,
    survey_logs,
)
from contextual_lqr.data.tables import excel as excel_files
from contextual_lqr.errors import InputError, MissingExtraError
from fleet_logs import CARTS, DESCRIPTION, cart_rows, write
from odd_tables import write_excel, write_text

ROWS = cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20)
HEADINGS = {
    **{"machine": "Gerät", "episode": "Versuch", "step": "Nr."},
    **{"position": "Weg [mm]", "velocity": "v [m/s]", "force": "Kraft [N]", "mass": "Masse [kg]"},
}
COLUMNS = """
[columns]
machine = "Gerät"
episode = "Versuch"
step = "Nr."
position = { column = "Weg [mm]", factor = 0.001 }
velocity = "v [m/s]"
force = "Kraft [N]"
mass = "Masse [kg]"
"""


def described(more: str = "") -> FleetDescription:
    return FleetDescription.parse(CARTS + more)


def estimate(description: FleetDescription, *logs: Path | str) -> Any:
    return fit(description, logs, alarm=False).decoder.estimate


def checked(more: str, frame: pl.DataFrame, folder: Path, **how: Any) -> LogReport:
    return check_logs(described(more), write_text(frame, folder / "log.csv", **how))


# -- headings, units, and how text is written ------------------------------------------------------


def test_however_a_table_is_written_it_teaches_the_same(tmp_path: Path) -> None:
    plain = estimate(DESCRIPTION, write(ROWS, tmp_path / "plain.parquet"))
    marks = product([",", ";", "\t"], [".", ","], ["utf-8", "latin-1", "utf-16"])
    for number, (separator, decimal, encoding) in enumerate(marks):
        if separator == decimal:
            continue
        odd = ROWS.with_columns(pl.col("position") * 1000)
        log = write_text(
            odd,
            tmp_path / f"{number}.csv",
            headings=HEADINGS,
            separator=separator,
            decimal=decimal,
            encoding=encoding,
            preamble=("Prüfstand 3", "") if number % 2 else (),
            missing="NA" if number % 3 else "",
        )
        done = fit(described(COLUMNS), log, alarm=False)
        np.testing.assert_allclose(done.decoder.estimate, plain, rtol=1e-12, atol=1e-14)
        assert done.report is not None
        assert done.report.bad_rows == 0
        (said,) = done.report.tables.formats or {"": []}
        assert ("decimal comma" in said) == (decimal == ",")
        assert ("Latin-1" in said) == (encoding == "latin-1")
        assert ("headings in line 3" in said) == bool(number % 2)
        assert ("missing marked NA" in said) == bool(number % 3)


def test_what_is_said_in_the_description_is_not_detected(tmp_path: Path) -> None:
    table = '[table]\nseparator = ";"\ndecimal = ","\nheader = 2\nencoding = "cp1252"\n'
    log = write_text(
        ROWS.with_columns(force=pl.col("force").fill_null(-9999.0)),
        tmp_path / "log.csv",
        separator=";",
        decimal=",",
        preamble=("a;b;c;d;e;f;g",),
    )
    done = check_logs(described(table + 'missing = ["-9999,0"]'), log)
    assert (done.transitions, done.bad_rows) == (190, 0)


def test_units_are_changed_lazily_in_numbers_and_in_text(tmp_path: Path) -> None:
    columns = '[columns]\nvelocity = { column = "v", factor = 0.5, offset = -1.0 }\n'
    odd = ROWS.with_columns(v=2 * (pl.col("velocity") + 1)).drop("velocity")
    plain = estimate(DESCRIPTION, write(ROWS, tmp_path / "plain.parquet"))
    for name in ("log.parquet", "log.csv"):
        log = write(odd, tmp_path / name)
        np.testing.assert_allclose(estimate(described(columns), log), plain, atol=1e-9)
    broken = odd.with_columns(pl.col("v").cast(pl.String)).with_columns(
        v=pl.when(pl.int_range(pl.len()) == 4).then(pl.lit("off")).otherwise("v")
    )
    report = check_logs(described(columns), write(broken, tmp_path / "broken.csv"))
    assert report.bad == {"'velocity' is not a number": 1}


def test_excel_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ROWS.with_columns(pl.col("position") * 1000)
    rows = [["Prüfstand"], [], [HEADINGS[name] for name in odd.columns], *odd.iter_rows()]
    book = write_excel(tmp_path / "log.xlsx", {"Log": rows, "Info": [["none"]], "Leer": []})
    done = fit(described(COLUMNS), book, alarm=False)
    plain = estimate(DESCRIPTION, write(ROWS, tmp_path / "plain.parquet"))
    np.testing.assert_allclose(done.decoder.estimate, plain, rtol=1e-10, atol=1e-12)
    assert done.report is not None
    assert list(done.report.tables.formats) == ["sheet Log, headings in row 3"]
    with pytest.raises(InputError, match=r"no sheet 'log' \(is it 'Log'\?\); it has Log, Info"):
        check_logs(described(COLUMNS + '[table]\nsheet = "log"'), book)
    with pytest.raises(InputError, match="the log is empty"):
        check_logs(described(COLUMNS + '[table]\nsheet = "Leer"'), book)
    (tmp_path / "no.xlsx").write_text("this is none")
    with pytest.raises(InputError, match=r"cannot read .*no\.xlsx"):
        check_logs(DESCRIPTION, tmp_path / "no.xlsx")
    excel_files._read_sheet.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "fastexcel", None)
    with pytest.raises(MissingExtraError, match=r"contextual-lqr\[excel\]"):
        check_logs(described(COLUMNS), book)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('[columns]\nvelocity = { column = "v", factor = "deg" }', "factor of velocity must be"),
        ('[columns]\nvelocity = { column = "v", factor = 0 }', "factor of velocity is 0"),
        ('[columns]\nvelocty = "v"', r"'velocty' \(is it 'velocity'\?\) is not a state"),
        ('[columns]\nvelocity = "v"\nposition = "v"', "'v' is velocity already"),
        ('[columns]\nvelocity = "force"', "'force' is velocity already"),
        ("[columns]\nvelocity = 3", "velocity must be a heading"),
        ('[columns]\nvelocity = ""', "must be a heading"),
        ('[columns]\nepisode = { column = "e", factor = 2 }', "episode is a label"),
        ('[columns]\nmachine = "m"\n[logs]\nmachine = "n"', "give it only once"),
        ('[table]\nseparator = ";;"', "separator must be one character"),
        ('[table]\ndecimal = ";"', r'decimal must be "\." or ","'),
        ('[table]\ndecimal = ","\nseparator = ","', "are the same character"),
        ('[table]\nencoding = "klingon"', 'encoding must be "utf-8"'),
        ('[table]\nencoding = "hex"', 'encoding must be "utf-8"'),
        ("[table]\nheader = 0", "header must be the line"),
        ('[table]\nmissing = "NA"', "missing must be a list of marks"),
        ('[table]\nseperator = ";"', "seperator is unknown"),
        ('[logs]\ntime = "t"', "need the period"),
        ('[logs]\ntime = "t"\nperiod = -1', "period must be a finite number above 0"),
        ('[logs]\ntime = "t"\nperiod = "dt"', "period must be in seconds, or one of the contexts"),
        ("[logs]\nresample = true", "resample needs the column of time stamps"),
        ('[logs]\ntime = "t"\nperiod = 1\n[columns]\nstep = "k"', "leave step out"),
        ("[logs]\ncontexts = 3", "contexts must be the name of a file"),
    ],
)
def test_faults_of_the_description(more: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        described(more)


def test_headings_that_are_twice_or_absent(tmp_path: Path) -> None:
    twice = HEADINGS | {"velocity": "Kraft [N]"}
    columns = COLUMNS.replace('velocity = "v [m/s]"\n', "")
    log = write_text(ROWS, tmp_path / "log.csv", headings=twice)
    with pytest.raises(InputError, match=r"'Kraft \[N\]' twice, in columns 5 and 6"):
        check_logs(described(columns), log)
    unused = ROWS.with_columns(a=1, b=2)  # what nobody asks for may be there twice
    assert not checked("", unused, tmp_path, headings={"a": "x", "b": "x"}).bad
    near = write_text(ROWS, tmp_path / "near.csv", headings=HEADINGS | {"force": "Kraft N"})
    with pytest.raises(InputError, match=r"no column 'Kraft \[N\]' \(is it 'Kraft N'\?\)"):
        check_logs(described(COLUMNS), near)
    rows = [list(HEADINGS.values()), *ROWS.iter_rows()]
    rows[0][4] = "Kraft [N]"
    with pytest.raises(InputError, match="twice, in columns 5 and 6"):
        check_logs(described(COLUMNS), write_excel(tmp_path / "log.xlsx", {"Log": rows}))


def test_another_decimal_mark_in_some_rows(tmp_path: Path) -> None:
    reason = "'velocity' has another decimal mark than the rest of its table"
    for decimal, other in ((".", "1,5"), (",", "1.5")):
        odd = ROWS.with_columns(
            velocity=pl.when(pl.int_range(pl.len()) == 30)
            .then(pl.lit(other))
            .otherwise(pl.col("velocity").cast(pl.String).str.replace(".", decimal, literal=True))
        )
        report = checked("", odd, tmp_path, decimal=decimal, separator=";")
        assert report.bad == {reason: 1}
        assert report.first_bad[reason][0].endswith("log.csv, row 31")


def test_two_encodings_in_one_file(tmp_path: Path) -> None:
    log = Path(write_text(ROWS.with_columns(machine=pl.lit("Gerät")), tmp_path / "log.csv"))
    lines = log.read_bytes().split(b"\n")
    lines[7] = lines[7].decode().encode("latin-1")
    log.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match="two encodings: line 2 has letters in UTF-8, and line 8"):
        check_logs(DESCRIPTION, log)
    (tmp_path / "odd.csv").write_bytes(b"a,b\n\x81,2\n")
    with pytest.raises(InputError, match="is not cp1252 throughout, as encoding says"):
        check_logs(described('[table]\nencoding = "cp1252"'), tmp_path / "odd.csv")


# -- contexts of their own -------------------------------------------------------------------------


def with_machines(folder: Path, table: pl.DataFrame, **how: Any) -> FleetDescription:
    write_text(table, folder / "machines.csv", **how)
    return FleetDescription.parse(CARTS + '[logs]\ncontexts = "machines.csv"', folder=folder)


def test_contexts_are_joined_by_machine(tmp_path: Path) -> None:
    plain = estimate(DESCRIPTION, write(ROWS, tmp_path / "plain.parquet"))
    log = write(ROWS.drop("mass"), tmp_path / "log.parquet")
    each = ROWS.select("machine", "mass").unique(maintain_order=True)
    fleet = with_machines(tmp_path, each, separator=";", decimal=",")
    assert np.array_equal(estimate(fleet, log), plain)

    odd = pl.concat([each[1:], pl.DataFrame({"machine": ["cart 8", "cart 9"], "mass": [1.0, 2.0]})])
    report = check_logs(with_machines(tmp_path, odd), log)
    assert report.bad == {"its machine is not in machines.csv": 40}
    assert report.tables.without_context == ["cart 0"]
    assert report.tables.unlogged == ["cart 8", "cart 9"]
    said = "\n".join(report.tables.sentences())
    assert "not in machines.csv, so without a context: 1 machine, cart 0" in said
    assert "in machines.csv, but in no log: 2 machines, cart 8, cart 9" in said


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"machine": ["a", "a"], "mass": [1.0, 2.0]}, "machine a twice.*: mass 1; mass 2"),
        ({"machine": ["a"], "mass": ["heavy"]}, "'mass' of machine a is 'heavy', which is no"),
        ({"machine": ["a"], "mass": [None]}, "'mass' of machine a is missing"),
        ({"machine": [None], "mass": [1.0]}, "row 1: the machine is missing"),
        ({"serial": ["a"], "mass": [1.0]}, "machines.csv has no column 'machine'"),
        ({"machine": ["a"], "weight": [1.0]}, "has no column mass, but machine, weight"),
    ],
)
def test_tables_of_contexts_that_cannot_be_used(
    tmp_path: Path, table: dict[str, list[Any]], said: str
) -> None:
    fleet = with_machines(tmp_path, pl.DataFrame(table))
    with pytest.raises(InputError, match=said):
        check_logs(fleet, write(ROWS.drop("mass"), tmp_path / "log.csv"))


def test_a_table_of_contexts_that_is_not_there(tmp_path: Path) -> None:
    fleet = FleetDescription.parse(CARTS + '[logs]\ncontexts = "none.csv"', folder=tmp_path)
    with pytest.raises(InputError, match=r"no file .*none\.csv, which contexts of \[logs\] names"):
        check_logs(fleet, write(ROWS, tmp_path / "log.csv"))


def test_outputs_may_stand_in_any_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """History and delay are found in such tables too, wherever the command is called."""
    each = ROWS.select("machine", "mass").unique(maintain_order=True)
    write_text(each, tmp_path / "machines.csv", separator=";", decimal=",")
    log = write_text(
        cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=60).drop("mass", "velocity"),
        tmp_path / "log.csv",
        headings={"position": "Weg [m]"},
        separator=";",
        decimal=",",
    )
    text = CARTS.partition("[states]")[0] + '[outputs]\nhistory = "auto"\nposition = "m"\n'
    text += "[inputs]" + CARTS.partition("[inputs]")[2]
    text = text.replace(CARTS.partition("[known]")[2].partition("[task]")[0], "\n# none\n")
    text = text.replace("velocity = 0.1", "").replace("1.0,  }", "1.0 }")
    text += '[columns]\nposition = "Weg [m]"\n[logs]\ncontexts = "machines.csv"\n'
    (tmp_path / "fleet.toml").write_text(text)
    monkeypatch.chdir(tmp_path.parent)
    done = fit(tmp_path / "fleet.toml", log, alarm=False)
    assert done.report is not None
    assert done.report.bad_rows == 0
    survey = survey_logs(tmp_path / "fleet.toml", log)
    assert survey.report.history is not None
    assert survey.history is not None
    assert "the state is made of the last" in survey.history[0]


# -- time ------------------------------------------------------------------------------------------

CLOCK = '[logs]\ntime = "t"\nperiod = 0.1\n'


def timed(times: Any = None, *, named: bool = False) -> pl.DataFrame:
    """The log with a time stamp a tenth of a second apart, and a pause between episodes."""
    seconds = times if times is not None else 0.1 * np.arange(len(ROWS)) + 30 * ROWS["episode"]
    return ROWS.with_columns(t=pl.Series(seconds)).drop("step", *([] if named else ["episode"]))


def dated(form: str) -> pl.DataFrame:
    start = datetime.datetime(2026, 5, 1, 23, 59, 50)
    times = [start + datetime.timedelta(seconds=s) for s in timed()["t"].to_list()]
    text = [one.strftime(form).replace("MS", f"{one.microsecond // 1000:03d}") for one in times]
    return timed(text)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("form", ["", "%Y-%m-%dT%H:%M:%S.MS", "%d.%m.%Y %H:%M:%S,MS", "datetime"])
def test_steps_from_time_stamps(tmp_path: Path, form: str, named: bool) -> None:
    plain = estimate(DESCRIPTION, write(ROWS, tmp_path / "plain.parquet"))
    frame = timed() if form in ("", "datetime") else dated(form)
    if form == "datetime":
        frame = frame.with_columns((pl.col("t") * 1e6).round().cast(pl.Datetime("us")))
    if named:
        frame = frame.with_columns(ROWS["episode"])
    name = "log.parquet" if form == "datetime" else "log.csv"
    done = fit(described(CLOCK), write(frame, tmp_path / name), alarm=False)
    np.testing.assert_allclose(done.decoder.estimate, plain, rtol=1e-12, atol=1e-14)
    assert done.report is not None
    assert (done.report.episodes, done.report.transitions) == (10, 190)
    assert done.report.tables.time is not None
    assert done.report.tables.time.gaps == (0 if named else 5)
    assert done.report.tables.time.jitter < 1e-3


def test_frames_do_not_matter_to_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    times = 0.1 * np.arange(len(ROWS)) + 0.01 * rng.uniform(-1, 1, len(ROWS))
    times[[50, 130]] += [-3.0, 0.06]
    times[90:] += 0.5
    log = write(timed(times).with_columns(machine=pl.lit("a"), mass=2.0), tmp_path / "log.parquet")
    for more in (CLOCK, CLOCK + "resample = true\n"):
        whole = check_logs(described(more), log)
        monkeypatch.setattr("contextual_lqr.data.sources.BATCH", 7)
        pieces = check_logs(described(more), log)
        monkeypatch.undo()
        assert whole == pieces or whole.tables.time != pieces.tables.time
        for one in (whole, pieces):
            assert one.tables.time is not None
            one.tables.time = None
        assert whole == pieces


def test_time_that_does_not_rise(tmp_path: Path) -> None:
    times = timed(named=True)["t"].to_numpy().copy()
    times[[5, 30]] = times[[4, 29]] + [0.0, 0.01]
    log = write(timed(times, named=True).with_columns(ROWS["episode"]), tmp_path / "log.csv")
    report = check_logs(described(CLOCK), log)
    assert report.bad == {
        "its time is that of the row before": 1,
        "its time is less than half a period after that of the row before": 1,
    }
    text = timed([*times[:-2].astype(str), "late", None], named=True).with_columns(ROWS["episode"])
    report = check_logs(described(CLOCK), write(text, tmp_path / "text.csv"))
    assert (report.bad["'time' is no time stamp"], report.bad["'time' is missing"]) == (1, 1)
    # Without episodes, time that begins again begins one.
    again = timed(np.tile(0.1 * np.arange(20), 10)).with_columns(machine=pl.lit("a"), mass=2.0)
    report = check_logs(described(CLOCK), write(again, tmp_path / "again.csv"))
    assert report.tables.time is not None
    assert (report.tables.time.restarts, report.episodes, report.bad_rows) == (9, 10, 0)


def test_a_period_that_is_not_that_of_the_rows(tmp_path: Path) -> None:
    log = write(timed(), tmp_path / "log.csv")
    wrong = CLOCK.replace("0.1", "0.01")
    with pytest.raises(InputError, match=r"rows are 0\.1 s apart, but the period is 0\.01 s"):
        check_logs(described(wrong), log)
    with pytest.raises(InputError, match=r"or say resample = true"):
        check_logs(described(CLOCK.replace("0.1", "1.0")), log)
    with pytest.raises(InputError, match=r"'yesterday' in the column 't' is not a time"):
        check_logs(described(CLOCK), write(timed(["yesterday"] * 200), tmp_path / "words.csv"))


def test_jitter_is_reported_and_resampling_offered(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    times = timed()["t"].to_numpy() + 0.02 * rng.uniform(-1, 1, len(ROWS))
    report = check_logs(described(CLOCK), write(timed(times), tmp_path / "log.csv"))
    (said,) = [one for one in report.tables.sentences() if " apart, ±" in one]
    assert re.search(r"± 1\d %, at most \d\d % off; resample = true in \[logs\]", said)
    assert report.transitions == 190


def test_resampling_is_exact_for_straight_lines(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    times = np.sort(rng.uniform(0, 30, 3000))
    times[1500:] += 5  # a gap
    line = pl.DataFrame(
        {"machine": "a", "t": times, "position": 2 * times - 1, "velocity": -times}
    ).with_columns(force=pl.col("t") * 3, mass=2.03)
    fleet = described(CLOCK + "resample = true\n")
    (part,) = [_part(fleet, write(line, tmp_path / "log.parquet"))]
    frames = pl.concat(part)
    for _, run in frames.group_by("episode", maintain_order=True):
        t = (run["position"].to_numpy() + 1) / 2
        np.testing.assert_allclose(np.diff(t), 0.1, atol=1e-9)
        np.testing.assert_allclose(run["force"].to_numpy(), 3 * t, atol=1e-9)
        assert run["step"].to_list() == list(range(len(run)))
        assert run["mass"].unique().to_list() == [2.03]  # to the last digit, else it changes
    assert frames["episode"].n_unique() == 2
    report = check_logs(fleet, tmp_path / "log.parquet")
    said = "\n".join(report.tables.sentences())
    assert "rows on the grid, interpolated between 3,000 rows" in said


def _part(fleet: FleetDescription, log: str) -> list[pl.DataFrame]:
    from contextual_lqr.data.sources import as_one_part, find_sources

    return list(as_one_part(find_sources([log])).pieces[0].frames(fleet))


def test_rows_of_machines_in_turns_are_sorted_by_time(tmp_path: Path) -> None:
    mixed = timed().sort("t")
    shuffled = timed().sample(fraction=1, shuffle=True, seed=3)
    plain = estimate(DESCRIPTION, write(ROWS, tmp_path / "plain.parquet"))
    for name, frame in (("mixed.csv", mixed), ("shuffled.csv", shuffled)):
        done = fit(described(CLOCK), write(frame, tmp_path / name), sort=True, alarm=False)
        np.testing.assert_allclose(done.decoder.estimate, plain, rtol=1e-10, atol=1e-12)


def test_times_of_day_and_dates_are_time_stamps(tmp_path: Path) -> None:
    seconds = timed(named=True)["t"]
    frame = timed(named=True).with_columns(ROWS["episode"])
    of_day = frame.with_columns((seconds * 1e9).round().cast(pl.Int64).cast(pl.Time).alias("t"))
    log = write(of_day, tmp_path / "day.parquet")
    plain = estimate(DESCRIPTION, write(ROWS, tmp_path / "plain.parquet"))
    done = fit(described(CLOCK), log, alarm=False)
    np.testing.assert_allclose(done.decoder.estimate, plain, rtol=1e-12, atol=1e-14)
    days = [datetime.date(2026, 5, 1) + datetime.timedelta(days=i) for i in range(len(ROWS))]
    dates = write(frame.with_columns(t=pl.Series(days)), tmp_path / "dates.parquet")
    daily = CLOCK.replace("0.1", "86400")
    assert check_logs(described(daily), dates).transitions == 190
    odd = write(frame.with_columns(t=pl.lit(True)), tmp_path / "odd.parquet")
    with pytest.raises(InputError, match="the column 't' must hold time stamps, not Boolean"):
        check_logs(described(CLOCK), odd)


def test_what_clocks_say_of_several_files_is_added_up(tmp_path: Path) -> None:
    times = timed()["t"].to_numpy() + 0.005 * np.random.default_rng(0).uniform(-1, 1, len(ROWS))
    logs = [
        write(timed(times).with_columns(machine=pl.lit(name)), tmp_path / f"{name}.csv")
        for name in ("a", "b")
    ]
    alone, both = check_logs(described(CLOCK), logs[0]), check_logs(described(CLOCK), logs)
    one, two = alone.tables.time, both.tables.time
    assert one is not None
    assert two is not None
    assert (two.gaps, two.intervals) == (2 * one.gaps, 2 * one.intervals)
    assert two.jitter == pytest.approx(one.jitter)
    assert two.largest == one.largest > 0
    assert any("gaps in time, the first in" in said for said in two.sentences())


def test_a_first_column_without_a_heading_is_no_obstacle_to_a_guess(tmp_path):
    """Pandas writes its index so."""
    from contextual_lqr.data.fleet_toml.first_description import describe_table

    rng, lines, n = np.random.default_rng(0), [",machine,t,speed,current,inertia"], 0
    for i in range(5):
        speed = 0.0
        for k in range(50):
            current = rng.normal()
            lines.append(f"{n},M{i},{k / 100},{speed},{current},{i + 1}")
            speed, n = 0.9 * speed + current / (i + 1), n + 1
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert "inertia" in describe_table(str(tmp_path / "log.csv"))


def test_blank_rows_at_the_top_of_a_sheet_count_as_rows(tmp_path):
    from contextual_lqr.data.fleet_toml.layout import TableOptions

    rows = [["machine", "speed"], ["M1", 1.5], ["M2", 2.5]]
    path = write_excel(tmp_path / "log.xlsx", {"Tabelle1": [[], ["bench 7"], [], *rows]})
    frame, words = excel_files.read_sheet(path, TableOptions())
    assert frame.columns == ["machine", "speed"]
    assert words == "headings in row 4"
