"""The paper's experiment: push objects of different mass along a path.

State [1, position (2), velocity (2)], input a force (2), context the mass m:

    position' = position + velocity,   velocity' = decay · velocity + force / m

The cost is Σ ‖position - target‖² + ‖force‖². The constant first coordinate makes the distance to a
target a quadratic form of the state; it has no noise, so it stays exactly 1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.checks import as_numbers, frozen, require
from contextual_lqr.context import BlockContext
from contextual_lqr.fleets.fleet import Fleet
from contextual_lqr.lqr.problem import QuadraticCost


def path_following(
    path: str | ArrayLike = "circle",
    decay: float = 0.7,
    horizon: int = 20,
    noise: float = 1e-4,
    masses: tuple[float, float] = (0.1, 10.0),
    start: str | ArrayLike = "path",
    closed_curves: Literal["turn", "literal"] = "turn",
) -> Fleet:
    """The path-following fleet of the paper's appendix.

    `path` is "circle", "parabola", "lemniscate", or (horizon, 2) targets; `noise` is the variance
    of each physical coordinate; `start` is "path" (at rest on the first target), "origin", or a
    state. A closed curve is traversed once, angle 2πt; "literal" takes the paper literally: angle
    t.
    """
    require(0 < decay <= 1, f"decay must be above 0 and at most 1, not {decay!r}")
    require(
        0 <= noise < np.inf, f"noise must be a variance, finite and not negative, not {noise!r}"
    )
    low, high = masses
    require(0 < low <= high < np.inf, f"masses must be 0 < low <= high, not {masses!r}")
    targets = _targets(path, horizon, closed_curves)
    k = decay
    theta = np.array(
        [
            [1, 0, 0, 0, 0, 0, 0],
            [0, 1, 0, 1, 0, 0, 0],
            [0, 0, 1, 0, 1, 0, 0],
            [0, 0, 0, k, 0, 1, 0],
            [0, 0, 0, 0, k, 0, 1],
        ],
        float,
    )

    def sample_mass(rng: np.random.Generator) -> dict[str, float]:
        return {"mass": float(rng.uniform(low, high))}

    return Fleet(
        context_map=BlockContext(
            np.eye(5), [["1/mass", 0], [0, "1/mass"]], bounds={"mass": masses}
        ),
        cost=QuadraticCost(_distance(targets), np.broadcast_to(np.eye(2), (horizon - 1, 2, 2))),
        start=_start(start, targets),
        noise=np.diag([0, noise, noise, noise, noise]),
        sample_context=sample_mass,
        _truth=theta,
        states=("constant", "x [m]", "y [m]", "x rate [m/step]", "y rate [m/step]"),
        inputs=("x force", "y force"),
        units={"mass": "kg"},
    )


def _targets(path: str | ArrayLike, horizon: int, closed_curves: str) -> Float[Array, "H 2"]:
    require(horizon >= 2, f"horizon must be at least 2, not {horizon!r}")
    require(
        closed_curves in ("turn", "literal"),
        f'closed_curves must be "turn" or "literal", not {closed_curves!r}',
    )
    t = np.arange(1, horizon + 1) / horizon  # the ends of `horizon` equal parts of [0, 1]
    s = 2 * np.pi * t if closed_curves == "turn" else t
    if isinstance(path, str):
        known = {
            "circle": (np.cos(s), np.sin(s)),
            "parabola": (t, t**2),
            "lemniscate": (
                np.cos(s) / (1 + np.sin(s) ** 2),
                np.sin(s) * np.cos(s) / (1 + np.sin(s) ** 2),
            ),
        }
        require(path in known, f"path must be one of {', '.join(known)}, or an array, not {path!r}")
        return np.stack(known[path], axis=1)
    targets = as_numbers("path", path, "(horizon, 2)", 2)
    require(
        targets.shape == (horizon, 2), f"path must have shape ({horizon}, 2), not {targets.shape}"
    )
    return targets


def _distance(targets: Float[Array, "H 2"]) -> Float[Array, "H 5 5"]:
    """Q with xᵀ Q x = ‖position - target‖² for a state whose first coordinate is 1."""
    Q = np.zeros((len(targets), 5, 5))
    Q[:, 0, 0] = (targets**2).sum(1)
    Q[:, 0, 1:3] = Q[:, 1:3, 0] = -targets
    Q[:, 1:3, 1:3] = np.eye(2)
    return Q


def _start(start: str | ArrayLike, targets: Float[Array, "H 2"]) -> Float[Array, " 5"]:
    if isinstance(start, str):
        require(
            start in ("path", "origin"), f'start must be "path", "origin" or a state, not {start!r}'
        )
        position = targets[0] if start == "path" else np.zeros(2)
        return np.array([1, *position, 0, 0], float)
    state = as_numbers("start", start, "(5,)", 1)
    require(
        state.shape == (5,) and state[0] == 1,
        f"start must be 5 numbers, the first 1, not {start!r}",
    )
    return frozen(state)
