"""`contextual-lqr reproduce` as a user meets it."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest

from command import COMMAND, run
from contextual_lqr import cli

SMALL = ("reproduce", "--paths", "circle", "--decays", "0.7", "--episodes", "12")


def refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and what is said on one line; nothing is printed."""
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return int(left.value.code or 0), " ".join(captured.err.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The folder, what was printed, and what was said on the way."""
    out = tmp_path_factory.mktemp("run") / "results"
    few = ("--seeds", "2", "--strategies", "paper", "cautious")
    done = run(COMMAND, *SMALL, *few, "--jobs", "1", "--out", out, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    return out, done.stdout, done.stderr


def test_everything_is_there(finished: tuple[Path, str, str]) -> None:
    out, _, _ = finished
    names = {path.name for path in out.iterdir()}
    figures = {f"figure-{n}.{kind}" for n in ("1a", "1b", "2", "3", "4") for kind in ("png", "svg")}
    assert names == {"config.json", "rows.parquet", "summary.json", "report.html"} | figures
    assert len(pl.read_parquet(out / "rows.parquet")) == 2 * 2 * 12
    for figure in figures:
        content = (out / figure).read_bytes()
        assert content.startswith(b"\x89PNG" if figure.endswith("png") else b"<?xml")
        assert len(content) < 1_000_000


def test_the_report_is_one_page_with_everything_in_it(finished: tuple[Path, str, str]) -> None:
    out, _, _ = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<img") == 5
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    for claim in ("5 episodes", "more environments", "Õ(√K)", "never seen", "confidence set"):
        assert claim in page
    assert "numpy" in page
    assert "4 of 4 trials ran to" in page


def test_it_says_what_it_does_and_where_the_report_is(finished: tuple[Path, str, str]) -> None:
    out, printed, said = finished
    assert said.startswith("4 trials (settings: 1, strategies: 2, seeds: 2)")
    assert max(map(len, printed.splitlines()[:-2])) <= 80
    assert printed.splitlines()[-1] == f"The report: {out / 'report.html'}"


def test_config_repeats_it_bit_for_bit_and_json_is_all_that_is_printed(
    finished: tuple[Path, str, str], tmp_path: Path
) -> None:
    out, _, _ = finished
    again = tmp_path / "again"
    done = run(
        COMMAND,
        "reproduce",
        "--config",
        out / "config.json",
        "--out",
        again,
        "--json",
        "--jobs",
        "2",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((again / "summary.json").read_text())
    for name in ("config.json", "summary.json", "figure-1a.png", "figure-2.svg", "figure-3.svg"):
        assert (again / name).read_bytes() == (out / name).read_bytes(), name
    first, second = (pl.read_parquet(one / "rows.parquet").drop("seconds") for one in (out, again))
    assert first.equals(second)


def test_another_run_does_not_touch_the_folder(
    finished: tuple[Path, str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, _, _ = finished
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    code, said = refused((*SMALL, "--out", str(out)), capsys)
    assert code == 2
    assert "holds results of another configuration (seeds 2 instead of 20; strategies" in said
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    out = tmp_path / "results"
    process = subprocess.Popen(
        [COMMAND, *SMALL, "--seeds", "900", "--strategies", "paper", "--jobs", "2", "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | {"PYTHONUTF8": "1", "COLUMNS": "300"},
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(list(out.glob("rows/*.parquet"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and its workers
    printed, said = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    assert said.splitlines()[-1] == (
        f"Stopped. Finished trials are kept in {out}: the same command resumes."
    )
    assert "Traceback" not in said
    kept = list(out.glob("rows/*.parquet"))
    assert len(kept) >= 3
    assert all(len(pl.read_parquet(path)) == 12 for path in kept)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--paths", "square"), 2, "square"),
        (("--strategies", "paper", "bold"), 2, "bold"),
        (("--seeds", "few"), 2, "few"),
        (("--seeds", "0"), 2, "for --seeds. Must be >= 1"),
        (("--decays", "2"), 2, "decays must be"),
        (("--jobs", "0"), 2, "--jobs must be at least 1"),
        (("--config", "none.json"), 2, "there is no file none.json"),
        (("--config", __file__, "--seeds", "3"), 2, "leave out --seeds"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "results"
    found = refused(("reproduce", *arguments, "--out", str(out)), capsys)
    assert found[0] == code
    assert said in found[1]
    assert not out.exists()
