"""Whether a fleet's data contradict the model, and in what: pooled tests over its machines.

The model says x' = M y + w with y = [x; u], noise w that remembers nothing, and M = Θ G(context)
for every machine. All that the tests need of a machine is one triangular factor T, of the columns

    [ Y   Y⁻   sign Y   Y |Y|   |Y|   1   X' ]    Y the steps y, Y⁻ the steps before them (itself at
      y   y      y        y      y    1   d       the start of an episode), X' the next states

whatever the rows, because sums of squares of residuals are lengths of its columns, made orthogonal
to one another.

    whiteness   z ~ M y⁻: the residual z of X' on Y, against the residual of the step before,
                x - M y⁻, of which the part not in Y is that of -M y⁻
    omission    z ~ Y⁻: whether the step before says anything that the step itself does not
    linearity   z ~ sign Y: dry friction, a dead zone; z ~ Y |Y|: actuators that saturate, springs
                that harden, drag; z ~ [|Y|, 1]: what is not the same both ways, and offsets
    one law     X' ~ Y for each machine, against one Θ for all
    known rows  a row of Θ that was given, against one that is fitted

The first three are within machines, each with a law of its own: machines that differ do not trigger
them. What a test explains in a machine is held against that machine's own noise, by Fisher's F; the
χ² that are as improbable are added up over machines, with their degrees of freedom. So machines may
differ in noise. From eight machines on, the twentieth of them that says most, one at least, is left
out of the sum, and what is left out by chance is allowed for: odd machines are for the misfit alarm
to name, and heavy tails make few false findings. Measured on 800 fleets of 2 to 200 machines, at
1 %: 0.9, 1.0, 1.3 and 1.4 % with Gaussian noise, in the order above; 2.6, 1.9, 1.8 and 3.1 % with
Student's t of three degrees.

A coefficient for each machine, not one for all, because the latter is biased by one over the number
of rows (Nickell, "Biases in dynamic models with fixed effects", 1981), and many short episodes
would make a finding of that bias. p-values are Bonferroni's over the rows of [A, B], and over the
three tests of linearity. A column in other units is the same column: no test depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.special import fdtrc

from contextual_lqr.belief.step_table import lagged_size
from contextual_lqr.certificates.explained import (
    CURVES,
    EXACT,
    SAME,
    Addition,
    Explained,
    Law,
    blocks,
    explained,
    orthonormal,
    p_values,
)
from contextual_lqr.checks import require

Kind = Literal[
    "correlated errors", "late input", "memory", "nonlinear", "machines differ", "known row"
]

LEVEL, DOUBT = 0.01, 0.1  # at which something is found, and at which it is not excluded
CURVED = 0.001  # at which something is not linear, which costs most: few false findings
_FREE = 10  # machines, beyond twice the rank, from which on their spread can be told


@dataclass(frozen=True)
class Finding:
    """What the data say against the model.

    `effect` is the share of the residual variance that is explained; for "machines differ" the mean
    square of their own laws over that of noise. `size` is the root mean square, in the state's
    units, of what the model misses in a step. `state` is the row of [A, B]. `regressor` is the
    place in [x; u] of what explains most by itself: the step before, or for "nonlinear" its sign,
    square or size; None is an offset. What is not linear grows with this `power` of the regressor,
    whose root mean square in the logs is `usual`. `maybe_late` is the place of an input that, a
    step before, explains nearly as much as a state does: under feedback the two are alike, and that
    it acts late cannot be excluded. `strengths` are those of the inputs upon the state in the logs,
    root mean squares over the machines.
    """

    kind: Kind
    p_value: float
    effect: float
    size: float
    state: int
    regressor: int | None
    sentence: str
    maybe_late: int | None = None
    power: int = 0
    usual: float = 0.0
    strengths: tuple[float, ...] = ()

    @property
    def found(self) -> bool:
        """Whether it is more than a doubt."""
        return self.p_value <= (CURVED if self.kind == "nonlinear" else LEVEL)


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

    For each machine its factor T (of the rows that `MachineStore` keeps; any R of a QR), how many
    rows went into it, and its context matrix G. `known` are the rows of Θ that were
    given; names are for the sentences.
    """
    n, k, _ = factors.shape
    y = matrices.shape[-1]
    d = k - lagged_size(y, 0)
    require(
        len(matrices) == n and len(counts) == n and 0 < d < y,
        f"there are {n} factors of {k} columns, but {len(counts)} counts, and context matrices "
        f"of shape {matrices.shape}: a factor has the columns of lagged_rows",
    )
    if not n or not factors.any():
        return []
    # Any units: every column is divided by its size over the fleet.
    size = np.abs(factors).max((0, 1))
    size[:y] = size[y : 2 * y] = np.maximum(size[:y], size[y : 2 * y])
    size = np.where(size > 0, size, 1.0)
    T, G = factors / size, matrices * size[:y]
    given = {i: np.asarray(row, float) / size[i - d] for i, row in (known or {}).items()}
    law = Law.fitted(T, G, d)
    found = explained(T, np.asarray(counts), law.M)
    names = _Names(
        tuple(states or [f"state {i + 1}" for i in range(d)]),
        tuple(inputs or [f"input {j + 1}" for j in range(y - d)]),
    )
    findings = [
        *_whiteness(found, names),
        *_omission(found, names),
        *_linearity(found, names, _usual(factors, counts, y)),
        *_one_law(found, law, names),
        *(_known_row(i, given[i], T, G, found, law, names) for i in sorted(given)),
    ]
    findings = [replace(f, size=f.size * size[f.state - d]) for f in findings if f.p_value <= level]
    return sorted(findings, key=lambda f: f.p_value)


