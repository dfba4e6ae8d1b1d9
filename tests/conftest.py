"""Hypothesis draws the same examples every time; `make fuzz` draws new ones.

HYPOTHESIS_EXAMPLES says how many of them for each test that has no number of its own.
"""

import os
import signal

from hypothesis import settings

# A shell that starts us in the background has Ctrl-C ignored; tests of it must not.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("deterministic", derandomize=True, deadline=None, max_examples=25)
settings.register_profile(
    "fuzz", deadline=None, max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "10000"))
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))
