"""What holds for every command: its help, its mistakes, its JSON, its exit codes."""

import importlib
import io
import json
import math
import os
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import cyclopts
import polars as pl
import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from command import COMMAND, run
from contextual_lqr import InputError, Study, Trajectory, cli
from contextual_lqr.cli import mistake, terminal
from contextual_lqr.cli.options import HERE, Count, Seed, Where
from contextual_lqr.cli.terminal import Progress, print_json, say
from contextual_lqr.data import TEMPLATE, FleetDescription, fitting
from contextual_lqr.parallel import Cluster
from contextual_lqr.study.tokens import Tokens
from fleet_logs import cart_rows, write

COMMANDS = [
    *(name for name in cli.app if not name.startswith("-") and name != "study"),
    *(f"study {name}" for name in cli.app["study"] if not name.startswith("-") and name != "token"),
    *(f"study token {name}" for name in cli.app["study"]["token"] if not name.startswith("-")),
]

TOKEN = "0123456789abcdef"
# A run of each that is quick; what it prints fits a terminal, and with --json is JSON.
QUICK = {
    "reproduce": "--paths circle --decays 0.7 --episodes 2 --seeds 2 --strategies certainty "
    "--jobs 1 --out results",
    "verify": "--fleet circle --seeds 1 --runs 2 --episodes 100 --jobs 1 --out verified",
    "play": "--fleet heating --strategy certainty --episodes 2 --adapt episode",
    "new": "new.toml",
    "check": "fleet.toml a.csv",
    "fit": "fleet.toml a.csv -o b.decoder",
    "merge": "a.decoder a.decoder -o c.decoder --allow-repeats",
    "backtest": "a.decoder",
    "design": "a.decoder --context mass=2 --quick --draws 10",
    "simulate": "a.decoder --context mass=2 --runs 10",
    "export": "a.decoder -o controller.c --header",
    "advise": "a.decoder --candidates machines.csv",
    "study create": "begun.db fleet.toml",
    "study ask": "fleet.db --context mass=2 --machine M-1",
    "study tell": "fleet.db episode.csv --context mass=2",
    "study status": "fleet.db",
    "study export": "fleet.db -o written.jsonl",
    "study import": "fleet.db episodes.jsonl",
    "study compact": "fleet.db",
    "study token create": "fleet.db",
    "study token list": "fleet.db",
    "study token revoke": f"fleet.db {TOKEN}",
    "serve": "--store sqlite:///fleet.db",
    "info": "",
    "completion": "bash",
}
SILENT = {"new", "completion", "serve"}  # they write or serve; there is nothing to report
LONG = {"reproduce", "verify", "serve"}  # run by test_cli_reproduce, test_verify and test_serve
MISSING = {  # a file that is not there, and what is said of it
    "reproduce": ("--config none.json", "there is no file none.json"),
    "check": ("fleet.tom", "there is no file fleet.tom; did you mean fleet.toml?"),
    "fit": ("none a.csv -o x", "there is no file none; `contextual-lqr new none` writes one"),
    "merge": ("a.decoder a.decodr -o y", "there is no file a.decodr; did you mean a.decoder?"),
    "backtest": ("none", "there is no file none; `contextual-lqr fit"),
    "design": ("none --context mass=2", "there is no file none; `contextual-lqr fit"),
    "simulate": ("none --context mass=2", "there is no file none; `contextual-lqr fit"),
    "export": ("none -o controller.c", "there is no file none; `contextual-lqr fit"),
    "advise": ("a.decoder --candidates machine.csv", "did you mean machines.csv?"),
    "study create": ("new.db fleet.tom", "did you mean fleet.toml?"),
    "study ask": ("none.db --context mass=2", "`contextual-lqr study create none.db fleet.toml`"),
    "study tell": ("fleet.db episod.csv", "did you mean episode.csv?"),
    "study status": ("none.db", "there is no file none.db; `contextual-lqr study create"),
    "study export": ("none.db -o x.jsonl", "there is no file none.db"),
    "study import": ("fleet.db episodes.json", "did you mean episodes.jsonl?"),
    "study compact": ("none.db", "there is no file none.db"),
    "study token create": ("none.db", "there is no file none.db"),
    "study token list": ("none.db", "there is no file none.db"),
    "study token revoke": (f"none.db {TOKEN}", "there is no file none.db"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "fleet.toml").write_text(TEMPLATE)
    write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20), folder / "a.csv")
    (folder / "machines.csv").write_text("mass\n1\n2\n")
    (folder / "linked").symlink_to("a.csv")
    (folder / "described").symlink_to("fleet.toml")
    (folder / "fifos").mkdir()
    for name in ("fifo", "fifo.csv", "fifo.png", "fifos/a.csv"):
        os.mkfifo(folder / name)
    fitted = fitting.fit(FleetDescription.parse(TEMPLATE), folder / "a.csv")
    fitted.save(folder / "a.decoder")
    (folder / "episode.csv").write_text("position,velocity,force\n1,0,1\n1,0.1,0\n1.01,0.1,\n")
    with Study.open(f"sqlite:///{folder}/fleet.db", folder / "fleet.toml") as study:
        study.tell({"mass": 1.0}, Trajectory([[1.0, 0.0], [1.0, 0.1]], [[1.0]]), "M-1")
        lines = [json.dumps(one) for one in study.export()]
        with mock.patch("secrets.token_hex", return_value=TOKEN):
            Tokens(study._log).create("watch")
    (folder / "episodes.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Call it in this process, which is quick: exit code, output, and what is said of errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # one job needs no process of its own
    monkeypatch.setattr(terminal, "_EVERY", math.inf)  # however long it takes on a busy machine

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
    code, text, said = command(*name.split(), "--help")
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
    for file in ("new.csv", "machines.csv", "log.csv", "episode.csv", "episode.json"):
        Path(file).touch()
    for file in ("fleet.db", "episodes.jsonl"):
        Path(file).touch()
    for example in cli._COMMANDS[name][2].splitlines():
        if example.startswith("contextual-lqr"):
            words = shlex.split(example)[1:]
            target, _, ignored = cli.app.parse_args(words, exit_on_error=False, print_error=False)
            assert target.__name__.rstrip("_") == name.split()[-1]
            assert not ignored


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in LONG])
def test_a_quick_run_fits_the_terminal(name: str, command: Any) -> None:
    if name == "new":
        Path("new.toml").unlink(missing_ok=True)
    code, text, said = command(*name.split(), *QUICK[name].split())
    assert (code, said) == (0, "")
    if name != "completion":
        assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text + said


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SILENT | LONG])
def test_json_is_one_document_and_nothing_else(name: str, command: Any) -> None:
    code, text, said = command(*name.split(), *QUICK[name].split(), "--json")
    assert (code, said) == (0, "")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("wrong", ["--fly", "--hel"])
