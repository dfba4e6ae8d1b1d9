"""The command as a user meets it: what it prints, and how it fails."""

import json
import signal
import sys
from importlib.metadata import version

import pytest

from command import COMMAND, output, run
from contextual_lqr import InputError, cli


def test_version() -> None:
    assert output("--version").strip() == version("contextual-lqr")


def test_info_as_json_says_the_same() -> None:
    facts = json.loads(output("info", "--json"))
    said = dict(line.split(maxsplit=1) for line in output("info").splitlines())
    assert list(said) == ["version", "kernels", "processor", "threads"]
    assert said["version"] == version("contextual-lqr")
    assert {name: str(value) for name, value in facts.items()} == said
    compiled = facts["processor"] is not None
    assert facts["kernels"] == ("compiled" if compiled else "NumPy reference")


def test_info_respects_the_customary_variable() -> None:
    assert json.loads(output("info", "--json", OMP_NUM_THREADS="3"))["threads"] == 3


def test_help_fits_the_terminal() -> None:
    text = output()
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("Usage: contextual-lqr")
    for word in ["info", "--help", "--version"]:
        assert word in text


def test_a_mistyped_command_is_told_so() -> None:
    done = run(COMMAND, "info", "--fly")
    said = "error: there is no option --fly; see `contextual-lqr info --help`\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_an_error_on_purpose_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise InputError("'mass' is 7.0, outside its bounds [1.0, 5.0]")

    monkeypatch.setattr(cli, "app", refuse)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: 'mass' is 7.0, outside its bounds [1.0, 5.0]\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_the_library_imports_nothing_that_only_commands_need() -> None:
    heavy = {"rich", "cyclopts", "safetensors", "matplotlib"}
    code = f"import sys, contextual_lqr; print(*sorted({heavy} & set(sys.modules)))"
    done = run(sys.executable, "-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr
