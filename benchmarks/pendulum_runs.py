"""The runs of a real double pendulum in three builds, every 10 ms: for `real_pendulum.py`.

They are in data/double-pendulum.parquet; data/README.md says whose they are.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy import ndarray as Array
from numpy.lib.stride_tricks import sliding_window_view

DATA = Path(__file__).parent / "data" / "double-pendulum.parquet"
STEP, FINE = 0.01, 0.002  # s: of a prediction, and of the logs
LENGTHS = {"A.0": (0.3, 0.2), "C.0": (0.2, 0.3), "C.1": (0.2, 0.3)}  # m, of both links


class Run(NamedTuple):
    """A run every 10 ms: smoothed over 60 ms, as known at the time, as measured, and torques."""

    build: str
    name: str
    smooth: Array  # (n, 4), from 30 ms on either side: to learn from
    now: Array  # (n, 4), from the 30 ms before: where predictions begin
    raw: Array  # (n, 4)
    torques: Array  # (n-1, 2), means over a step

    def part(self, rows: slice) -> "Run":
        """Some of its time."""
        n = len(self.smooth[rows])
        kept = (part[rows] for part in (self.smooth, self.now, self.raw))
        return Run(self.build, self.name, *kept, self.torques[rows][: n - 1])


def load() -> list[Run]:
    """All runs."""
    table, found = pl.read_parquet(DATA), []
    for (build, name), one in table.group_by(["design", "run"], maintain_order=True):
        stamps = one["time"].to_numpy()
        grid = np.arange(0.0, stamps[-1], FINE)
        q, v, u = (
            np.stack([one[f"{what}{i}"].to_numpy().astype(float) for i in (1, 2)], 1)
            for what in ("angle", "speed", "torque")
        )
        v[1:-1] = np.median([v[:-2], v[1:-1], v[2:]], axis=0)  # single samples that jump
        q, v = (np.stack([np.interp(grid, stamps, x) for x in part.T], 1) for part in (q, v))
        work = np.cumsum((u[1:] + u[:-1]) / 2 * np.diff(stamps)[:, None], 0)
        work = np.concatenate((np.zeros((1, 2)), work))
        at = np.arange(50, len(grid) - 50, round(STEP / FINE))
        total = np.stack([np.interp(grid[at], stamps, x) for x in work.T], 1)
        raw = np.concatenate((q, v), 1)
        found.append(
            Run(
                build,
                name,
                _fitted(q, v, at, 15, 15, 4),
                _fitted(q, v, at, 15, 0, 2),
                raw[at],
                np.diff(total, axis=0) / STEP,
            )
        )
    return found


def _fitted(q: Array, v: Array, at: Array, back: int, on: int, degree: int) -> Array:
    """Angles and speeds by polynomials through both, an error of 0.1 rad/s as bad as 0.2 mrad."""
    s = FINE * np.arange(-back, on + 1)
    P = np.vander(s, degree + 1, increasing=True)
    D = np.zeros_like(P)
    D[:, 1:] = P[:, :-1] * np.arange(1, degree + 1)
    weights = np.linalg.pinv(np.concatenate((P, 0.002 * D)))[:2]  # of the value and the slope
    both = np.concatenate(
        [sliding_window_view(x, len(s), axis=0)[at - back] for x in (q, 0.002 * v)], -1
    )
    return np.concatenate([both @ row for row in weights], -1)


def splits(runs: list[Run]) -> dict[str, tuple[list[Run], list[Run]]]:
    """What is learnt from, and what is predicted."""
    found = {}
    for name, old in (("runs 2 and 3, from 0 and 1", "01"), ("runs 1 and 3, from 0 and 2", "02")):
        learnt = [run for run in runs if run.name[-1] in old]
        found[name] = learnt, [run for run in runs if run.name[-1] not in old]
    for build in LENGTHS:
        others = [run for run in runs if run.build != build]
        found[f"{build}, from the other two"] = others, [r for r in runs if r.build == build]
    return found