class _Names(NamedTuple):
    states: tuple[str, ...]
    inputs: tuple[str, ...]


def _rows(p: Array, among: Array) -> Iterator[tuple[int, float]]:
    """Each state that is tested, and its p-value as one of so many."""
    for r in np.flatnonzero(among).tolist():
        yield r, min(float(p[r] * among.sum()), 1.0)


def _share(part: Array, q: Array, found: Explained, r: int) -> tuple[float, float]:
    """The share of state r's residual variance explained, beyond chance: 1 - s₁² / s₀².

    And the root of that part of the variance.
    """
    left, free = found.left[:, r].sum(), float(found.free.sum())
    return _effect(part.sum(), float(q.sum()), left, free)


def _effect(part: float, q: float, left: float, free: float) -> tuple[float, float]:
    """The share of the variance left/free that q columns explain, beyond chance, and its root."""
    after = (left - part) / max(free - q, 1.0)
    before = left / max(free, 1.0)
    effect = float(np.clip(1 - after / max(before, 1e-300), 0, 1))
    return effect, float(np.sqrt(effect * before))


def _whiteness(found: Explained, names: _Names) -> Iterator[Finding]:
    left, free = found.left - found.lag, found.free[:, None] - found.lag_rank
    _, p = p_values(found.lag, found.lag_rank, left, free)
    for r, p_value in _rows(p, ~found.exact):
        effect, size = _share(found.lag[:, r], found.lag_rank[:, r], found, r)
        sentence = (
            f"successive errors are correlated: {effect:.0%} of the error in {names.states[r]} "
            "could be foretold from the error before"
        )
        yield Finding("correlated errors", p_value, effect, size, r, None, sentence)


def _added(more: Addition, found: Explained) -> Iterator[tuple[int, float, float, float]]:
    """For each state the p-value of more columns, the share they explain, and its size."""
    rank = more.rank[:, None]
    _, p = p_values(more.all, rank, found.left - more.all, found.free[:, None] - rank)
    for r, p_value in _rows(p, ~found.exact):
        yield r, p_value, *_share(more.all[:, r], more.rank, found, r)


def _omission(found: Explained, names: _Names) -> Iterator[Finding]:
    before, d = found.before, len(names.states)
    for r, p_value, effect, size in _added(before, found):
        # Which column of the step before explains most by itself, and does it more than the error?
        best, most = before.best(r)
        by_error = found.lag[:, r].sum() / max(int(found.lag_rank[:, r].sum()), 1)
        if best >= d and most > by_error:
            effect, _ = _share(before.single[:, best, r], before.single_rank[:, best], found, r)
            sentence = (
                f"{names.inputs[best - d]} acts late: {effect:.0%} of the error in "
                f"{names.states[r]} goes back to what it was a step before"
            )
            yield Finding("late input", p_value, effect, size, r, best, sentence)
            continue
        sentence = (
            f"the step before explains {effect:.0%} of the error in {names.states[r]}: a state is "
            "missing, or measured with error"
        )
        late = before.nearly_as_good(r, slice(d, None))
        yield Finding("memory", p_value, effect, size, r, best, sentence, late)


