"""What holds for every command: its help, its mistakes, its JSON, its exit codes."""

import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from command import COMMAND, run
from contextual_lqr import cli
from contextual_lqr.cli import terminal
from contextual_lqr.cli.terminal import Progress, print_json
from contextual_lqr.data import TEMPLATE, FleetDescription, fitting
from fleet_logs import cart_rows, write

COMMANDS = [name for name in cli.app if not name.startswith("-")]

# A run of each that is quick; what it prints fits a terminal, and with --json is JSON.
QUICK = {
    "reproduce": "--paths circle --decays 0.7 --episodes 2 --seeds 2 --strategies certainty "
    "--jobs 1 --out results",
    "verify": "--fleet circle --seeds 1 --runs 2 --episodes 100 --jobs 1 --out verified",
    "play": "--fleet heating --strategy certainty --episodes 2 --adapt episode",
    "new": "new.toml",
    "check": "fleet.toml a.csv",
    "fit": "fleet.toml a.csv -o b.decoder",
    "merge": "a.decoder a.decoder -o c.decoder",
    "design": "a.decoder --context mass=2 --quick --draws 10",
    "simulate": "a.decoder --context mass=2 --runs 10",
    "advise": "a.decoder --candidates machines.csv",
    "info": "",
    "completion": "bash",
}
SILENT = {"new", "completion"}  # they write a file or a script; there is nothing to report
LONG = {"reproduce", "verify"}  # run by test_cli_reproduce and test_verify, with and without --json
MISSING = {  # a file that is not there, and what is said of it
    "reproduce": ("--config none.json", "there is no file none.json"),
    "check": ("fleet.tom", "there is no file fleet.tom; did you mean fleet.toml?"),
    "fit": ("none a.csv -o x", "there is no file none; `contextual-lqr new none` writes one"),
    "merge": ("a.decoder a.decodr -o y", "there is no file a.decodr; did you mean a.decoder?"),
    "design": ("none --context mass=2", "there is no file none; `contextual-lqr fit"),
    "simulate": ("none --context mass=2", "there is no file none; `contextual-lqr fit"),
    "advise": ("a.decoder --candidates machine.csv", "did you mean machines.csv?"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "fleet.toml").write_text(TEMPLATE)
    write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20), folder / "a.csv")
    (folder / "machines.csv").write_text("mass\n1\n2\n")
    fitted = fitting.fit(FleetDescription.parse(TEMPLATE), folder / "a.csv")
    fitted.save(folder / "a.decoder")
    return folder


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Call it in this process, which is quick: exit code, output, and what is said of errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # one job needs no process of its own

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code: Any = 0
        try:
            cli.main(arguments)
        except SystemExit as left:
            code = left.code or 0
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return call


def test_no_command_is_forgotten() -> None:
    assert set(QUICK) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_and_shows_an_example(name: str, command: Any) -> None:
    code, text, said = command(name, "--help")
    assert (code, said) == (0, "")
    assert text.startswith(f"Usage: contextual-lqr {name}")
    assert max(map(len, text.splitlines())) <= 80
    assert f"Example:\n  contextual-lqr {name}" in text
    assert "False]" not in text
    assert ("--json" in text) == (name not in SILENT)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_can_be_typed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("fleet.toml", "fleet.decoder", "here.decoder", "there.decoder"):
        Path(file).touch()
    for file in ("new.csv", "machines.csv"):
        Path(file).touch()
    for example in cli._COMMANDS[name][2].splitlines():
        if example.startswith("contextual-lqr"):
            words = shlex.split(example)[1:]
            target, _, ignored = cli.app.parse_args(words, exit_on_error=False, print_error=False)
            assert target.__name__ == name
            assert not ignored


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in LONG])
def test_a_quick_run_fits_the_terminal(name: str, command: Any) -> None:
    if name == "new":
        Path("new.toml").unlink(missing_ok=True)
    code, text, said = command(name, *QUICK[name].split())
    assert (code, said) == (0, "")
    if name != "completion":
        assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text + said


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SILENT | LONG])
def test_json_is_one_document_and_nothing_else(name: str, command: Any) -> None:
    code, text, said = command(name, *QUICK[name].split(), "--json")
    assert (code, said) == (0, "")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("wrong", ["--fly", "--hel"])
def test_a_wrong_option_is_one_sentence_with_a_hint(name: str, wrong: str, command: Any) -> None:
    code, text, said = command(name, *QUICK[name].split(), wrong)
    assert (code, text) == (2, "")
    assert said.startswith(f"error: there is no option {wrong}; ")
    assert len(said.splitlines()) == 1
    hint = "did you mean --" if "did you mean" in said else f"`contextual-lqr {name} --help`"
    assert hint in said


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_file_is_one_sentence_with_a_hint(name: str, command: Any) -> None:
    before = sorted(os.listdir())
    arguments, expected = MISSING[name]
    code, text, said = command(name, *arguments.split())
    assert (code, text) == (2, "")
    assert expected in said
    assert len(said.splitlines()) == 1
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("desgin x", "there is no command desgin; did you mean design?"),
        ("fly", "there is no command fly; see `contextual-lqr --help`"),
        ("--fly", "there is no option --fly; see `contextual-lqr --help`"),
        ("fit --out x", "there is no option --out; did you mean --output?"),
        ("reproduce --seeds few", "--seeds must be a whole number, not few; see"),
        ("verify --delta half", "--delta must be a number, not half; see"),
        ("verify --fleet circel", "--fleet cannot be circel: there are circle, parabola,"),
        ("verify --fleet circel", "did you mean circle?"),
        ("info --json=3", "--json takes no value; see `contextual-lqr info --help`"),
        ("info more", "more is one argument too many; see"),
        ("design", "FLEET is missing; see `contextual-lqr design --help`"),
        ("merge a.decoder a.decoder", "--output is missing; see"),
        ("play --seed", "--seed needs a value; see"),
        ("play --seed 1 --seed 2", "--seed is given twice; see"),
        ("design . --context mass=2", ". is a folder, not a file"),
        ("design a.decoder --context mas=2", "there is no context 'mas'"),
        ("new no/where.toml", "cannot write no/where.toml"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: str, said: str, command: Any) -> None:
    code, text, error = command(*arguments.split())
    assert (code, text) == (2, "")
    assert error.startswith("error: ")
    assert said in error
    assert len(error.splitlines()) == 1


