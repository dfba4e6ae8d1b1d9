"""The loops of the library, twice: arrays in, arrays out, no classes.

`reference.py` is NumPy and says what is computed; `native` is the same compiled, and is used
wherever it could be built. `recursions`, `best_decoder`, `transferred_costs`, `roll_out` and
`scatter` are whichever of the two runs here. `factor_blocks` and `factor_rows` serve `factors.py`,
which otherwise has LAPACK.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.errors import InputError
from contextual_lqr.kernels import reference
from contextual_lqr.kernels.reference import (
    NOT_FINITE,
    NOT_POSITIVE_DEFINITE,
    SOLVED,
    Best,
    Outcome,
)

try:
    from contextual_lqr.kernels import native as _built
except ImportError as missing:
    _native: Any = None
    logging.getLogger("contextual_lqr").warning(
        "the compiled kernels are not available (%s): the slower NumPy reference runs instead; "
        "reinstall with a C++17 compiler (GCC 12+ or Clang) to have them",
        missing,
    )

else:
    _native = _built

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
    "native_best_decoder",
    "native_recursions",
    "native_roll_out",
    "native_scatter",
    "native_transferred_costs",
    "recursions",
    "roll_out",
    "scatter",
    "set_threads",
    "threads",
    "transferred_costs",
]

compiled: str | None = None if _native is None else _native.processor
"""The kind of processor the compiled kernels were chosen for, or None where they are absent."""


def cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _allowed_threads() -> int:
    """As many as there are cores for us, or as the customary variable says."""
    try:
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    except (KeyError, ValueError):
        return cores()


_threads = _allowed_threads()


def set_threads(count: int) -> None:
    """Allow at most `count` threads a call; results do not depend on it, to the last bit."""
    global _threads
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(
            f"the number of threads must be a whole number of at least 1, not {count!r}"
        )
    _threads = count


def threads() -> int:
    """The number of threads a call may use (at first OMP_NUM_THREADS, or all cores)."""
    return _threads


def native_recursions(
    A: Array,
    B: Array,
    Q: Array,
    R: Array,
    N: Array | None,
    noise: Array | None,
    *,
    start: Array | None = None,
    policy: Array | None = None,
    dither: Array | None = None,
    covariances: Array | None = None,
    batch: int,
    gains: bool = False,
    values: bool = False,
    gradient: bool = False,
    threads: int = 1,
) -> Outcome:
    """`reference.recursions`, compiled. Arrays must be C-contiguous float64."""
    d, m, H = A.shape[-1], B.shape[-1], Q.shape[1]
    empty = np.empty
    out = Outcome(
        empty((batch, H - 1, m, d)) if gains else None,
        empty((batch, H, d, d)) if values else None,
        empty((batch, H)) if values else None,
        empty(batch) if start is not None else None,
        empty((batch, d, d)) if gradient else None,
        empty((batch, d, m)) if gradient else None,
        empty(batch, np.int8),
        empty(batch, np.int32),
    )
    operands = (A, B, Q, R, N, noise, start, policy, dither, covariances)
    _native.recursions(d, m, H, batch, *operands, *out, threads)
    return out


def factor_blocks(
    columns: Sequence[Array], chosen: Array | None, block: int, limit: float
) -> Array | None:
    """The upper triangles, (blocks, n, n), of every `block` rows, or of every `block` chosen ones.

    The rows are given by their n columns. None where the kernels are absent, or the rows are not
    fit for them: above the limit, of very different size, or not finite.
    """
    if _native is None:
        return None
    n, rows = len(columns), len(columns[0] if chosen is None else chosen)
    triangles = np.empty((-(-rows // block), n, n))
    pieces = [np.ascontiguousarray(column, np.float64) for column in columns]
    return triangles if _native.factor_blocks(pieces, chosen, block, limit, triangles) else None


def factor_rows(rows: Array) -> Array | None:
    """The upper triangle, (n, n), of some rows of n numbers, of whatever sizes.

    None where the kernels are absent, or squares of the numbers leave the range of a double.
    """
    if _native is None:
        return None
    triangle = np.empty((rows.shape[1], rows.shape[1]))
    return triangle if _native.factor_rows(rows, triangle) else None


def native_best_decoder(
    thetas: Array,
    G: Array,
    Q: Array,
    R: Array,
    N: Array | None,
    noise: Array,
    start: Array,
    floor: float,
    *,
    threads: int = 1,
) -> Best:
    """`reference.best_decoder`, compiled. Arrays must be C-contiguous float64."""
    gains = np.empty((len(R), R.shape[-1], Q.shape[-1]))
    operands = (Q, R, N, noise, start)
    which, least, rejected = _native.best_decoder(thetas, G, *operands, floor, gains, threads)
    return Best(which, least, rejected, gains)


def native_transferred_costs(
    thetas: Array,
    G: Array,
    A: Array,
    B: Array,
    Q: Array,
    R: Array,
    N: Array | None,
    noise: Array,
    start: Array,
    *,
    threads: int = 1,
) -> Array:
    """`reference.transferred_costs`, compiled. Arrays must be C-contiguous float64."""
    costs = np.empty((len(thetas), len(G)))
    _native.transferred_costs(thetas, G, A, B, Q, R, N, noise, start, costs, threads)
    return costs


def native_scatter(Y: Array, factor: Array, centre: Array, reach: float, fractions: Array) -> Array:
    """`reference.scatter`, compiled. Arrays must be C-contiguous float64; Y is overwritten."""
    _native.scatter(Y, factor, centre, reach, fractions)
    return Y


def native_roll_out(
    A: Array,
    B: Array,
    gains: Array,
    start: Array,
    shocks: Array,
    *,
    offsets: Array | None = None,
    bound: Array | None = None,
) -> tuple[Array, Array]:
    """`reference.roll_out`, compiled. Arrays must be C-contiguous float64."""
    steps, m, d = gains.shape
    states, inputs = np.empty((steps + 1, d)), np.empty((steps, m))
    states[0] = start
    played = _native.roll_out(A, B, gains, offsets, shocks, bound, states, inputs)
    return states[: played + 1], inputs[:played]


recursions: Any = reference.recursions if _native is None else native_recursions
best_decoder: Any = reference.best_decoder if _native is None else native_best_decoder
roll_out: Any = reference.roll_out if _native is None else native_roll_out
transferred_costs: Any = (
    reference.transferred_costs if _native is None else native_transferred_costs
)
scatter: Any = reference.scatter if _native is None else native_scatter
