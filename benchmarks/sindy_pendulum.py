"""PySINDy's ParameterizedLibrary on the runs of `real_pendulum.py`: called by it, prints medians.

The features are those of the decoder, about the same nominal machine, with both links of 0.25 m,
for PySINDy has parameters beside features and not in them; the length of the first link, which
tells that of the second, is its parameter: each feature counts as it is, and times the length.
"""

import json
import sys

import numpy as np
import pysindy as ps

GRAVITY, SMOOTH, STEP, LENGTH = 9.81, 0.3, 0.01, 0.25
AHEAD = (10, 25, 50)
given = np.load(sys.argv[1])


def terms(q1, q2, v1, v2, a1, a2):
    """The torques that accelerations take, for each of nine unknowns."""
    c, s, zero = np.cos(q2), np.sin(q2), 0 * q1
    square, weight = LENGTH**2, GRAVITY * LENGTH * np.sin(q1 + q2)
    second = square * (a1 + a2) + weight
    return [
        (2 * square * a1 + 2 * GRAVITY * LENGTH * np.sin(q1), zero),
        (second, second),
        (square * (c * (2 * a1 + a2) - s * (2 * v1 + v2) * v2), square * (c * a1 + s * v1**2)),
        (a1, zero),
        (a1 + a2, a1 + a2),
        (v1, zero),
        (zero, v2),
        (np.tanh(v1 / SMOOTH), zero),
        (zero, np.tanh(v2 / SMOOTH)),
    ]


def nominal(*of):
    """The torques that the nominal machine takes."""
    return np.tensordot(given["nominal"], np.array(terms(*of)), 1)


def pushes(q1, q2, v1, v2, t1, t2):
    """M0^-1 times each term, and the acceleration of the nominal machine: 20 columns."""
    one, none = 1 + 0 * q1, 0 * q1
    still = nominal(q1, q2, v1, v2, none, none)
    first = nominal(q1, q2, v1, v2, one, none) - still
    second = nominal(q1, q2, v1, v2, none, one) - still
    det = first[0] * second[1] - first[1] * second[0]

    def solved(f):
        return (
            (second[1] * f[0] - second[0] * f[1]) / det,
            (first[0] * f[1] - first[1] * f[0]) / det,
        )

    a = solved((t1 - still[0], t2 - still[1]))
    return [*a, *(x for term in terms(q1, q2, v1, v2, *a) for x in solved(term))]


last = {}


def feature(k):
    """The k-th of them, times the step; all are computed at once."""

    def one(q1, q2, v1, v2, t1, t2):  # whose arguments PySINDy counts
        y = [np.asarray(x) for x in (q1, q2, v1, v2, t1, t2)]
        key = tuple(x.tobytes() for x in y)
        if last.get("key") != key:
            last.update(key=key, found=pushes(*y))
        return STEP * last["found"][k]

    return one


library = ps.ParameterizedLibrary(
    feature_library=ps.CustomLibrary([lambda x: x, *(feature(k) for k in range(20))]),
    parameter_library=ps.PolynomialLibrary(degree=1, include_bias=True),
    num_features=6,
    num_parameters=1,
)


def part(kind):
    """The runs of a kind: smoothed, as known at the time, raw, and torques with the length."""
    found, i = [], 0
    while f"{kind}{i}_smooth" in given:
        u = given[f"{kind}{i}_torques"]
        u = np.concatenate((u, np.full((len(u), 1), given[f"{kind}{i}_length"])), 1)
        found.append((*(given[f"{kind}{i}_{k}"] for k in ("smooth", "now", "raw")), u))
        i += 1
    return found


old, new = part("old"), part("new")
model = ps.DiscreteSINDy(optimizer=ps.STLSQ(threshold=0.0, alpha=1e-6), feature_library=library)
model.fit(
    [x[:-1] for x, _, _, _ in old],
    t=1,
    x_next=[x[1:] for x, _, _, _ in old],
    u=[u for _, _, _, u in old],
)
errors = {steps: [] for steps in AHEAD}
for _, now, raw, u in new:
    at = np.arange(5, len(now) - max(AHEAD), 5)
    x = now[at]
    for h in range(max(AHEAD)):
        with np.errstate(all="ignore"):
            x = np.nan_to_num(np.clip(model.predict(x, u=u[at + h]), -50, 50))
        if h + 1 in AHEAD:
            errors[h + 1].append(np.linalg.norm(x[:, :2] - raw[at + h + 1, :2], axis=1))
print(json.dumps([float(np.median(np.concatenate(errors[steps]))) for steps in AHEAD]))
