"""new, check, fit and merge as a user meets them."""

import importlib
import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command import command
from contextual_lqr import cli
from contextual_lqr.cli import app
from contextual_lqr.data import TEMPLATE, FittedFleet
from fleet_logs import TRUTH, cart_rows, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("fleet.toml").write_text(TEMPLATE)
    write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20), Path("a.csv"))
    write(cart_rows([1.0, 1.5, 2.5, 3.5, 4.0], 1, steps=20, first=50), Path("b.parquet"))
    return tmp_path


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says, on one line, when it fails."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    said = capsys.readouterr()
    assert left.value.code == 2
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err.replace("\n", " ")


def test_from_nothing_to_a_decoder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("check", "fleet.toml", "a.csv", "b.parquet") == 0
    assert "400 rows in 2 logs: 380 transitions of 20 episodes" in capsys.readouterr().out
    assert command("fit", "fleet.toml", "a.csv", "*.parquet", "-o", "all.decoder") == 0
    said = capsys.readouterr().out
    assert "none of 10 machines stands out" in said
    assert "all.decoder is written: 380 rows of 20 episodes" in said
    last = " ".join(said.split("episodes\n")[-1].split())
    assert last.startswith("backtest: 10 of 10 machines would have been trusted before their first")
    assert "0 of them wrongly" in last
    assert max(map(len, said.splitlines())) <= 80
    assert command("fit", "fleet.toml", "a.csv", "-o", "a.decoder") == 0
    assert command("fit", "fleet.toml", "b.parquet", "-o", "b.decoder") == 0
    assert command("merge", "a.decoder", "b.decoder", "-o", "c.decoder") == 0
    assert command("fit", "fleet.toml", "b.parquet", "--into", "a.decoder") == 0
    whole = FittedFleet.load("all.decoder")
    assert np.abs(whole.decoder.estimate - TRUTH).max() < 0.02
    for name in ("a.decoder", "c.decoder"):
        again = FittedFleet.load(name)
        assert np.allclose(again.decoder.estimate, whole.decoder.estimate, atol=1e-9)
        assert again.context_range == whole.context_range


def test_new_writes_what_check_accepts_and_overwrites_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("new", "mine.toml") == command("check", "mine.toml") == 0
    Path("mine.toml").write_text("precious")
    assert "already exists" in refused(["new", "mine.toml"], capsys)
    assert Path("mine.toml").read_text() == "precious"


def test_check_says_everything_and_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEMPLATE.replace("R = [0.01]", "R = [0]").replace("horizon = 30", "horizon = 0")
    Path("bad.toml").write_text(text)
    assert command("check", "bad.toml") == 1
    said = capsys.readouterr().out
    assert "bad.toml:38: horizon" in said
    assert "R is singular" in said
    assert "2 faults" in said
    worse = pl.read_csv("a.csv").with_columns(velocity=pl.lit("x"))
    write(worse, Path("worse.csv"))
    assert command("check", "fleet.toml", "worse.csv") == 1
    assert "200: 'velocity' is not a number, first in worse.csv, row 1" in capsys.readouterr().out