def _linearity(found: Explained, names: _Names, usual: Array) -> Iterator[Finding]:
    for curve in CURVES:
        more: Addition = getattr(found, curve)
        for r, p_value, effect, size in _added(more, found):
            best, _ = more.best(r)
            yield _curved(curve, p_value, effect, size, r, best, names, usual)


def _curved(
    curve: str,
    p_value: float,
    effect: float,
    size: float,
    r: int,
    best: int,
    names: _Names,
    usual: Array,
) -> Finding:
    """What is found by one of three tests."""
    all_of = (*names.states, *names.inputs)
    by = f"an offset explains {effect:.0%}"
    if best < len(all_of):
        by = f"{curve}, above all that of {all_of[best]}, explain {effect:.0%}"
    sentence = f"not linear, {_AS[curve]}: {by} of the error in {names.states[r]}"
    p_value = min(len(CURVES) * p_value, 1.0)
    if best == len(all_of):
        return Finding("nonlinear", p_value, effect, size, r, None, sentence)
    power = {"squares": 2, "sizes": 1}.get(curve, 0)
    return Finding(
        "nonlinear", p_value, effect, size, r, best, sentence, None, power, float(usual[best])
    )


_AS = {
    "signs": "as with friction",
    "squares": "as where actuators saturate or springs harden",
    "sizes": "as where one way is not like the other",
}


def _usual(factors: Array, counts: Array, y: int) -> Float[Array, " y"]:
    """The root mean square of each column of Y."""
    columns = factors[..., :y]
    size = np.abs(columns).max((0, 1))
    part = columns / np.where(size > 0, size, 1.0)
    return np.asarray(size * np.sqrt((part**2).sum((0, 1)) / max(int(counts.sum()), 1)))


def _one_law(found: Explained, law: Law, names: _Names) -> Iterator[Finding]:
    # Θ was fitted to these: its unknowns are taken from all machines alike.
    total = found.rank.sum()
    ranks = found.rank[:, None] * max(1 - law.rank / max(total, 1), 0.0)
    F, p = p_values(found.deviation, ranks, found.left, found.free[:, None])
    # Without noise, what differs by more than rounding differs.
    differs = found.deviation.sum(0) > SAME**2 * found.size.sum(0)
    enough = total > law.rank
    p = np.where(found.exact & enough, np.where(differs, 0.0, 1.0), p)
    F = np.where(found.exact, np.where(differs, np.inf, 1.0), F)
    for r, p_value in _rows(p, ~found.exact | differs):
        by = "" if not np.isfinite(F[r]) else f", {F[r]:.2g} times what noise alone would do"
        sentence = f"machines differ in {names.states[r]} by more than their contexts explain{by}"
        size = float(np.sqrt(found.deviation[:, r].sum() / max(found.rows.sum(), 1)))
        yield Finding("machines differ", p_value, float(F[r]), size, r, None, sentence)


def _known_row(
    r: int, row: Array, T: Array, G: Array, found: Explained, law: Law, names: _Names
) -> Finding:
    y = G.shape[-1]
    Y, after = T[..., :y], T[..., r - len(names.states)]
    given, fitted = (after - np.einsum("nij,nj->ni", Y, M) for M in (row @ G, law.M[:, r]))
    off, least = (given**2).sum(), (fitted**2).sum()
    gain = max(off - least, 0.0)
    p_value = 1.0 if gain <= SAME**2 * found.size[:, r].sum() else 0.0
    free = int((found.rows - found.rank).clip(0).sum() + found.rank.sum()) - law.rank
    if p_value == 0 and free > 0 and law.rank and not found.exact[r]:
        p_value = float(fdtrc(law.rank, free, gain / law.rank / (least / free)))
    # Machines that differ make a fitted row stray further than noise does. Hotelling's T² asks
    # whether the slopes Zᵀ(x' - Z θ) of the machines have mean zero, whatever their spread. Few
    # machines cannot tell: there it is for the known row to be that of every machine.
    slopes = np.einsum("npj,nij,ni->np", G, Y, given)
    length = np.linalg.norm(slopes, axis=0)
    Q, kept = orthonormal((slopes / np.where(length > 0, length, 1.0))[None], slopes[None, :, :0])
    n, rank = len(slopes), int(kept.sum())
    if n >= 2 * rank + _FREE and rank > 0:
        u = min(float((Q[0].sum(0) ** 2).sum()) / n, 1.0)
        ratio = (n - rank) / rank * u / max(1 - u, 1e-300)
        p_value = max(p_value, float(fdtrc(rank, n - rank, ratio)))
    effect = gain / off if off > 0 else 0.0
    size = float(np.sqrt(gain / max(found.rows.sum(), 1)))
    sentence = (
        f"the known row of {names.states[r]} is contradicted: a fitted one would explain "
        f"{effect:.0%} of what it leaves"
    )
    return Finding("known row", p_value, float(effect), size, r, None, sentence)


