"""Whether anything is not linear in a state or input: dry friction, limits, springs that harden.

    z ~ sign Y       dry friction, a dead zone
    z ~ Y |Y|        actuators that saturate, springs that harden, drag
    z ~ [|Y|, 1]     what is not the same both ways; offsets
    z ~ tY           what changes within an episode

z is what a machine's own law leaves, and the columns are without what that law would explain. One
coefficient for all machines: faults are of a make, not of a machine, and a coefficient for each
would leave forty times the freedom to chance. Machines may differ in noise: the rows of each are
weighted by its own, shrunk towards that of all.

A law of its own makes what a machine leaves depend on what comes later, the more the fewer its rows
(Nickell's bias). With n rows and rank y that explains about (y/n)² by itself: measured on noisy
fleets of 12, 24 and 48 rows, 4.5, 0.7 and 0.45 % for y = 3. Half as much again is allowed for. At
0.1 %, none of 360 fleets was found not to be linear that is (of 4 or 40 machines with 12 to 72
rows, with Gaussian noise or Student's t of three degrees).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.machines.lagged_steps import Columns
from contextual_lqr.certificates.model_tests.explained import CURVES, Explained
from contextual_lqr.certificates.model_tests.finding import Finding, at
from contextual_lqr.certificates.model_tests.shared_coefficients import Shared, root_mean_squares

PRIOR = 5.0  # rows that the noise of all counts for in that of one
_BIAS = 1.5


class Usual(NamedTuple):
    """Root mean squares of Y, and of the number of the step, weighted by the squares of Y."""

    sizes: Float[Array, " y"]
    steps: Float[Array, " y"]

    @classmethod
    def of(cls, factors: Array, counts: Array, columns: Columns) -> Usual:
        """Of the rows behind these factors."""
        own, *_, steps, _, _, _ = columns.blocks
        sizes = root_mean_squares(factors, counts, own)
        by_step = root_mean_squares(factors, counts, steps)
        return cls(sizes, by_step / np.where(sizes > 0, sizes, 1.0))


def linearity(found: Explained, usual: Usual, all_of: Columns) -> Iterator[Finding]:
    """What the tests find."""
    y = all_of.y
    for curve, some in zip(CURVES, all_of.blocks[2:-3], strict=True):
        columns = found.curves[..., some.start - 2 * y : some.stop - 2 * y]
        noisy = np.flatnonzero(~found.exact).tolist()
        for r in noisy:
            if (shared := _tested(columns, found, r)) is not None:
                p_value = min(float(shared.p_values[0]) * len(noisy), 1.0)
                yield curved(curve, p_value, shared, r, 0, usual)


def _tested(columns: Array, found: Explained, r: int) -> Shared | None:
    """What columns explain of state r."""
    some = (found.left[:, r] > 0) & (found.free > 0)  # those that say anything
    if not some.any():
        return None
    left, free, rows = found.left[some, r], found.free[some], found.rows[some]
    noise = left.sum() / free.sum()
    weight = 1 / np.sqrt((left + PRIOR * noise) / (free + PRIOR))[:, None, None]
    C, z = ((weight * one[some]).reshape(-1, one.shape[-1]) for one in (columns, found.z[..., [r]]))
    bias = _BIAS * float((found.rank[some] ** 2 / rows).sum() / rows.sum())
    shared = Shared.of(C[:, :0], C, z, int(free.sum()), bias)
    return None if shared is None else shared._replace(size=shared.size * np.sqrt(noise))


def curved(curve: str, p_value: float, shared: Shared, r: int, place: int, usual: Usual) -> Finding:
    """What one of the tests finds about state r, which stands at a place among those tested."""
    y = len(usual.sizes)
    best, effect = int(shared.alone[:, place].argmax()), float(shared.share[place])
    by = f"an offset explains {effect:.0%}"
    if best < y:
        by = f"{_OF.get(curve, curve)}, above all that of {at(best)}, explain {effect:.0%}"
    sentence = f"nonlinear, {_AS[curve]}: {by} of the error in {at(r)}"
    p_value = min(len(CURVES) * p_value, 1.0)
    power = {"squares": 2, "sizes": 1, "steps": 1}.get(curve, 0)
    one = Finding("nonlinear", p_value, effect, float(shared.size[place]), r, None, sentence)
    if best == y:
        return one
    pace = float(usual.steps[best]) if curve == "steps" else 0.0
    return replace(one, regressor=best, power=power, usual=float(usual.sizes[best]), pace=pace)


_OF = {"steps": "products with the step number"}
_AS = {
    "signs": "as with friction",
    "squares": "as when actuators saturate or springs harden",
    "sizes": "as when the two directions differ",
    "steps": "as when machines change within an episode",
}
