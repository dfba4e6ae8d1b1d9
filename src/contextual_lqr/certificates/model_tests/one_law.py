"""Whether a fleet's data contradict one law for all machines, x' = Θ z + w with z = G y."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray as Array

from contextual_lqr.belief.machines.lagged_steps import Columns
from contextual_lqr.certificates.model_tests.actuators import actuators
from contextual_lqr.certificates.model_tests.explained import CURVES, EXACT, Law, in_units
from contextual_lqr.certificates.model_tests.finding import LEVEL, Finding, Kind, at
from contextual_lqr.certificates.model_tests.late_inputs import with_late_rows
from contextual_lqr.certificates.model_tests.linearity import Usual, curved
from contextual_lqr.certificates.model_tests.shared_coefficients import Shared, by_state, span


def of_one_law(
    factors: Float[Array, "n k k"],
    counts: Int64[Array, " n"],
    matrices: Float[Array, "n p y"],
    columns: Columns,
    *,
    level: float = LEVEL,
) -> list[Finding]:
    """What the tests find if all machines obey one law.

    Whether the step before, or what is not linear, explains anything that z does not: Fisher's F on
    the rows of all machines, [Z, Y⁻, X'], [Z, sign Y, X'] and so on, for which their factors stand.
    """
    k, (p, y), d = factors.shape[1], matrices.shape[1:], columns.states
    # All columns but Y, with Z in its place, reduced once for all tests.
    Z = factors[:, :, :y] @ matrices.swapaxes(1, 2)
    rows = np.concatenate((Z, factors[:, :, y:]), -1).reshape(-1, p + k - y)
    size = np.abs(rows).max(0)
    rows = np.linalg.qr(rows / np.where(size > 0, size, 1.0), mode="r") * size
    _, before, *curves, _, _, _ = (slice(s.start + p - y, s.stop + p - y) for s in columns.blocks)
    law, X = rows[:, :p], rows[:, -d:]
    usual, found = Usual.of(factors, counts, columns), []
    for test, some in (("memory", before), *zip(CURVES, curves, strict=True)):
        shared = Shared.of(law, rows[:, some], X, int(counts.sum()))
        if shared is None:
            continue
        for r, p_value in by_state(shared.p_values, shared.noisy):
            if test == "memory":
                found.append(_memory(p_value, shared, r, d))
            else:
                found.append(curved(test, p_value, shared, r, r, usual))
    found = _of_inputs(found, factors, counts, matrices, columns)
    return sorted((one for one in found if one.p_value <= level), key=lambda one: one.p_value)


def _of_inputs(
    found: list[Finding], factors: Array, counts: Array, matrices: Array, columns: Columns
) -> list[Finding]:
    """What is found, with what the data say of late inputs, and what actuators do."""
    y, d = columns.y, columns.states
    T, G, size = in_units(factors, matrices)
    law = Law.fitted(T, G, d)
    (n, k, _), Z = T.shape, T[..., :y] @ G.swapaxes(1, 2)
    basis, rank = span(Z.reshape(n * k, -1))

    def rest(columns: Array) -> Array:
        rows = columns.reshape(n * k, -1)
        for _ in range(2):
            rows = rows - basis @ (basis.T @ rows)
        return np.asarray(rows.reshape(columns.shape))

    z, free = rest(T[..., -d:]), int(counts.sum()) - rank
    left = np.square(z).sum((0, 1))
    noisy = left > EXACT**2 * np.square(T[..., -d:]).sum((0, 1))
    deviations = np.sqrt(left * noisy / max(free, 1))
    deviations = np.broadcast_to(deviations, (n, d)) * (counts > 0)[:, None]
    return [
        *with_late_rows(found, T, size, z, rest, d, y),
        *actuators(T, size, columns, law.M, z, deviations, rest, free),
    ]


def _memory(p_value: float, shared: Shared, r: int, d: int) -> Finding:
    """What the previous step explains of state r."""
    alone = shared.alone[:, r]
    best, effect = int(alone.argmax()), float(shared.share[r])
    kind: Kind = "memory"
    late = None
    if best >= d and alone[best] > 0.5:
        kind = "late input"
        sentence = (
            f"{at(best)} acts late: {effect:.0%} of the error in {at(r)} "
            "is explained by its value a step earlier"
        )
    else:
        sentence = (
            f"the previous step explains {effect:.0%} of the error in {at(r)}: errors are "
            "correlated, or a state is missing or measured with error"
        )
        also = d + int(alone[d:].argmax())
        late = also if alone[also] > 0.5 else None
    return Finding(kind, p_value, effect, float(shared.size[r]), r, best, sentence, late)