def test_a_wrong_option_is_one_sentence_with_a_hint(name: str, wrong: str, command: Any) -> None:
    code, text, said = command(*name.split(), *QUICK[name].split(), wrong)
    assert (code, text) == (2, "")
    assert said.startswith(f"error: there is no option {wrong}; ")
    assert len(said.splitlines()) == 1
    hint = "did you mean --" if "did you mean" in said else f"`contextual-lqr {name} --help`"
    assert hint in said


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_file_is_one_sentence_with_a_hint(name: str, command: Any) -> None:
    before = sorted(os.listdir())
    arguments, expected = MISSING[name]
    code, text, said = command(*name.split(), *arguments.split())
    assert (code, text) == (2, "")
    assert expected in said
    assert len(said.splitlines()) == 1
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("desgin x", 'Unknown command "desgin". Did you mean "design"?'),
        ("fly", 'Unknown command "fly"; see `contextual-lqr --help`'),
        ("--fly", 'Unknown command "--fly"; see `contextual-lqr --help`'),
        ("fit --out x", "there is no option --out; did you mean --output?"),
        ("reproduce --seeds few", 'for --seeds: unable to convert "few" into int; see'),
        ("verify --delta half", 'for --delta: unable to convert "half" into float; see'),
        ("verify --fleet circel", 'for --fleet. Choose from: "circle", "parabola",'),
        ("verify --fleet circel", 'Did you mean "circle"?'),
        ("info --json=3", 'for --json: unable to convert "3" into bool; see'),
        ("info more", "more is one argument too many; see"),
        ("design", "FLEET requires an argument; see `contextual-lqr design --help`"),
        ("merge a.decoder a.decoder", "--output requires an argument; see"),
        ("play --seed", "--seed requires an argument; see"),
        ("play --seed 1 --seed 2", "--seed specified multiple times; see"),
        ("play --seed " + "9" * 5000, "unable to convert"),
        ("design . --context mass=2", "cannot read .: it is a folder, not a regular file"),
        ("design fifo --context mass=2", "cannot read fifo: it is a FIFO, not a regular file"),
        ("check fifo", "cannot read fifo: it is a FIFO, not a regular file"),
        ("check fleet.toml fifo", "cannot read fifo: it is a FIFO, not a regular file"),
        ("fit fleet.toml a.csv -o fifo", "cannot write fifo: it is a FIFO, not a regular file"),
        ("advise a.decoder --candidates fifo", "cannot read fifo: it is a FIFO, not a regular"),
        ("design fleet.toml --context mass=2", "fleet.toml is a description, not a fitted fleet"),
        ("design a.decoder --context mas=2", "there is no context 'mas'"),
        ("new no/where.toml", "cannot write no/where.toml"),
        ("design a.decoder --context mass=2 --seed -1", 'value "-1" for --seed. Must be >= 0; see'),
        ("simulate a.decoder --context mass=2 --seed -1", "for --seed. Must be >= 0; see"),
        ("play --seed -1", "for --seed. Must be >= 0; see"),
        ("design a.decoder --context mass=2 --draws 1e10", 'convert "1e10" into int; see'),
        ("design a.decoder --context mass=2 --draws 10000000000", "Must be <= 10000000; see"),
        ("simulate a.decoder --context mass=2 --runs 10000000000", "Must be <= 10000000; see"),
        ("play --episodes 10000000000", "for --episodes. Must be <= 10000000; see"),
        ("reproduce --episodes 10000000000", "for --episodes. Must be <= 10000000; see"),
        ("reproduce --samples 0", "for --samples. Must be >= 1; see"),
        ("verify --seeds 10000000000", "for --seeds. Must be <= 10000000; see"),
        ("verify --episodes 10000000000", "for --episodes. Must be <= 10000000; see"),
        ("design a.decoder --context mass=2 -o fifo.csv", "cannot write fifo.csv: it is a FIFO"),
        ("simulate a.decoder --context mass=2 -o fifo.png", "cannot write fifo.png: it is a FIFO"),
        ("merge a.decoder a.decoder -o fifo", "cannot write fifo: it is a FIFO, not a regular"),
        ("merge a.decoder a.decoder -o /dev/null", "cannot write /dev/null: it is a device"),
        ("fit fleet.toml a.csv -o /dev/null", "cannot write /dev/null: it is a device"),
        ("fit fleet.toml a.csv -o linked", "cannot write linked: it is one of the files that are"),
        ("fit fleet.toml a*.csv -o linked", "cannot write linked: it is one of the files that are"),
        ("fit fleet.toml a.csv -o described", "described: it is one of the files that are read"),
        ("fit fleet.toml -o b.csv a.csv", "b.csv cannot be a decoder file: give another"),
        ("merge a.decoder a.decoder -o b.toml", "b.toml cannot be a decoder file"),
        ("design a.decoder --context mass=2 --csv -o a.decoder", "a.decoder: it is one of the"),
        ("design a.decoder --contexts machines.csv -o machines.csv", "machines.csv: it is one of"),
        ("fit fleet.toml fifos -o b.decoder", "cannot read fifos/a.csv: it is a FIFO, not a"),
        ("fit fleet.toml fifos/*.csv -o x", "cannot read fifos/a.csv: it is a FIFO, not a"),
        ("fit fleet.toml a.csv -o x --cluster tls://127.0.0.1:9", "give --tls-ca, --tls-cert and"),
        ("verify --cluster tls://127.0.0.1:9", "give --tls-ca, --tls-cert and --tls-key"),
        ("reproduce --tls-key a.csv", "certificates are only for --cluster tls://host:8786"),
        ("verify --tls-ca a.csv", "certificates are only for --cluster tls://host:8786"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: str, said: str, command: Any) -> None:
    code, text, error = command(*arguments.split())
    assert (code, text) == (2, "")
    assert error.startswith("error: ")
    assert said in error
    assert stat.S_ISFIFO(Path("fifo").stat().st_mode)
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
    module = f"contextual_lqr.cli.{(name.split()[:-1] or [name])[-1]}"
    first = {
        "reproduce": f"{module}._run",
        "verify": f"{module}.verification",
        "play": f"{module}.episodes",
        "new": f"{module}.atomic_write",
        "check": f"{module}.survey_logs",
        "fit": "contextual_lqr.data.fitting.fit",
        "serve": f"{module}._named",
        "info": f"{module}.say",
        "completion": f"{module}._own_shell",
    }.get(
        name, f"{module}.Study.open" if "study" in name else "contextual_lqr.data.FittedFleet.load"
    )
    first = f"{module}.Log" if "token" in name else first

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    importlib.import_module(module)
    monkeypatch.setattr(first, stop)
    Path("new.toml").unlink(missing_ok=True)
    arguments = QUICK[name].replace("--out results", "--out stopped").replace("bash", "")
    code, _, said = command(*name.split(), *arguments.split())
    assert code == 130
    assert said.splitlines()[-1].startswith("Stopped.")


