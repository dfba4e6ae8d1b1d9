"""What it costs that an input acts late: the controller against one that knows of it.

Where the input j of the step before explains what the law leaves of state r, with one coefficient c
for all machines, the data say

    x'_r = M_r y + c (u⁻_j - β y) + w_r        z_r ~ u⁻_j without its part βy in the step itself

so that row r of [A, B] is M_r - cβ: what the law took for its own, because under feedback u⁻ is
much like y. With u⁻_j as one more state this is a machine as any other, and

    excess = J(K) / J* - 1        J* the least cost of a controller that sees u⁻, too

Only to move the whole column B_j of the estimate one step back would not do: an input that is late
hardly acts in its own step, and such an estimate says that inputs matter little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.certificates.model_tests.finding import Finding
from contextual_lqr.checks import altered
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.solve import optimal_cost, policy_cost
from contextual_lqr.lqr.stationary import Cost, policy_for
from contextual_lqr.lqr.time_varying import TimeVaryingSystem


def with_late_rows(
    findings: Iterable[Finding],
    T: Float[Array, "n k k"],
    size: Float[Array, " k"],
    z: Float[Array, "n k d"],
    without: Callable[[Array], Array],
    d: int,
    y: int,
) -> Iterator[Finding]:
    """Findings with what the data say of an input that acts late.

    As in actuators.py: T are factors, divided by `size`; z what the law leaves of the next states,
    and `without` leaves the same of columns (n, k, q).
    """

    @cache
    def earlier(j: int) -> tuple[Array, Array]:
        """What z is per unit of u⁻_j, and that less its part in the step itself."""
        before = T[..., y + j]
        apart = without(before[..., None])[..., 0]
        length = float(np.square(apart).sum())
        c = np.einsum("nk,nkr->r", apart, z) / length if length > 0 else np.zeros(d)
        beta, *_ = np.linalg.lstsq(T[..., :y].reshape(-1, y), before.ravel(), rcond=None)
        return c * size[-d:], np.append(-beta / size[:y], 1 / size[j])

    for one in findings:
        if one.late is None:
            yield one
        else:
            c, change = earlier(one.late)
            yield replace(one, late_row=tuple((c[one.state] * change).tolist()))


def late_excess(
    j: int,
    findings: Iterable[Finding],
    system: Dynamics,
    gains: Float[Array, "n *steps m d"],
    cost: Cost,
    start: Float[Array, " d"],
) -> Float[Array, " n"]:
    """How far gains are above the best if input j acts late as findings about it say."""
    d, y = gains.shape[-1], gains.shape[-1] + gains.shape[-2]
    change = np.zeros((d, y + 1))
    for one in findings:
        change[one.state] = one.late_row

    def with_state(array: Array, rows: int, columns: int) -> Array:
        return np.pad(array, [(0, 0)] * (array.ndim - 2) + [(0, rows), (0, columns)])

    A, B = with_state(system.A, 1, 1), with_state(system.B, 1, 0)
    A[..., :d, :d] += change[:, :d]
    B[..., :d, :] += change[:, d:y]
    A[..., :d, d], B[..., d, j] = change[:, y], 1.0
    kind = LinearSystem if system.steps is None else TimeVaryingSystem
    late = kind.unchecked(A, B, with_state(system.noise, 1, 1))
    N = None if cost.N is None else with_state(cost.N, 1, 0)
    same, begin = altered(cost, Q=with_state(cost.Q, 1, 1), N=N), np.append(start, 0.0)
    paid = np.asarray(policy_cost(policy_for(same, with_state(gains, 0, 1)), late, same, begin))
    best = np.asarray(optimal_cost(late, same, begin))
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = (paid - best) / np.abs(best)
    return np.where(np.isfinite(excess), np.maximum(excess, 0.0), np.inf)
