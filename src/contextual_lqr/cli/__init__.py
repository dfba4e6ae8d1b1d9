"""The command `contextual-lqr`: one file a command; commands parse and call, nothing more.

It exits with 0 if all is well; 1 if the answer is no (a guarantee does not hold, a log has bad
rows) or the work failed; 2 if what was given cannot be used; 130 if it was stopped by Ctrl-C.
With `--json`, standard output is one JSON document, or empty if there is an error: its sentence is
on standard error in any case.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version

import cyclopts
from cyclopts.exceptions import (
    CycloptsError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from contextual_lqr.cli import interrupts
from contextual_lqr.cli.interrupts import Interrupts
from contextual_lqr.cli.terminal import Console, say, say_error
from contextual_lqr.errors import ContextualLQRError, InputError

_TRACEBACK = "CONTEXTUAL_LQR_TRACEBACK"  # shows what a fault of the program looks like
_PAPER, _FLEET, _SHARED, _HERE = (
    cyclopts.Group(title, sort_key=place)
    for place, title in enumerate(
        [
            "The paper",
            "Your own fleet, in this order",
            "A study that a fleet shares",
            "This program",
        ]
    )
)
_COMMANDS = {  # group, what it does, an example
    "reproduce": (
        _PAPER,
        "Run the paper's experiments; write rows, figures and a report.\n\n"
        "Ctrl-C keeps what is finished; the same command resumes it.",
        "contextual-lqr reproduce --paths circle --seeds 3 --out results/circle",
    ),
    "verify": (
        _PAPER,
        "Measure whether the paper's guarantees hold; exit 1 if one does not.",
        "contextual-lqr verify --fleet circle --seeds 50 --episodes 2000",
    ),
    "play": (
        _PAPER,
        "Watch an agent learn a fleet, in the terminal or as a GIF.",
        "contextual-lqr play --fleet cart-pole --episodes 5",
    ),
    "new": (
        _FLEET,
        "Write a commented fleet description for you to edit.",
        "contextual-lqr new fleet.toml\n"
        "contextual-lqr new fleet.toml --from log.csv --contexts machines.csv",
    ),
    "check": (
        _FLEET,
        "Report everything that is wrong with a description and its logs.",
        "contextual-lqr check fleet.toml 'logs/*.parquet' -o check.html",
    ),
    "fit": (
        _FLEET,
        "Learn a fleet's decoder from its logs.",
        "contextual-lqr fit fleet.toml 'logs/*.parquet' -o fleet.decoder",
    ),
    "merge": (
        _FLEET,
        "Merge what several sites have learnt, without their logs.",
        "contextual-lqr merge here.decoder there.decoder -o both.decoder",
    ),
    "backtest": (
        _FLEET,
        "Leave each machine out in turn; see whether its certificate would have been right.",
        "contextual-lqr backtest fleet.decoder -o backtest.png",
    ),
    "design": (
        _FLEET,
        "Controllers for machines never tried, each with a certificate.",
        "contextual-lqr design fleet.decoder --context mass=2.5\n"
        "contextual-lqr design fleet.decoder --contexts new.csv -o gains.csv",
    ),
    "simulate": (
        _FLEET,
        "Show what the closed loop of a machine never tried will do.",
        "contextual-lqr simulate fleet.decoder --context mass=2.5 -o loop.png",
    ),
    "export": (
        _FLEET,
        "A controller as one C file that takes the context at run time.",
        "contextual-lqr export fleet.decoder -o controller.c --header\n"
        "contextual-lqr export fleet.decoder --context mass=2.5 -o model.json",
    ),
    "advise": (
        _FLEET,
        "Say which machine to run next, and what no log shows.",
        "contextual-lqr advise fleet.decoder --candidates machines.csv",
    ),
    "study create": (
        _SHARED,
        "Start a study of a fleet: a file, or a PostgreSQL database.",
        "contextual-lqr study create fleet.db fleet.toml",
    ),
    "study ask": (
        _SHARED,
        "Plan an episode for a machine, while others are playing.",
        "contextual-lqr study ask fleet.db --context mass=2.5 --machine M-011 --json",
    ),
    "study tell": (
        _SHARED,
        "Add an episode to the study: all of it, on disk, or nothing.",
        "contextual-lqr study tell fleet.db episode.csv --ask KEY\n"
        "contextual-lqr study tell fleet.db episode.json --context mass=2.5",
    ),
    "study status": (
        _SHARED,
        "Show how a study stands: machines, what is out, what is late.",
        "contextual-lqr study status fleet.db",
    ),
    "study export": (
        _SHARED,
        "Write all episodes as JSON lines.",
        "contextual-lqr study export fleet.db -o episodes.jsonl",
    ),
    "study import": (
        _SHARED,
        "Import episodes that `study export` wrote, here or elsewhere.",
        "contextual-lqr study import fleet.db episodes.jsonl",
    ),
    "study compact": (
        _SHARED,
        "Make opening fast again, and drop finished asks.",
        "contextual-lqr study compact fleet.db",
    ),
    "study token create": (
        _SHARED,
        "Create a token for the study's service, and print it once.",
        "contextual-lqr study token create fleet.db --role machine --machine M-011",
    ),
    "study token list": (
        _SHARED,
        "Show who has tokens, and since when.",
        "contextual-lqr study token list fleet.db",
    ),
    "study token revoke": (
        _SHARED,
        "Revoke a token for good.",
        "contextual-lqr study token revoke fleet.db 0123456789abcdef",
    ),
    "serve": (
        _SHARED,
        "Serve studies over HTTP, with a page to watch them.",
        "contextual-lqr serve --store sqlite:///fleet.db",
    ),
    "info": (
        _HERE,
        "Show the version, and how it runs here.",
        "contextual-lqr info --json",
    ),
    "completion": (
        _HERE,
        "Set up Tab completion in bash, zsh or fish.",
        "contextual-lqr completion --install\nsource <(contextual-lqr completion bash)",
    ),
}

app = cyclopts.App(
    name="contextual-lqr",
    help="Learn one decoder over a fleet of machines; control a machine never tried.",
    help_format="plaintext",
    help_epilogue="contextual-lqr COMMAND --help explains a command, with an example.",
    version=version("contextual-lqr"),
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)
app["--help"].group = app["--version"].group = _HERE
app.command(
    _study := cyclopts.App(
        name="study",
        help="Ask and tell for a whole fleet at once; everything is in one database.",
        help_epilogue="contextual-lqr study COMMAND --help explains a command, with an example.",
        group=_SHARED,
    )
)
_study.command(
    _token := cyclopts.App(
        name="token",
        help="Manage who may use the study's service.",
        help_epilogue="contextual-lqr study token COMMAND --help explains a command.",
    )
)
_ROOMS = {"": app, "study": _study, "study token": _token}
# Named by their place: a command imports what it needs when it is called, not before.
for _order, (_name, (_group, _help, _example)) in enumerate(_COMMANDS.items()):
    _room, _, _verb = _name.rpartition(" ")
    _file = _room.rpartition(" ")[2] or _verb
    _ROOMS[_room].command(
        f"contextual_lqr.cli.{_file}:{_verb}{'_' if _verb in ('import', 'list') else ''}",
        name=_verb,
        help=_help,
        help_epilogue="Example:\n" + "".join(f"  {line}\n" for line in _example.splitlines()),
        group=None if _room else _group,
        sort_key=_order,
    )


def main(arguments: Sequence[str] | None = None, last: bool = False) -> None:
    """Run the command, as typed unless given; what goes wrong is a sentence, not a traceback.

    `last` says that the process ends after it.
    """
    _open_streams()
    with Interrupts(last) as ctrl_c:
        code: object = 0
        try:
            try:
                app(arguments)
            except SystemExit as end:
                code = end.code
            sys.stdout.flush()
        except KeyboardInterrupt:
            ctrl_c.asked = True
        except BaseException as error:
            if not ctrl_c.asked:  # else it is a consequence of that
                code = _judged(error)
        if ctrl_c.asked and code != interrupts.CODE:
            code = interrupts.CODE
            with suppress(OSError):
                say(Console(stderr=True), "Stopped.")
        ctrl_c.said = ctrl_c.asked
        _close_streams()
    if code:
        sys.exit(code)  # type: ignore[arg-type]


def _judged(error: BaseException) -> int:
    """The exit code, with the sentence about the error said."""
    match error:
        case cyclopts.CycloptsError():
            return _refused(mistake(error), 2)
        case ContextualLQRError():
            return _refused(str(error), 2 if isinstance(error, InputError) else 1)
        case BrokenPipeError():  # `| head` has seen enough
            return 1
        case OSError():
            return _refused(f"{error.filename or 'the output'}: {error.strerror or error}", 1)
        case MemoryError():
            return _refused(f"this needs more memory than there is: {error}".rstrip(": "), 1)
    if os.environ.get(_TRACEBACK):
        raise error
    found = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return _refused(
        f"this is a bug in the program ({found}); please report it, with the "
        f"output of the same command under {_TRACEBACK}=1",
        1,
    )


def _refused(sentence: str, code: int) -> int:
    with suppress(OSError):  # standard error may be closed too
        say_error(sentence)
    return code


def _open_streams() -> None:
    """What was closed by whoever called us (`>&-`) leads nowhere, and to no file opened later."""
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(nowhere)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream of somebody else's
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # β, where ASCII goes


def _close_streams() -> None:
    """A stream that fails now would fail again, with a traceback, when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def mistake(error: CycloptsError) -> str:
    """One sentence for an error."""
    match error:
        case UnknownOptionError(token=token):  # which --output may be meant by --out
            word = (token.keyword or token.value).split("=")[0]
            names = [name for one in error.argument_collection for name in one.names]
            longer = [name for name in names if name.startswith(word)]
            alike = longer or difflib.get_close_matches(word, names, n=1)
            said = f"there is no option {word}" + (f"; did you mean {alike[0]}?" if alike else "")
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            said = f"{word} is one argument too many"
        case ValidationError(exception_message=sentence) if sentence and sentence[0] != "M":
            said = sentence  # ours; Cyclopts' own, "Must be >= 0.", need what stands before them
        case _:
            said = " ".join(str(error).split()).partition(" Available commands")[0]
    said = said.removesuffix(".")
    if "; " in said or "did you mean" in said.lower():
        return said
    command = " ".join(("contextual-lqr", *(error.command_chain or ())))
    return f"{said}; see `{command} --help`"