SHELL = [  # how streams are redirected; the exit code; what is on standard output, and on error
    ("completion bash | head -1", 0, "# Bash completion for contextual-lqr\n", ""),
    ("info --json >&-", 0, "", ""),
    ("info --json >&- 2>&- <&-", 0, "", ""),
    ("info --fly >&- 2>&-", 2, "", ""),
    ("info > /dev/full", 1, "", "error: the output: No space left on device\n"),
    ("--help > /dev/full", 1, "", "error: the output: No space left on device\n"),
    ("info --fly 2> /dev/full", 2, "", ""),
]


@pytest.mark.parametrize(("line", "code", "printed", "said"), SHELL)
def test_streams_that_close_or_are_full_are_no_traceback(
    line: str, code: int, printed: str, said: str
) -> None:
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{COMMAND} {line}"], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, printed, said)


def test_a_fault_of_ours_is_a_sentence_and_on_request_a_traceback(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    module = importlib.import_module("contextual_lqr.cli.info")
    monkeypatch.setattr(module, "say", fail)
    code, text, said = command("info")
    assert (code, text) == (1, "")
    assert said.startswith("error: this is a bug in the program (ZeroDivisionError:")
    monkeypatch.setenv("CONTEXTUAL_LQR_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        command("info")

    def swell(*_: object) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(module, "say", swell)
    assert command("info") == (
        1,
        "",
        "error: this needs more memory than there is: Unable to allocate 7 TiB\n",
    )


ODD = "a\x1b]0;title\x07\x1b[31m\x9b2Jb\u202ec\rd\x00:smile:[red]\udc80"
SHOWN = r"a\x1b]0;title\x07\x1b[31m\x9b2Jb\u202ec\rd\x00:smile:[red]\udc80"


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    console = terminal.Console(force_terminal=True, width=200, file=screen, color_system=None)
    say(console, ODD)
    table = Table("name", title=escape(ODD))
    table.add_row(escape(ODD))
    console.print(table)
    console.print(f"[bold]{escape(ODD)}[/bold]", highlight=False)
    drawn = screen.getvalue()
    assert drawn.count(SHOWN) == 4
    assert not {"\x1b[31m", "\x9b", "\u202e", "\x07", "\r", "\x00"} & {*drawn, drawn}
    assert "\x1b[31m" not in drawn
    terminal.say_error(ODD)
    assert capsys.readouterr().err == f"error: {SHOWN}\n"
    print_json({ODD: ODD})
    text = capsys.readouterr().out
    assert json.loads(text) == {ODD: ODD}
    assert text.isprintable() or set(text) - set("\n") == {c for c in text if c.isprintable()}


LABELLED = [
    "check odd.toml odd.csv",
    "fit odd.toml odd.csv -o odd.decoder",
    "design odd.decoder --contexts odd_machines.csv",
    "design odd.decoder --contexts odd_machines.csv --json",
    "simulate odd.decoder --context mass=2",
    "advise odd.decoder --candidates odd_machines.csv",
    "advise odd.decoder",
    "design \x1b[31mx --context mass=2",
    "\x1b[31m",
]


def test_no_command_repeats_a_control_character(
    command: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from labels, names of columns, units, nor what was typed."""
    monkeypatch.setenv("NO_COLOR", "1")
    Path("odd.toml").write_text(TEMPLATE.replace('"kg"', '"\\u001b[31mkg"'))
    odd = cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20, actual={1: 5.0})
    odd = odd.with_columns(machine="\x1b[31m" + pl.col("machine"))
    odd = odd.with_columns(pl.lit(1).alias("\x1b[31mmore"), episode=pl.col("episode").cast(str))
    write(odd.with_columns(episode="\x9b" + pl.col("episode")), Path("odd.csv"))
    Path("odd_machines.csv").write_text("machine,mass\n\x1b[31mone,1\n\x1b]0;two\x07,2\n")
    for line in LABELLED:
        _, printed, said = command(*line.split())
        assert len(printed + said) > 20, line
        assert not set("\x1b\x9b\x07") & set(printed + said), line
    assert Path("odd.decoder").exists()


def test_tables_are_plain_for_scripts_and_harmless_in_terminals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.print_text("a\x1bb\n")
    assert capsys.readouterr().out == "a\x1bb\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    terminal.print_text("a\x1bb\n")
    assert capsys.readouterr().out == "a\\x1bb\n"


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


def test_workers_are_chosen_here_or_there(tmp_path: Path) -> None:
    assert Where(3).workers == 3
    (tmp_path / "ca.pem").touch()
    there = Where(cluster="tls://host:8786", tls_ca=tmp_path / "ca.pem").workers
    assert isinstance(there, Cluster)
    assert (there, there.ca, there.key) == ("tls://host:8786", str(tmp_path / "ca.pem"), None)
    for wrong in (Where(0), Where(2, "tcp://host:8786"), Where(1, tls_key=tmp_path)):
        with pytest.raises(InputError, match=r"--jobs|--cluster"):
            _ = wrong.workers


def test_shared_options_refuse_what_no_command_could_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes(*, seed: Seed = 0, draws: Count = 200, where: Where = HERE) -> Any:
        return seed, draws, where

    app = cyclopts.App(result_action="return_value", exit_on_error=False, print_error=False)
    app.default(takes)
    monkeypatch.chdir(tmp_path)
    assert app("--seed 3 --draws 7") == (3, 7, HERE)
    for line, said in {
        "--seed -1": 'Invalid value "-1" for --seed. Must be >= 0',
        "--draws 10000000000": "for --draws. Must be <= 10000000",
        "--draws 0": "for --draws. Must be >= 1",
        "--draws 1e10": 'unable to convert "1e10" into int',
        "--tls-ca none.pem": "there is no file none.pem",
    }.items():
        with pytest.raises(cyclopts.CycloptsError) as error:
            app(line)
        assert said in mistake(error.value)