def test_check_fails_with_1_and_lists_the_faults_as_json(command: Any) -> None:
    Path("bad.toml").write_text(TEMPLATE.replace("horizon = 30", "horizon = 0"))
    code, text, _ = command("check", "bad.toml", "--json")
    assert code == 1
    (fault,) = json.loads(text)["faults"]
    assert "horizon" in fault


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_is_one_word(name: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it comes in a command: here from the first thing that each of them calls."""
    module = f"contextual_lqr.cli.{name}"
    first = {
        "reproduce": f"{module}._run",
        "verify": f"{module}.verification",
        "play": f"{module}.episodes",
        "new": f"{module}.atomic_write",
        "check": f"{module}.check_logs",
        "fit": "contextual_lqr.data.fitting.fit",
        "merge": f"{module}.FittedFleet.load",
        "info": f"{module}.say",
        "completion": f"{module}._own_shell",
    }.get(name, f"{module}.FittedFleet.load")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    importlib.import_module(module)
    monkeypatch.setattr(first, stop)
    Path("new.toml").unlink(missing_ok=True)
    arguments = QUICK[name].replace("--out results", "--out stopped").replace("bash", "")
    code, _, said = command(name, *arguments.split())
    assert code == 130
    assert said.splitlines()[-1].startswith("Stopped.")


def test_a_pipe_that_closes_is_no_traceback() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{COMMAND} completion bash | head -1"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.stdout, done.stderr) == ("# Bash completion for contextual-lqr\n", "")


def test_a_terminal_without_our_letters_gets_others() -> None:
    done = run(COMMAND, "verify", "--help", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Multiply ? by this" in done.stdout


def test_progress_where_there_is_no_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    with Progress("playing", 40, "trials") as progress:
        for _ in range(40):
            clock[0] += 0.6
            progress.advance()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["playing: 17 of 40 trials", "playing: 34 of 40 trials"]


def test_progress_in_a_terminal_is_one_line_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(force_terminal=True, width=80, record=True, file=io.StringIO())
    monkeypatch.setattr(terminal, "Console", lambda **_: screen)
    with Progress("certifying", 12_000, "machines") as progress:
        progress.advance(3_456)
        progress._bar.refresh()
    drawn = re.findall(r"certifying .*? left", screen.export_text())  # one over the other
    assert "3,456 of 12,000 machines" in drawn[-1]
    assert {len(line) for line in drawn} == {80}


def test_json_has_no_number_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"β": [float("nan"), (float("-inf"), 1.5)]})
    text = capsys.readouterr().out
    assert "β" in text
    assert json.loads(text) == {"β": [None, [None, 1.5]]}


TABS = [  # what is typed before Tab, and what must be offered
    ("des", {"design"}),
    ("fit --ro", {"--robust"}),
    ("play --fleet he", {"heating"}),
    ("design fl", {"fleet.decoder"}),
    ("check fleet.toml lo", {"log.csv"}),
    ("completion f", {"fish"}),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shells")
    for name in ("fleet.decoder", "log.csv"):
        (folder / name).touch()
    for shell in ("bash", "zsh", "fish"):
        script = cli.app.generate_completion(shell=shell)  # type: ignore[arg-type]
        (folder / f"script.{shell}").write_text(script)
    return folder


@pytest.mark.parametrize(("typed", "offered"), TABS)
def test_tab_completes_in_bash(typed: str, offered: set[str], scripts: Path) -> None:
    words = ["contextual-lqr", *typed.split(" ")]
    listed = " ".join(f"'{word}'" for word in words)
    program = f"""source script.bash
        COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}
        _contextual_lqr; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "--norc", "-c", program], cwd=scripts, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == offered


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("typed", "offered"), TABS)
def test_tab_completes_in_fish(typed: str, offered: set[str], scripts: Path) -> None:
    program = f"source script.fish; complete -C 'contextual-lqr {typed}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program],
        cwd=scripts,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"HOME": str(scripts)},
    )
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} >= offered


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_script_is_sound_in_zsh(scripts: Path) -> None:
    subprocess.run(["zsh", "-n", "script.zsh"], cwd=scripts, check=True)


def test_completion_is_installed_where_the_shell_looks(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    code, text, said = command("completion", "--install")
    assert (code, said) == (0, "")
    path = Path(text.split(" is written")[0])
    assert path.is_relative_to(tmp_path)
    assert "contextual-lqr" in path.read_text()
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    code, text, said = command("completion")
    assert (code, text) == (2, "")
    assert "Say bash, zsh or fish" in said
