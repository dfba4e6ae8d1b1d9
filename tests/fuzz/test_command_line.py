"""The whole command line with odd words and damaged files: an exit code, a sentence, no traceback.

A case takes a command that is good as it stands, and changes some of its words, or of the files
that it reads. It runs in this process, and faults of the program are raised, not told.
"""

import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cases import campaign, small_fleet
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_api import bounded

from contextual_lqr import Study, Trajectory, cli

COMMANDS = [
    "check fleet.toml a.csv",
    "check fleet.toml a.parquet --json --sort",
    "fit fleet.toml a.csv -o b.decoder --jobs 1",
    "fit fleet.toml a.csv a.parquet -o b.decoder --strict --robust --no-alarm --sort --json",
    "fit fleet.toml a.csv --into a.decoder --only mass=2 --jobs 1",
    "merge a.decoder a.decoder -o c.decoder --json",
    "backtest a.decoder",
    "backtest a.decoder --own 3 --horizon 9 --json",
    "design a.decoder --context mass=2 --draws 5 --quick",
    "design a.decoder --context mass=2 --machine cart --draws 5 --quick",
    "design a.decoder --contexts machines.csv --draws 5 --horizon 9 --beta determinant --delta 0.1",
    "design a.decoder --context mass=2 --draws 5 --seed 3 --json --quick",
    "design a.decoder --context mass=2 --draws 5 --quick -o gains.csv",
    "simulate a.decoder --context mass=2 --runs 5 --band 0.5 --horizon 9 --seed 1 --json",
    "simulate a.decoder --context mass=2 --runs 5 -o loop.svg",
    "export a.decoder -o controller.c --header --float --json",
    "export a.decoder --context mass=2 -o model.json",
    "advise a.decoder --candidates machines.csv --targets machines.csv --dither 0.1",
    "study create new.db fleet.toml --json",
    "study ask fleet.db --context mass=2 --machine M-1 --key k --lease 60 --worker w --json",
    "study tell fleet.db episode.csv --context mass=2 --machine M-1 --key k --json",
    "study tell fleet.db episode.csv --ask monday",
    "study status fleet.db --json",
    "study export fleet.db -o episodes.jsonl",
    "study import fleet.db episodes.json",
    "study compact fleet.db --json",
    "study token create fleet.db --role machine --machine M-1 --json",
    "study token list fleet.db --json",
    "new fresh.toml",
    "info --json",
    "completion bash",
    "play --fleet heating --strategy certainty --episodes 1 --adapt episode --seed 2 --json",
    "reproduce --paths circle --decays 0.7 --episodes 1 --seeds 1 --strategies certainty --jobs 1 "
    "--samples 2 --beta 3 --out results --json",
    "verify --fleet circle --seeds 1 --runs 2 --episodes 0 --delta 0.1 --beta-factor 1 --jobs 1",
]
# Numbers so large that a run would honestly take hours are not tried where runs are counted; nor is
# what `verify` takes without a number of episodes.
WORDS = [
    "", "-", "--", "-1", "0", "1", "2", "0.5", "1e10", "nan", "inf", "-inf", "1e308", "1e-320",
    "9" * 400, "9" * 5000, "mass=2", "mass=-2", "mass=1e308", "mass=nan", "mass", "=", "mass=",
    "mass=2,mass=3", "other=1", "\x1b[31m", "é", "\udc80", "[red]", "a b", "none", "True",
    "fleet.toml", "a.csv", "a.decoder", "machines.csv", "folder", "no/where", "/dev/null", "fifo",
    "*", "a*", "[", "minari:none", "x" * 300, "--json", "--help", "--version", "-o", "--output",
    "--context", "--seed", "--jobs", "--horizon", "--draws", "tcp://127.0.0.1:9",
]  # fmt: skip
VALUES = [
    "0", "-1", "1.5", "1e200", "1e308", "nan", "inf", "true", '""', '"a"', '"1/mass"', '"mass**9"',
    "[]", "[[]]", "[[[1]]]", "{}", "{ a = 1 }", "1979-05-27", "1979-05-27T07:32:00Z", "9" * 400,
    "1000000000000", "[" * 500 + "]" * 500, '"' + "(" * 500 + "1" + ")" * 500 + '"', '"\\u001b"',
    "[1, 1]", '["1", "1"]', "'''", "",
]  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    words = draw(st.sampled_from(COMMANDS)).split()
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(words) - 1))
        what = draw(st.sampled_from(["replace", "insert", "remove"]))
        word = draw(st.sampled_from(WORDS))
        words[place : place + (what != "insert")] = [] if what == "remove" else [word]
        if not words:
            break
    return words


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, Any]:
    """A file, and what becomes of it."""
    name = draw(st.sampled_from(["fleet.toml", "fleet.toml", "a.csv", "a.decoder", "machines.csv",
                                 "a.parquet", "fleet.db", "episode.csv", "episodes.json", "nothing",
                                 "nothing"]))  # fmt: skip
    kind = draw(st.sampled_from(["value", "value", "bytes", "cut", "word", "line"]))
    numbers = draw(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
    return name, (kind, *numbers, draw(st.sampled_from(VALUES)), draw(st.sampled_from(WORDS)))


def damaged(content: bytes, how: Any) -> bytes:
    kind, where, much, value, word = how
    if kind == "bytes" or not content:
        place = where % max(len(content), 1)
        return content[:place] + bytes([much % 256]) + content[place + 1 :]
    if kind == "cut":
        return content[: where % len(content)]
    text = content.decode("utf-8", "surrogateescape")
    if kind == "value":
        found = list(re.finditer(r"(?<== )[^#\n]+", text)) or list(re.finditer(r"[^,\n]+", text))
    elif kind == "word":
        found, value = list(re.finditer(r"\w+", text)), word
    else:
        found, value = list(re.finditer(r"[^\n]+\n", text)), value + "\n" if much % 2 else ""
    if not found:
        return content
    one = found[where % len(found)]
    return (text[: one.start()] + value + text[one.end() :]).encode("utf-8", "surrogateescape")


def refresh(folder: Path, good: dict[str, bytes]) -> None:
    for one in folder.iterdir():
        if one.is_file() and one.name not in good:
            one.unlink()
        elif one.is_dir() and one.name != "folder":
            shutil.rmtree(one)
    for name, content in good.items():
        (folder / name).write_bytes(content)


def begin_study(folder: Path) -> None:
    """A study with an ask and an episode, and files to tell and to import."""
    states, inputs = [[1.0, 0.0], [0.9, -0.2], [0.8, -0.1]], [[-1.0], [0.5]]
    with Study.open(f"sqlite:///{folder}/fleet.db", str(folder / "fleet.toml")) as study:
        study.ask({"mass": 2.0}, key="monday")
        study.tell({"mass": 1.5}, Trajectory(states, inputs))
        lines = [json.dumps(one) for one in study.export()]
    (folder / "episodes.json").write_text("\n".join(lines) + "\n")
    (folder / "episode.csv").write_text(
        "position,velocity,force\n1,0,-1\n0.9,-0.2,0.5\n0.8,-0.1,\n"
    )


def undrawn(_: object, file: Any, **__: Any) -> None:
    file.write("x" if isinstance(file, io.TextIOBase) else b"x")


@pytest.mark.slow
def test_odd_command_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = small_fleet(tmp_path / "fleet")
    begin_study(folder)
    good = {one.name: one.read_bytes() for one in folder.iterdir()}
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    monkeypatch.chdir(folder)
    for name in ("OMP_NUM_THREADS", "CONTEXTUAL_LQR_TRACEBACK"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("contextual_lqr.parallel.cluster._PATIENCE", 0.5)
    # Drawing takes most of the time, and sees nothing of what is odd.
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", undrawn)

    @given(lines(), damages())
    @settings(campaign(40))
    def one(words: list[str], damage: tuple[str, Any]) -> None:
        assume("verify" not in words or "--episodes" in words)
        refresh(folder, good)
        name, how = damage
        if name in good:
            (folder / name).write_bytes(damaged(good[name], how))
        code: Any = 0
        with bounded():
            try:
                cli.main(words)
            except SystemExit as end:
                code = end.code or 0
            except Exception as error:
                at = f"{words} with {name} {how if name in good else ''}"
                raise AssertionError(f"{at}: {error!r}") from error
        said = capfd.readouterr().err
        assert code in (0, 1, 2), (words, damage, code)
        assert code != 2 or re.search("^error: ", said, re.MULTILINE), (words, damage, said)
        assert "Traceback" not in said
        assert "\x1b" not in said
        left = [one.name for one in folder.iterdir() if one.name.startswith(".contextual-lqr")]
        assert not left, (words, damage, left)

    one()
