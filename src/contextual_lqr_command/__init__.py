"""The first lines of the command `contextual-lqr`, before anything that takes long is imported.

From here on Ctrl-C is one word and exit code 130, also in the second that imports may take. It is
a package of its own because the first module of `contextual_lqr` would import all the others.
"""

import os
import signal
from contextlib import suppress


def _stop(*_: object) -> None:
    with suppress(OSError):  # standard error may be closed
        os.write(2, b"Stopped.\n")
    os._exit(130)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _stop)


def main() -> None:
    """Run the command as typed."""
    from contextual_lqr.__main__ import main as run

    run()
