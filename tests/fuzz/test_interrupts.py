"""Ctrl-C at a random moment of every command: one word, exit code 130, and nothing half written."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cases import cases, small_fleet

from contextual_lqr.cli import interrupts

COMMANDS = [
    "fit fleet.toml a.parquet a.csv -o b.decoder",
    "design a.decoder --context mass=2 --draws 2000",
    "design a.decoder --contexts machines.csv -o gains.csv",
    "simulate a.decoder --context mass=2 --runs 2000 -o loop.png",
    "check fleet.toml a.csv",
    "advise a.decoder --candidates machines.csv",
    "merge a.decoder a.decoder -o c.decoder --allow-repeats",
    "play --fleet heating --episodes 20",
    "reproduce --paths circle --decays 0.7 --episodes 5 --seeds 4 --jobs 2 --out results",
    "verify --fleet circle --seeds 2 --runs 2 --episodes 100 --jobs 2 --out verified",
    "info",
]
# The command as its script starts it, which tells us when Python itself is up: before that, a
# signal is Python's affair.
START = (
    "import contextual_lqr_command, os, sys\n"
    "os.write(int(sys.argv[1]), b'.'); os.close(int(sys.argv.pop(1)))\n"
    "contextual_lqr_command.main()"
)


class Running:
    """A command in a process of its own, just before its first import."""

    def __init__(self, line: str, folder: Path) -> None:
        told, telling = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(telling), *line.split()],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=[telling],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C goes to all processes of a terminal
        )
        os.close(telling)
        os.read(told, 1)
        os.close(told)
        self.began = time.monotonic()

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        printed, said = self.process.communicate(timeout=60)
        return self.process.returncode, printed, said


def interrupted(number: int, folder: Path, lasting: dict[str, float]) -> str | None:
    """What was wrong, if anything was."""
    rng = random.Random(number)
    line = COMMANDS[number % len(COMMANDS)]
    here = small_copy(folder, number)
    running = Running(line, here)
    time.sleep(rng.uniform(0, lasting[line]))
    running.interrupt()
    code, _, said = running.end()
    lines = [one for one in said.splitlines() if one.strip()]
    stopped = code == 130 and lines and lines[-1].startswith("Stopped.")
    good = (stopped or code == 0) and "Traceback" not in said and "Exception ignored" not in said
    left = [one.name for one in here.iterdir() if one.name.startswith(".contextual-lqr")]
    return None if good and not left else f"{number}: {line}: {code}, left {left}\n{said}"


def small_copy(folder: Path, number: int) -> Path:
    copy = folder.with_name(f"{folder.name}-{number}")
    copy.mkdir()
    for one in folder.iterdir():
        (copy / one.name).symlink_to(one)
    return copy


@pytest.mark.slow
def test_ctrl_c_at_a_random_moment(tmp_path: Path) -> None:
    folder = small_fleet(tmp_path / "fleet")
    lasting: dict[str, float] = {}

    def measure(line: str) -> None:
        running = Running(line, small_copy(folder, -1 - COMMANDS.index(line)))
        assert running.end()[0] in (0, 1)  # verify may find that too few runs show nothing
        lasting[line] = time.monotonic() - running.began

    numbers = range(min(cases(2), 300))  # each takes seconds
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(measure, COMMANDS[: len(numbers)]))
        wrong = list(filter(None, pool.map(lambda n: interrupted(n, folder, lasting), numbers)))
    assert not wrong, "\n".join(wrong)


# -- the moments that are hard to hit --------------------------------------------------------------


def heard(body: str) -> tuple[int, str]:
    """The exit code and standard error of a command that does this."""
    code = (
        "import os, signal, sys, time\n"
        "import contextual_lqr.cli as cli\n"
        f"def app(_):\n{body}\n"
        "cli.app = app\n"
        "cli.main(last=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    return done.returncode, done.stderr


KILL = "os.kill(os.getpid(), signal.SIGINT)"
MOMENTS = {
    "in a destructor": (
        f" class A:\n  def __del__(self): {KILL}; time.sleep(1)\n A(); time.sleep(9)"
    ),
    "turned into another error": f" try: {KILL}; time.sleep(1)\n except BaseException: 1 / 0",
    "turned into one of ours": (
        f" from contextual_lqr import InputError\n try: {KILL}; time.sleep(1)\n"
        " except BaseException: raise InputError('x')"
    ),
    "and Python breaks as it ends": (
        " class A:\n  def __del__(self): os.abort()\n"
        f" sys.modules['a'] = A(); {KILL}; time.sleep(1)"
    ),
    "lost": f" try: {KILL}; time.sleep(1)\n except BaseException: pass",
    "at the very end": f" import atexit; atexit.register(lambda: {KILL})\n {KILL}; time.sleep(1)",
    "twice": (f" try: {KILL}; time.sleep(1)\n except BaseException: {KILL}; time.sleep(9)"),
    "in a thread that does not end": (
        " import threading; threading.Thread(target=time.sleep, args=(99,)).start()\n"
        f" {KILL}; time.sleep(1)"
    ),
    "in a long call": (
        " import threading\n"
        f" threading.Timer(0.2, lambda: {KILL}).start()\n"
        " import ctypes; ctypes.CDLL(None).sleep(99); ctypes.CDLL(None).sleep(99)"
    ),
}


@pytest.mark.parametrize("body", MOMENTS.values(), ids=MOMENTS)
def test_ctrl_c_is_never_lost(body: str) -> None:
    began = time.monotonic()
    assert heard(body) == (130, "Stopped.\n")
    assert time.monotonic() - began < 40


def test_ctrl_c_in_the_background_is_ignored_as_the_shell_says() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    body = f" {KILL}; sys.exit(3)"
    full = (
        f"{code}import os, sys, contextual_lqr.cli as cli\n"
        f"def app(_):\n{body}\ncli.app = app\ncli.main(last=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", full], check=False, env=environment)
    assert done.returncode == 3


def test_other_threads_and_those_who_call_us_keep_their_handlers() -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with interrupts.Interrupts(last=False):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before
    found: list[Any] = []

    def elsewhere() -> None:
        with interrupts.Interrupts(last=False) as one:
            found.append(one.asked)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [False]
