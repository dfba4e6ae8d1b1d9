"""Whether a fleet's data contradict the model, and in what: three pooled tests and one more.

The model says x' = M y + w with y = [x; u], noise w that remembers nothing, and M = Θ G(context)
for every machine. All that the tests need of a machine is one triangular factor T, of the columns

    [ Y   Y⁻   X' ]        Y the steps y, Y⁻ the steps before them (zero at the start of an
      y   y    d           episode), X' the next states: T is (2y + d, 2y + d), whatever the rows

because sums of squares of residuals are lengths of its columns, made orthogonal to one another.

    whiteness   z ~ M y⁻: the residual z of X' on Y, against the residual of the step before,
                x - M y⁻, of which the part not in Y is that of -M y⁻
    omission    z ~ Y⁻: whether the step before says anything that the step itself does not
    one law     X' ~ Y for each machine, against one Θ for all
    known rows  a row of Θ that was given, against one that is fitted

The first two are within machines, each with a law of its own: machines that differ do not trigger
them. What a test explains in a machine is held against that machine's own noise, by Fisher's F; the
χ² that are as improbable are added up over machines, with their degrees of freedom. So machines may
differ in noise. From eight machines on, the twentieth of them that says most, one at least, is left
out of the sum, and what is left out by chance is allowed for: odd machines are for the misfit alarm
to name, and heavy tails make few false findings (measured: 1 % with Gaussian noise; with Student's
t of three degrees 2.5 %, 1.5 % and 4 %, in this order).

A coefficient for each machine, not one for all, because the latter is biased by one over the number
of rows (Nickell, "Biases in dynamic models with fixed effects", 1981), and many short episodes
would make a finding of that bias. p-values are Bonferroni's over the rows of [A, B].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.special import chdtrc, chdtri, fdtrc, gammainc, gammaincinv

from contextual_lqr.checks import require

Kind = Literal["correlated errors", "late input", "memory", "machines differ", "known row"]

LEVEL = 0.01
ROBUST_FROM, TRIMMED = 8, 0.05  # from so many machines on, this part of them is left out

_DEPENDENT = 1e-9  # a column less than this part of itself away from the others is one of them
_EXACT = 1e-10  # residuals below this part of the states are rounding
_SAME = 1e-5  # and fitted laws that differ by no more than this, one law: they amplify rounding
_CHUNK = 2048  # machines at a time


@dataclass(frozen=True)
class Finding:
    """What the data say against the model.

    `effect` is the share of the residual variance that is explained; for "machines differ" the
    mean square of their own laws over that of noise. `state` is the row of [A, B], `regressor` the
    place in [x; u] of the step before.
    """

    kind: Kind
    p_value: float
    effect: float
    state: int
    regressor: int | None
    sentence: str


def lagged_rows(
    states: Float[Array, "*episodes H d"], inputs: Float[Array, "*episodes steps m"]
) -> Float[Array, "rows columns"]:
    """The rows [y, y of the step before, x'] of a machine's episodes of equal length."""
    y = np.concatenate((states[..., :-1, :], inputs), -1)
    before = np.zeros_like(y)
    before[..., 1:, :] = y[..., :-1, :]
    rows = np.concatenate((y, before, states[..., 1:, :]), -1)
    return rows.reshape(-1, rows.shape[-1])


def misspecification(
    factors: Float[Array, "n k k"],
    counts: Int64[Array, " n"],
    matrices: Float[Array, "n p y"],
    *,
    known: Mapping[int, ArrayLike] | None = None,
    states: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    level: float = LEVEL,
) -> list[Finding]:
    """What the pooled tests find at this level, the most significant first.

    For each machine its factor T (of `lagged_rows`; any R of a QR), how many rows went into it, and
    its context matrix G. `known` are the rows of Θ that were given; names are for the sentences.
    """
    n, k, _ = factors.shape
    y = matrices.shape[-1]
    d = k - 2 * y
    require(
        len(matrices) == n and len(counts) == n and 0 < d < y,
        f"there are {n} factors of {k} columns, but {len(counts)} counts, and context matrices "
        f"of shape {matrices.shape}: a factor has the columns [y, y of the step before, x']",
    )
    if not n or not factors.any():
        return []
    # Any units: every column is divided by its size over the fleet.
    size = np.abs(factors).max((0, 1))
    size[:y] = size[y : 2 * y] = np.maximum(size[:y], size[y : 2 * y])
    size = np.where(size > 0, size, 1.0)
    T, G = factors / size, matrices * size[:y]
    given = {i: np.asarray(row, float) / size[2 * y + i] for i, row in (known or {}).items()}
    law = _Law.fitted(T, G, y)
    parts = [
        _explained(T[i : i + _CHUNK], np.asarray(counts)[i : i + _CHUNK], law.M[i : i + _CHUNK])
        for i in range(0, n, _CHUNK)
    ]
    found = _Explained(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    names = _Names(
        tuple(states or [f"state {i + 1}" for i in range(d)]),
        tuple(inputs or [f"input {j + 1}" for j in range(y - d)]),
    )
    findings = [
        _whiteness(found, names),
        _omission(found, names),
        _one_law(found, law, names),
        *(_known_row(i, given[i], T, G, found, law, names) for i in sorted(given)),
    ]
    return sorted((f for f in findings if f.p_value <= level), key=lambda f: f.p_value)


class _Names(NamedTuple):
    states: tuple[str, ...]
    inputs: tuple[str, ...]


class _Law(NamedTuple):
    """One Θ for all machines, by least squares: M = Θ G for each, and the rank of Θ's row."""

    M: Float[Array, "n d y"]
    rank: int

    @classmethod
    def fitted(cls, T: Array, G: Array, y: int) -> _Law:
        # z = G y: the rows of T's first block, with those of X' beside them. All others are zero.
        Z = (T[:, :y, :y] @ G.swapaxes(1, 2)).reshape(-1, G.shape[1])
        X = T[:, :y, 2 * y :].reshape(len(Z), -1)
        R = np.asarray(np.linalg.qr(np.concatenate((Z, X), 1), mode="r"))
        Z, X = R[:, : Z.shape[1]], R[:, Z.shape[1] :]
        length = np.linalg.norm(Z, axis=0)
        length = np.where(length > 0, length, 1.0)
        theta, _, rank, _ = np.linalg.lstsq(Z / length, X, rcond=_DEPENDENT)
        return cls((theta.T / length) @ G, int(rank))


class _Explained(NamedTuple):
    """For each machine and state, sums of squares; and the degrees of freedom they have.

    `left` is that of X' less its own law; `lag`, `before` and `single` are what the machine's own
    coefficient of M y⁻, all of Y⁻, and each column of Y⁻ alone, explain of it. `deviation` is what
    the machine's own law explains of X' less the law of all.
    """

    rows: Array  # (n,)
    size: Array  # (n, d), of X' itself
    rank: Array  # (n,), of Y
    left: Array  # (n, d)
    deviation: Array  # (n, d)
    lag: Array  # (n, d)
    lag_rank: Array  # (n, d)
    before: Array  # (n, d)
    before_rank: Array  # (n,)
    single: Array  # (n, y, d)
    single_rank: Array  # (n, y)

    @property
    def exact(self) -> Bool[Array, " d"]:
        """Which states have no noise: their own laws leave rounding alone."""
        return np.asarray(self.left.sum(0) <= _EXACT**2 * self.size.sum(0))


def _explained(T: Array, rows: Array, M: Array) -> _Explained:
    y = M.shape[-1]
    Y, before, after = T[..., :y], T[..., y : 2 * y], T[..., 2 * y :]
    Q, kept = _orthonormal(Y, np.zeros_like(Y))
    z = _without(Q, after)
    # M y⁻ may cancel where y⁻ is large: what is left of it must stand out from rounding in y⁻.
    lag = before @ M.swapaxes(1, 2)
    scale = np.sqrt(_squares(before)).sum(1)[:, None] * np.abs(M).max(2)
    residual = _without(Q, lag)
    length = _squares(residual)
    real = length > (_DEPENDENT * scale) ** 2
    by_lag = (residual * z).sum(1) ** 2 / np.where(real, length, 1.0) * real

    L, separate = _orthonormal(before, Q)
    alone = _without(Q, before)
    length = _squares(alone)
    apart = length > _DEPENDENT**2 * _squares(before)
    by_one = (alone.swapaxes(1, 2) @ z) ** 2 / np.where(apart, length, 1.0)[..., None]
    return _Explained(
        rows=rows,
        size=_squares(after),
        rank=kept.sum(1),
        left=_squares(z),
        deviation=_squares(Q.swapaxes(1, 2) @ (after - Y @ M.swapaxes(1, 2))),
        lag=by_lag,
        lag_rank=real,
        before=_squares(L.swapaxes(1, 2) @ z),
        before_rank=separate.sum(1),
        single=by_one * apart[..., None],
        single_rank=apart,
    )


def _orthonormal(columns: Array, to: Array) -> tuple[Array, Array]:
    """Orthonormal columns with the same span, orthogonal to those of `to`; zero where dependent."""
    n, rows, many = columns.shape
    Q = np.concatenate((to, np.zeros((n, rows, many))), 2)
    kept = np.zeros((n, many), bool)
    first = to.shape[2]
    for j in range(many):
        column = columns[..., j : j + 1]
        v = _without(Q[..., : first + j], column)
        length, size = np.sqrt(_squares(v)), np.sqrt(_squares(column))
        kept[:, j] = (length > _DEPENDENT * size)[:, 0]
        Q[..., first + j] = np.where(kept[:, j, None], v[..., 0], 0.0) / np.where(
            kept[:, j, None], length, 1.0
        )
    return Q[..., first:], kept


def _without(Q: Array, columns: Array) -> Array:
    """The columns less their parts along Q; twice, for what rounding has left the first time."""
    for _ in range(2):
        columns = columns - Q @ (Q.swapaxes(1, 2) @ columns)
    return columns


def _squares(columns: Array) -> Array:
    return np.asarray(np.einsum("nij,nij->nj", columns, columns))


def _p_values(explained: Array, ranks: Array, left: Array, free: Array) -> tuple[Array, Array]:
    """The pooled ratio of mean squares of each state, and its p-value, machine by machine.

    `explained` and `left` are (n, d), their degrees of freedom (n, d) or (n, 1).
    """
    q, v = (np.broadcast_to(one, left.shape).astype(float) for one in (ranks, free))
    noise = left.sum(0) / np.maximum(np.maximum(v, 0).sum(0), 1)
    mean = explained.sum(0) / np.maximum(q.sum(0), 1e-300)
    ratio = np.where((noise > 0) & (q.sum(0) > 0), mean / np.where(noise > 0, noise, 1), 1.0)
    # F of each machine, against its own noise; and the χ² that is as improbable.
    good = (q > 0) & (v > 0) & (left > 0)
    q1, v1 = np.where(good, q, 1.0), np.where(good, v, 1.0)
    F = np.where(good, explained / q1 / (np.where(good, left, 1.0) / v1), 0.0)
    chi = np.where(good, chdtri(q1, np.clip(fdtrc(q1, v1, F), 1e-300, 1.0)), 0.0)
    return ratio, np.array([_tail(chi[good[:, r], r], q[good[:, r], r]) for r in range(len(ratio))])


def _tail(chi: Array, q: Array) -> float:
    """The p-value of a sum of χ² with q degrees of freedom, without the largest of them.

    Without them the sum is less by chance alone: of χ² that is cut off at its quantile c the mean
    is q P(χ²(q+2) ≤ c) / P(χ²(q) ≤ c).
    """
    n = len(chi)
    if n < ROBUST_FROM:
        return float(chdtrc(q.sum(), chi.sum())) if n else 1.0
    out = int(np.ceil(TRIMMED * n))
    kept = np.argsort(chi / q)[: n - out]
    usual, part = q.mean(), 1 - out / n
    less = gammainc(usual / 2 + 1, gammaincinv(usual / 2, part)) / part
    return float(chdtrc(q[kept].sum(), chi[kept].sum() / less))


def _worst(p: Array, among: Array) -> tuple[int, float]:
    """The most significant state, and its p-value among so many that were tried."""
    if not among.any():
        return 0, 1.0
    r = int(np.where(among, p, np.inf).argmin())
    return r, min(float(p[r] * among.sum()), 1.0)


def _share(explained: Array, q: Array, left: Array, free: Array) -> float:
    """The share of variance explained, less what chance explains: 1 - s₁² / s₀²."""
    after = (left.sum() - explained.sum()) / max(float(np.sum(free - q)), 1.0)
    return float(np.clip(1 - after / max(left.sum() / max(float(np.sum(free)), 1.0), 1e-300), 0, 1))


def _whiteness(found: _Explained, names: _Names) -> Finding:
    free = (found.rows - found.rank)[:, None]
    left = found.left - found.lag
    _, p = _p_values(found.lag, found.lag_rank, left, free - found.lag_rank)
    r, p_value = _worst(p, ~found.exact)
    effect = _share(found.lag[:, r], found.lag_rank[:, r], found.left[:, r], free[:, 0])
    sentence = (
        f"successive errors are correlated: {effect:.0%} of the error in {names.states[r]} could "
        "be foretold from the error before"
    )
    return Finding("correlated errors", p_value, effect, r, None, sentence)


def _omission(found: _Explained, names: _Names) -> Finding:
    free = found.rows - found.rank
    more = found.before_rank[:, None]
    left = found.left - found.before
    _, p = _p_values(found.before, more, left, free[:, None] - more)
    r, p_value = _worst(p, ~found.exact)
    # Which column of the step before explains most by itself, and does it more than the error?
    single = found.single[..., r].sum(0) / np.maximum(found.single_rank.sum(0), 1)
    best = int(single.argmax())
    by_error = found.lag[:, r].sum() / max(int(found.lag_rank[:, r].sum()), 1)
    d = len(names.states)
    if best >= d and single[best] > by_error:
        explained, q = found.single[:, best, r], found.single_rank[:, best]
        effect = _share(explained, q, found.left[:, r], free)
        sentence = (
            f"{names.inputs[best - d]} acts late: {effect:.0%} of the error in {names.states[r]} "
            "goes back to what it was a step before"
        )
        return Finding("late input", p_value, effect, r, best, sentence)
    effect = _share(found.before[:, r], found.before_rank, found.left[:, r], free)
    sentence = (
        f"the step before explains {effect:.0%} of the error in {names.states[r]}: a state is "
        "missing, or measured with error"
    )
    return Finding("memory", p_value, effect, r, best, sentence)


def _one_law(found: _Explained, law: _Law, names: _Names) -> Finding:
    free = (found.rows - found.rank)[:, None]
    # Θ was fitted to these: its unknowns are taken from all machines alike.
    total = found.rank.sum()
    ranks = found.rank[:, None] * max(1 - law.rank / max(total, 1), 0.0)
    F, p = _p_values(found.deviation, ranks, found.left, free)
    # Without noise, what differs by more than rounding differs.
    differs = found.deviation.sum(0) > _SAME**2 * found.size.sum(0)
    enough = total > law.rank
    p = np.where(found.exact & enough, np.where(differs, 0.0, 1.0), p)
    F = np.where(found.exact, np.where(differs, np.inf, 1.0), F)
    r, p_value = _worst(p, ~found.exact | differs)
    by = "" if not np.isfinite(F[r]) else f", {F[r]:.2g} times what noise alone would do"
    sentence = f"machines differ in {names.states[r]} by more than their contexts explain{by}"
    return Finding("machines differ", p_value, float(F[r]), r, None, sentence)


def _known_row(
    r: int, row: Array, T: Array, G: Array, found: _Explained, law: _Law, names: _Names
) -> Finding:
    y = G.shape[-1]
    Y, after = T[..., :y], T[..., 2 * y + r]
    given, fitted = (after - np.einsum("nij,nj->ni", Y, M) for M in (row @ G, law.M[:, r]))
    off, least = (given**2).sum(), (fitted**2).sum()
    explained = max(off - least, 0.0)
    p_value = 1.0 if explained <= _SAME**2 * found.size[:, r].sum() else 0.0
    free = int((found.rows - found.rank).clip(0).sum() + found.rank.sum()) - law.rank
    if p_value == 0 and free > 0 and law.rank and not found.exact[r]:
        p_value = float(fdtrc(law.rank, free, explained / law.rank / (least / free)))
    # Machines that differ make a fitted row stray further than noise does. Hotelling's T² asks
    # whether the slopes Zᵀ(x' - Z θ) of the machines have mean zero, whatever their spread.
    slopes = np.einsum("npj,nij,ni->np", G, Y, given)
    length = np.linalg.norm(slopes, axis=0)
    Q, kept = _orthonormal((slopes / np.where(length > 0, length, 1.0))[None], slopes[None, :, :0])
    n, rank = len(slopes), int(kept.sum())
    if n > rank > 0:
        u = min(float((Q[0].sum(0) ** 2).sum()) / n, 1.0)
        ratio = (n - rank) / rank * u / max(1 - u, 1e-300)
        p_value = max(p_value, float(fdtrc(rank, n - rank, ratio)))
    effect = explained / off if off > 0 else 0.0
    sentence = (
        f"the known row of {names.states[r]} is contradicted: a fitted one would explain "
        f"{effect:.0%} of what it leaves"
    )
    return Finding("known row", p_value, float(effect), r, None, sentence)
