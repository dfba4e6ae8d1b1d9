"""What moves a double pendulum, linear in what is not known of it: for `real_pendulum.py`.

    M(q) a + c(q, v) + g(q) + friction(v) = torque,    linear in the unknowns π: torque = Y π

About a nominal machine π₀ of any lengths, with M₀ and a₀, a = a₀ + Σ_j (π_j - π₀_j) ∂a/∂π_j, where
∂a/∂π_j = -M₀⁻¹ Y_j(q, v, a₀): what the features of the speeds are, times the step; those of the
angles are half of that times the step again. All states share one π (`shared=True`). The nominal
machine is a point mass of 0.6 kg at the end of each link at first, and then what was learnt about
it, twice: with that, what is left out of second order in π - π₀ is nothing.
"""

from typing import Any

import numpy as np
from numpy import ndarray as Array
from pendulum_runs import LENGTHS, STEP, Run

import contextual_lqr as clqr

GRAVITY, SMOOTH = 9.81, 0.3  # m/s², and rad/s: below it friction fades
NAMES, TORQUES = ("angle1", "angle2", "speed1", "speed2"), ("torque1", "torque2")
BOUNDS = {"length1": (0.1, 0.5), "length2": (0.1, 0.5)}
PASSES = 3

# Terms of π: the nominal value, and how far a machine may be off it.
MASS, INERTIA, VISCOUS, DRY = (0.6, 0.15), (0.0, 0.01), (0.0, 0.02), (0.0, 0.15)
MASSES = [(("inertia1", "weight1"), MASS), (("inertia2", "weight2"), MASS)]
COUPLING = (("coupling",), MASS)
FRICTION = [(("v1",), VISCOUS), (("v2",), VISCOUS), (("dry1",), DRY), (("dry2",), DRY)]
LINK1, LINK2, ROTOR = ((("a1",), INERTIA), (("a12",), INERTIA), (("a2",), INERTIA))
FORMS = {
    "inertias and weights apart": [
        *(((name,), MASS) for name in ("inertia1", "inertia2", "coupling", "weight1", "weight2")),
        *FRICTION,
    ],
    "a mass and an inertia for each link": [*MASSES, COUPLING, LINK1, LINK2, *FRICTION],
    "the second inertia that of a rotor": [*MASSES, COUPLING, LINK1, ROTOR, *FRICTION],
    "links' inertias and a rotor's": [*MASSES, COUPLING, LINK1, LINK2, ROTOR, *FRICTION],
    "the same, coupled by the second mass": [
        MASSES[0],
        (("inertia2", "weight2", "coupling"), MASS),
        *(LINK1, LINK2, ROTOR),
        *FRICTION,
    ],
}
CHOSEN = "a mass and an inertia for each link"


def _torques(l1: float, l2: float, x: Array, a: Array) -> dict[str, tuple[Array, Array]]:
    """What everything that may be in a machine takes of both torques, for a unit of it."""
    q1, q2, v1, v2 = np.moveaxis(x, -1, 0)
    a1, a2, zero = a[..., 0], a[..., 1], np.zeros_like(x[..., 0])
    c, s, weight = np.cos(q2), np.sin(q2), GRAVITY * l2 * np.sin(q1 + q2)
    return {
        "inertia1": (2 * l1**2 * a1, zero),  # of the elbow and the end, both at l1
        "inertia2": (l2**2 * (a1 + a2),) * 2,
        "coupling": (
            l1 * l2 * (c * (2 * a1 + a2) - s * (2 * v1 + v2) * v2),
            l1 * l2 * (c * a1 + s * v1**2),
        ),
        "weight1": (2 * GRAVITY * l1 * np.sin(q1), zero),
        "weight2": (weight, weight),
        "a1": (a1, zero),
        "a12": (a1 + a2, a1 + a2),
        "a2": (zero, a2),
        "v1": (v1, zero),
        "v2": (zero, v2),
        "dry1": (np.tanh(v1 / SMOOTH), zero),
        "dry2": (zero, np.tanh(v2 / SMOOTH)),
    }


