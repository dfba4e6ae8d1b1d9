"""The functions of `reference.py`, compiled: here is made what `native` fills.

Operands may lie in memory as they like, and hold any real numbers: `native` copies what is not in
rows of doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.kernels import ilqr_reference, native
from contextual_lqr.kernels.ilqr_reference import Features, Guess, Pass, PathProblem, Paths
from contextual_lqr.kernels.reference import SOLVED, Best, Outcome
from contextual_lqr.kernels.stationary_reference import Constant

compiled: str | None = native.processor
"""The kind of processor the compiled kernels were chosen for, or None where they are absent."""


def recursions(
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
    refine: bool = True,
    threads: int = 1,
) -> Outcome:
    """One backward pass, and a forward pass if a gradient is asked for."""
    d, m, H = A.shape[-1], B.shape[-1], Q.shape[1]
    empty = np.empty
    out = Outcome(
        empty((batch, H - 1, m, d)) if gains else None,
        empty((batch, H, d, d)) if values else None,
        empty((batch, H)) if values else None,
        empty(batch) if start is not None else None,
        empty((batch, *A.shape[1:])) if gradient else None,
        empty((batch, *B.shape[1:])) if gradient else None,
        empty(batch, np.int8),
        empty(batch, np.int32),
    )
    operands = (A, B, Q, R, N, noise, start, policy, dither, covariances)
    native.recursions(d, m, H, batch, *operands, *out, refine, threads)
    return out


def riccati(
    A: Array, B: Array, Q: Array, R: Array, N: Array | None, *, batch: int, threads: int = 1
) -> Constant:
    """The gain and value of a loop that runs on and on."""
    d, m = B.shape[-2:]
    out = Constant(np.empty((batch, m, d)), np.empty((batch, d, d)), np.empty(batch, np.int8))
    native.stationary(d, m, batch, A, B, Q, R, N, *out, threads)
    return out


def lyapunov(F: Array, Q: Array, *, batch: int, threads: int = 1) -> tuple[Array, Array]:
    """P = Q + FᵀPF, and which members have one because F is stable."""
    d = F.shape[-1]
    P, status = np.empty((batch, d, d)), np.empty(batch, np.int8)
    native.stationary(d, 0, batch, F, None, Q, None, None, None, P, status, threads)
    return P, status == SOLVED


def best_decoder(
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
    """Which Θ makes [A, B] = Θ G the cheapest machine, among costs of at least `floor`."""
    gains = np.empty((len(R), R.shape[-1], Q.shape[-1]))
    stages = (Q, R, N, noise, start)
    which, least, rejected = native.best_decoder(thetas, G, *stages, floor, gains, threads)
    return Best(which, least, rejected, gains)


def roll_out(
    A: Array,
    B: Array,
    gains: Array,
    start: Array,
    shocks: Array,
    *,
    offsets: Array | None = None,
    bound: Array | None = None,
) -> tuple[Array, Array]:
    """The states and inputs of one episode, u = K x + offset."""
    steps, m, d = gains.shape
    states, inputs = np.empty((steps + 1, d)), np.empty((steps, m))
    states[0] = start
    played = native.roll_out(A, B, gains, offsets, shocks, bound, states, inputs)
    return states[: played + 1], inputs[:played]


def sample_ellipsoid(
    Y: Array, factor: Array, centre: Array, reach: float, fractions: Array
) -> Array:
    """centre + reach · fraction · Y R⁻ᵀ / ‖Y‖ for each direction Y; R, `factor`, is triangular."""
    members = np.empty(Y.shape)
    native.sample_ellipsoid(Y, factor, centre, reach, fractions, members)
    return members


def factor_blocks(
    columns: Sequence[Array], chosen: Array | None, block: int, limit: float
) -> Array | None:
    """The upper triangles, (blocks, n, n), of every `block` rows, or of every `block` chosen ones.

    The rows are given by their n columns. None where they are not fit for these kernels: above the
    limit, of very different size, or not finite.
    """
    n, rows = len(columns), len(columns[0] if chosen is None else chosen)
    triangles = np.empty((-(-rows // block), n, n))
    return triangles if native.factor_blocks(columns, chosen, block, limit, triangles) else None


def factor_rows(rows: Array) -> Array | None:
    """The upper triangle, (n, n), of some rows of n numbers, of whatever sizes.

    None where squares of the numbers leave the range of a double.
    """
    triangle = np.empty((rows.shape[1], rows.shape[1]))
    return triangle if native.factor_rows(rows, triangle) else None


def update_triangles(
    columns: Sequence[Array],
    rows: Array,
    ends: Array,
    limit: float,
    packed: Array,
    at: Array,
    steps: Array | None = None,
    moves: int = 0,
    acting: int = 0,
) -> Array:
    """Take rows of a table into upper triangles of its n columns, packed row by row, in place.

    Into number s, which stands `at` a place among those packed, go rows that stand in `rows` from
    the end of the one before to ends[s], but those with a number above the limit, or not finite.
    How many each has taken; -1, with the triangle as it was, where squares of the numbers leave the
    range of a double.

    With `steps`, the number of each row in its episode, the columns are y, so many `moves`, and x',
    and the triangles are those of `belief/machines/lagged_steps.py`, inputs from `acting` on.
    """
    used = np.empty(len(ends), np.int64)
    native.update_triangles(columns, rows, ends, limit, packed, at, used, steps, moves, acting)
    return used


def row_hashes(columns: Sequence[Array]) -> Array:
    """A hash of each row of a table, its columns of floats or of hashes, in their order."""
    found = np.empty(len(columns[0]), np.uint64)
    kinds = [np.uint64 if one.dtype == np.uint64 else np.float64 for one in columns]
    each = [np.asarray(one, kind) for one, kind in zip(columns, kinds, strict=True)]
    native.row_hashes([one.view(np.float64) for one in each], found)
    return found


def digests(hashes: Array, starts: Array) -> Array:
    """A digest of every beginning of every stretch of rows, from the sum of its rows' hashes."""
    found = np.empty(len(hashes), np.uint64)
    native.digests(hashes, starts, found)
    return found


