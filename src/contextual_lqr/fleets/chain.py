"""A chain of n equal masses between two walls, joined by springs and dampers: the scaling fleet.

State [displacements (m), velocities (m/s)], 2 n of them; inputs forces (N) on the first and the
last mass. With mass m, stiffness k and damping c of every joint, and T the n × n matrix with 2 on
the diagonal and -1 beside it,

    displacement'' = -(k/m) T displacement - (c/m) T velocity + force / m

which is Newton's law, and in any textbook on vibrations. It is affine in 1, k/m, c/m and 1/m. One
step of it, exp(A dt), is so nearly. What comes first in the rest is given to the columns that feel
it: velocities have k/m besides c/m, because a spring acts within the step, and forces k/m².
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.checks import require
from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.fleets.physics import by_column, checked_ranges, physical_fleet


def chain(
    n: int = 5,
    mass: tuple[float, float] = (0.5, 2.0),
    stiffness: tuple[float, float] = (0.5, 1.5),
    damping: tuple[float, float] = (0.05, 0.2),
    dt: float = 0.2,
    horizon: int = 30,
    noise: float = 0.005,
) -> Fleet:
    """Masses (kg), springs (N/m), dampers (N s/m); `noise` is the standard deviation of a state."""
    require(n >= 1 and n == int(n), f"n must be a whole number of at least 1, not {n!r}")
    ranges = checked_ranges({"mass": mass, "stiffness": stiffness, "damping": damping})
    stiff, damp = "stiffness/mass", "damping/mass"
    T = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    pushed = np.eye(n)[:, [0, -1]] if n > 1 else np.eye(1)

    def equations(context: Mapping[str, float]) -> tuple[Array, Array]:
        m, k, c = context["mass"], context["stiffness"], context["damping"]
        A = np.block([[np.zeros((n, n)), np.eye(n)], [-k / m * T, -c / m * T]])
        return A, np.vstack((np.zeros_like(pushed), pushed / m))

    d, m = 2 * n, pushed.shape[1]
    context_map = by_column(
        states=n * [["1", stiff]] + n * [["1", damp, stiff]],
        inputs=m * [["1/mass", "stiffness/mass**2"]],
        bounds=ranges,
    )
    return physical_fleet(
        equations,
        context_map,
        dt,
        horizon,
        noise,
        weights=(np.ones(d), np.full(m, 0.1)),
        start=np.concatenate((np.sin(np.pi * np.arange(1, n + 1) / (n + 1)), np.zeros(n))),
        states=(
            *(f"displacement {i + 1} [m]" for i in range(n)),
            *(f"velocity {i + 1} [m/s]" for i in range(n)),
        ),
        inputs=("force on the first [N]", "force on the last [N]")[:m],
        units={"mass": "kg", "stiffness": "N/m", "damping": "N s/m"},
        state_limit=(5.0,) * d,
    )
