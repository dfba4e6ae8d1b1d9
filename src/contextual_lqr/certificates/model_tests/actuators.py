"""Whether actuators do what they are asked: one coefficient for an input of all machines.

A fault of an actuator acts as its input does, through the machine's own column of B, and later
through those of A for the states that hold what the input was (`lagged_steps.py`): together M_j,

    x' = M y + γ M_j f(u_j) + w        z_r ~ M_rj f(u_j), all states r and machines at once

with f one of

    signs    sign u         dry friction, a dead zone
    squares  u |u|          it saturates
    sizes    |u|            it is stronger one way
    offset   1
    steps    t u            it fades within an episode
    turns    sign (u - u⁻)  it has play
    fifths   u⁵             it ends: next to nothing but at the largest inputs

A single unknown for each input and f, whatever the masses of the machines: this finds what tests of
each state cannot, and bounds what it does not find. |γ| plus a multiple of its deviation (from
eight machines on, the larger of that by all rows and that by the spread of machines) is an upper
limit of |γ| at 95 %, which counts even where nothing is found (faulty_runs.py). Inputs that act
late have tests of their own: a step before may be part of the law, as in a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import fdtrc, stdtrit

from contextual_lqr.belief.machines.lagged_steps import Columns
from contextual_lqr.certificates.model_tests.explained import ROBUST_FROM
from contextual_lqr.certificates.model_tests.finding import CURVED, Finding, at

WAYS = ("signs", "squares", "sizes", "offset", "steps", "turns", "fifths")
_LIMIT = 0.975  # of Student's t: |γ| is below with 95 %


def actuators(
    T: Float[Array, "n k k"],
    size: Float[Array, " k"],
    columns: Columns,
    M: Float[Array, "n d y"],
    z: Float[Array, "n k d"],
    deviations: Float[Array, "n d"],
    without: Callable[[Array], Array],
    free: float,
) -> Iterator[Finding]:
    """What each f explains for each input.

    T are factors of these columns, divided by `size`; M in the same units; z what the law leaves,
    of these deviations (0 where there is no noise, or nothing to learn); `without` leaves the same
    of columns (n, k, d). `free` are the degrees of freedom of a state.
    """
    d, y = M.shape[1:]
    m = y - d
    weights = np.where(deviations > 0, 1 / np.where(deviations > 0, deviations, 1.0), 0.0)
    w = z * weights[:, None]
    total = float(np.square(w).sum())
    told = int((np.square(w).sum((1, 2)) > 0).sum())
    rows = free * int((weights > 0).any(0).sum())
    if total == 0 or rows <= 1 or told < 2:
        return
    noise = total / rows
    by_machine = told >= ROBUST_FROM  # fewer do not show how they spread
    degrees = told - 1 if by_machine else rows - 1
    quantile = float(stdtrit(degrees, _LIMIT))
    for way, places in _places(columns).items():
        for j in range(m):
            some = [c for c in range(y) if columns.held[c] == j]
            at_some = [places[c] for c in some]
            per = size[at_some] / size[some]  # f(y_c) of a unit of y_c
            unit = per.max()
            acting = T[..., at_some] @ (M[..., some] * (per / unit)).swapaxes(1, 2)
            C = without(acting) * weights[:, None]
            length = float(np.square(C).sum())
            acts = np.square(acting * weights[:, None]).sum()
            if length <= 1e-14 * acts or length == 0:
                continue  # no log can tell it from the law
            gamma = float((C * w).sum()) / length
            variance = noise / length
            if by_machine:  # what γ leaves of their slopes, whatever the noise is like
                slopes = (C * (w - gamma * C)).sum((1, 2))
                variance = max(variance, float(np.square(slopes).sum()) / length**2)
            p_value = float(fdtrc(1, degrees, gamma**2 / variance))
            rate, limit = gamma / unit, (abs(gamma) + quantile * np.sqrt(variance)) / unit
            p_value = min(p_value * len(WAYS) * m, 1.0)
            said, most = ("", abs(rate)) if p_value <= CURVED else (_NOT_EXCLUDED, limit)
            sentence = said + _SENTENCES[way].format(at(d + j), most)
            state = int(np.square(C).sum((0, 1)).argmax())
            effect = gamma**2 * length / total
            one = Finding("actuator", p_value, effect, 0.0, state, d + j, sentence)
            yield replace(one, way=way, limit=limit)


def _places(columns: Columns) -> dict[str, list[int]]:
    """Where f(y_c) stands for each column c of y."""
    _, _, signs, squares, sizes, steps, turns, fifths, _ = columns.blocks
    starts = [part.start for part in (signs, squares, sizes, sizes, steps)]
    starts += [part.start - columns.acting for part in (turns, fifths)]
    places = {
        way: list(range(start, start + columns.y)) for way, start in zip(WAYS, starts, strict=True)
    }
    return places | {"offset": [sizes.stop - 1] * columns.y}


_NOT_EXCLUDED = "the logs do not exclude that "
_SENTENCES = {
    "signs": "{} loses {:.2g} to friction or a dead zone",
    "squares": "{} is nonlinear, as when actuators saturate or springs harden",
    "sizes": "{} is {:.2g} stronger one way than the other",
    "offset": "{} is off by {:.2g}",
    "steps": "{} changes by {:.2g} of its strength with every step of an episode",
    "turns": "{} has a play of twice {:.2g}",
    "fifths": "{} is nonlinear where it is largest, as when actuators saturate",
}