def column_ranges(columns: Sequence[Array], rows: Array) -> tuple[Array, Array]:
    """The least and the most of each column over some rows; NaN where one is not finite."""
    low, high = np.empty(len(columns)), np.empty(len(columns))
    native.column_ranges(columns, rows, low, high)
    return low, high


def find_keys(known: Array, table: Array, wanted: Array) -> Array:
    """Where keys stand among the known ones, by a hash table of these; -1 if they do not."""
    found = np.empty(len(wanted), np.int64)
    native.find_keys(known, table, wanted, found)
    return found


def enter_keys(known: Array, table: Array, places: Array) -> None:
    """Enter known keys, those at some places, in a hash table; of equal ones the first is found.

    A slot of the table has the place of a key, or -1; there are more than keys entered, 2ᵏ.
    """
    native.enter_keys(known, table, places)


def solve_lower(L: Array, right: Array) -> Array:
    """L⁻¹ right for right sides (n, q, k) and their lower triangles (n, q, q), or one for all."""
    found = np.array(right, float, order="C")
    native.solve_lower(L, found)
    return found


def ilqr(
    problem: PathProblem,
    features: Features,
    start: Array,
    guess: Guess,
    *,
    iterations: int,
    tolerance: float,
    threads: int = 1,
) -> Paths:
    """The path of least cost near the guess, for every member.

    All of it compiled for features that are a program; for others, whose values are Python's, the
    backward passes are.
    """
    if features.program is None:
        return ilqr_reference.ilqr(
            problem,
            features,
            start,
            guess,
            iterations=iterations,
            tolerance=tolerance,
            backward=partial(ilqr_backward, threads=threads),
        )
    n, (T, m), d = len(start), guess.inputs.shape[1:], start.shape[1]
    out = Paths(
        np.empty((n, T + 1, d)),
        np.empty((n, T, m)),
        np.empty((n, T, m, d)),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.int8),
        np.empty(n, np.int32),
    )
    sizes, given = _path_problem(problem, n)
    code, constants, outputs, contexts = features.program
    native.ilqr(
        sizes,
        given,
        problem.period,
        np.ascontiguousarray(code, np.int32),
        constants,
        np.ascontiguousarray(outputs, np.int32),
        contexts,
        start,
        *guess,
        iterations,
        tolerance,
        *out,
        threads,
    )
    return out


def ilqr_backward(
    problem: PathProblem,
    states: Array,
    inputs: Array,
    phi: Array,
    J: Array,
    damping: Array,
    *,
    threads: int = 1,
) -> Pass:
    """One backward pass along the paths."""
    n, T, m = inputs.shape
    d = states.shape[-1]
    out = Pass(
        np.zeros((n, T, m)),
        np.zeros((n, T, m, d)),
        np.zeros((n, 2)),
        np.zeros((n, T, d)),
        np.zeros(n),
        np.empty(n, np.int8),
    )
    sizes, given = _path_problem(problem, n)
    native.ilqr_backward(
        sizes, given, problem.period, states, inputs, phi, J, damping, *out, threads
    )
    return out


def _path_problem(problem: PathProblem, n: int) -> tuple[tuple[int, ...], tuple[Array | None, ...]]:
    """Sizes and arrays; the arrays in rows of doubles, since `native` reads them where they lie."""
    d, p = problem.theta.shape[-2:]
    sizes = (n, d, problem.R.shape[-1], p, problem.Q.shape[1])
    return sizes, tuple(
        None if one is None else np.ascontiguousarray(one, np.float64) for one in problem[:-1]
    )
