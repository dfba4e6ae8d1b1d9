"""The loops of the library, twice: arrays in, arrays out, no classes.

`reference.py` is NumPy and says what is computed; `bindings.py` calls the same compiled (`cpp/`),
and is used wherever that could be built. What is imported from here is whichever runs.
"""

from __future__ import annotations

import logging
import os

from contextual_lqr.errors import InputError
from contextual_lqr.kernels.reference import (
    NOT_FINITE,
    NOT_POSITIVE_DEFINITE,
    SOLVED,
    Best,
    Outcome,
)

compiled: str | None = None
"""The kind of processor the compiled kernels were chosen for, or None where they are absent."""

try:
    from contextual_lqr.kernels.bindings import (
        best_decoder,
        factor_blocks,
        factor_rows,
        recursions,
        roll_out,
        scatter,
        transferred_costs,
    )
    from contextual_lqr.kernels.bindings import processor as compiled
except ImportError as missing:
    from contextual_lqr.kernels.reference import (
        best_decoder,
        factor_blocks,
        factor_rows,
        recursions,
        roll_out,
        scatter,
        transferred_costs,
    )

    logging.getLogger("contextual_lqr").warning(
        "the compiled kernels are not available (%s): the slower NumPy reference runs instead; "
        "reinstall with a C++17 compiler to have them",
        missing,
    )

__all__ = [
    "NOT_FINITE",
    "NOT_POSITIVE_DEFINITE",
    "SOLVED",
    "Best",
    "Outcome",
    "best_decoder",
    "compiled",
    "cores",
    "factor_blocks",
    "factor_rows",
    "recursions",
    "roll_out",
    "scatter",
    "set_threads",
    "threads",
    "transferred_costs",
]


_MOST = 2**31 - 1  # threads: what the kernels can be told


def cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _allowed_threads() -> int:
    """As many as there are cores for us, or as the customary variable says."""
    try:
        return min(max(1, int(os.environ["OMP_NUM_THREADS"])), _MOST)
    except (KeyError, ValueError):
        return cores()


_threads = _allowed_threads()


def set_threads(count: int) -> None:
    """Allow at most `count` threads a call; results do not depend on it, to the last bit."""
    global _threads
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST:
        raise InputError(
            f"the number of threads must be a whole number from 1 to {_MOST}, not {count!r}"
        )
    _threads = count


def threads() -> int:
    """The number of threads a call may use (at first OMP_NUM_THREADS, or all cores)."""
    return _threads
