"""The loops of the library, twice: arrays in, arrays out, no classes.

`reference.py` is NumPy and says what is computed; `bindings.py` calls the same compiled (`cpp/`),
and is used wherever that could be built. What is imported from here is whichever runs.
"""

from __future__ import annotations

import logging
import os

from contextual_lqr.errors import InputError
from contextual_lqr.kernels.ilqr_reference import (
    DIVERGED,
    OPERATIONS,
    STALLED,
    Features,
    Guess,
    PathProblem,
    Paths,
    Program,
)
from contextual_lqr.kernels.reference import (
    INACCURATE,
    NOT_FINITE,
    NOT_POSITIVE_DEFINITE,
    SOLVED,
    Best,
    Outcome,
)
from contextual_lqr.kernels.stationary_reference import NOT_CONVERGED, Constant

try:
    from contextual_lqr.kernels.bindings import (
        best_decoder,
        column_ranges,
        compiled,
        digests,
        enter_keys,
        factor_blocks,
        factor_rows,
        find_keys,
        ilqr,
        lyapunov,
        recursions,
        riccati,
        roll_out,
        row_hashes,
        sample_ellipsoid,
        solve_lower,
        update_triangles,
    )
except ImportError as missing:
    from contextual_lqr.kernels.ilqr_reference import ilqr
    from contextual_lqr.kernels.reference import (
        best_decoder,
        compiled,
        factor_blocks,
        factor_rows,
        recursions,
        roll_out,
        sample_ellipsoid,
        update_triangles,
    )
    from contextual_lqr.kernels.stationary_reference import lyapunov, riccati
    from contextual_lqr.kernels.tables_reference import (
        column_ranges,
        digests,
        enter_keys,
        find_keys,
        row_hashes,
        solve_lower,
    )

    logging.getLogger("contextual_lqr").warning(
        "the compiled kernels are not available (%s): the slower NumPy reference runs instead; "
        "reinstall with a C++17 compiler to have them",
        missing,
    )

__all__ = [
    "DIVERGED",
    "INACCURATE",
    "NOT_CONVERGED",
    "NOT_FINITE",
    "NOT_POSITIVE_DEFINITE",
    "OPERATIONS",
    "SOLVED",
    "STALLED",
    "Best",
    "Constant",
    "Features",
    "Guess",
    "Outcome",
    "PathProblem",
    "Paths",
    "Program",
    "best_decoder",
    "column_ranges",
    "compiled",
    "cores",
    "digests",
    "enter_keys",
    "factor_blocks",
    "factor_rows",
    "find_keys",
    "ilqr",
    "lyapunov",
    "recursions",
    "riccati",
    "roll_out",
    "row_hashes",
    "sample_ellipsoid",
    "set_threads",
    "solve_lower",
    "threads",
    "update_triangles",
]


_MOST = 2**31 - 1  # threads: what the kernels can be told


def cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_wanted = os.environ.get("OMP_NUM_THREADS", "").strip()
_threads = min(max(1, int(_wanted)), _MOST) if _wanted.isdecimal() else cores()


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