def of_one_law(
    factors: Float[Array, "n k k"],
    counts: Int64[Array, " n"],
    matrices: Float[Array, "n p y"],
    *,
    level: float = LEVEL,
) -> list[Finding]:
    """What the tests find if all machines obey one law x' = Θ z + w, z = G y.

    Whether the step before, or what is not linear, explains anything that z does not: Fisher's F on
    the rows of all machines, [Z, Y⁻, X'], [Z, sign Y, X'] and so on, for which their factors stand.
    """
    p, y = matrices.shape[1:]
    d = factors.shape[1] - lagged_size(y, 0)
    _, before, *curves, after = blocks(y, d)
    Z, X = factors[:, :, :y] @ matrices.swapaxes(1, 2), factors[:, :, after]
    total, found = int(counts.sum()), []
    names = _Names(
        tuple(f"state {i + 1}" for i in range(d)), tuple(f"input {j + 1}" for j in range(y - d))
    )
    usual = _usual(factors, counts, y)
    for test, some in (("memory", before), *zip(CURVES, curves, strict=True)):
        q = p + some.stop - some.start
        stack = np.concatenate((Z, factors[:, :, some], X), -1).reshape(-1, q + d)
        size = np.abs(stack).max(0)
        R = np.asarray(np.linalg.qr(stack / np.where(size > 0, size, 1.0), mode="r"))
        by_law, rank = _span(R[:, :p], np.zeros((len(R), 0)))
        by_more, more = _span(R[:, p:q], by_law)
        left = R[:, q:] - by_law @ (by_law.T @ R[:, q:])
        explained = np.square(by_more.T @ left).sum(0)
        rest = np.square(left).sum(0) - explained
        free = total - rank - more
        noisy = np.square(left).sum(0) > EXACT**2 * np.square(R[:, q:]).sum(0)
        if more == 0 or free <= 0 or not noisy.any():
            continue
        F = explained / more / (np.maximum(rest, 1e-300) / free)
        p_values = np.where(noisy, fdtrc(more, free, F), 1.0)
        alone = R[:, p:q] - by_law @ (by_law.T @ R[:, p:q])
        # A column that is one of the step itself, as in a history, adds nothing but rounding.
        lengths = np.square(alone).sum(0)
        lengths[lengths <= 1e-14 * np.square(R[:, p:q]).sum(0)] = np.inf
        for r, p_value in _rows(p_values, noisy):
            if p_value > level:
                continue
            effect = float(explained[r] / (explained[r] + rest[r]))
            sums = (float(explained[r]), float(more), float(explained[r] + rest[r]))
            missed = _effect(*sums, float(total - rank))[1] * float(size[q + r])
            shares = np.square(alone.T @ left[:, r]) / lengths
            best = int(shares.argmax())
            state = names.states[r]
            if test != "memory":
                curved = _curved(test, p_value, effect, missed, r, best, names, usual)
                found += [curved] if curved.p_value <= level else []
                continue
            which: Kind = "memory"
            late = None
            if best >= d and shares[best] > 0.5 * explained[r]:
                which = "late input"
                sentence = (
                    f"{names.inputs[best - d]} acts late: {effect:.0%} of the error in {state} "
                    "goes back to what it was a step before"
                )
            else:
                sentence = (
                    f"the step before explains {effect:.0%} of the error in {state}: errors are "
                    "correlated, or a state is missing or measured with error"
                )
                also = d + int(shares[d:].argmax())
                late = also if shares[also] > 0.5 * explained[r] else None
            found.append(Finding(which, p_value, effect, missed, r, best, sentence, late))
    return sorted(found, key=lambda one: one.p_value)


def _span(columns: Array, to: Array) -> tuple[Array, int]:
    """An orthonormal basis of what the columns add to the span of others, and its rank."""
    rest = columns - to @ (to.T @ columns)
    rest = rest - to @ (to.T @ rest)
    sizes = np.linalg.norm(columns, axis=0)
    U, values, _ = np.linalg.svd(rest / np.where(sizes > 0, sizes, 1.0), full_matrices=False)
    rank = int((values > 1e-7).sum())
    return U[:, :rank], rank