def test_fit_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = pl.read_csv("a.csv").with_columns(
        velocity=pl.when(pl.int_range(pl.len()) == 5).then(float("nan")).otherwise("velocity")
    )
    write(bad, Path("bad.parquet"))
    assert command("fit", "fleet.toml", "bad.parquet", "-o", "x.decoder", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["logs"]["bad"] == {"'velocity' is not finite": 1}
    assert facts["logs"]["quarantine"] == "x.decoder.quarantine.csv"
    assert len(facts["machines"]) == 5
    assert {"p_value", "local_error", "fleet_error", "named"} <= facts["machines"][0].keys()
    found = facts["backtest"]
    assert (found["machines"], found["of"], found["counted"]) == (5, 5, False)
    assert 0 <= found["wrongly"] <= found["trusted"] <= 5
    assert facts["why_no_backtest"] is None


def test_fit_says_why_there_is_no_backtest(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pl.read_csv("a.csv").with_columns(machine=pl.lit("the one"), mass=pl.lit(2.0))
    write(one, Path("one.csv"))
    assert command("fit", "fleet.toml", "one.csv", "-o", "one.decoder") == 0
    assert "no backtest: it takes two machines, to leave one out" in capsys.readouterr().out
    assert command("fit", "fleet.toml", "one.csv", "-o", "two.decoder", "--json") == 0
    assert json.loads(capsys.readouterr().out)["backtest"] is None
    monkeypatch.setattr("contextual_lqr.cli.fit._MOST", 4)
    assert command("fit", "fleet.toml", "a.csv", "-o", "many.decoder") == 0
    assert "no backtest of 5 machines, which takes a while" in capsys.readouterr().out


def test_fit_says_how_many_machines_were_drawn_for_the_backtest(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package has a function of the module's name.
    module = importlib.import_module("contextual_lqr.certificates.backtest")
    monkeypatch.setattr(module, "_MACHINES", 3)
    assert command("fit", "fleet.toml", "a.csv", "-o", "a.decoder") == 0
    assert "(3 drawn from 5)" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "fleet.toml", "a.csv"], "-o fleet.decoder"),
        (["fit", "fleet.toml", "a.csv", "-o", "no/where.decoder"], "No such file or folder"),
        (["fit", "fleet.toml", "a.csv", "--into", "none.decoder"], "there is no file none.decoder"),
        (["fit", "fleet.toml", "nothing.csv", "-o", "x.decoder"], "no log is named"),
        (["fit", "none.toml", "a.csv", "-o", "x.decoder"], "did you mean fleet.toml?"),
        (["fit", "fleet.toml", "a.csv", "--into", "cut.decoder"], "cut.decoder is damaged"),
        (["merge", "cut.decoder", "-o", "x.decoder"], "at least two"),
        (["merge", "fleet.toml", "a.csv", "-o", "x.decoder"], "fleet.toml is a description, not a"),
        (["design", "fleet.toml", "--context", "mass=1"], "fleet.toml is a description, not a"),
        (["design", "a.csv", "--context", "mass=1"], "a.csv is a table, not a fitted fleet"),
        (["fit", "cut.decoder", "a.csv", "-o", "x.decoder"], "cut.decoder:1:1: this is not valid"),
        (["fit", "fleet.toml", "fleet.toml", "-o", "x.decoder"], "fleet.toml is not a log"),
    ],
)
def test_a_refusal_is_a_sentence_and_leaves_nothing(
    arguments: list[str],
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("cut.decoder").write_bytes(b"\x10\x00\x00")
    before = sorted(os.listdir())
    assert said in refused(arguments, capsys)
    assert sorted(os.listdir()) == before


def test_merge_refuses_another_description(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other.toml").write_text(TEMPLATE.replace("horizon = 30", "horizon = 20"))
    command("fit", "fleet.toml", "a.csv", "-o", "a.decoder")
    command("fit", "other.toml", "b.parquet", "-o", "b.decoder")
    arguments = ["merge", "a.decoder", "b.decoder", "-o", "c.decoder"]
    assert "differently, in horizon" in refused(arguments, capsys)
    assert not Path("c.decoder").exists()


def test_a_folder_without_permission(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closed = Path("closed")
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):  # root may write everywhere, but not here
        closed = Path("/proc")
    said = refused(["fit", "fleet.toml", "a.csv", "-o", str(closed / "x.decoder")], capsys)
    assert f"cannot write {closed}/x.decoder" in said


def test_a_failed_write_leaves_the_old_decoder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("fit", "fleet.toml", "a.csv", "-o", "a.decoder")
    old, names = Path("a.decoder").read_bytes(), sorted(os.listdir())

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(Exception, match=r"cannot write a.decoder: Permission denied"):
        app(["fit", "fleet.toml", "b.parquet", "--into", "a.decoder"])
    assert Path("a.decoder").read_bytes() == old
    assert sorted(os.listdir()) == names


def test_what_was_learnt_is_not_learnt_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link.csv").symlink_to("a.csv")
    Path("copy.csv").write_bytes(Path("a.csv").read_bytes())
    assert command("fit", "fleet.toml", "a.csv", "./a.csv", "link.csv", "-o", "a.decoder") == 0
    once = Path("a.decoder").read_bytes()
    assert "190 rows of 10 episodes" in capsys.readouterr().out
    assert command("fit", "fleet.toml", "a.csv", "copy.csv", "-o", "b.decoder", "--robust") == 0
    said = capsys.readouterr().out
    assert "190 transitions learnt before, and left out" in said
    assert "b.decoder is written: 190 rows of 10 episodes" in said
    assert FittedFleet.load("b.decoder").decoder.repeats == 10
    again = "fit fleet.toml copy.csv --into a.decoder -o same.decoder"
    assert command(*again.split()) == 0
    assert "190 transitions learnt before, and left out" in capsys.readouterr().out
    assert FittedFleet.load("same.decoder").decoder.rows == 190
    for again in (
        "merge a.decoder a.decoder -o a.decoder",
        "merge a.decoder ./b.decoder -o c.decoder",
    ):
        said = refused(again.split(), capsys)
        assert "both have learnt from the same data" in said
        assert "if you want that, allow repeats" in said
        assert Path("a.decoder").read_bytes() == once
        assert not Path("c.decoder").exists()
    again = "fit fleet.toml copy.csv --into a.decoder --allow-repeats -o twice.decoder"
    assert command(*again.split()) == 0
    assert FittedFleet.load("twice.decoder").decoder.rows == 380
    assert command("fit", "fleet.toml", "*.csv", "--allow-repeats", "-o", "twice.decoder") == 0
    assert FittedFleet.load("twice.decoder").decoder.rows == 380
    assert command("merge", "a.decoder", "a.decoder", "-o", "a.decoder", "--allow-repeats") == 0
    assert FittedFleet.load("a.decoder").decoder.rows == 380


def test_a_quarantine_takes_no_other_file_s_place(folder: Path) -> None:
    rows = cart_rows([0.7, 1.3], steps=20).with_columns(mass=pl.lit(-1.0))
    write(pl.concat([cart_rows([0.7, 1.3, 2.0], steps=20), rows]), Path("bad.csv"))
    Path("x.decoder.quarantine.csv").symlink_to("nowhere")  # no place for a file of ours
    for number in (2, 3):
        assert command("fit", "fleet.toml", "bad.csv", "-o", "x.decoder") == 0
        assert len(pl.read_csv(f"x.decoder.quarantine-{number}.csv")) == 80
    assert not [name for name in os.listdir() if name.startswith(".")]
    assert Path("x.decoder.quarantine.csv").is_symlink()