class Model:
    """Features about a nominal machine, and a prior of what machines are off it."""

    def __init__(self, form: str = CHOSEN, nominal: Array | None = None) -> None:
        self.form = FORMS[form]
        expected, off = np.array([size for _, size in self.form]).T
        self.nominal = expected if nominal is None else nominal
        self.dynamics = clqr.FunctionDynamics(
            self.features, NAMES, TORQUES, bounds=BOUNDS, shared=True
        )
        row, spread = np.append(1.0, expected - self.nominal), np.append(0.0, off)
        S = np.diag(np.tile(spread, 4) ** 2)
        self.prior = clqr.Prior(np.kron(np.eye(4), row), [S] * 4)

    def terms(self, lengths: Any, x: Array, a: Array) -> Array:
        """Y (..., 2, p)."""
        each = _torques(*lengths, x, a)
        pairs = [
            np.stack([sum(each[n][i] for n in names) for i in (0, 1)], -1) for names, _ in self.form
        ]
        return np.stack(pairs, -1)

    def _inverse(self, lengths: Any, x: Array) -> tuple[Array, Array]:
        """M₀⁻¹ (..., 2, 2), and the torques without accelerations (..., 2)."""
        zero = np.zeros_like(x[..., :2])
        still = self.terms(lengths, x, zero) @ self.nominal
        columns = [
            self.terms(lengths, x, zero + np.eye(2)[i]) @ self.nominal - still for i in range(2)
        ]
        (m11, m21), (m12, m22) = (np.moveaxis(one, -1, 0) for one in columns)
        inverse = np.stack((np.stack((m22, -m12), -1), np.stack((-m21, m11), -1)), -2)
        return inverse / (m11 * m22 - m12 * m21)[..., None, None], still

    def acceleration(self, lengths: Any, x: Array, u: Array) -> tuple[Array, Array]:
        """That of the nominal machine, and M₀⁻¹."""
        inverse, still = self._inverse(lengths, x)
        return (inverse @ (u - still)[..., None])[..., 0], inverse

    def step(self, lengths: Any, x: Array, u: Array) -> Array:
        """Where the nominal machine is after a step: Runge and Kutta's rule."""

        def rate(x: Array) -> Array:
            return np.concatenate((x[..., 2:], self.acceleration(lengths, x, u)[0]), -1)

        k1 = rate(x)
        k2 = rate(x + STEP / 2 * k1)
        k3 = rate(x + STEP / 2 * k2)
        k4 = rate(x + STEP * k3)
        return x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def features(self, context: Any, x: Array, u: Array) -> Array:
        """(..., 4, 1 + p): of each state, where the nominal machine goes, and what π changes."""
        lengths = context["length1"], context["length2"]
        after = self.step(lengths, x, u)
        middle = (x + after) / 2
        a, inverse = self.acceleration(lengths, middle, u)
        push = -STEP * inverse @ self.terms(lengths, middle, a)  # (..., 2, p), on the speeds
        both = np.concatenate((STEP / 2 * push, push), -2)
        return np.concatenate((after[..., None], both), -1)

    def learnt(self, runs: list[Run], deviations: Any) -> clqr.Decoder:
        """What these runs teach; each build is a machine."""
        decoder = clqr.Decoder(self.dynamics, prior=self.prior, deviations=deviations)
        for run in runs:
            played = clqr.Trajectory(run.smooth, run.torques)
            decoder.update(context_of(run.build), played, machine=run.build)
        return decoder


def context_of(build: str) -> dict[str, float]:
    """The lengths of its links."""
    return dict(zip(BOUNDS, LENGTHS[build], strict=True))


def nominal_of(runs: list[Run], form: str = CHOSEN) -> Array:
    """What was learnt about the masses of 0.6 kg, and then about what was learnt."""
    nominal = None
    for _ in range(PASSES - 1):
        model = Model(form, nominal)
        law = model.learnt(runs, None).estimate[0, 1 : 1 + len(model.nominal)]
        nominal = model.nominal + law
    assert nominal is not None
    return nominal


def learnt(runs: list[Run], deviations: Any = "estimated", form: str = CHOSEN) -> clqr.Decoder:
    """What these runs teach, about the machine that they teach themselves."""
    return Model(form, nominal_of(runs, form)).learnt(runs, deviations)


# What the makers identified: m1, m2, r1, r2, I1, I2; no friction.
MAKERS = {
    "A.0": (0.559, 0.604, 0.300, 0.184, 0.0535, 0.0239),
    "C.0": (0.642, 0.564, 0.200, 0.321, 0.0267, 0.0539),
    "C.1": (0.523, 0.626, 0.200, 0.256, 0.0319, 0.0509),
}


def makers_step(build: str, x: Array, u: Array) -> Array:
    """As the makers' model of this build says."""
    m1, m2, r1, r2, i1, i2 = MAKERS[build]
    l1, l2 = LENGTHS[build]
    inertias = [(i1 + m2 * l1**2) / (2 * l1**2), i2 / l2**2, m2 * r2 / l2]
    pi = np.array([*inertias, (m1 * r1 + m2 * l1) / (2 * l1), m2 * r2 / l2, *[0.0] * 4])
    with np.errstate(all="ignore"):
        return Model("inertias and weights apart", pi).step((l1, l2), x, u)
