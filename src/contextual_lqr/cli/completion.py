"""`contextual-lqr completion`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from contextual_lqr.cli import app
from contextual_lqr.cli.options import Flag
from contextual_lqr.cli.terminal import Console, say
from contextual_lqr.errors import InputError

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell | None = None, /, *, install: Annotated[bool, Flag] = False) -> None:
    """Let Tab complete commands and options.

    Parameters
    ----------
    shell
        The shell; by default the one that runs this.
    install
        Write the script where the shell looks for it, and not to standard output.
    """
    chosen = shell or _own_shell()
    if not install:
        sys.stdout.write(app.generate_completion(shell=chosen))
        return
    path = app.install_completion(shell=chosen)
    say(Console(), f"{path} is written, and takes effect in the next {chosen} you start")


def _own_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    for shell in ("bash", "zsh", "fish"):
        if name == shell:
            return shell
    raise InputError("which shell is this? Say bash, zsh or fish")
