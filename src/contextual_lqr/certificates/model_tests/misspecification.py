"""Whether a fleet's data contradict the model, and in what: pooled tests over its machines.

The model says x' = M y + w with y = [x; u], noise w that remembers nothing, and M = Θ G(context)
for every machine. All that the tests need of a machine is one triangular factor T, of the columns

    [ Y   Y⁻   sign Y   Y |Y|   |Y|   1   tY   sign (U - U⁻)   U⁵   X' ]
      y   y      y        y      y    1   y          m         m    d

    Y the steps y, Y⁻ the steps before them (itself at the start of an episode), t the number of the
    step in its episode, X' the next states

whatever the rows, because sums of squares of residuals are lengths of its columns, made orthogonal
to one another.

    whiteness   z ~ M y⁻: the residual z of X' on Y, against the residual of the step before,
                x - M y⁻, of which the part not in Y is that of -M y⁻
    omission    z ~ Y⁻: whether the step before says anything that the step itself does not
    linearity   z ~ sign Y: dry friction, a dead zone; z ~ Y |Y|: actuators that saturate, springs
                that harden, drag; z ~ [|Y|, 1]: what is not the same both ways, and offsets;
                z ~ tY: what changes within an episode
    actuators   the same of an input, acting through each machine's own B (actuators.py)
    one law     X' ~ Y for each machine, against one Θ for all
    known rows  a row of Θ that was given, against one that is fitted

The first four are within machines, each with a law of its own: machines that differ do not trigger
them. Of linearity, see linearity.py. What whiteness and omission explain in a machine is held
against that machine's own noise, by Fisher's F; the χ² that are as improbable are added up over
machines, with their degrees of freedom. So machines may differ in noise. From eight machines on,
the twentieth of them that says most, one at least, is left out of the sum, and what is left out by
chance is allowed for: odd machines are for the misfit alarm to name, and heavy tails make few false
findings. Measured on 800 fleets of 2 to 200 machines, at 1 %: whiteness 0.9, omission 1.0 and one
law 1.4 % with Gaussian noise; 2.6, 1.9 and 3.1 % with Student's t of three degrees.

A coefficient for each machine, not one for all, because the latter is biased by one over the number
of rows (Nickell, "Biases in dynamic models with fixed effects", 1981), and many short episodes
would make a finding of that bias. p-values are Bonferroni's over the rows of [A, B], and over the
four tests of linearity. A column in other units is the same column: no test depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array
from numpy.typing import ArrayLike
from scipy.special import fdtrc

from contextual_lqr.belief.machines.lagged_steps import Columns
from contextual_lqr.certificates.model_tests.actuators import actuators
from contextual_lqr.certificates.model_tests.explained import (
    SAME,
    Addition,
    Explained,
    Law,
    apart,
    explained,
    in_units,
    p_values,
)
from contextual_lqr.certificates.model_tests.finding import LEVEL, Finding, at
from contextual_lqr.certificates.model_tests.late_inputs import with_late_rows
from contextual_lqr.certificates.model_tests.linearity import Usual, linearity
from contextual_lqr.certificates.model_tests.shared_coefficients import (
    by_state,
    effect_of,
    mean_is_zero,
)
from contextual_lqr.checks import require


def misspecification(
    factors: Float[Array, "n k k"],
    counts: Int64[Array, " n"],
    matrices: Float[Array, "n p y"],
    columns: Columns,
    *,
    known: Mapping[int, ArrayLike] | None = None,
    level: float = LEVEL,
) -> list[Finding]:
    """What the pooled tests find at this level, the most significant first.

    For each machine its factor T (of the rows that `MachineStore` keeps; any R of a QR), how many
    rows went into it, its context matrix G, and which columns those of T are. `known` are the rows
    of Θ that were given.
    """
    n, k, _ = factors.shape
    y, d = matrices.shape[-1], columns.states
    require(
        len(matrices) == n and len(counts) == n and 0 < d < y == columns.y and k == columns.size,
        f"there are {n} factors of {k} columns, but {len(counts)} counts, and context matrices "
        f"of shape {matrices.shape}: a factor has the columns of lagged_rows",
    )
    if not n or not factors.any():
        return []
    T, G, size = in_units(factors, matrices)
    given = {i: np.asarray(row, float) / size[i - d] for i, row in (known or {}).items()}
    law = Law.fitted(T, G, d)
    found = explained(T, np.asarray(counts), law.M)
    rest = partial(apart, found.Q)
    findings = [
        *_whiteness(found),
        *with_late_rows(_omission(found), T, size, found.z, rest, d, y),
        *linearity(found, Usual.of(factors, counts, columns), columns),
        *_actuators(T, size, found, law, columns, rest),
        *_one_law(found, law),
        *(_known_row(i, given[i], T, G, found, law) for i in sorted(given)),
    ]
    findings = [replace(f, size=f.size * size[f.state - d]) for f in findings if f.p_value <= level]
    return sorted(findings, key=lambda f: f.p_value)


def _share(part: Array, q: Array, found: Explained, r: int) -> tuple[float, float]:
    """The share of state r's residual variance explained, beyond chance: 1 - s₁² / s₀².

    And the root of that part of the variance.
    """
    left, free = found.left[:, r].sum(), float(found.free.sum())
    return effect_of(part.sum(), float(q.sum()), left, free)


def _whiteness(found: Explained) -> Iterator[Finding]:
    left, free = found.left - found.lag, found.free[:, None] - found.lag_rank
    _, p = p_values(found.lag, found.lag_rank, left, free)
    for r, p_value in by_state(p, ~found.exact):
        effect, size = _share(found.lag[:, r], found.lag_rank[:, r], found, r)
        sentence = (
            f"successive errors are correlated: {effect:.0%} of the error in {at(r)} "
            "could be predicted from the previous error"
        )
        yield Finding("correlated errors", p_value, effect, size, r, None, sentence)


def _added(more: Addition, found: Explained) -> Iterator[tuple[int, float, float, float]]:
    """For each state the p-value of more columns, the share they explain, and its size."""
    rank = more.rank[:, None]
    _, p = p_values(more.all, rank, found.left - more.all, found.free[:, None] - rank)
    for r, p_value in by_state(p, ~found.exact):
        yield r, p_value, *_share(more.all[:, r], more.rank, found, r)


def _omission(found: Explained) -> Iterator[Finding]:
    before, d = found.before, found.z.shape[-1]
    for r, p_value, effect, size in _added(before, found):
        # Which column of the previous step explains most alone, and does it more than the error?
        best, most = before.best(r)
        by_error = found.lag[:, r].sum() / max(int(found.lag_rank[:, r].sum()), 1)
        if best >= d and most > by_error:
            effect, _ = _share(before.single[:, best, r], before.single_rank[:, best], found, r)
            sentence = (
                f"{at(best)} acts late: {effect:.0%} of the error in "
                f"{at(r)} is explained by its value a step earlier"
            )
            yield Finding("late input", p_value, effect, size, r, best, sentence)
            continue
        sentence = (
            f"the previous step explains {effect:.0%} of the error in {at(r)}: a state "
            "is missing, or measured with error"
        )
        late = before.nearly_as_good(r, slice(d, None))
        yield Finding("memory", p_value, effect, size, r, best, sentence, late)


def _actuators(
    T: Array,
    size: Array,
    found: Explained,
    law: Law,
    columns: Columns,
    rest: Callable[[Array], Array],
) -> list[Finding]:
    free = np.where((found.left > 0).any(1), found.free, 0)  # of those that say anything
    noise = found.left.sum(0) / max(int(free.sum()), 1) * ~found.exact
    # The same for all machines: by its own noise one whose actuator fails would count for less.
    deviations = np.sqrt(noise) * (free > 0)[:, None]
    return list(actuators(T, size, columns, law.M, found.z, deviations, rest, float(free.sum())))


def _one_law(found: Explained, law: Law) -> Iterator[Finding]:
    # Θ was fitted to these: its unknowns are taken from all machines alike.
    total = found.rank.sum()
    ranks = found.rank[:, None] * max(1 - law.rank / max(total, 1), 0.0)
    F, p = p_values(found.deviation, ranks, found.left, found.free[:, None])
    # Without noise, what differs by more than rounding differs.
    differs = found.deviation.sum(0) > SAME**2 * found.size.sum(0)
    enough = total > law.rank
    p = np.where(found.exact & enough, np.where(differs, 0.0, 1.0), p)
    F = np.where(found.exact, np.where(differs, np.inf, 1.0), F)
    for r, p_value in by_state(p, ~found.exact | differs):
        by = "" if not np.isfinite(F[r]) else f", {F[r]:.2g} times what noise alone would do"
        sentence = f"machines differ in {at(r)} by more than their contexts explain{by}"
        size = float(np.sqrt(found.deviation[:, r].sum() / max(found.rows.sum(), 1)))
        yield Finding("machines differ", p_value, float(F[r]), size, r, None, sentence)


def _known_row(r: int, row: Array, T: Array, G: Array, found: Explained, law: Law) -> Finding:
    y = G.shape[-1]
    Y, after = T[..., :y], T[..., r - law.M.shape[1]]
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
    p_value = max(p_value, mean_is_zero(slopes))
    effect = gain / off if off > 0 else 0.0
    size = float(np.sqrt(gain / max(found.rows.sum(), 1)))
    sentence = (
        f"the known row of {at(r)} is contradicted: a fitted one would explain "
        f"{effect:.0%} of the error that it leaves"
    )
    return Finding("known row", p_value, float(effect), size, r, None, sentence)
